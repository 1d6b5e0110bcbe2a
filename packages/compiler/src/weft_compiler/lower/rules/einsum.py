"""Einsum as a sequence of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft_compiler.ir.expressions import Expr, apply, index, number, where
from weft_compiler.ir.indices import reshape_indices
from weft_compiler.lower.precision import widen
from weft_compiler.lower.registry import Operation, lowers
from weft_compiler.lower.rules.matmul import kernel_reason, product_sums
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import Value, compute_value, move_elements
from weft_graph.ops.einsum import einsum_terms

Axes = tuple[str, ...]
"""A name for each axis of a tensor: its letter, or a number for an axis under an ellipsis."""


@lowers("Einsum", by_kernel=kernel_reason)
def _einsum(op: Operation) -> Value:
    """Multiply the operands from left to right, two at a time."""
    terms, result = einsum_terms(op.attr("equation"), len(op.inputs))
    hidden = max(
        (x.rank - len(term.replace("...", "")) for term, x in zip(terms, op.inputs, strict=True)
         if "..." in term), default=0,
    )  # fmt: skip
    sizes: dict[str, int] = {}
    named = []
    for term, x in zip(terms, op.inputs, strict=True):
        axes = _axes(term, x.rank, hidden)
        for axis, size in zip(axes, x.shape, strict=True):
            sizes[axis] = max(size, sizes.get(axis, 1)) if size and sizes.get(axis) != 0 else 0
        named.append((axes, x))
    expected = _axes(result, len(op.shape()), hidden)
    kept_axes = tuple(dict.fromkeys(expected))
    axes, total = _remove_repeated_axes(op, *named[0])
    for position, operand in enumerate(named[1:], 1):
        later = {axis for later_axes, _ in named[position + 1 :] for axis in later_axes}
        right_axes, right = _remove_repeated_axes(op, *operand)
        axes, total = _product(
            op, (axes, total), (right_axes, right), later | set(kept_axes), sizes
        )
    total = _sum_free_axes(op, axes, total, set(kept_axes))
    axes = tuple([axis for axis in axes if axis in kept_axes])
    return _arrange_axes(op, axes, total, expected)


def _axes(term: str, rank: int, hidden: int) -> Axes:
    """Return the names of the axes of a term; axes under an ellipsis are numbered from the last."""
    head, dots, tail = term.partition("...")
    count = rank - len(head) - len(tail) if dots else 0
    return (*head, *map(str, range(hidden - count, hidden)), *tail)


def _remove_repeated_axes(op: Operation, axes: Axes, x: Value) -> tuple[Axes, Value]:
    """Remove repeated axes, which select a diagonal, and broadcasting from an operand."""
    distinct = tuple(dict.fromkeys(axes))
    kept_axes = tuple([
        axis for axis in distinct if not axis.isdigit() or x.shape[axes.index(axis)] != 1
    ])  # fmt: skip
    if kept_axes == axes:
        return axes, x
    shape = [x.shape[axes.index(axis)] for axis in kept_axes]

    def source(*position: Expr) -> list[Expr]:
        return [position[kept_axes.index(axis)] if axis in kept_axes else index(0) for axis in axes]

    return kept_axes, move_elements(f"{op.name}_{x.name}", x, shape, source)


def _sum_free_axes(op: Operation, axes: Axes, x: Value, names: set[str]) -> Value:
    """Sum an operand over the axes that occur nowhere else."""
    removed = [position for position, axis in enumerate(axes) if axis not in names]
    return reduce(f"{op.name}_{x.name}_sum", widen(op.name, x), removed, "add") if removed else x


def _product(
    op: Operation,
    left: tuple[Axes, Value],
    right: tuple[Axes, Value],
    names: set[str],
    sizes: dict[str, int],
) -> tuple[Axes, Value]:
    """Multiply two operands and sum over the axes that the result does not have."""
    parts = []
    for (axes, x), (other_axes, _) in ((left, right), (right, left)):
        expected = names | set(other_axes)
        parts.append(
            (
                tuple([axis for axis in axes if axis in expected]),
                _sum_free_axes(op, axes, x, expected),
            )
        )
    (a_axes, a), (b_axes, b) = parts
    shared = [axis for axis in a_axes if axis in b_axes]
    batch = [axis for axis in shared if axis in names]
    inner = [axis for axis in shared if axis not in names]
    rows = [axis for axis in a_axes if axis not in shared]
    columns = [axis for axis in b_axes if axis not in shared]
    a_matrix, transpose_a = _matrix(op, a_axes, a, batch, rows, inner)
    b_matrix, transpose_b = _matrix(op, b_axes, b, batch, inner, columns)
    result = tuple([*batch, *rows, *columns])
    lead = [sizes[axis] for axis in batch]
    shape = (*lead, prod(sizes[axis] for axis in rows), prod(sizes[axis] for axis in columns))
    name = f"{op.name}_product"
    total = product_sums(name, a_matrix, b_matrix, shape, transpose_a, transpose_b)
    full_shape = tuple([sizes[axis] for axis in result])
    unflattened = move_elements(
        name,
        total,
        full_shape,
        lambda *position: reshape_indices(position, full_shape, shape),
        dense=True,
    )
    return result, unflattened


def _matrix(
    op: Operation,
    axes: Axes,
    x: Value,
    batch: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
) -> tuple[Value, bool]:
    """Reshape a tensor to matrices; return also True if they are transposed, which saves a copy."""
    transposed = list(axes) == [*batch, *columns, *rows]
    first, second = (columns, rows) if transposed else (rows, columns)
    order = [axes.index(axis) for axis in (*batch, *first, *second)]
    transposed_shape = tuple([x.shape[axis] for axis in order])
    if order != list(range(len(order))):
        inverse_order = [order.index(axis) for axis in range(len(order))]
        x = move_elements(
            f"{op.name}_{x.name}",
            x,
            transposed_shape,
            lambda *position: [position[axis] for axis in inverse_order],
        )
    lead = transposed_shape[: len(batch)]
    split = len(batch) + len(first)
    shape = (*lead, prod(transposed_shape[len(batch) : split]), prod(transposed_shape[split:]))
    matrices = x
    result = move_elements(
        f"{x.name}_matrix",
        x,
        shape,
        lambda *position: reshape_indices(position, shape, matrices.shape),
        dense=True,
    )
    return result, transposed


def _arrange_axes(op: Operation, axes: Axes, x: Value, expected: Axes) -> Value:
    """Permute, broadcast or repeat (a diagonal) the axes of the result."""

    def element(*position: Expr) -> Expr:
        result = x.at(*[position[expected.index(axis)] for axis in axes])
        for place, axis in enumerate(expected):
            if expected.index(axis) != place:
                is_diagonal = apply("equal", position[place], position[expected.index(axis)])
                result = where(is_diagonal, result, number(0, x.dtype))
        return result

    if axes == expected and x.dtype is op.dtype():
        return x
    return compute_value(op.name, op.dtype(), op.shape(), element)
