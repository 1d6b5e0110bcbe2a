"""Broadcasting of values to a shape, and of shapes."""

from __future__ import annotations

__all__ = [
    "broadcast_dynamic_shape",
    "broadcast_static_shape",
    "broadcast_to",
]
from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import (
    out,
)
from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.costs import memory_cost
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ops import array_values
from weft_graph.ops.shape_rules import with_rank
from weft_graph.ops.shapes import shape_vector
from weft_tensor import errors
from weft_tensor.shape import (
    Dims,
    TensorShape,
    as_dims,
    broadcast_dims,
    format_dims,
)

# ------------------------------------------------------------------------------ shape rules


def _broadcast_to_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    with_rank(node.inputs[1].dims, 1, "shape")
    target = constant_value_as_dims(node.inputs[1])
    if dims is None or target is None:
        return (target,)
    if len(dims) > len(target):
        raise errors.InvalidArgumentError(
            f"shape {format_dims(dims)} cannot be broadcast to the lower rank of "
            f"{format_dims(target)}"
        )
    for dim, expected in zip(reversed(dims), reversed(target), strict=False):
        if dim not in (1, None, expected) and expected is not None:
            raise errors.InvalidArgumentError(
                f"shape {format_dims(dims)} cannot be broadcast to {format_dims(target)}"
            )
    return (target,)


def _broadcast_args_shape(node: NodeSpec) -> Sequence[Dims]:
    (a,) = with_rank(node.inputs[0].dims, 1, "s0")
    (b,) = with_rank(node.inputs[1].dims, 1, "s1")
    return ((None if a is None or b is None else max(a, b),),)


def _two_vectors(node: NodeSpec) -> Sequence[Dims]:
    for value, label in zip(node.inputs, ("s0", "s1"), strict=True):
        with_rank(value.dims, 1, label)
    return (None,), (None,)


# ------------------------------------------------------------------------------ declarations
register_op(
    "BroadcastTo",
    ("input: T", "shape: Tidx"),
    ("output: T",),
    {"T": "type", "Tidx": "{int32, int64} = int32"},
    _broadcast_to_shape,
    value=array_values.broadcast_to_value,
    traits=Traits(reshapes=True, view=0, cheap=True, cost=memory_cost),
)
register_op(
    "BroadcastArgs",
    ("s0: T", "s1: T"),
    ("r0: T",),
    {"T": "{int32, int64} = int32"},
    _broadcast_args_shape,
    value=array_values.broadcast_args_value,
    traits=NOT_DIFFERENTIABLE,
    doc="The shape that shapes s0 and s1 broadcast to.",
)
register_op(
    "BroadcastGradientArgs",
    ("s0: T", "s1: T"),
    ("r0: T", "r1: T"),
    {"T": "{int32, int64} = int32"},
    _two_vectors,
    value=array_values.gradient_axes_value,
    traits=NOT_DIFFERENTIABLE,
    doc="The reduction axes for the gradients of two inputs of shapes s0 and s1.",
)

# --------------------------------------------------------------------------- functions


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Output:
    """Broadcast `input` to `shape` by NumPy's rule.

    Args:
      input: any type and shape.
      shape: list of ints, or a vector of integers.
    Returns: shape `shape`, dtype of `input`.
    Raises: InvalidArgumentError: the shape does not broadcast.

    Examples:
      >>> wf.Session().run(wf.broadcast_to([1, 2], [2, 2]))
      array([[1, 2],
             [1, 2]], dtype=int32)
    """
    return out("BroadcastTo", [input, shape_vector(shape)], name=name)


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Output:
    """Return the broadcast shape of two shapes as a vector of integers.

    Args:
      shape_x, shape_y: vectors of integers.
    Returns: a vector of integers.

    Examples:
      >>> wf.Session().run(wf.broadcast_dynamic_shape([2, 1], [3]))
      array([2, 3], dtype=int32)
    """
    return out("BroadcastArgs", [shape_vector(shape_x), shape_vector(shape_y)])


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """Return the broadcast shape of two static shapes.

    Args:
      shape_x, shape_y: TensorShapes, or values that convert to them.
    Raises: InvalidArgumentError: the shapes do not broadcast.

    Examples:
      >>> wf.broadcast_static_shape([2, 1], [3])
      TensorShape([Dimension(2), Dimension(3)])
    """
    return TensorShape(broadcast_dims(as_dims(shape_x), as_dims(shape_y)))
