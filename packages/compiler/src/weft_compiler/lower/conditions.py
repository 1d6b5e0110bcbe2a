"""Conditions that a program has checked, so that none is checked again.

For example, a gather and the scatter of its gradient use the same indices, and their requirements
are equal or one implies the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from weft_compiler.ir.expressions import INDEX, Apply, Constant, Expr, Variable, apply, cast
from weft_compiler.ir.indices import is_number
from weft_compiler.lower.analysis import operands_of
from weft_compiler.lower.values import Element, Elements, Requirement, Value


class Conditions:
    """The conditions that are known to be true for all elements of index spaces."""

    def __init__(self) -> None:
        self._holding: set[Hashable] = set()

    def missing_part(
        self, requirement: Requirement, is_always: bool
    ) -> Callable[..., Sequence[Expr]] | None:
        """Return the part of a requirement that is not known to be true.

        Args:
          is_always: True if the requirement is checked on every path, so it is known from now on.
        Returns: maps indices to conditions; None if there are none.
        """
        variables = [Variable(INDEX, f"i{axis}") for axis in range(len(requirement.space))]
        parts = _conjuncts(requirement.condition(*variables))
        keys = [(requirement.space, _key(part)) for part in parts]
        new = [index for index, key in enumerate(keys) if key not in self._holding]
        if is_always:
            self._holding.update(keys)
        if not new:
            return None

        def conditions(*index: Expr) -> Sequence[Expr]:
            conjuncts = _conjuncts(requirement.condition(*index))
            return [conjuncts[position] for position in new]

        return conditions


def _conjuncts(condition: Expr) -> list[Expr]:
    """Split a condition into conjuncts; bounds of max(x, 0) become bounds of x."""
    match condition:
        case Apply(primitive="bit_and", operands=(x, y)) if condition.dtype.is_bool:
            return [*_conjuncts(x), *_conjuncts(y)]
        case Apply(primitive="greater_equal", operands=(x, y)) if is_number(y, 0):
            return [] if _clamped_at_zero(x) is not None else [condition]
        case Apply(primitive="less", operands=(x, Constant(value=size) as y)):
            clamped = _clamped_at_zero(x)
            if clamped is not None and x.dtype is INDEX and size > 0:
                return [apply("less", clamped, y)]
    return [condition]


def _clamped_at_zero(x: Expr) -> Expr | None:
    """Return y if an expression is the integer max(y, 0); else None."""
    match x:
        case Element(value=Value(definition=Elements() as elements), indices=indices):
            return _clamped_at_zero(elements.element(*indices)) if x.dtype.is_integer else None
        case Apply(primitive="cast", operands=(inner,)) if x.dtype is INDEX:
            clamped = _clamped_at_zero(inner) if inner.dtype.is_integer else None
            return None if clamped is None else cast(clamped, INDEX)
        case Apply(primitive="maximum", operands=(y, zero)) if x.dtype.is_integer:
            return y if _is_zero(zero) else None
    return None


def _is_zero(x: Expr) -> bool:
    match x:
        case Constant(value=0):
            return True
        case Element(value=Value(constant=constant)) if constant is not None:
            return not np.any(constant)
        case Element(value=Value(definition=Elements() as elements), indices=indices):
            return _is_zero(elements.element(*indices))
    return False


def _key(expression: Expr) -> Hashable:
    """Return a key that is equal for equal expressions over the same tensors."""
    parts = tuple(map(_key, operands_of(expression)))
    match expression:
        case Element(value=value):
            return "element", id(value), parts
        case Apply(primitive=primitive, dtype=dtype):
            return primitive, dtype.name, parts
        case Constant(value=value, dtype=dtype):
            return "number", value, dtype.name
    return str(expression), parts
