"""Accumulators of gradients, for steps that wait until enough replicas have contributed.

Each op exists in two forms, as in TensorFlow: for a reference, and with the prefix "Resource" for a
handle. Programs use the classes of `weft_io.queues.accumulator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import CREATES, READS, WAITS, WRITES
from weft_graph.ops.shape_rules import (
    fixed_shape,
    merge_size,
    scalar,
    with_rank,
    with_rank_at_least,
)
from weft_tensor.shape import Dims

_HOLDER_ATTRS = {
    "shape": "shape",
    "container": "string = ''",
    "shared_name": "string = ''",
    "reduction_type": "{'MEAN', 'SUM'} = 'MEAN'",
}
_NUMBER = {"dtype": "{numbertype}"}
_HOLDERS = (
    "ConditionalAccumulator",
    "ResourceConditionalAccumulator",
    "SparseConditionalAccumulator",
)


def _static_dims(handle: Output) -> Dims:
    node = handle.node
    dims: Dims = node.attrs["shape"] if node.type in _HOLDERS else None
    return dims


def _take_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "num_required")
    return (_static_dims(node.inputs[0]),)


def _sparse_take_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "num_required")
    dims = _static_dims(node.inputs[0])
    rank = None if dims is None else len(dims)
    return ((None,), None if dims is None else (None, *dims[1:]), (rank,))


def _apply_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "local_step")
    return ()


def _sparse_apply_shape(node: NodeSpec) -> Sequence[Dims]:
    _apply_shape(node)
    (rows,) = with_rank(node.inputs[2].dims, 1, "gradient_indices")
    values = with_rank_at_least(node.inputs[3].dims, 1, "gradient_values")
    if values is not None:
        merge_size(rows, values[0], "the number of indices and of rows")
    with_rank(node.inputs[4].dims, 1, "gradient_shape")
    return ()


def _step_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "new_global_step")
    return ()


def _declare(prefix: str, handle: str, of_handle: Dims) -> None:
    """Declare the ops for one kind of handle."""
    handle_arg = f"handle: {handle}"
    register_op(
        f"{prefix}ConditionalAccumulator",
        (),
        (handle_arg,),
        _NUMBER | _HOLDER_ATTRS,
        fixed_shape(of_handle),
        traits=CREATES,
        doc="The mean or the sum of gradients, kept in a container.",
    )
    register_op(
        f"{prefix}AccumulatorApplyGradient",
        (handle_arg, "local_step: int64", "gradient: dtype"),
        (),
        _NUMBER,
        _apply_shape,
        traits=WRITES,
        doc="Add a gradient, unless it is of an earlier step than the accumulator's.",
    )
    register_op(
        f"{prefix}AccumulatorTakeGradient",
        (handle_arg, "num_required: int32"),
        ("average: dtype",),
        _NUMBER,
        _take_shape,
        traits=WAITS,
        doc="Wait for so many gradients; their mean or sum.",
    )
    register_op(
        f"{prefix}AccumulatorSetGlobalStep",
        (handle_arg, "new_global_step: int64"),
        (),
        shape=_step_shape,
        traits=WRITES,
        doc="Set the accumulator's step.",
    )
    register_op(
        f"{prefix}AccumulatorNumAccumulated",
        (handle_arg,),
        ("num_accumulated: int32",),
        shape=scalar,
        traits=READS,
        doc="How many gradients have been added up.",
    )


_declare("", "Ref(string)", (2,))
_declare("Resource", "resource", ())
register_op(
    "SparseConditionalAccumulator",
    (),
    ("handle: Ref(string)",),
    _NUMBER | _HOLDER_ATTRS,
    fixed_shape((2,)),
    traits=CREATES,
    doc="The mean or the sum of sparse gradients, kept in a container.",
)
register_op(
    "SparseAccumulatorApplyGradient",
    (
        "handle: Ref(string)",
        "local_step: int64",
        "gradient_indices: int64",
        "gradient_values: dtype",
        "gradient_shape: int64",
    ),
    (),
    _NUMBER | {"has_known_shape": "bool"},
    _sparse_apply_shape,
    traits=WRITES,
    doc="Add a sparse gradient, unless it is of an earlier step than the accumulator's.",
)
register_op(
    "SparseAccumulatorTakeGradient",
    ("handle: Ref(string)", "num_required: int32"),
    ("indices: int64", "values: dtype", "shape: int64"),
    _NUMBER,
    _sparse_take_shape,
    traits=WAITS,
    doc="Wait for so many sparse gradients; their mean or sum, with increasing indices.",
)


def accumulator(
    op: str,
    dtype: Any,
    shape: Any = None,
    shared_name: str | None = None,
    reduction_type: str = "MEAN",
    name: str | None = None,
) -> Output:
    """Return the handle of an accumulator.

    Args:
      op: one of the three types of accumulators.
      dtype: element type of the gradients, a number.
      shape: static shape of a gradient.
      shared_name: the name it is shared under; the node's by default.
      reduction_type: "MEAN" or "SUM".
    """
    attrs = {
        "dtype": dtype,
        "shape": shape,
        "shared_name": shared_name or "",
        "reduction_type": reduction_type,
    }
    return out(op, (), attrs, name)


def _form(handle: Output) -> str:
    return "" if handle.dtype.is_ref else "Resource"


def apply_gradient(handle: Output, local_step: Any, gradient: Any, name: str | None = None) -> Node:
    """Add a gradient.

    Args:
      local_step: int64, shape (): the step that computed it.
      gradient: a tensor of the accumulator's type and shape.
    """
    op = f"{_form(handle)}AccumulatorApplyGradient"
    return create(op, [handle, local_step, gradient], None, name)


def take_gradient(handle: Output, num_required: Any, dtype: Any, name: str | None = None) -> Output:
    """Wait for gradients, then remove and return their mean or sum.

    Args:
      num_required: int32, shape ().
    """
    op = f"{_form(handle)}AccumulatorTakeGradient"
    return out(op, [handle, num_required], {"dtype": dtype}, name)


def set_global_step(handle: Output, new_global_step: Any, name: str | None = None) -> Node:
    """Set the accumulator's step: int64, shape ()."""
    op = f"{_form(handle)}AccumulatorSetGlobalStep"
    return create(op, [handle, new_global_step], None, name)


def num_accumulated(handle: Output, name: str | None = None) -> Output:
    """Return the number of accumulated gradients: int32, shape ()."""
    return out(f"{_form(handle)}AccumulatorNumAccumulated", [handle], None, name)


def apply_sparse_gradient(
    handle: Output,
    local_step: Any,
    indices: Any,
    values: Any,
    shape: Any = None,
    name: str | None = None,
) -> Node:
    """Add a sparse gradient.

    Args:
      local_step: int64, shape (): the step that computed it.
      indices: int64, shape (n,).
      values: shape (n, S).
      shape: shape of the whole tensor, int64; None if unknown.
    """
    inputs = [handle, local_step, indices, values, [] if shape is None else shape]
    attrs = {"has_known_shape": shape is not None}
    return create("SparseAccumulatorApplyGradient", inputs, attrs, name)


def take_sparse_gradient(
    handle: Output, num_required: Any, dtype: Any, name: str | None = None
) -> tuple[Output, Output, Output]:
    """Wait for sparse gradients; remove them and return their mean or sum."""
    node = create("SparseAccumulatorTakeGradient", [handle, num_required], {"dtype": dtype}, name)
    indices, values, shape = node.outputs
    return indices, values, shape
