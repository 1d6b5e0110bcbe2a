"""Scalar definitions computed element by element, by Python's numbers and its `math` and `cmath`.

Each application is rounded to its element type, as its primitive says.  Only special functions that
Python lacks are taken from the kernels that they test.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_exec.kernels import bessel, probability, special
from weft_graph.ir.scalar import Scalar, applications
from weft_tensor.dtypes import DType

NAN = math.nan


def computed(expression: Scalar, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return the value of an expression for one element of each input."""
    values: dict[int, Any] = {}

    def value(part: Scalar) -> Any:
        if part.name == "input":
            return _python(inputs[part.value])
        if part.name in ("constant", "attribute"):
            number = attrs[part.value] if part.name == "attribute" else part.value
            return _python(_rounded(number, part.dtype))
        return values[id(part)]

    for part in applications(expression):
        found = _apply(part, [value(arg) for arg in part.args])
        values[id(part)] = _python(_rounded(found, part.dtype))
    return value(expression)


def _python(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number."""
    if not isinstance(value, np.generic):
        return value
    if value.dtype.kind in "biu":
        return value.item()
    return complex(value) if value.dtype.kind == "c" else float(value)  # type: ignore[arg-type]  # bfloat16 converts, too


def _rounded(value: Any, dtype: DType) -> Any:
    if dtype.is_integer:
        value = int(value) % (1 << 8 * dtype.size)
        if not dtype.is_unsigned and value >= 1 << (8 * dtype.size - 1):
            value -= 1 << 8 * dtype.size
        return value
    with np.errstate(all="ignore"):
        return value if dtype.numpy.kind == "O" else dtype.numpy.type(value)


def _apply(part: Scalar, args: list[Any]) -> Any:
    source = part.args[-1].dtype
    if part.name == "cast":
        return _cast(args[0], source, part.dtype)
    table = _OF_INTEGERS if source.is_integer else _OF_COMPLEX if source.is_complex else _OF_OTHERS
    if part.name == "popcount":
        return (args[0] % (1 << 8 * source.size)).bit_count()
    if part.name == "next_after":
        kind = source.numpy.type
        return np.nextafter(kind(args[0]), kind(args[1]))
    return (table.get(part.name) or _OF_ALL[part.name])(*args)


def _cast(value: Any, source: DType, target: DType) -> Any:
    if target.is_bool:
        return value != 0
    if source.is_complex and not target.is_complex:
        value = value.real
    return math.trunc(value) if target.is_integer else value


# ------------------------------------------------------------------------- real numbers


def _guarded(function: Callable[..., float]) -> Callable[..., float]:
    """Wrap a function of `math` to return IEEE's results instead of raising."""

    def run(*args: float) -> float:
        if any(math.isnan(x) for x in args):
            return NAN
        try:
            return function(*args)
        except OverflowError:
            return -math.inf if function is math.sinh and args[0] < 0 else math.inf
        except ValueError:
            return NAN

    return run


def _divide(x: float, y: float) -> float:
    if y != 0:
        return x / y
    if x == 0 or math.isnan(x) or math.isnan(y):
        return NAN
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def _floor_mod(x: float, y: float) -> float:
    return NAN if y == 0 else x % y


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _log1p(x: float) -> float:
    return -math.inf if x == -1 else math.log1p(x)


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: float(function(x)) if math.isfinite(x) else x


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: next((x for x in xs if x != x), function(xs))


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except ValueError:  # a pole
        return math.inf


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: np.asarray(function(*[np.array([x], np.float64) for x in xs])).item()


_OF_OTHERS: dict[str, Callable[..., Any]] = {
    "div": _divide,
    "floor_mod": _floor_mod,
    "trunc_mod": _guarded(math.fmod),
    "reciprocal": lambda x: _divide(1.0, x),
    "pow": _guarded(math.pow),
    "sign": lambda x: x if x != x else (x > 0) - (x < 0),
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "rint": _whole(round),
    "log": _guarded(_log),
    "log1p": _guarded(_log1p),
    **{
        name: _guarded(getattr(math, name))
        for name in (
            "sqrt", "exp", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
            "tanh", "asinh", "acosh", "atanh", "atan2", "erf", "erfc",
        )
    },
    "lgamma": _lgamma,
    "digamma": _of_arrays(special.digamma),
    "zeta": _of_arrays(special.zeta),
    "polygamma": _of_arrays(special.polygamma),
    "igamma": _of_arrays(special.igamma),
    "igammac": _of_arrays(special.igammac),
    "igamma_grad_a": _of_arrays(special.igamma_grad_a),
    "bessel_i0e": _of_arrays(bessel.i0e),
    "bessel_i1e": _of_arrays(bessel.i1e),
    "erfinv": _of_arrays(probability.erfinv),
    "ndtri": _of_arrays(probability.ndtri),
    "betainc": _of_arrays(probability.betainc),
    "is_nan": math.isnan,
    "is_inf": math.isinf,
    "is_finite": math.isfinite,
    "invert": lambda x: not x,
    "complex": complex,
}  # fmt: skip

# ------------------------------------------------------------------ integers, complex numbers


def _quotient(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


_OF_INTEGERS: dict[str, Callable[..., Any]] = {
    "div": _quotient,
    "floor_div": lambda x, y: x // y,
    "floor_mod": lambda x, y: x % y,
    "trunc_mod": lambda x, y: x - _quotient(x, y) * y,
    "reciprocal": lambda x: _quotient(1, x),
    "pow": lambda x, y: x**y,
    "sign": lambda x: (x > 0) - (x < 0),
    "invert": lambda x: ~x,
    "shift_left": lambda x, y: x << y,
    "shift_right": lambda x, y: x >> y,
}
_OF_COMPLEX: dict[str, Callable[..., Any]] = {
    "div": lambda x, y: x / y if y else complex(NAN, NAN),
    "reciprocal": lambda x: 1 / x if x else complex(NAN, NAN),
    "pow": lambda x, y: x**y,
    "sign": lambda x: x / abs(x) if x else 0j,
    "trunc": lambda x: complex(math.trunc(x.real), math.trunc(x.imag)),
    "expm1": lambda x: cmath.exp(x) - 1,
    "log1p": lambda x: cmath.log(1 + x),
    "is_nan": cmath.isnan,
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "conj": lambda x: x.conjugate(),
    "angle": cmath.phase,
    **{
        name: getattr(cmath, name)
        for name in (
            "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
            "tanh", "asinh", "acosh", "atanh",
        )
    },
}  # fmt: skip
_OF_ALL: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "abs": abs,
    "square": lambda x: x * x,
    "minimum": lambda x, y: _extreme(min)(x, y),
    "maximum": lambda x, y: _extreme(max)(x, y),
    "clamp": lambda x, low, high: _extreme(min)(_extreme(max)(x, low), high),
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "bit_and": lambda x, y: x & y,
    "bit_or": lambda x, y: x | y,
    "bit_xor": lambda x, y: x ^ y,
    "where": lambda condition, t, e: t if condition else e,
}
