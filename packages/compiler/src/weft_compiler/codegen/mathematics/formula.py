"""Formulas over LLVM registers, written in mathematical notation.

    def square_plus_one(f, x):
        return f.fma(x, x, f.number(1.0))

Operations are those of IEEE 754 with one rounding each, except `fma`, which rounds once or twice
depending on the processor, and `fused`, which rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft_compiler.codegen.rounding import emit_rounding
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import Writer, literal
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A register: a float, a signed integer or a bool."""

    f: Formula
    kind: str
    name: str

    def _operator(self, floating: str, integer: str, other: Value | float) -> Value:
        right = self.f.like(self, other)
        name = floating if self.floating else integer
        return self.f.put(self.kind, f"{name} {self.kind} {self.name}, {right.name}")

    @property
    def floating(self) -> bool:
        """True for floating-point numbers."""
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
        """Arithmetic shift right."""
        return self._operator("", "ashr", other)

    def _compare(self, floating: str, integer: str, other: Value | float) -> Value:
        right = self.f.like(self, other)
        instruction = f"fcmp {floating}" if self.floating else f"icmp {integer}"
        return self.f.put("i1", f"{instruction} {self.kind} {self.name}, {right.name}")

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Value | float) -> Value:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._compare("oge", "sge", other)

    def equals(self, other: Value | float) -> Value:
        """Return the condition that two numbers are equal."""
        return self._compare("oeq", "eq", other)

    def __neg__(self) -> Value:
        if self.floating:
            return self.f.put(self.kind, f"fneg {self.kind} {self.name}")
        return self.f.put(self.kind, f"sub {self.kind} 0, {self.name}")

    def __invert__(self) -> Value:
        return self ^ -1 if self.kind != "i1" else self.f.put("i1", f"xor i1 {self.name}, true")


class Formula:
    """Writer of one function of floats of a type.

    Attributes:
      double: True for float64, False for float32.
      used: the other functions that it calls.
    """

    def __init__(self, double: bool, target: Target) -> None:
        self.w = Writer()
        self.double = double
        self.target = target
        self.used: set[str] = set()
        self.constants: dict[str, str] = {}

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtypes.float64 if self.double else dtypes.float32

    @property
    def kind(self) -> str:
        """Its LLVM type."""
        return "double" if self.double else "float"

    @property
    def bits(self) -> str:
        """The integer type of the same width."""
        return "i64" if self.double else "i32"

    @property
    def mantissa(self) -> int:
        """The number of fraction bits."""
        return 52 if self.double else 23

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return 1023 if self.double else 127

    def put(self, kind: str, instruction: str) -> Value:
        """Emit an instruction and return its result."""
        return Value(self, kind, self.w.put(instruction))

    def number(self, value: float) -> Value:
        """Return a constant."""
        return Value(self, self.kind, literal(value, self.dtype))

    def integer(self, value: int) -> Value:
        """Return a constant integer as wide as the floats."""
        return Value(self, self.bits, str(value))

    def like(self, x: Value, other: Value | float) -> Value:
        """Return a constant in the type of `other`; return a `Value` unchanged."""
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
        """x * y + z, in one instruction if the processor has it."""
        return self._intrinsic("fmuladd", x, y, z)

    def abs(self, x: Value) -> Value:
        """|x|."""
        return self._intrinsic("fabs", x)

    def truncate(self, x: Value) -> Value:
        """Round towards zero and convert to an integer."""
        return Value(self, x.kind, emit_rounding(self.w, "trunc", x.kind, x.name, self.target))

    def sqrt(self, x: Value) -> Value:
        """The square root."""
        return self._intrinsic("sqrt", x)

    def copy_sign(self, x: Value, y: Value) -> Value:
        """Return x, which is not negative, with the sign of y.

        Computed on 64-bit integers: for results that are rounded to float16, LLVM would narrow y of
        a `copysign` with a library function that does not exist in any process.
        """
        if x.kind != "double":
            return self._intrinsic("copysign", x, y)
        return self.of_bits(self.bits_of(x) ^ (self.bits_of(y) & -(1 << 63)))

    def where(self, condition: Value, x: Value | float, y: Value | float) -> Value:
        """Select one of two values."""
        if not isinstance(x, Value):
            x = self.like(y, x) if isinstance(y, Value) else self.number(x)
        y = self.like(x, y)
        return Value(self, x.kind, self.w.select(condition.name, x.kind, x.name, y.name))

    def bool_constant(self, value: bool) -> Value:
        """Return a constant bool."""
        return Value(self, "i1", literal(value, dtypes.bool_))

    def choose(
        self, condition: Value, if_true: Callable[[], Value], if_false: Callable[[], Value]
    ) -> Value:
        """Branch: compute one of two values and not the other."""
        w = self.w
        labels, end = (w.label(), w.label()), w.label()
        w.branch(condition.name, *labels)
        results: list[tuple[Value, str]] = []
        for label, side in zip(labels, (if_true, if_false), strict=True):
            w.begin(label)
            results.append((side(), w.block))
            w.go(end)
        w.begin(end)
        kind = results[0][0].kind
        return self.put(kind, f"phi {kind} " + ", ".join(f"[ {x.name}, %{b} ]" for x, b in results))

    def repeat(
        self, first: Sequence[Value], turn: Callable[..., tuple[Value, Sequence[Value]]]
    ) -> list[Value]:
        """Emit a loop that runs at least once; return the last values.

        Args:
          first: the initial values of the loop-carried values.
          turn: the body; it maps the values to the condition for another iteration and the next
            values.
        """
        w = self.w
        preheader, head, exit_label = w.block, w.label(), w.label()
        w.go(head)
        w.begin(head)
        old = [Value(self, x.kind, w.name()) for x in first]
        line_index = len(w.lines)
        continues, new = turn(*old)
        w.lines[line_index:line_index] = [
            f"  {x.name} = phi {x.kind} [ {start.name}, %{preheader} ], [ {end.name}, %{w.block} ]"
            for x, start, end in zip(old, first, new, strict=True)
        ]
        w.branch(continues.name, head, exit_label)
        w.begin(exit_label)
        return list(new)

    def nan(self, x: Value) -> Value:
        """Return the condition that a number is NaN."""
        return self.put("i1", f"fcmp uno {x.kind} {x.name}, {x.name}")

    def bits_of(self, x: Value) -> Value:
        """Return the bits of a float as an integer."""
        kind = "i64" if x.kind == "double" else "i32"
        return self.put(kind, f"bitcast {x.kind} {x.name} to {kind}")

    def of_bits(self, x: Value) -> Value:
        """Return the float with given bits."""
        kind = "double" if x.kind == "i64" else "float"
        return self.put(kind, f"bitcast {x.kind} {x.name} to {kind}")

    def logical_shift(self, x: Value, indices: int | Value) -> Value:
        """Shift right, filling with zeros."""
        return self.put(x.kind, f"lshr {x.kind} {x.name}, {self.like(x, indices).name}")

    def convert(self, instruction: str, x: Value, kind: str) -> Value:
        """Convert a value to another type by an LLVM instruction."""
        return self.put(kind, f"{instruction} {x.kind} {x.name} to {kind}")

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluate a polynomial by Horner's rule; the constant term comes first."""
        result = self.number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            result = self.fma(result, x, self.number(coefficient))
        return result

    def round_to_nearest(self, x: Value) -> tuple[Value, Value]:
        """Return the nearest integer as float and as integer, for |x| below 2 ** (mantissa - 1)."""
        magic = self.number(1.5 * 2.0**self.mantissa)
        moved = x + magic
        return moved - magic, self.bits_of(moved) - self.bits_of(magic)

    def to_number(self, n: Value) -> Value:
        """Convert a small integer to a float; uses only instructions that old processors have."""
        magic = self.number(1.5 * 2.0**self.mantissa)
        return self.of_bits(n + self.bits_of(magic)) - magic

    def power_of_two(self, n: Value) -> Value:
        """Return 2 ** n for an integer in the exponent range of normal numbers."""
        return self.of_bits((n + self.bias) << self.mantissa)

    def scale_by_power(self, x: Value, n: Value) -> Value:
        """Return x * 2 ** n, which may underflow or overflow."""
        half = n >> 1
        return x * self.power_of_two(half) * self.power_of_two(n - half)

    def two_sum(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Return x + y and its rounding error, for |x| >= |y| or x = 0."""
        total = x + y
        return total, y - (total - x)

    def two_product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Return x * y and its rounding error."""
        product = x * y
        if self.target.has("fma"):
            return product, self._intrinsic("fma", x, y, -product)
        x_high, y_high = self._upper(x), self._upper(y)
        x_low, y_low = x - x_high, y - y_high
        error = x_high * y_high - product + x_high * y_low + x_low * y_high + x_low * y_low
        return product, error

    def _upper(self, x: Value) -> Value:
        """Return a number with the lower half of its fraction bits set to zero."""
        dropped = (self.mantissa + 3) // 2
        return self.of_bits(self.bits_of(x) & (-1 << dropped))

    def call(self, name: str, *operands: Value) -> Value:
        """Call another function of the library."""
        kind = operands[0].kind
        full = f"weft.{name}.{'f64' if kind == 'double' else 'f32'}"
        self.used.add(full)
        return Value(self, kind, self.w.call(full, kind, *(x.name for x in operands)))

    def table(self, name: str, values: Sequence[int]) -> str:
        """Return the address of a constant table of 64-bit integers."""
        signed = [v - (1 << 64) if v >> 63 else v for v in values]
        listed = ", ".join(f"i64 {v}" for v in signed)
        self.constants[name] = f"@{name} = internal constant [{len(values)} x i64] [{listed}]"
        return f"@{name}"

    def entry(self, table: str, point: Value) -> Value:
        """Load an element of a table."""
        address = self.w.put(f"getelementptr i64, ptr {table}, i64 {point.name}")
        return self.put("i64", f"load i64, ptr {address}")
