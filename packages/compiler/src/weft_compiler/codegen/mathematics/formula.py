"""Formulas over registers, for writing functions as mathematics writes them.

    def square_plus_one(f, x):
        return f.fma(x, x, f.number(1.0))

Operations are those of IEEE 754, one rounding each, except `fma`, which has one or two as the
processor has it, and `fused`, which has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft_compiler.codegen.rounding import rounded
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import Writer, literal
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A register: a floating-point number, a signed integer, or a bool."""

    f: Formula
    kind: str
    name: str

    def _operator(self, floating: str, integer: str, other: Value | float) -> Value:
        right = self.f.like(self, other)
        name = floating if self.floating else integer
        return self.f.put(self.kind, f"{name} {self.kind} {self.name}, {right.name}")

    @property
    def floating(self) -> bool:
        """Whether it is a floating-point number."""
        return self.kind in ("float", "double")

    def __add__(self, other: Value | float) -> Value:
        return self._operator("fadd", "add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._operator("fsub", "sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._operator("fmul", "mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._operator("fdiv", "", other)

    def __rsub__(self, other: float) -> Value:
        return self.f.like(self, other) - self

    def __rtruediv__(self, other: float) -> Value:
        return self.f.like(self, other) / self

    def __and__(self, other: Value | int) -> Value:
        return self._operator("", "and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._operator("", "or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._operator("", "xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._operator("", "shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        """Moved down, keeping the sign."""
        return self._operator("", "ashr", other)

    def _compare(self, floating: str, integer: str, other: Value | float) -> Value:
        right = self.f.like(self, other)
        how = f"fcmp {floating}" if self.floating else f"icmp {integer}"
        return self.f.put("i1", f"{how} {self.kind} {self.name}, {right.name}")

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Value | float) -> Value:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._compare("oge", "sge", other)

    def equals(self, other: Value | float) -> Value:
        """Whether two numbers are equal."""
        return self._compare("oeq", "eq", other)

    def __neg__(self) -> Value:
        if self.floating:
            return self.f.put(self.kind, f"fneg {self.kind} {self.name}")
        return self.f.put(self.kind, f"sub {self.kind} 0, {self.name}")

    def __invert__(self) -> Value:
        return self ^ -1 if self.kind != "i1" else self.f.put("i1", f"xor i1 {self.name}, true")


class Formula:
    """Writes one function of floating-point numbers of a type.

    Attributes:
      double: whether they are float64, not float32.
      used: other functions that it calls.
    """

    def __init__(self, double: bool, target: Target) -> None:
        self.w = Writer()
        self.double = double
        self.target = target
        self.used: set[str] = set()
        self.constants: dict[str, str] = {}

    @property
    def dtype(self) -> DType:
        """The type of the numbers."""
        return dtypes.float64 if self.double else dtypes.float32

    @property
    def kind(self) -> str:
        """Their LLVM type."""
        return "double" if self.double else "float"

    @property
    def bits(self) -> str:
        """The integer type that has as many bits."""
        return "i64" if self.double else "i32"

    @property
    def mantissa(self) -> int:
        """How many bits of a number are its fraction."""
        return 52 if self.double else 23

    @property
    def bias(self) -> int:
        """What is added to exponents."""
        return 1023 if self.double else 127

    def put(self, kind: str, instruction: str) -> Value:
        """The result of an instruction."""
        return Value(self, kind, self.w.put(instruction))

    def number(self, value: float) -> Value:
        """A constant."""
        return Value(self, self.kind, literal(value, self.dtype))

    def integer(self, value: int) -> Value:
        """A constant integer as wide as the numbers."""
        return Value(self, self.bits, str(value))

    def like(self, x: Value, other: Value | float) -> Value:
        """A constant of a value's type; a value itself."""
        if isinstance(other, Value):
            return other
        if x.floating:
            dtype = dtypes.float64 if x.kind == "double" else dtypes.float32
            return Value(self, x.kind, literal(other, dtype))
        return Value(self, x.kind, str(int(other)))

    def _intrinsic(self, name: str, *operands: Value) -> Value:
        kind = operands[0].kind
        suffix = {"double": "f64", "float": "f32"}.get(kind, kind)
        return Value(
            self, kind, self.w.call(f"llvm.{name}.{suffix}", kind, *(x.name for x in operands))
        )

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z, in one instruction where there is one."""
        return self._intrinsic("fmuladd", x, y, z)

    def abs(self, x: Value) -> Value:
        """|x|."""
        return self._intrinsic("fabs", x)

    def truncated(self, x: Value) -> Value:
        """Without its fraction."""
        return Value(self, x.kind, rounded(self.w, "trunc", x.kind, x.name, self.target))

    def sqrt(self, x: Value) -> Value:
        """The square root."""
        return self._intrinsic("sqrt", x)

    def with_sign(self, x: Value, y: Value) -> Value:
        """x, which is not below zero, with the sign of y.

        By bits where they are 64: of a result that is rounded to float16 LLVM would round the y
        of a `copysign` too, by a function that no process has.
        """
        if x.kind != "double":
            return self._intrinsic("copysign", x, y)
        return self.of_bits(self.bits_of(x) ^ (self.bits_of(y) & -(1 << 63)))

    def where(self, condition: Value, x: Value | float, y: Value | float) -> Value:
        """One of two."""
        if not isinstance(x, Value):
            x = self.like(y, x) if isinstance(y, Value) else self.number(x)
        y = self.like(x, y)
        return Value(self, x.kind, self.w.select(condition.name, x.kind, x.name, y.name))

    def truth(self, value: bool) -> Value:
        """A constant bool."""
        return Value(self, "i1", literal(value, dtypes.bool_))

    def choose(
        self, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]
    ) -> Value:
        """One of two, the other of which is not computed."""
        w = self.w
        labels, done = (w.label(), w.label()), w.label()
        w.branch(condition.name, *labels)
        found: list[tuple[Value, str]] = []
        for label, side in zip(labels, (then, otherwise), strict=True):
            w.begin(label)
            found.append((side(), w.block))
            w.go(done)
        w.begin(done)
        kind = found[0][0].kind
        return self.put(kind, f"phi {kind} " + ", ".join(f"[ {x.name}, %{b} ]" for x, b in found))

    def repeat(
        self, first: Sequence[Value], turn: Callable[..., tuple[Value, Sequence[Value]]]
    ) -> list[Value]:
        """Values after turns: at least one, and more as long as a condition holds.

        Args:
          first: what they are before.
          turn: from them to whether another turn follows, and what they become.
        """
        w = self.w
        before, head, done = w.block, w.label(), w.label()
        w.go(head)
        w.begin(head)
        old = [Value(self, x.kind, w.name()) for x in first]
        at = len(w.lines)
        again, new = turn(*old)
        w.lines[at:at] = [
            f"  {x.name} = phi {x.kind} [ {start.name}, %{before} ], [ {end.name}, %{w.block} ]"
            for x, start, end in zip(old, first, new, strict=True)
        ]
        w.branch(again.name, head, done)
        w.begin(done)
        return list(new)

    def nan(self, x: Value) -> Value:
        """Whether it is NaN."""
        return self.put("i1", f"fcmp uno {x.kind} {x.name}, {x.name}")

    def bits_of(self, x: Value) -> Value:
        """Its bits as an integer."""
        kind = "i64" if x.kind == "double" else "i32"
        return self.put(kind, f"bitcast {x.kind} {x.name} to {kind}")

    def of_bits(self, x: Value) -> Value:
        """The number that bits stand for."""
        kind = "double" if x.kind == "i64" else "float"
        return self.put(kind, f"bitcast {x.kind} {x.name} to {kind}")

    def logical_shift(self, x: Value, places: int | Value) -> Value:
        """Bits moved down, with zeros behind them."""
        return self.put(x.kind, f"lshr {x.kind} {x.name}, {self.like(x, places).name}")

    def convert(self, how: str, x: Value, kind: str) -> Value:
        """A value as another type, by an instruction of LLVM."""
        return self.put(kind, f"{how} {x.kind} {x.name} to {kind}")

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """A polynomial, its constant term first, by Horner's rule."""
        result = self.number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            result = self.fma(result, x, self.number(coefficient))
        return result

    def nearest(self, x: Value) -> tuple[Value, Value]:
        """The nearest integer as a number and as an integer; |x| below half of 2 ** mantissa."""
        magic = self.number(1.5 * 2.0**self.mantissa)
        moved = x + magic
        return moved - magic, self.bits_of(moved) - self.bits_of(magic)

    def to_number(self, n: Value) -> Value:
        """A small integer as a number, without an instruction that old processors lack."""
        magic = self.number(1.5 * 2.0**self.mantissa)
        return self.of_bits(n + self.bits_of(magic)) - magic

    def power_of_two(self, n: Value) -> Value:
        """2 ** n for an integer; of exponents that normal numbers have."""
        return self.of_bits((n + self.bias) << self.mantissa)

    def scaled(self, x: Value, n: Value) -> Value:
        """x * 2 ** n, also where the result is near zero or too large."""
        half = n >> 1
        return x * self.power_of_two(half) * self.power_of_two(n - half)

    def two_sum(self, x: Value, y: Value) -> tuple[Value, Value]:
        """x + y and its error, where |x| >= |y| or x is 0."""
        total = x + y
        return total, y - (total - x)

    def two_product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """x * y and its error."""
        product = x * y
        if self.target.has("fma"):
            return product, self._intrinsic("fma", x, y, -product)
        x_high, y_high = self._upper(x), self._upper(y)
        x_low, y_low = x - x_high, y - y_high
        error = x_high * y_high - product + x_high * y_low + x_low * y_high + x_low * y_low
        return product, error

    def _upper(self, x: Value) -> Value:
        """A number with the first half of its bits."""
        dropped = (self.mantissa + 3) // 2
        return self.of_bits(self.bits_of(x) & (-1 << dropped))

    def call(self, name: str, *operands: Value) -> Value:
        """Another function of the library."""
        kind = operands[0].kind
        full = f"weft.{name}.{'f64' if kind == 'double' else 'f32'}"
        self.used.add(full)
        return Value(self, kind, self.w.call(full, kind, *(x.name for x in operands)))

    def table(self, name: str, values: Sequence[int]) -> str:
        """A constant table of 64-bit integers; its address."""
        signed = [v - (1 << 64) if v >> 63 else v for v in values]
        listed = ", ".join(f"i64 {v}" for v in signed)
        self.constants[name] = f"@{name} = internal constant [{len(values)} x i64] [{listed}]"
        return f"@{name}"

    def entry(self, table: str, at: Value) -> Value:
        """An element of a table."""
        address = self.w.put(f"getelementptr i64, ptr {table}, i64 {at.name}")
        return self.put("i64", f"load i64, ptr {address}")
