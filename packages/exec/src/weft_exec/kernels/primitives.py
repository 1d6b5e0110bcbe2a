"""CPU implementations of the primitives of scalar definitions."""

from __future__ import annotations

import operator
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.kernels import bessel, probability, special
from weft_exec.kernels.common import Array, Function, broadcast_shape, choose_into
from weft_graph.ir.scalar import Scalar
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


class Computation(NamedTuple):
    """Implementations of the application of a primitive.

    Attributes:
      array: for arrays or NumPy scalars; called like a ufunc, where `out` may be None.
      scalar: for NumPy scalars, if that is faster.
      into: for arrays; writes to `out`.
    """

    array: Function
    scalar: Function | None
    into: Function


def computation(part: Scalar, op: str) -> Computation:
    """Return the implementations of the application of a primitive.

    Args:
      op: the op type, for messages about rejected operands.
    """
    name, dtype = part.name, part.args[-1].dtype
    if name == "where":
        return Computation(np.where, _choice, _choose_into)
    if name == "clamp":
        return Computation(_clamp, None, np.clip)
    if name == "cast":
        convert = _conversion(dtype, part.dtype)
        return Computation(convert, _scalar_conversion(dtype, part.dtype), convert)
    if name == "complex":
        function, of_scalars = _complex_of(part.dtype.numpy), None
    elif name == "popcount":
        function, of_scalars = _bits_set(np.dtype(f"u{dtype.size}")), None
    else:
        table = _OF_INTEGERS if dtype.is_integer else _OF_BOOLS if dtype.is_bool else _UFUNCS
        function, of_scalars = table.get(name) or _UFUNCS[name]
        if name == "abs" and dtype.is_complex:
            of_scalars = None  # Python's differs from NumPy's in the last bit
    refuse = _REFUSALS.get(name) if dtype.is_integer else None
    if refuse is not None and not (name == "pow" and dtype.is_unsigned):
        function = refuse(function, op)
        of_scalars = None if of_scalars is None else refuse(of_scalars, op)
    return Computation(function, of_scalars, function)


# ------------------------------------------------------------------- choice and bounds


def _choice(condition: Any, t: Any, e: Any) -> Any:
    return t if condition else e


def _choose_into(condition: Array, t: Array, e: Array, out: Array) -> None:
    if out is e and not condition.any():  # such as exceptions for a divisor of 0
        return
    choose_into(condition, t, e, out)


def _clamp(x: Any, low: Any, high: Any) -> Any:
    # On small arrays `np.clip` takes four times as long.
    return np.minimum(np.maximum(x, low), high)


MANY: Final = 1 << 12
"""Minimum number of elements for which clamping at both ends is faster in NumPy than at one end."""
_INFINITIES: Final = {code: np.array(np.inf, code) for code in "fd"}


def maximum(x: Any, y: Any, out: Array | None = None) -> Any:
    """Compute `np.maximum` in the fastest way."""
    if x.size < MANY or y.ndim or x.dtype.char not in _INFINITIES:
        return np.maximum(x, y, out=out)
    return x.clip(y, _INFINITIES[x.dtype.char], out=out)


def minimum(x: Any, y: Any, out: Array | None = None) -> Any:
    """Compute `np.minimum` in the fastest way."""
    if x.size < MANY or y.ndim or x.dtype.char not in _INFINITIES:
        return np.minimum(x, y, out=out)
    return x.clip(-_INFINITIES[x.dtype.char], y, out=out)


# ------------------------------------------------------------------------- conversions


def _conversion(source: DType, target: DType) -> Function:
    dtype = target.numpy
    if source.is_complex and target.is_bool:
        return lambda x, out=None: np.not_equal(x, 0, out=out)
    drops = source.is_complex and not target.is_complex
    # NumPy and ml_dtypes do not convert every pair directly; these types hold all values of either.
    intermediate: Any = np.float32 if drops and target is dtypes.bfloat16 else None
    if target.is_small and (source.is_small or drops):
        intermediate = np.int8 if source.is_integer and target.is_integer else np.float32

    def convert(x: Any, out: Array | None = None) -> Any:
        if drops:
            x = x.real
        if intermediate is not None:
            x = x.astype(intermediate)
        if out is None:
            return x.astype(dtype)
        np.copyto(out, x, casting="unsafe")
        return out

    return convert


def _scalar_conversion(source: DType, target: DType) -> Function | None:
    # Python's constructors reject NaN and infinities.
    plain = target.is_floating and not source.is_complex
    function: Function | None = target.numpy.type if plain else None
    return function


# --------------------------------------------------------------------- parts and bits


def _complex_of(dtype: np.dtype[Any]) -> Function:
    def join(real: Any, imag: Any, out: Array | None = None) -> Any:
        if out is None:
            out = np.empty(broadcast_shape(real, imag), dtype)
        out.real = real
        out.imag = imag
        return out

    return join


def _angle(x: Any, out: Array | None = None) -> Any:
    return np.arctan2(x.imag, x.real, out=out)


def _real(x: Any, out: Array | None = None) -> Any:
    if out is None:
        return x.real
    np.copyto(out, x.real)
    return out


def _imag(x: Any, out: Array | None = None) -> Any:
    if out is None:
        return x.imag
    np.copyto(out, x.imag)
    return out


def _bits_set(unsigned: np.dtype[Any]) -> Function:
    # NumPy counts the bits of absolute values.
    return lambda x, out=None: np.bitwise_count(x.view(unsigned), out=out)


def _trunc(x: Any, out: Array | None = None) -> Any:
    if x.dtype.kind != "c":
        return np.trunc(x, out=out)
    result = np.empty(x.shape, x.dtype) if out is None else out
    result.real = np.trunc(x.real)
    result.imag = np.trunc(x.imag)
    return result


def _truncated_quotient(x: Any, y: Any, out: Array | None = None) -> Any:
    # x less its remainder is a multiple of y and never overflows.
    return np.floor_divide(x - np.fmod(x, y), y, out=out)


def _power(x: Any, y: Any, out: Array | None = None) -> Any:
    """Compute `np.power`; negative bases, for which it is fifty times slower, are avoided."""
    if y.ndim or not x.ndim or x.dtype.char not in "fd":
        return np.power(x, y, out=out)
    exponent = float(y)
    if exponent == 2:
        return np.multiply(x, x, out=out)
    if exponent == 3:
        return np.multiply(x, np.multiply(x, x), out=out)
    if exponent == -1:
        return np.divide(x.dtype.type(1), x, out=out)
    if exponent % 1:
        return np.power(x, y, out=out)
    result = np.power(np.absolute(x), y, out=out)
    return np.copysign(result, x, out=result) if exponent % 2 else result


# ------------------------------------------------------------------------------ refusals


def _make_divider(divide: Function, op: str) -> Function:
    def run(x: Any, y: Any, **out: Any) -> Any:
        if not y.all() and x.size:
            raise errors.InvalidArgumentError(f"{op}: integer division by zero")
        return divide(x, y, **out)

    return run


def _make_inverter(invert: Function, op: str) -> Function:
    def run(x: Any, **out: Any) -> Any:
        if not x.all():
            raise errors.InvalidArgumentError(f"{op}: integer division by zero")
        return invert(x, **out)

    return run


def _make_power(power: Function, op: str) -> Function:
    def run(x: Any, y: Any, **out: Any) -> Any:
        if (y < 0).any():
            raise errors.InvalidArgumentError(
                f"{op}: integers to negative integer powers are not allowed, got {y.min()}"
            )
        return power(x, y, **out)

    return run


_REFUSALS: Final = {
    **dict.fromkeys(("div", "floor_div", "floor_mod", "trunc_mod"), _make_divider),
    "reciprocal": _make_inverter,
    "pow": _make_power,
}
"""Checks that reject integer operands without a defined result."""

# ----------------------------------------------------------------------------- tables

_UFUNCS: Final[dict[str, tuple[Function, Function | None]]] = {
    "add": (np.add, operator.add),
    "sub": (np.subtract, operator.sub),
    "mul": (np.multiply, operator.mul),
    "div": (np.divide, operator.truediv),
    "floor_div": (np.floor_divide, operator.floordiv),
    "floor_mod": (np.remainder, operator.mod),
    "trunc_mod": (np.fmod, None),
    "pow": (_power, operator.pow),
    "neg": (np.negative, operator.neg),
    "abs": (np.absolute, operator.abs),
    "sign": (np.sign, None),
    "square": (np.square, None),
    "reciprocal": (np.reciprocal, None),
    "minimum": (minimum, None),
    "maximum": (maximum, None),
    "floor": (np.floor, None),
    "ceil": (np.ceil, None),
    "trunc": (_trunc, None),
    "rint": (np.rint, None),
    "sqrt": (np.sqrt, None),
    "exp": (np.exp, None),
    "expm1": (np.expm1, None),
    "log": (np.log, None),
    "log1p": (np.log1p, None),
    "sin": (np.sin, None),
    "cos": (np.cos, None),
    "tan": (np.tan, None),
    "asin": (np.arcsin, None),
    "acos": (np.arccos, None),
    "atan": (np.arctan, None),
    "sinh": (np.sinh, None),
    "cosh": (np.cosh, None),
    "tanh": (np.tanh, None),
    "asinh": (np.arcsinh, None),
    "acosh": (np.arccosh, None),
    "atanh": (np.arctanh, None),
    "atan2": (np.arctan2, None),
    "next_after": (np.nextafter, None),
    "erf": (special.erf, None),
    "erfc": (special.erfc, None),
    "lgamma": (special.lgamma, None),
    "digamma": (special.digamma, None),
    "bessel_i0e": (bessel.i0e, None),
    "bessel_i1e": (bessel.i1e, None),
    "zeta": (special.zeta, None),
    "polygamma": (special.polygamma, None),
    "igamma": (special.igamma, None),
    "igammac": (special.igammac, None),
    "igamma_grad_a": (special.igamma_grad_a, None),
    "erfinv": (probability.erfinv, None),
    "ndtri": (probability.ndtri, None),
    "betainc": (probability.betainc, None),
    "less": (np.less, operator.lt),
    "less_equal": (np.less_equal, operator.le),
    "greater": (np.greater, operator.gt),
    "greater_equal": (np.greater_equal, operator.ge),
    "equal": (np.equal, operator.eq),
    "not_equal": (np.not_equal, operator.ne),
    "is_nan": (np.isnan, None),
    "is_inf": (np.isinf, None),
    "is_finite": (np.isfinite, None),
    "bit_and": (np.bitwise_and, operator.and_),
    "bit_or": (np.bitwise_or, operator.or_),
    "bit_xor": (np.bitwise_xor, operator.xor),
    "invert": (np.invert, operator.invert),
    "shift_left": (np.left_shift, operator.lshift),
    "shift_right": (np.right_shift, operator.rshift),
    "real": (_real, None),
    "imag": (_imag, None),
    "conj": (np.conjugate, None),
    "angle": (_angle, None),
}
_OF_INTEGERS: Final[dict[str, tuple[Function, Function | None]]] = {
    "div": (_truncated_quotient, None),
    "pow": (np.power, operator.pow),
}
_OF_BOOLS: Final[dict[str, tuple[Function, Function | None]]] = {
    "bit_and": (np.logical_and, operator.and_),
    "bit_or": (np.logical_or, operator.or_),
    "invert": (np.logical_not, None),
}
"""Ufuncs for bools, with faster functions for NumPy scalars."""
