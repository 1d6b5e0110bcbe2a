"""Scalar definitions of elementwise ops: a small typed expression language.

A declaration carries a `Definition`, a Python function over expressions:

    scalar=Definition(lambda x: maximum(x, 0) + log1p(exp(-abs(x))))

The function is called at the first use for each combination of element types, with one expression
per input. It returns an immutable tree of inputs, constants, attributes and applications of the
primitives below, each with an element type. CPU and GPU kernels are generated from these trees;
other code that computes the op can use them too.

A definition may inspect the types of its inputs, for example to return another tree for integers.
Python numbers get the type of the other operand. The result is cast to the op's type.

Every application returns the exact function value rounded to its element type; transcendental
functions may be off by a few units in the last place, like those of libm. If float16 and bfloat16
are computed in float32, the tree has explicit casts (`Definition.in_float32`). Floating-point
operations follow IEEE 754: nothing traps, overflow results in an infinity, and NaN operands result
in NaN unless stated otherwise. Integers wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

# -------------------------------------------------------------------------- primitives


class Primitive(NamedTuple):
    """One function of the language.

    Attributes:
      arity: number of operands.
      kinds: allowed kinds of operands: b for bool, i for integers, f for floating, c for complex, s
        for strings.
      result: element type of the result: "same", "bool", "real" (of a complex type) or "given"
        (passed explicitly).
      doc: description of the function, per kind if it differs.
    """

    arity: int
    kinds: str
    result: str
    doc: str


PRIMITIVES: Final[dict[str, Primitive]] = {
    "add": Primitive(2, "ifcs", "same", "x + y; strings are joined."),
    "sub": Primitive(2, "ifc", "same", "x - y."),
    "mul": Primitive(2, "ifc", "same", "x * y."),
    "div": Primitive(2, "ifc", "same", "x / y; integers round toward zero."),
    "floor_div": Primitive(2, "i", "same", "x / y rounded down."),
    "floor_mod": Primitive(2, "if", "same", "x - floor(x / y) * y exactly: the sign is that of y."),
    "trunc_mod": Primitive(2, "if", "same", "x - trunc(x / y) * y exactly: the sign is that of x."),
    "pow": Primitive(2, "ifc", "same", "x to the power of y; pow(x, 0) and pow(1, y) are 1."),
    "neg": Primitive(1, "ifc", "same", "-x."),
    "abs": Primitive(1, "ifc", "real", "|x|; the least integer is returned unchanged."),
    "sign": Primitive(1, "ifc", "same", "-1, 0 or 1; x / |x| for complex numbers, and 0 for 0."),
    "square": Primitive(1, "ifc", "same", "x * x."),
    "reciprocal": Primitive(1, "ifc", "same", "1 / x; integers round toward zero."),
    "minimum": Primitive(2, "if", "same", "The smaller one; NaN if either is NaN."),
    "maximum": Primitive(2, "if", "same", "The larger one; NaN if either is NaN."),
    "clamp": Primitive(3, "if", "same", "minimum(maximum(x, y), z)."),
    "floor": Primitive(1, "f", "same", "The largest integer not above x."),
    "ceil": Primitive(1, "f", "same", "The smallest integer not below x."),
    "trunc": Primitive(1, "fc", "same", "x truncated; complex parts separately."),
    "rint": Primitive(1, "f", "same", "The nearest integer, ties to even."),
    "sqrt": Primitive(1, "fc", "same", "The square root; NaN for negative numbers."),
    "exp": Primitive(1, "fc", "same", "e to the power of x."),
    "expm1": Primitive(1, "fc", "same", "exp(x) - 1, accurate near 0."),
    "log": Primitive(1, "fc", "same", "The natural logarithm; -inf at 0, NaN below 0."),
    "log1p": Primitive(1, "fc", "same", "log(1 + x), accurate near 0."),
    "sin": Primitive(1, "fc", "same", "The sine."),
    "cos": Primitive(1, "fc", "same", "The cosine."),
    "tan": Primitive(1, "fc", "same", "The tangent."),
    "asin": Primitive(1, "fc", "same", "The inverse of the sine, in [-pi / 2, pi / 2]."),
    "acos": Primitive(1, "fc", "same", "The inverse of the cosine, in [0, pi]."),
    "atan": Primitive(1, "fc", "same", "The inverse of the tangent, in [-pi / 2, pi / 2]."),
    "sinh": Primitive(1, "fc", "same", "The hyperbolic sine."),
    "cosh": Primitive(1, "fc", "same", "The hyperbolic cosine."),
    "tanh": Primitive(1, "fc", "same", "The hyperbolic tangent."),
    "asinh": Primitive(1, "fc", "same", "The inverse of the hyperbolic sine."),
    "acosh": Primitive(1, "fc", "same", "The inverse of the hyperbolic cosine."),
    "atanh": Primitive(1, "fc", "same", "The inverse of the hyperbolic tangent."),
    "atan2": Primitive(2, "f", "same", "The angle of the point (y, x), in [-pi, pi]."),
    "next_after": Primitive(2, "f", "same", "The next number after x in the direction of y."),
    "erf": Primitive(1, "f", "same", "The error function."),
    "erfc": Primitive(1, "f", "same", "1 - erf(x), accurate for large x."),
    "lgamma": Primitive(1, "f", "same", "log(|gamma(x)|)."),
    "digamma": Primitive(1, "f", "same", "The derivative of lgamma."),
    "bessel_i0e": Primitive(1, "f", "same", "exp(-|x|) times the modified Bessel function I0."),
    "bessel_i1e": Primitive(1, "f", "same", "exp(-|x|) times the modified Bessel function I1."),
    "zeta": Primitive(2, "f", "same", "The Hurwitz zeta function, the sum of (y + k) ** -x."),
    "polygamma": Primitive(2, "f", "same", "The derivative of order x + 1 of lgamma at y."),
    "igamma": Primitive(2, "f", "same", "The regularized lower incomplete gamma function P(x, y)."),
    "igammac": Primitive(
        2, "f", "same", "The regularized upper incomplete gamma function Q(x, y)."
    ),
    "igamma_grad_a": Primitive(2, "f", "same", "The derivative of igamma by x."),
    "erfinv": Primitive(1, "f", "same", "The inverse of erf, infinite at -1 and 1."),
    "ndtri": Primitive(1, "f", "same", "The quantile of the standard normal distribution at x."),
    "betainc": Primitive(
        3, "f", "same", "The regularized incomplete beta function of the parameters x and y."
    ),
    "less": Primitive(2, "if", "bool", "x < y; False if either is NaN."),
    "less_equal": Primitive(2, "if", "bool", "x <= y; False if either is NaN."),
    "greater": Primitive(2, "if", "bool", "x > y; False if either is NaN."),
    "greater_equal": Primitive(2, "if", "bool", "x >= y; False if either is NaN."),
    "equal": Primitive(2, "bifcs", "bool", "x == y; False if either is NaN."),
    "not_equal": Primitive(2, "bifcs", "bool", "x != y; True if either is NaN."),
    "is_nan": Primitive(1, "fc", "bool", "True if x, or a part of it, is NaN."),
    "is_inf": Primitive(1, "f", "bool", "True if x is infinite, of either sign."),
    "is_finite": Primitive(1, "f", "bool", "True if x is neither infinite nor NaN."),
    "bit_and": Primitive(2, "bi", "same", "The bits set in x and y; for bools, x and y."),
    "bit_or": Primitive(2, "bi", "same", "The bits set in x or y; for bools, x or y."),
    "bit_xor": Primitive(2, "bi", "same", "The bits set in exactly one of x and y."),
    "invert": Primitive(1, "bi", "same", "Every bit of x flipped; for bools, not x."),
    "shift_left": Primitive(2, "i", "same", "x shifted left by y bits, 0 <= y < width."),
    "shift_right": Primitive(
        2, "i", "same", "The bits of x moved down by y, 0 <= y < their number, keeping the sign."
    ),
    "popcount": Primitive(1, "i", "uint8", "The number of set bits of x in two's complement."),
    "where": Primitive(3, "bifcs", "same", "The second operand where the first, a bool, is True."),
    "complex": Primitive(2, "f", "given", "The complex number of two parts."),
    "real": Primitive(1, "c", "real", "The real part."),
    "imag": Primitive(1, "c", "real", "The imaginary part."),
    "conj": Primitive(1, "c", "same", "The complex conjugate."),
    "angle": Primitive(1, "c", "real", "atan2(imag(x), real(x))."),
    "cast": Primitive(
        1,
        "bifc",
        "given",
        "x as another type: to integers towards zero, of what does not fit any number; to real ones"
        " without the imaginary part; to bool whether it is not 0; to narrower ones rounded.",
    ),
}
"""All primitives.

Integers must not be divided by 0 or raised to negative powers; kernels reject such operands if they
can check them in time.
"""

# ------------------------------------------------------------------------- expressions


class Scalar:
    """An expression of one element; immutable.

    Attributes:
      name: name of a primitive, or "input", "constant" or "attribute".
      dtype: the element type.
      args: the operands.
      value: an input's index, a constant's number, or an attribute's name.
    """

    __slots__ = ("args", "dtype", "name", "value")

    name: str
    dtype: DType
    args: tuple[Scalar, ...]
    value: Any

    def __init__(
        self, name: str, dtype: DType, args: tuple[Scalar, ...] = (), value: Any = None
    ) -> None:
        for key, item in (("name", name), ("dtype", dtype), ("args", args), ("value", value)):
            object.__setattr__(self, key, item)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("scalar expressions are immutable")

    def __repr__(self) -> str:
        if self.name in PRIMITIVES:
            return f"{self.name}({', '.join(map(repr, self.args))})"
        return f"x{self.value}" if self.name == "input" else str(self.value)

    def __bool__(self) -> bool:
        raise errors.InvalidTypeError(
            "a scalar expression has no truth value; choose with `where`, or by its `dtype`"
        )

    def __add__(self, other: Operand) -> Scalar:
        return add(self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return add(other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return sub(self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return sub(other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return mul(self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return mul(other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return div(self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return div(other, self)

    def __neg__(self) -> Scalar:
        return neg(self)

    def __abs__(self) -> Scalar:
        return absolute(self)

    def __lt__(self, other: Operand) -> Scalar:
        return less(self, other)

    def __le__(self, other: Operand) -> Scalar:
        return less_equal(self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return greater(self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return greater_equal(self, other)

    def __and__(self, other: Operand) -> Scalar:
        return bit_and(self, other)

    def __or__(self, other: Operand) -> Scalar:
        return bit_or(self, other)

    def __invert__(self) -> Scalar:
        return invert(self)


Operand = Scalar | bool | int | float
"""An expression, or a number that gets the type of the other operands."""


def kind(dtype: DType) -> str:
    """Return an element type's letter in `Primitive.kinds`, or "" if it has none."""
    if dtype.is_bool:
        return "b"
    if dtype.is_integer or dtype.is_quantized:
        return "i"
    if dtype.is_floating:
        return "f"
    if dtype.is_complex:
        return "c"
    return "s" if dtype is dtypes.string else ""


def constant(value: bool | int | float, dtype: DType) -> Scalar:
    """Return a constant expression of an element type."""
    return Scalar("constant", dtype, (), value)


def attribute(name: str, dtype: DType) -> Scalar:
    """Return an expression for the node's attribute `name`, converted to an element type."""
    return Scalar("attribute", dtype, (), name)


def _operands(name: str, values: Iterable[Operand]) -> tuple[Scalar, ...]:
    operands = tuple(values)
    types = {value.dtype for value in operands if isinstance(value, Scalar)}
    if len(types) != 1:
        text = ", ".join(sorted(dtype.name for dtype in types)) or "numbers alone"
        raise errors.InvalidTypeError(f"{name} requires operands of the same type, got {text}")
    dtype = types.pop()
    return tuple(v if isinstance(v, Scalar) else constant(v, dtype) for v in operands)


def _apply(name: str, args: tuple[Scalar, ...], dtype_or_none: DType | None = None) -> Scalar:
    primitive, dtype = PRIMITIVES[name], args[-1].dtype
    if len(args) != primitive.arity:
        raise errors.InvalidArgumentError(
            f"{name} requires {primitive.arity} operands, got {len(args)}"
        )
    # Handles can be handed on, too: a choice between two does not look at them.
    if kind(dtype) not in primitive.kinds and name != "where":
        raise errors.InvalidTypeError(f"{name} is not defined for {dtype.name}")
    results = {"same": dtype, "bool": dtypes.bool_, "real": dtype.real_dtype, "uint8": dtypes.uint8}
    result = dtype_or_none or results[primitive.result]
    return Scalar(name, result, args)


Function = Callable[..., Scalar]


def _function(name: str) -> Function:
    def apply(*operands: Operand) -> Scalar:
        return _apply(name, _operands(name, operands))

    apply.__name__ = name
    apply.__doc__ = PRIMITIVES[name].doc
    return apply


def _unless(name: str, kinds: str) -> Function:
    """Return a unary primitive that leaves operands of other kinds unchanged."""

    def apply(x: Scalar) -> Scalar:
        return _apply(name, (x,)) if kind(x.dtype) in kinds else x

    apply.__name__ = name
    apply.__doc__ = f"{PRIMITIVES[name].doc} Other kinds are left as they are."
    return apply


add, sub, mul, div = map(_function, ("add", "sub", "mul", "div"))
floor_div, floor_mod, trunc_mod = map(_function, ("floor_div", "floor_mod", "trunc_mod"))
power, neg, sign = map(_function, ("pow", "neg", "sign"))
absolute, square, reciprocal = map(_function, ("abs", "square", "reciprocal"))
minimum, maximum, clamp = map(_function, ("minimum", "maximum", "clamp"))
floor, ceil, rint = (_unless(name, "f") for name in ("floor", "ceil", "rint"))
trunc = _unless("trunc", "fc")
sqrt, exp, expm1, log, log1p = map(_function, ("sqrt", "exp", "expm1", "log", "log1p"))
sin, cos, tan, asin, acos, atan = map(_function, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh = map(_function, ("sinh", "cosh", "tanh"))
asinh, acosh, atanh = map(_function, ("asinh", "acosh", "atanh"))
atan2, next_after = map(_function, ("atan2", "next_after"))
erf, erfc, lgamma, digamma = map(_function, ("erf", "erfc", "lgamma", "digamma"))
bessel_i0e, bessel_i1e = map(_function, ("bessel_i0e", "bessel_i1e"))
zeta, polygamma = map(_function, ("zeta", "polygamma"))
igamma, igammac, igamma_grad_a = map(_function, ("igamma", "igammac", "igamma_grad_a"))
erfinv, ndtri, betainc = map(_function, ("erfinv", "ndtri", "betainc"))
less, less_equal = map(_function, ("less", "less_equal"))
greater, greater_equal = map(_function, ("greater", "greater_equal"))
equal, not_equal = map(_function, ("equal", "not_equal"))
is_nan, is_inf, is_finite = map(_function, ("is_nan", "is_inf", "is_finite"))
bit_and, bit_or, bit_xor, invert = map(_function, ("bit_and", "bit_or", "bit_xor", "invert"))
shift_left, shift_right = map(_function, ("shift_left", "shift_right"))
popcount = _function("popcount")
real, imag, angle = map(_function, ("real", "imag", "angle"))
conj = _unless("conj", "c")


def where(condition: Scalar, t: Operand, e: Operand) -> Scalar:
    """Return `t` where the bool condition is true, else `e`."""
    if not condition.dtype.is_bool:
        raise errors.InvalidTypeError(f"where requires a bool, got {condition.dtype.name}")
    return _apply("where", (condition, *_operands("where", (t, e))))


def complex_of(re: Scalar, im: Scalar) -> Scalar:
    """Return the complex number of two real parts, of float32 or float64."""
    wide = dtypes.complex128 if re.dtype is dtypes.float64 else dtypes.complex64
    return _apply("complex", _operands("complex", (re, im)), wide)


def cast(x: Scalar, dtype: DType) -> Scalar:
    """Cast x to an element type; return x itself if it has that type."""
    return x if x.dtype is dtype else _apply("cast", (x,), dtype)


def identity(x: Scalar) -> Scalar:
    """Return x: the definition of conversions, whose result is cast to the op's type."""
    return x


# ------------------------------------------------------------------------- definitions

_NARROW: Final = (dtypes.float16, dtypes.bfloat16)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Definition:
    """The computation of one element of an elementwise op.

    Attributes:
      function: function from one expression per input to the expression of the result.
      one_shape: True if the inputs must have the same shape; else they broadcast.
      by_kernel: True if elements of the inputs are paired in a special way, such as a bias along
        the channels, so that kernels cannot be derived.
      in_float32: True to compute float16 and bfloat16 in float32 and round once at the end.
    """

    function: Function
    one_shape: bool = field(default=False, kw_only=True)
    by_kernel: bool = field(default=False, kw_only=True)
    in_float32: bool = field(default=False, kw_only=True)
    _traced: dict[tuple[DType, ...], Scalar] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def expression(self, inputs: Sequence[DType], output: DType) -> Scalar:
        """Return the expression for some element types of the inputs and of the output.

        Raises: InvalidTypeError: it is not defined for these types.
        """
        key = (*inputs, output)
        traced = self._traced.get(key)
        if traced is None:
            expressions = [Scalar("input", dtype, (), index) for index, dtype in enumerate(inputs)]
            if self.in_float32:
                expressions = [
                    cast(x, dtypes.float32) if x.dtype in _NARROW else x for x in expressions
                ]
            traced = self._traced[key] = cast(self.function(*expressions), output)
        return traced


def applications(expression: Scalar) -> list[Scalar]:
    """Return the applications in an expression in post-order, without duplicates."""
    ordered: dict[int, Scalar] = {}
    waiting = [expression]
    while waiting:
        part = waiting[-1]
        missing = [arg for arg in part.args if arg.args and id(arg) not in ordered]
        if missing:
            waiting.extend(reversed(missing))
            continue
        waiting.pop()
        if part.args:
            ordered.setdefault(id(part), part)
    return list(ordered.values())


def inputs_of(expression: Scalar) -> set[int]:
    """Return the indices of the inputs that an expression uses."""
    operands = [arg for part in applications(expression) for arg in part.args]
    return {part.value for part in (expression, *operands) if part.name == "input"}
