"""Shape rules of ops with sparse inputs: indices [n,rank], values [n], shape [rank]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, ValueRule, Values
from weft_graph.ir.value_rules import value_rule
from weft_graph.ops.shape_rules import constant_array, merge_size, vector_as_dims, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims, merge_dims


@dataclass(frozen=True, slots=True)
class Form:
    """Static facts about a sparse input: number of stored elements, rank and dense shape."""

    count: int | None
    rank: int | None
    dims: Dims

    @property
    def table(self) -> Dims:
        """The shape of the indices."""
        return (self.count, self.rank)


def form_of(parts: Sequence[Output], label: str = "") -> Form:
    """Return the form of a sparse input.

    Raises: InvalidArgumentError: the shapes of its parts do not match, or a size is negative.
    """
    indices, values, shape = parts
    count, rank = with_rank(indices.dims, 2, f"{label}indices")
    (values_count,) = with_rank(values.dims, 1, f"{label}values")
    dims = vector_as_dims(shape, f"{label}shape")
    (length,) = with_rank(shape.dims, 1, f"{label}shape")
    return Form(
        merge_size(count, values_count, f"the numbers of {label}indices and {label}values"),
        merge_size(rank, length, f"the axes of {label}indices and {label}shape"),
        dims,
    )


def form_at(node: NodeSpec, position: int = 0, label: str = "") -> Form:
    """Return the form of the sparse input whose parts start at input index `position`."""
    return form_of(node.inputs[position : position + 3], label)


def same_shape_forms(node: NodeSpec) -> tuple[Form, Form]:
    """Return the forms of two sparse operands of the same shape, the first six inputs.

    Raises: InvalidArgumentError: their shapes differ.
    """
    a, b = form_at(node, 0, "a_"), form_at(node, 3, "b_")
    rank = merge_size(a.rank, b.rank, "the ranks of sparse operands")
    dims = merge_dims(a.dims, b.dims)
    return Form(a.count, rank, dims), Form(b.count, rank, dims)


def axes_of(value: Output, rank: int | None) -> Sequence[int] | None:
    """Return the static reduction axes as sorted nonnegative indices.

    Raises: InvalidArgumentError: one is out of range.
    """
    static = constant_array(value)
    if static is None or rank is None:
        return None
    axis_list = static.reshape(-1).tolist()
    for axis in axis_list:
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(
                f"a reduction axis must be in [{-rank}, {rank}) for rank {rank}, got {axis}"
            )
    return sorted({axis % rank for axis in axis_list})


def value_from(output: int, source: int) -> ValueRule:
    """Return a value rule: output `output` has the value of input `source`."""

    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        return values[source] if index == output else None

    return value_rule(needs=(source,), partial=True)(evaluate)
