"""Index arithmetic with trivial simplification."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft_compiler.ir.expressions import Constant, Expr, apply, index

Operand = Expr | int


def plus(x: Operand, y: Operand) -> Expr:
    """x + y."""
    x, y = _expression(x), _expression(y)
    if isinstance(x, Constant) and isinstance(y, Constant):
        return index(int(x.value) + int(y.value))
    if is_number(y, 0):
        return x
    return y if is_number(x, 0) else apply("add", x, y)


def minus(x: Operand, y: Operand) -> Expr:
    """x - y."""
    x, y = _expression(x), _expression(y)
    if isinstance(x, Constant) and isinstance(y, Constant):
        return index(int(x.value) - int(y.value))
    return x if is_number(y, 0) else apply("sub", x, y)


def times(x: Operand, y: int) -> Expr:
    """x * y."""
    x = _expression(x)
    if isinstance(x, Constant):
        return index(int(x.value) * y)
    if y == 0:
        return index(0)
    return x if y == 1 else apply("mul", x, index(y))


def over(x: Operand, y: int) -> Expr:
    """x / y rounded down; y is positive."""
    x = _expression(x)
    if isinstance(x, Constant):
        return index(int(x.value) // y)
    return x if y == 1 else apply("floor_div", x, index(y))


def modulo(x: Operand, y: int) -> Expr:
    """x - over(x, y) * y."""
    x = _expression(x)
    if isinstance(x, Constant):
        return index(int(x.value) % y)
    return index(0) if y == 1 else apply("floor_mod", x, index(y))


def clamp_index(x: Operand, size: int) -> Expr:
    """Clamp an index to [0, size), for a positive size."""
    return apply("clamp", _expression(x), index(0), index(size - 1))


def is_inside(x: Operand, size: int) -> Expr:
    """Return the condition that an index is in [0, size)."""
    x = _expression(x)
    return apply("bit_and", apply("greater_equal", x, index(0)), apply("less", x, index(size)))


def is_number(x: Operand, value: int) -> bool:
    """Return True if an index is the constant `value`."""
    return x == value if isinstance(x, int) else isinstance(x, Constant) and x.value == value


def flatten_indices(indices: Sequence[Operand], shape: Sequence[int]) -> Expr:
    """Return the flat index of an element of a dense tensor, from its indices."""
    total: Expr = index(0)
    for axis, position in enumerate(indices):
        total = plus(total, times(position, math.prod(shape[axis + 1 :])))
    return total


def unflatten_index(position: Operand, shape: Sequence[int]) -> list[Expr]:
    """Return the indices of the element at a flat index."""
    indices = []
    for axis, size in enumerate(shape):
        quotient = over(position, math.prod(shape[axis + 1 :]) or 1)
        indices.append(quotient if axis == 0 else modulo(quotient, size or 1))
    return indices


def reshape_indices(
    indices: Sequence[Operand], shape: Sequence[int], new_shape: Sequence[int]
) -> list[Expr]:
    """Return the indices of the same element in a tensor of another shape.

    Dimensions are flattened only where necessary: [2, 3, 4] and [6, 4] share the last.

    Args:
      shape: shape of the given indices.
      new_shape: another shape with as many elements.
    """
    if 0 in new_shape:
        return [index(0) for _ in new_shape]
    exprs: list[Expr] = []
    a = b = 0
    while a < len(shape) or b < len(new_shape):
        end_a, end_b = a + 1, b + 1
        while (actual := math.prod(shape[a:end_a])) != (expected := math.prod(new_shape[b:end_b])):
            if actual < expected:
                end_a += 1
            else:
                end_b += 1
        exprs += unflatten_index(
            flatten_indices(indices[a:end_a], shape[a:end_a]), new_shape[b:end_b]
        )
        a, b = end_a, end_b
    return exprs


def _expression(x: Operand) -> Expr:
    return index(x) if isinstance(x, int) else x
