"""The op Einsum, for graphs written by TensorFlow 2; `einsum` builds matrix products instead."""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops.contraction import parse_equation
from weft_graph.ops.cost_rules import computes
from weft_graph.ops.shape_rules import merge_size
from weft_tensor import errors
from weft_tensor.shape import Dims, broadcast_dims, format_dims


def einsum_terms(equation: str, count: int) -> tuple[list[str], str]:
    """Parse an equation to the terms of the operands and that of the result.

    Raises: InvalidArgumentError: the equation is invalid or has no result.
    """
    terms, result = parse_equation(equation, count)
    if result is None:
        raise errors.InvalidArgumentError(f"Einsum requires '->' and a result, got {equation!r}")
    return terms, result


def einsum_dims(equation: str, operands: Sequence[Dims]) -> Dims:
    """Return the sizes of the result.

    Raises: InvalidArgumentError: ranks or sizes do not match the equation.
    """
    terms, result = einsum_terms(equation, len(operands))
    sizes: dict[str, int | None] = {}
    batch_dims: Dims = ()
    for term, dims in zip(terms, operands, strict=True):
        letters, ellipsis_dims = _fit_term(term, dims)
        for letter, size in letters:
            label = f"the sizes of axis {letter!r} of {equation!r}"
            sizes[letter] = merge_size(sizes.get(letter), size, label)
        batch_dims = broadcast_dims(batch_dims, ellipsis_dims)
    unknown = set(result.replace("...", "")) - set(sizes)
    if unknown or (batch_dims and "..." not in result):
        raise errors.InvalidArgumentError(
            f"the result of {equation!r} lacks '...', or has axes of no operand: {sorted(unknown)}"
        )
    head, dots, tail = result.partition("...")
    if dots and batch_dims is None:
        return None
    return (*(sizes[c] for c in head), *(batch_dims or ()), *(sizes[c] for c in tail))


def _fit_term(term: str, dims: Dims) -> tuple[list[tuple[str, int | None]], Dims]:
    """Return the sizes of a term's letters and of its ellipsis."""
    head, dots, tail = term.partition("...")
    if dims is None:
        return [(letter, None) for letter in head + tail], None if dots else ()
    tail_start = len(dims) - len(tail)
    if tail_start < len(head) or (tail_start > len(head) and not dots):
        raise errors.InvalidArgumentError(
            f"the operand {term!r} does not fit shape {format_dims(dims)}"
        )
    letters = zip(head + tail, dims[: len(head)] + dims[tail_start:], strict=True)
    return list(letters), dims[len(head) : tail_start]


def _shape(node: NodeSpec) -> Sequence[Dims]:
    return (einsum_dims(node.attrs["equation"], [value.dims for value in node.inputs]),)


register_op(
    "Einsum",
    ("inputs: N * T",),
    ("output: T",),
    {"equation": "string", "N": "int >= 1", "T": "{inexact, integral}"},
    _shape,
    traits=Traits(cost=computes(lambda sizes: 2 * sizes.elements_in)),
    doc="Sums of products in Einstein's convention; a letter twice in the result is a diagonal.",
)
