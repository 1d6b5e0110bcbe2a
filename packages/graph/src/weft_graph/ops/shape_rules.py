"""Shape rules shared by the op families, and their building blocks.

A rule is a function from a `NodeSpec` to one `Dims` per output.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce as _fold
from typing import Any

import numpy as np

from weft_graph.ir.constant_value import constant_value, constant_value_as_dims
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.shape import Dims, broadcast_dims, format_dims, merge_dims

Array = np.ndarray[Any, Any]

# --------------------------------------------------------------------------- whole rules


def same_shape(node: NodeSpec) -> Sequence[Dims]:
    """Shape rule: one output with the shape of the first input."""
    return (node.inputs[0].dims,)


def broadcast(node: NodeSpec) -> Sequence[Dims]:
    """Shape rule: one output with the broadcast shape of the first two inputs."""
    a, b = node.inputs[0].dims, node.inputs[1].dims
    return (a,) if a == b else (broadcast_dims(a, b),)


def merged_shape(node: NodeSpec) -> Sequence[Dims]:
    """Shape rule: one output with the common shape of all inputs."""
    return (_fold(merge_dims, [value.dims for value in node.inputs]),)


def scalar(node: NodeSpec) -> Sequence[Dims]:
    """Shape rule: one output of rank 0."""
    return ((),)


def reduce(node: NodeSpec) -> Sequence[Dims]:
    """Shape rule of a reduction over the axes in the second input, with the attribute keep_dims."""
    dims, axes_dims = node.inputs[0].dims, node.inputs[1].dims
    if axes_dims is not None and len(axes_dims) > 1:
        raise errors.InvalidArgumentError(
            f"axes must have rank 0 or 1, got shape {format_dims(axes_dims)}"
        )
    if dims is None:
        return (None,)
    keep = node.attrs["keep_dims"]
    axes = constant_array(node.inputs[1])
    if axes is None:
        return ((None,) * len(dims) if keep else None,)
    reduced = normal_axes(axes.reshape(-1).tolist(), len(dims))
    if keep:
        return (tuple([1 if i in reduced else size for i, size in enumerate(dims)]),)
    return (tuple([size for i, size in enumerate(dims) if i not in reduced]),)


def matmul(node: NodeSpec) -> Sequence[Dims]:
    """Shape rule of the product of two matrices, with transpose_a and transpose_b."""
    a = with_rank(node.inputs[0].dims, 2, "MatMul: a")
    b = with_rank(node.inputs[1].dims, 2, "MatMul: b")
    m, k = (a[1], a[0]) if node.attrs["transpose_a"] else a
    k2, n = (b[1], b[0]) if node.attrs["transpose_b"] else b
    check_inner(k, k2, a, b)
    return ((m, n),)


def batch_matmul(node: NodeSpec) -> Sequence[Dims]:
    """Shape rule of batched matrix products, with adj_x and adj_y; leading axes broadcast."""
    a = with_rank_at_least(node.inputs[0].dims, 2, "the first operand")
    b = with_rank_at_least(node.inputs[1].dims, 2, "the second operand")
    if a is None or b is None:
        return (None,)
    m, k = (a[-1], a[-2]) if node.attrs["adj_x"] else a[-2:]
    k2, n = (b[-1], b[-2]) if node.attrs["adj_y"] else b[-2:]
    check_inner(k, k2, a, b)
    lead = broadcast_dims(a[:-2], b[:-2])
    return (None if lead is None else (*lead, m, n),)


# --------------------------------------------------------------------------- makers of rules


def fixed_shape(*shapes: Dims) -> ShapeRule:
    """Return a shape rule with constant shapes."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        return shapes

    return rule


def unknown(count: int = 1) -> ShapeRule:
    """Return a shape rule with `count` outputs of unknown rank."""
    return fixed_shape(*(None,) * count)


def merged_shape_of(*inputs: int) -> ShapeRule:
    """Return a shape rule: one output with the common shape of the inputs at some indices."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        return (_fold(merge_dims, [node.inputs[i].dims for i in inputs]),)

    return rule


def with_rank_checks(rule: ShapeRule, **ranks: int) -> ShapeRule:
    """Return `rule` preceded by checks of the ranks of the inputs `_0`, `_1`, …."""
    input_ranks = [(int(key.lstrip("_")), rank) for key, rank in ranks.items()]

    def with_ranks(node: NodeSpec) -> Sequence[Dims]:
        for i, rank in input_ranks:
            with_rank(node.inputs[i].dims, rank, f"input {i}")
        return rule(node)

    return with_ranks


# --------------------------------------------------------------------------- parts of rules


def with_rank(dims: Dims, rank: int, label: str) -> tuple[int | None, ...]:
    """Return `dims`, checked to have the rank `rank`; unknown sizes if the rank is unknown.

    Raises: InvalidArgumentError: the rank differs; the message starts with `label`.
    """
    if dims is None:
        return (None,) * rank
    if len(dims) != rank:
        raise errors.InvalidArgumentError(
            f"{label} must have rank {rank}, got shape {format_dims(dims)}"
        )
    return dims


def with_rank_at_least(dims: Dims, rank: int, label: str) -> Dims:
    """Return `dims`, checked to have at least the rank `rank` or an unknown rank.

    Raises: InvalidArgumentError: the rank is smaller; the message starts with `label`.
    """
    if dims is not None and len(dims) < rank:
        raise errors.InvalidArgumentError(
            f"{label} must have rank at least {rank}, got shape {format_dims(dims)}"
        )
    return dims


def merge_size(a: int | None, b: int | None, label: str) -> int | None:
    """Return the common size of two axes.

    Raises: InvalidArgumentError: both are known and differ; the message starts with `label`.
    """
    if a is None or a == b:
        return b
    if b is None:
        return a
    raise errors.InvalidArgumentError(f"{label} must agree, got {a} and {b}")


def check_inner(k: int | None, k2: int | None, a: Dims, b: Dims) -> None:
    """Check the inner sizes of a matrix product.

    Raises: InvalidArgumentError: both are known and differ.
    """
    if k is not None and k2 is not None and k != k2:
        raise errors.InvalidArgumentError(
            f"a matrix product requires equal inner sizes, got {k} and {k2} from shapes "
            f"{format_dims(a)} and {format_dims(b)}"
        )


def normal_axis(axis: int, rank: int, label: str = "axis") -> int:
    """Return `axis` as a nonnegative index.

    Raises: InvalidArgumentError: it is not in [-rank, rank).
    """
    if not -rank <= axis < rank:
        raise errors.InvalidArgumentError(
            f"{label} must be in [{-rank}, {rank}) for rank {rank}, got {axis}"
        )
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Iterable[int], rank: int) -> list[int]:
    """Return the axes as sorted nonnegative indices.

    Raises: InvalidArgumentError: one is out of range or repeated.
    """
    positions: list[int] = []
    for axis in axes:
        position = normal_axis(axis, rank)
        if position in positions:
            raise errors.InvalidArgumentError(f"axis {axis} occurs twice; the rank is {rank}")
        positions.append(position)
    return positions


def constant_array(value: Output) -> Array | None:
    """Return the static value of an output, or None."""
    if value.node.role is Role.CONSTANT:
        array: Array = value.node.attrs["value"]
        return array
    return constant_value(value)


def check_filler(value: Dims, dims: Dims, label: str) -> None:
    """Check that a fill value is a scalar or broadcasts to a shape.

    Raises: InvalidArgumentError: it does not broadcast; the message starts with `label`.
    """
    if value is None or dims is None:
        return
    padded_dims = (1,) * (len(value) - len(dims)) + dims
    pairs = zip(reversed(value), reversed(padded_dims), strict=False)
    if any(n not in (1, None, m) and m is not None for n, m in pairs):
        raise errors.InvalidArgumentError(
            f"{label} must be one value, or broadcast to {format_dims(dims)}, got shape "
            f"{format_dims(value)}"
        )


def scalar_int(value: Output, label: str) -> int | None:
    """Return `constant_int` of an input that must have rank 0.

    Raises: InvalidArgumentError: the rank differs; the message starts with `label`.
    """
    with_rank(value.dims, 0, label)
    return constant_int(value)


def vector_as_dims(value: Output, label: str) -> Dims:
    """Return `constant_value_as_dims` of an input, which must have rank 1.

    Raises: InvalidArgumentError: the rank is not 1, or a size is negative; the message starts with
      `label`.
    """
    with_rank(value.dims, 1, label)
    static = constant_array(value)
    if static is not None and (static < 0).any():
        raise errors.InvalidArgumentError(
            f"{label} must have sizes of at least 0, got {static.tolist()}"
        )
    return constant_value_as_dims(value)


def constant_int(value: Output) -> int | None:
    """Return the static value of an integer output of rank 0, or None.

    Raises: InvalidArgumentError: it is known and has more than one element.
    """
    array = constant_array(value)
    if array is None:
        return None
    if array.size != 1:
        raise errors.InvalidArgumentError(
            f"requires one integer, got an array of shape {list(array.shape)}"
        )
    return int(array.reshape(-1)[0])
