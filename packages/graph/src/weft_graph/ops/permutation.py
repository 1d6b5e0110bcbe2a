"""Reordering of elements: transposition, reversal, rolling."""

from __future__ import annotations

__all__ = [
    "invert_permutation",
    "matrix_transpose",
    "reverse",
    "reverse_sequence",
    "roll",
    "transpose",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.costs import memory_cost
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ir.value_rules import arrays, value_rule
from weft_graph.ops.shape_rules import (
    constant_array,
    merge_size,
    normal_axes,
    normal_axis,
    with_rank,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims

_INT = "{int32, int64} = int32"

# ------------------------------------------------------------------------------ shape rules


def _transpose_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, perm = node.inputs[0].dims, node.inputs[1]
    static = constant_array(perm)
    if dims is None:
        length = perm.dims[0] if perm.dims else None
        return (None if length is None else (None,) * length,)
    if perm.dims is not None and perm.dims not in ((len(dims),), (None,)):
        raise errors.InvalidArgumentError(
            f"perm must have one entry per axis of {format_dims(dims)}, "
            f"got shape {format_dims(perm.dims)}"
        )
    if static is None:
        return ((None,) * len(dims),)
    order = static.tolist()
    check_permutation(order, len(dims))
    return (tuple([dims[i] for i in order]),)


def check_permutation(order: Sequence[int], rank: int) -> None:
    """Raise InvalidArgumentError unless `order` is a permutation of range(rank)."""
    if sorted(order) != list(range(rank)):
        raise errors.InvalidArgumentError(
            f"perm must be a permutation of 0 to {rank - 1}, got {list(order)}"
        )


def _vector_shape(node: NodeSpec) -> Sequence[Dims]:
    return (with_rank(node.inputs[0].dims, 1, "the permutation"),)


def _reverse_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, flags = node.inputs[0].dims, node.inputs[1].dims
    if dims is not None and flags is not None and flags not in ((len(dims),), (None,)):
        raise errors.InvalidArgumentError(
            f"dims must have one flag per axis of {format_dims(dims)}, got {format_dims(flags)}"
        )
    if dims is None and flags is not None and flags[0] is not None:
        return ((None,) * flags[0],)
    return (dims,)


def _reverse_v2_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, axes = node.inputs[0].dims, constant_array(node.inputs[1])
    if dims is not None and axes is not None:
        normal_axes(axes.reshape(-1).tolist(), len(dims))
    return (dims,)


def _reverse_sequence_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, lengths = node.inputs[0].dims, node.inputs[1].dims
    (count,) = with_rank(lengths, 1, "seq_lengths")
    if dims is None:
        return (None,)
    batch = normal_axis(node.attrs["batch_dim"], len(dims), "batch_dim")
    sequence_axis = normal_axis(node.attrs["seq_dim"], len(dims), "seq_dim")
    if batch == sequence_axis:
        raise errors.InvalidArgumentError(f"batch_dim and seq_dim must differ, both are {batch}")
    size = merge_size(dims[batch], count, "the batch size and the number of lengths")
    return ((*dims[:batch], size, *dims[batch + 1 :]),)


def _roll_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    axes = constant_array(node.inputs[2])
    if dims is not None and axes is not None:
        for axis in axes.reshape(-1).tolist():
            normal_axis(axis, len(dims))
    shift = node.inputs[1].dims
    if shift is not None and node.inputs[2].dims is not None and shift != node.inputs[2].dims:
        raise errors.InvalidArgumentError(
            f"shift and axis must have the same shape, got {format_dims(shift)} and "
            f"{format_dims(node.inputs[2].dims)}"
        )
    return (dims,)


# ------------------------------------------------------------------------------ values


@value_rule(partial=True)
def _reverse_value(node: Node, index: int, values: Values) -> Array | None:
    value, axes = arrays(values)
    return np.flip(value, tuple([int(n) for n in axes.tolist()]))


@value_rule(partial=True)
def _transpose_value(node: Node, index: int, values: Values) -> Array | None:
    value, perm = arrays(values)
    return np.transpose(value, [int(n) for n in perm.tolist()])


# ------------------------------------------------------------------------------ declarations
for _name, _cheap, _value in (
    ("Transpose", True, _transpose_value),
    ("ConjugateTranspose", False, None),
):
    register_op(
        _name,
        ("x: T", "perm: Tperm"),
        ("y: T",),
        {"T": "type", "Tperm": _INT},
        _transpose_shape,
        value=_value,
        traits=Traits(view=0, cheap=_cheap, cost=memory_cost),  # its consumers pay for the strides
    )
register_op(
    "InvertPermutation", ("x: T",), ("y: T",), {"T": _INT}, _vector_shape, traits=NOT_DIFFERENTIABLE
)
register_op("Reverse", ("tensor: T", "dims: bool"), ("output: T",), {"T": "type"}, _reverse_shape)
register_op(
    "ReverseV2",
    ("tensor: T", "axis: Tidx"),
    ("output: T",),
    {"Tidx": _INT, "T": "type"},
    _reverse_v2_shape,
    value=_reverse_value,
)
register_op(
    "ReverseSequence",
    ("input: T", "seq_lengths: Tlen"),
    ("output: T",),
    {"seq_dim": "int", "batch_dim": "int = 0", "T": "type", "Tlen": "{int32, int64} = int64"},
    _reverse_sequence_shape,
)
register_op(
    "Roll",
    ("input: T", "shift: Tshift", "axis: Taxis"),
    ("output: T",),
    {"T": "type", "Tshift": "{int32, int64}", "Taxis": "{int32, int64}"},
    _roll_shape,
)

# ---------------------------------------------------------------------------------- functions


def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Output:
    """Permute axes: axis i of the result is axis `perm[i]` of `a`.

    Args:
      a: any type, rank n.
      perm: a permutation of 0 to n - 1, shape (n,); the reverse order by default.
      conjugate: take the complex conjugate as well.
    Raises: InvalidArgumentError: `perm` is not a permutation.

    Examples:
      >>> wf.Session().run(wf.transpose([[1, 2, 3], [4, 5, 6]]))
      array([[1, 4],
             [2, 5],
             [3, 6]], dtype=int32)
    """
    value = convert_to_tensor(a)
    op = "ConjugateTranspose" if conjugate and value.dtype.is_complex else "Transpose"
    if perm is None:
        if value.dims is not None:
            perm = constant_of(np.arange(len(value.dims), dtype=np.int32)[::-1].copy())
        else:
            rank = out("Rank", [value])
            last = out("Sub", [rank, 1])
            perm = out("Sub", [last, out("Range", [0, rank, 1])])
    return out(op, [value, perm], name=name)


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Output:
    """Swap the last two axes.

    Args:
      a: any type, rank at least 2.
      conjugate: take the complex conjugate as well.
    Raises: InvalidArgumentError: the rank is below 2.

    Examples:
      >>> wf.Session().run(wf.matrix_transpose([[1, 2], [3, 4]]))
      array([[1, 3],
             [2, 4]], dtype=int32)
    """
    value = convert_to_tensor(a)
    if value.dims is not None:
        rank = len(value.dims)
        if rank < 2:
            raise errors.InvalidArgumentError(
                f"a matrix must have rank at least 2, got shape {format_dims(value.dims)}"
            )
        order = [*range(rank - 2), rank - 1, rank - 2]
        return transpose(value, constant_of(np.array(order, np.int32)), name, conjugate)
    count = out("Rank", [value])
    lead = out("Range", [0, out("Sub", [count, 2]), 1])
    tail = out("Pack", [[out("Sub", [count, 1]), out("Sub", [count, 2])]])
    return transpose(value, out("ConcatV2", [[lead, tail], 0]), name, conjugate)


def invert_permutation(x: Any, name: str | None = None) -> Output:
    """Return the permutation y with y[x[i]] = i: integers, shape (n,).

    Args:
      x: int32 or int64, shape (n,): a permutation of 0 to n - 1.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: at run time, `x` is not a permutation.

    Examples:
      >>> wf.Session().run(wf.invert_permutation([2, 0, 1]))
      array([1, 2, 0], dtype=int32)
    """
    return out("InvertPermutation", [x], name=name)


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Output:
    """Reverse the order of elements along the axes in `axis`, a vector of integers.

    Args:
      tensor: any type, any shape.
      axis: vector of integers; negative ones count from the end.
    Returns: shape and dtype of `tensor`.

    Examples:
      >>> wf.Session().run(wf.reverse([1, 2, 3], [0]))
      array([3, 2, 1], dtype=int32)
    """
    if isinstance(axis, int):
        axis = [axis]
    return out("ReverseV2", [tensor, axis], name=name)


def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Output:
    """Reverse the first `seq_lengths[i]` elements along `seq_axis`, for each i of `batch_axis`.

    Args:
      input: any type, shape (..., B, ..., L, ...).
      seq_lengths: integers in [0, L], shape (B,).
      seq_dim, batch_dim: deprecated names of the axes.

    Examples:
      >>> wf.Session().run(wf.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3], seq_axis=1))
      array([[2, 1, 3],
             [6, 5, 4]], dtype=int32)
    """
    sequence_axis = seq_axis if seq_axis is not None else seq_dim
    batch = batch_axis if batch_axis is not None else batch_dim
    if sequence_axis is None:
        raise errors.InvalidArgumentError("reverse_sequence requires seq_axis")
    attrs = {"seq_dim": sequence_axis, "batch_dim": batch or 0}
    return out("ReverseSequence", [input, seq_lengths], attrs, name)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Output:
    """Shift elements by `shift` along `axis`, wrapping around at the ends.

    Args:
      shift, axis: integers of rank 0, or vectors of the same length; axes may repeat.

    Examples:
      >>> wf.Session().run(wf.roll([1, 2, 3], 1, 0))
      array([3, 1, 2], dtype=int32)
    """
    as_int = dtypes.int32
    shift = shift if isinstance(shift, Output) else convert_to_tensor(shift, as_int)
    axis = axis if isinstance(axis, Output) else convert_to_tensor(axis, as_int)
    return out("Roll", [input, shift, axis], name=name)
