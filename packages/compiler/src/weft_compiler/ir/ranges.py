"""Ranges of indices, and their affine dependence on variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from weft_compiler.ir.expressions import Apply, Constant, Expr, Variable
from weft_tensor.dtypes import DType

Terms = dict[str, int]
"""The coefficients of variables in an affine expression; the key "" has the constant term."""


class Range(NamedTuple):
    """All integers from `low` to `high`."""

    low: int
    high: int

    def contains(self, other: Range) -> bool:
        """Return True if this range contains another range."""
        return self.low <= other.low and other.high <= self.high

    def intersect(self, other: Range) -> Range:
        """Return the intersection; this range if it is empty."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Range(low, high) if low <= high else self


def type_range(dtype: DType) -> Range:
    """Return the range of an integer type."""
    if dtype.is_bool:
        return Range(0, 1)
    bits = 8 * dtype.size
    return (
        Range(0, (1 << bits) - 1)
        if dtype.is_unsigned
        else Range(-1 << (bits - 1), (1 << (bits - 1)) - 1)
    )


def range_of(expression: Expr, ranges: Mapping[str, Range]) -> Range:
    """Return the range of an integer expression.

    Args:
      ranges: the ranges of variables.
    """
    all_items = type_range(expression.dtype)
    match expression:
        case Constant(value=value):
            return Range(int(value), int(value))
        case Variable(name=name):
            return ranges.get(name, all_items)
        case Apply(primitive="cast", operands=(x,)) if x.dtype.is_integer or x.dtype.is_bool:
            matches = range_of(x, ranges)
            return matches if all_items.contains(matches) else all_items
        case Apply(primitive=primitive, operands=operands) if not expression.dtype.is_bool:
            result = _of_primitive(primitive, operands, ranges)
            return result if result is not None and all_items.contains(result) else all_items
    return all_items


def _of_primitive(
    primitive: str, operands: tuple[Expr, ...], ranges: Mapping[str, Range]
) -> Range | None:
    if primitive == "where":
        x, y = (range_of(operand, ranges) for operand in operands[1:])
        return Range(min(x.low, y.low), max(x.high, y.high))
    a = [range_of(operand, ranges) for operand in operands]
    rule = _RULES.get(primitive)
    return rule(*a) if rule is not None else None


def _product(x: Range, y: Range) -> Range:
    ends = [a * b for a in x for b in y]
    return Range(min(ends), max(ends))


def _quotient(x: Range, y: Range) -> Range | None:
    return Range(x.low // y.low, x.high // y.low) if y.low == y.high > 0 else None


def _remainder(x: Range, y: Range) -> Range | None:
    if y.low <= 0:
        return None
    return x if x.low >= 0 and x.high < y.low else Range(0, y.high - 1)


_RULES: Final[dict[str, Callable[..., Range | None]]] = {
    "add": lambda x, y: Range(x.low + y.low, x.high + y.high),
    "sub": lambda x, y: Range(x.low - y.high, x.high - y.low),
    "mul": _product,
    "neg": lambda x: Range(-x.high, -x.low),
    "minimum": lambda x, y: Range(min(x.low, y.low), min(x.high, y.high)),
    "maximum": lambda x, y: Range(max(x.low, y.low), max(x.high, y.high)),
    "clamp": lambda x, y, z: Range(min(max(x.low, y.low), z.low), min(max(x.high, y.high), z.high)),
    "floor_div": _quotient,
    "floor_mod": _remainder,
}
"""Functions that compute the range of a primitive from those of its operands; None is the whole
range of the type.
"""


_LIMITS = {
    "less": (None, -1),
    "less_equal": (None, 0),
    "greater": (1, None),
    "greater_equal": (0, None),
    "equal": (0, 0),
}
_TURNED = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
    "equal": "equal",
}


def implied_ranges(condition: Expr, known_values: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges of variables that a condition implies by comparing them.

    Args:
      known_values: the ranges of the variables on the other side of comparisons.
    """
    implied: dict[str, Range] = {}
    match condition:
        case Apply(primitive="bit_and", operands=(x, y)):
            implied = implied_ranges(x, known_values)
            for name, limits in implied_ranges(y, known_values).items():
                implied[name] = implied.get(name, limits).intersect(limits)
        case Apply(primitive=primitive, operands=(x, y)) if primitive in _LIMITS:
            for variable, bound, relation in ((x, y, primitive), (y, x, _TURNED[primitive])):
                if isinstance(variable, Variable) and variable.dtype.is_integer:
                    implied[variable.name] = _limit_by_comparison(
                        variable.dtype, relation, range_of(bound, known_values)
                    )
    return implied


def _limit_by_comparison(dtype: DType, relation: str, bounds: Range) -> Range:
    """Return the range of a variable from a comparison with a number that is in a range."""
    low_offset, high_offset = _LIMITS[relation]
    full_range = type_range(dtype)
    return Range(
        full_range.low if low_offset is None else bounds.low + low_offset,
        full_range.high if high_offset is None else bounds.high + high_offset,
    )


def affine(expression: Expr) -> Terms | None:
    """Return an index as coefficients of variables, or None if it is not affine."""
    match expression:
        case Constant(value=value):
            return {"": int(value)}
        case Variable(name=name):
            return {name: 1}
        case Apply(primitive="add" | "sub" as primitive, operands=(x, y)):
            left, right = affine(x), affine(y)
            if left is None or right is None:
                return None
            sign = 1 if primitive == "add" else -1
            return _sum(left, right, sign)
        case Apply(primitive="mul", operands=(x, y)):
            left, right = affine(x), affine(y)
            if left is None or right is None:
                return None
            if set(left) - {""} and set(right) - {""}:
                return None
            if set(left) - {""}:
                left, right = right, left
            return {name: factor * left.get("", 0) for name, factor in right.items()}
        case Apply(primitive="neg", operands=(x,)):
            terms = affine(x)
            return None if terms is None else {name: -factor for name, factor in terms.items()}
    return None


def _sum(left: Terms, right: Terms, sign: int) -> Terms:
    result = dict(left)
    for name, factor in right.items():
        result[name] = result.get(name, 0) + sign * factor
    return {name: factor for name, factor in result.items() if factor or not name}
