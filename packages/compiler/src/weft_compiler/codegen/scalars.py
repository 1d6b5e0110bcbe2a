"""IR primitives as LLVM instructions on registers.

A register holds a 16-bit float as a rounded float32. Primitives without an instruction call a
function of
`weft_compiler.codegen.mathematics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_compiler.codegen.float16 import round_half
from weft_compiler.codegen.mathematics import library
from weft_compiler.codegen.rounding import emit_rounding
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import HALVES, Writer, literal, register_type
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_TYPES: Final = (
    dtypes.bool_,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    *(getattr(dtypes, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
_EXACT: Final = frozenset(
    ("neg", "abs", "sign", "minimum", "maximum", "clamp", "floor", "ceil", "trunc", "rint")
)
"""Primitives whose results are exact, so they need no rounding to 16 bits."""


def supports(primitive: str, dtype: DType) -> bool:
    """Return True if machine code exists for a primitive and the type of its operands.

    Args:
      dtype: element type of the last operand; for `cast`, that of the operand or of the result.
    """
    if dtype not in _TYPES:
        return False
    if primitive == "cast":
        return True
    if dtype.is_floating:
        if primitive == "next_after":
            return dtype not in HALVES
        known_value = (_FLOATING, library.FUNCTIONS, library.ITERATED)
        return any(primitive in table for table in known_value)
    if dtype.is_bool:
        return primitive in _BOOLS
    return primitive in _INTEGERS


class Scalars:
    """Writer of applications of primitives.

    Attributes:
      used: the functions that have been called.
    """

    def __init__(self, target: Target, contract: bool) -> None:
        self.target = target
        self.used: set[str] = set()
        self.flags = "contract " if contract else ""
        self.reassociated = "reassoc contract " if contract else ""

    def apply(self, w: Writer, primitive: str, operands: list[str], dtype: DType) -> str:
        """Emit a primitive applied to operands of a type; for `cast` see the method `cast`."""
        if primitive == "where":
            return w.select(operands[0], register_type(dtype), *operands[1:])
        kind = register_type(dtype)
        if dtype.is_bool:
            return _BOOLS[primitive](w, kind, dtype, *operands)
        if dtype.is_integer:
            return _INTEGERS[primitive](w, kind, dtype, *operands)
        if primitive in _FLOATING:
            result = _FLOATING[primitive](self, w, kind, *operands)
        else:
            result = self.function(w, primitive, kind, *operands)
        return self.round_result(w, primitive, result, dtype)

    def round_result(self, w: Writer, primitive: str, result: str, dtype: DType) -> str:
        """Round a result to a 16-bit type; other types are returned unchanged."""
        predicate = primitive in _COMPARISONS or primitive.startswith("is_")
        if dtype not in HALVES or primitive in _EXACT or predicate:
            return result
        return round_half(w, result, dtype, self.target)

    def function(self, w: Writer, name: str, kind: str, *operands: str) -> str:
        """Record that a library function is used, and return its name."""
        full = f"weft.{name}.{'f64' if kind == 'double' else 'f32'}"
        self.used.add(full)
        return w.call(full, kind, *operands)

    def combine(self, w: Writer, primitive: str, old: str, new: str, dtype: DType) -> str:
        """Emit the combination of two values, in any order."""
        rounded = dtype in HALVES and primitive in ("add", "mul")
        if not dtype.is_floating or rounded:
            return self.apply(w, primitive, [old, new], dtype)
        kind = register_type(dtype)
        if primitive in ("add", "mul"):
            return w.put(f"f{primitive} {self.reassociated}{kind} {old}, {new}")
        return w.call(f"llvm.{primitive}.{'f64' if kind == 'double' else 'f32'}", kind, old, new)

    def cast(self, w: Writer, x: str, source: DType, result: DType) -> str:
        """Convert a value to another type."""
        if source is result:
            return x
        source_type, kind = register_type(source), register_type(result)
        if result.is_bool:
            zero = literal(0, source)
            return w.put(
                f"fcmp une {source_type} {x}, {zero}"
                if source.is_floating
                else f"icmp ne {source_type} {x}, 0"
            )
        if not result.is_floating:
            return _to_integer(w, x, source, result)
        if not source.is_floating:
            unsigned = source.is_bool or source.is_unsigned
            x = w.put(f"{'uitofp' if unsigned else 'sitofp'} {source_type} {x} to {kind}")
        elif source_type != kind:
            if result is dtypes.float16:
                x = _narrow_to_odd(w, x)
            else:
                x = w.put(
                    f"{'fpext' if kind == 'double' else 'fptrunc'} {source_type} {x} to {kind}"
                )
        if result not in HALVES or (source in HALVES and source is result):
            return x
        return round_half(w, x, result, self.target)


def _to_integer(w: Writer, x: str, source: DType, result: DType) -> str:
    source_type, kind = register_type(source), register_type(result)
    if source.is_floating:
        instruction = "fptoui" if result.is_unsigned else "fptosi"
        # freeze: conversions out of range yield an arbitrary number instead of poison
        return w.put(f"freeze {kind} {w.put(f'{instruction} {source_type} {x} to {kind}')}")
    if source.size > result.size:
        return w.put(f"trunc {source_type} {x} to {kind}")
    if source.is_bool or source.size < result.size:
        instruction = "zext" if source.is_bool or source.is_unsigned else "sext"
        return w.put(f"{instruction} {source_type} {x} to {kind}")
    return x


def _narrow_to_odd(w: Writer, x: str) -> str:
    """Convert a float64 to float32, rounding to odd; rounding to 16 bits is then exact."""
    rounded = w.put(f"fptrunc double {x} to float")
    restored = w.put(f"fpext float {rounded} to double")
    inexact = w.put(f"zext i1 {w.put(f'fcmp one double {restored}, {x}')} to i32")
    size, magnitude = (
        w.call("llvm.fabs.f64", "double", restored),
        w.call("llvm.fabs.f64", "double", x),
    )
    exceeds = w.put(f"zext i1 {w.put(f'fcmp ogt double {size}, {magnitude}')} to i32")
    bits = w.put(f"sub i32 {w.put(f'bitcast float {rounded} to i32')}, {exceeds}")
    return w.put(f"bitcast i32 {w.put(f'or i32 {bits}, {inexact}')} to float")


# -------------------------------------------------------------------------------- floating point

Floating = Callable[..., str]


def _operator(name: str) -> Floating:
    return lambda s, w, kind, x, y: w.put(f"{name} {s.flags}{kind} {x}, {y}")


def _intrinsic(name: str) -> Floating:
    return lambda s, w, kind, x: w.call(f"llvm.{name}.{_suffix(kind)}", kind, x)


def _compare(condition: str) -> Floating:
    return lambda s, w, kind, x, y: w.put(f"fcmp {condition} {kind} {x}, {y}")


def _suffix(kind: str) -> str:
    return "f64" if kind == "double" else "f32"


def _emit_min(s: Scalars, w: Writer, kind: str, x: str, y: str, condition: str = "olt") -> str:
    lesser = w.select(w.put(f"fcmp {condition} {kind} {x}, {y}"), kind, x, y)
    return w.select(w.put(f"fcmp uno {kind} {x}, {x}"), kind, x, lesser)


def _emit_max(s: Scalars, w: Writer, kind: str, x: str, y: str) -> str:
    return _emit_min(s, w, kind, x, y, "ogt")


def _clamp(s: Scalars, w: Writer, kind: str, x: str, y: str, z: str) -> str:
    return _emit_min(s, w, kind, _emit_max(s, w, kind, x, y), z)


def _sign(s: Scalars, w: Writer, kind: str, x: str) -> str:
    plus, minus = literal(1, dtypes.float64), literal(-1, dtypes.float64)
    zero = literal(0, dtypes.float64)
    non_positive = w.select(w.put(f"fcmp olt {kind} {x}, {zero}"), kind, minus, x)
    result = w.select(w.put(f"fcmp ogt {kind} {x}, {zero}"), kind, plus, non_positive)
    return w.select(w.put(f"fcmp oeq {kind} {x}, {zero}"), kind, zero, result)


def _emit_rounding(name: str) -> Floating:
    return lambda s, w, kind, x: emit_rounding(w, name, kind, x, s.target)


def _trunc_mod(s: Scalars, w: Writer, kind: str, x: str, y: str) -> str:
    # LLVM would lower it to a call of the C library.
    return (
        s.function(w, "fmod", kind, x, y)
        if s.target.freestanding
        else w.put(f"frem {kind} {x}, {y}")
    )


def _floor_mod(s: Scalars, w: Writer, kind: str, x: str, y: str) -> str:
    remainder = _trunc_mod(s, w, kind, x, y)
    zero = literal(0, dtypes.float64)
    negative = w.put(f"fcmp olt {kind} {remainder}, {zero}")
    signs_differ = w.put(f"xor i1 {negative}, {w.put(f'fcmp olt {kind} {y}, {zero}')}")
    transposed = w.put(f"and i1 {signs_differ}, {w.put(f'fcmp one {kind} {remainder}, {zero}')}")
    result = w.select(transposed, kind, w.put(f"fadd {kind} {remainder}, {y}"), remainder)
    none = w.put(f"fcmp oeq {kind} {result}, {zero}")
    return w.select(none, kind, w.call(f"llvm.copysign.{_suffix(kind)}", kind, result, y), result)


def _next_after(s: Scalars, w: Writer, kind: str, x: str, y: str) -> str:
    """Emit `nextafter`: add or subtract 1 in the integers that order numbers of one sign."""
    bits = "i64" if kind == "double" else "i32"
    zero = literal(0, dtypes.float64)
    as_int = w.put(f"bitcast {kind} {x} to {bits}")
    up = w.put(f"fcmp olt {kind} {x}, {y}")
    positive = w.put(f"fcmp ogt {kind} {x}, {zero}")
    step = w.select(w.put(f"xor i1 {up}, {positive}"), bits, "-1", "1")
    moved = w.put(f"bitcast {bits} {w.put(f'add {bits} {as_int}, {step}')} to {kind}")
    smallest = w.call(
        f"llvm.copysign.{_suffix(kind)}", kind, w.put(f"bitcast {bits} 1 to {kind}"), y
    )
    moved = w.select(w.put(f"fcmp oeq {kind} {x}, {zero}"), kind, smallest, moved)
    moved = w.select(w.put(f"fcmp oeq {kind} {x}, {y}"), kind, y, moved)
    return w.select(w.put(f"fcmp uno {kind} {x}, {y}"), kind, w.put(f"fadd {kind} {x}, {y}"), moved)


def _propagate_infinity(condition: str) -> Floating:
    def write(s: Scalars, w: Writer, kind: str, x: str) -> str:
        size = w.call(f"llvm.fabs.{_suffix(kind)}", kind, x)
        return w.put(f"fcmp {condition} {kind} {size}, {literal(float('inf'), dtypes.float64)}")

    return write


_COMPARISONS: Final = {
    "less": ("olt", "slt"),
    "less_equal": ("ole", "sle"),
    "greater": ("ogt", "sgt"),
    "greater_equal": ("oge", "sge"),
    "equal": ("oeq", "eq"),
    "not_equal": ("une", "ne"),
}
_FLOATING: Final[dict[str, Floating]] = {
    "add": _operator("fadd"),
    "sub": _operator("fsub"),
    "mul": _operator("fmul"),
    "div": _operator("fdiv"),
    "trunc_mod": _trunc_mod,
    "floor_mod": _floor_mod,
    "neg": lambda s, w, kind, x: w.put(f"fneg {kind} {x}"),
    "square": lambda s, w, kind, x: w.put(f"fmul {s.flags}{kind} {x}, {x}"),
    "reciprocal": lambda s, w, kind, x: w.put(f"fdiv {kind} {literal(1, dtypes.float64)}, {x}"),
    "sign": _sign,
    "minimum": _emit_min,
    "maximum": _emit_max,
    "clamp": _clamp,
    "abs": _intrinsic("fabs"),
    "sqrt": _intrinsic("sqrt"),
    **{name: _emit_rounding(name) for name in ("floor", "ceil", "trunc", "rint")},
    "next_after": _next_after,
    **{name: _compare(condition) for name, (condition, _) in _COMPARISONS.items()},
    "is_nan": lambda s, w, kind, x: w.put(f"fcmp uno {kind} {x}, {x}"),
    "is_inf": _propagate_infinity("oeq"),
    "is_finite": _propagate_infinity("olt"),
    "where": lambda s, w, kind, *x: "",  # written by `apply`
}

# -------------------------------------------------------------------------------- integers

Integral = Callable[..., str]


def _plain(name: str) -> Integral:
    return lambda w, kind, dtype, x, y: w.put(f"{name} {kind} {x}, {y}")


def _emit_comparison(condition: str) -> Integral:
    def write(w: Writer, kind: str, dtype: DType, x: str, y: str) -> str:
        unsigned = dtype.is_unsigned and condition[0] == "s"
        return w.put(f"icmp {'u' + condition[1:] if unsigned else condition} {kind} {x}, {y}")

    return write


def _limit(name: str) -> Integral:
    def write(w: Writer, kind: str, dtype: DType, x: str, y: str) -> str:
        return w.call(f"llvm.{'u' if dtype.is_unsigned else 's'}{name}.{kind}", kind, x, y)

    return write


def _integer_clamp(w: Writer, kind: str, dtype: DType, x: str, y: str, z: str) -> str:
    return _limit("min")(w, kind, dtype, _limit("max")(w, kind, dtype, x, y), z)


def _shift(w: Writer, kind: str, dtype: DType, x: str, y: str, is_left: bool) -> str:
    count = w.put(f"and {kind} {y}, {8 * dtype.size - 1}")
    right = "lshr" if dtype.is_unsigned else "ashr"
    return w.put(f"{'shl' if is_left else right} {kind} {x}, {count}")


def _safe_divisor(w: Writer, kind: str, dtype: DType, y: str) -> str:
    """Return a divisor that does not trap: 1 instead of 0 and -1."""
    if y.lstrip("-").isdigit() and int(y) not in (0, -1):
        return y
    safe = w.select(w.put(f"icmp eq {kind} {y}, 0"), kind, "1", y)
    if dtype.is_unsigned:
        return safe
    return w.select(w.put(f"icmp eq {kind} {y}, -1"), kind, "1", safe)


def _quotient(w: Writer, kind: str, dtype: DType, x: str, y: str) -> str:
    safe = _safe_divisor(w, kind, dtype, y)
    if dtype.is_unsigned:
        return w.put(f"udiv {kind} {x}, {safe}")
    result = w.put(f"sdiv {kind} {x}, {safe}")
    if safe is y:
        return result
    minus = w.put(f"icmp eq {kind} {y}, -1")
    return w.select(minus, kind, w.put(f"sub {kind} 0, {x}"), result)


def _remainder(w: Writer, kind: str, dtype: DType, x: str, y: str) -> str:
    safe = _safe_divisor(w, kind, dtype, y)
    return w.put(f"{'urem' if dtype.is_unsigned else 'srem'} {kind} {x}, {safe}")


def _has_other_sign(w: Writer, kind: str, remainder: str, y: str) -> str:
    """Emit a test of whether a remainder is not 0 and differs in sign from the divisor."""
    signs_differ = w.put(f"icmp slt {kind} {w.put(f'xor {kind} {remainder}, {y}')}, 0")
    return w.put(f"and i1 {signs_differ}, {w.put(f'icmp ne {kind} {remainder}, 0')}")


def _floor_quotient(w: Writer, kind: str, dtype: DType, x: str, y: str) -> str:
    result = _quotient(w, kind, dtype, x, y)
    if dtype.is_unsigned:
        return result
    down = _has_other_sign(w, kind, _remainder(w, kind, dtype, x, y), y)
    return w.put(f"add {kind} {result}, {w.put(f'sext i1 {down} to {kind}')}")


def _floor_remainder(w: Writer, kind: str, dtype: DType, x: str, y: str) -> str:
    remainder = _remainder(w, kind, dtype, x, y)
    if dtype.is_unsigned:
        return remainder
    moved = w.put(f"add {kind} {remainder}, {y}")
    return w.select(_has_other_sign(w, kind, remainder, y), kind, moved, remainder)


def _integer_power(w: Writer, kind: str, dtype: DType, x: str, y: str) -> str:
    """Emit exponentiation by squaring; negative exponents are exact for -1, 0 and 1 only."""
    result, power, bits = "1", x, y
    for bit in range(8 * dtype.size):
        odd = w.put(f"trunc {kind} {bits} to i1")
        result = w.select(odd, kind, w.put(f"mul {kind} {result}, {power}"), result)
        if bit < 8 * dtype.size - 1:
            power = w.put(f"mul {kind} {power}, {power}")
            bits = w.put(f"lshr {kind} {bits}, 1")
    if dtype.is_unsigned:
        return result
    unit = w.put(f"icmp ult {kind} {w.put(f'add {kind} {x}, 1')}, 3")
    fraction = w.put(f"and i1 {w.put(f'icmp slt {kind} {y}, 0')}, {w.put(f'xor i1 {unit}, true')}")
    return w.select(fraction, kind, "0", result)


def _integer_sign(w: Writer, kind: str, dtype: DType, x: str) -> str:
    non_zero = w.put(f"zext i1 {w.put(f'icmp ne {kind} {x}, 0')} to {kind}")
    if dtype.is_unsigned:
        return non_zero
    return w.select(w.put(f"icmp slt {kind} {x}, 0"), kind, "-1", non_zero)


def _integer_abs(w: Writer, kind: str, dtype: DType, x: str) -> str:
    if dtype.is_unsigned:
        return x
    return w.put(f"call {kind} @llvm.abs.{kind}({kind} {x}, i1 false)")


def _popcount(w: Writer, kind: str, dtype: DType, x: str) -> str:
    count = w.call(f"llvm.ctpop.{kind}", kind, x)
    return count if kind == "i8" else w.put(f"trunc {kind} {count} to i8")


_BITS: Final[dict[str, Integral]] = {
    "bit_and": _plain("and"),
    "bit_or": _plain("or"),
    "bit_xor": _plain("xor"),
    "invert": lambda w, kind, dtype, x: w.put(f"xor {kind} {x}, {'true' if kind == 'i1' else -1}"),
    "equal": _emit_comparison("eq"),
    "not_equal": _emit_comparison("ne"),
    "where": lambda w, kind, dtype, *x: "",  # written by `apply`
}
_BOOLS: Final = _BITS
_INTEGERS: Final[dict[str, Integral]] = {
    **_BITS,
    **{name: _emit_comparison(condition) for name, (_, condition) in _COMPARISONS.items()},
    "add": _plain("add"),
    "sub": _plain("sub"),
    "mul": _plain("mul"),
    "div": _quotient,
    "floor_div": _floor_quotient,
    "floor_mod": _floor_remainder,
    "trunc_mod": _remainder,
    "pow": _integer_power,
    "neg": lambda w, kind, dtype, x: w.put(f"sub {kind} 0, {x}"),
    "abs": _integer_abs,
    "sign": _integer_sign,
    "square": lambda w, kind, dtype, x: w.put(f"mul {kind} {x}, {x}"),
    "reciprocal": lambda w, kind, dtype, x: _quotient(w, kind, dtype, "1", x),
    "minimum": _limit("min"),
    "maximum": _limit("max"),
    "clamp": _integer_clamp,
    "shift_left": lambda w, kind, dtype, x, y: _shift(w, kind, dtype, x, y, True),
    "shift_right": lambda w, kind, dtype, x, y: _shift(w, kind, dtype, x, y, False),
    "popcount": _popcount,
}
