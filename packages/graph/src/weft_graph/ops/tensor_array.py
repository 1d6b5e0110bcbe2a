"""Ops of TensorArrays, which one step writes and reads.

`weft_graph.control_flow.tensor_array` has the public class. Each op that uses an array has an input
`flow` from the last change, a float32 of rank 0 whose value is unused: it orders the ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.costs import free
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Role, State, Traits
from weft_graph.ops.shape_rules import (
    constant_array,
    constant_int,
    merge_size,
    with_rank,
    with_rank_at_least,
)
from weft_graph.ops.stack import producer
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, as_dims, compatible_dims, format_dims, merge_dims

_GRADIENTS = ("TensorArrayGradV3", "TensorArrayGradWithShape")

# ----------------------------------------------------------------------------- the array


def array_dims(handle: Output, dtype: DType) -> Dims:
    """Return the declared element shape of the array behind a handle, if known.

    Raises: InvalidTypeError: the element type is not `dtype`, or the handle is not one of a
      TensorArray.
    """
    node = producer(handle)
    lead: Dims = ()
    while node.type in _GRADIENTS:
        if node.type == "TensorArrayGradWithShape":
            element_dims = constant_value_as_dims(node.inputs[2])
            lead = None if lead is None or element_dims is None else (*lead, *element_dims)
        node = producer(node.inputs[0])
    if node.role in (Role.STACK, Role.VARIABLE):
        raise errors.InvalidTypeError(f"requires the handle of a TensorArray, got that of {node!r}")
    if node.role is not Role.TENSOR_ARRAY:
        return None
    if node.attrs["dtype"] is not dtype:
        raise errors.InvalidTypeError(
            f"the TensorArray {node.name!r} holds {node.attrs['dtype'].name}, "
            f"but it is used as {dtype.name}"
        )
    dims: Dims = node.attrs["element_shape"]
    return None if lead is None or dims is None else (*lead, *dims)


def _check_element(node: NodeSpec, dims: Dims) -> None:
    element_dims = array_dims(node.inputs[0], node.attrs["T"])
    if not compatible_dims(element_dims, dims):
        raise errors.InvalidArgumentError(
            f"the elements of the TensorArray must have shape {format_dims(element_dims)}, "
            f"got {format_dims(dims)}"
        )


def _rows(value: Output, count: Output) -> Dims:
    """Return the shape of a value's rows, after checking that there are `count` rows."""
    (num_indices,) = with_rank(count.dims, 1, "indices")
    dims = with_rank_at_least(value.dims, 1, "the value")
    if dims is None:
        return None
    merge_size(dims[0], num_indices, "the number of indices and the first size of the value")
    return dims[1:]


def piece_sizes(dims: Dims, lengths: Output) -> list[int] | None:
    """Return the static lengths into which a value is split.

    Raises: InvalidArgumentError: one is negative, or they do not add up to the first size.
    """
    static = constant_array(lengths)
    if static is None:
        return None
    sizes: list[int] = static.reshape(-1).tolist()
    total = dims[0] if dims else None
    if any(size < 0 for size in sizes) or (total is not None and sum(sizes) != total):
        raise errors.InvalidArgumentError(
            "lengths must be at least 0 and add up to the first size of shape "
            f"{format_dims(dims)}, got {sizes} with the sum {sum(sizes)}"
        )
    return sizes


# --------------------------------------------------------------------------- shape rules


def _array_shape(node: NodeSpec) -> Sequence[Dims]:
    dtype: DType = node.attrs["dtype"]
    if not dtype.is_numpy_compatible:
        raise errors.InvalidTypeError(f"a TensorArray cannot hold values of type {dtype.name}")
    with_rank(node.inputs[0].dims, 0, "size")
    size = constant_int(node.inputs[0])
    if size is not None and size < 0:
        raise errors.InvalidArgumentError(f"size must be at least 0, got {size}")
    return ((), ())


def _gradient_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "flow_in")
    return ((), ())


def _gradient_with_shape_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[2].dims, 1, "shape_to_prepend")
    return _gradient_shape(node)


def _write_shape(node: NodeSpec) -> Sequence[Dims]:
    _, index, value, flow = node.inputs
    with_rank(index.dims, 0, "index")
    with_rank(flow.dims, 0, "flow_in")
    _check_element(node, value.dims)
    return ((),)


def _read_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, index, flow = node.inputs
    with_rank(index.dims, 0, "index")
    with_rank(flow.dims, 0, "flow_in")
    return (array_dims(handle, node.attrs["dtype"]),)


def _gather_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, indices, flow = node.inputs
    (count,) = with_rank(indices.dims, 1, "indices")
    with_rank(flow.dims, 0, "flow_in")
    declared = array_dims(handle, node.attrs["dtype"])
    dims = merge_dims(declared, node.attrs["element_shape"])
    return (None if dims is None else (count, *dims),)


def _scatter_shape(node: NodeSpec) -> Sequence[Dims]:
    _, indices, value, flow = node.inputs
    with_rank(flow.dims, 0, "flow_in")
    _check_element(node, _rows(value, indices))
    return ((),)


def _concat_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, flow = node.inputs
    with_rank(flow.dims, 0, "flow_in")
    declared = array_dims(handle, node.attrs["dtype"])
    with_rank_at_least(declared, 1, "the elements to concatenate")
    inner_dims: Dims = merge_dims(
        None if declared is None else declared[1:], node.attrs["element_shape_except0"]
    )
    return (None if inner_dims is None else (None, *inner_dims), (None,))


def _split_shape(node: NodeSpec) -> Sequence[Dims]:
    _, value, lengths, flow = node.inputs
    with_rank(lengths.dims, 1, "lengths")
    with_rank(flow.dims, 0, "flow_in")
    dims = with_rank_at_least(value.dims, 1, "the value")
    piece_sizes(dims, lengths)
    _check_element(node, None if dims is None else (None, *dims[1:]))
    return ((),)


def _size_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "flow_in")
    return ((),)


# --------------------------------------------------------------------------- declarations

register_op(
    "TensorArrayV3",
    ("size: int32",),
    ("handle: resource", "flow: float"),
    {
        "dtype": "type",
        "element_shape": "shape = unknown",
        "dynamic_size": "bool = false",
        "clear_after_read": "bool = true",
        "identical_element_shapes": "bool = false",
        "tensor_array_name": "string = ''",
    },
    _array_shape,
    traits=Traits(state=State.STEP, role=Role.TENSOR_ARRAY, differentiable=False),
    doc="A new array, which exists as long as its handle.",
)
register_op(
    "TensorArrayGradV3",
    ("handle: resource", "flow_in: float"),
    ("grad_handle: resource", "flow_out: float"),
    {"source": "string"},
    _gradient_shape,
    traits=Traits(state=State.STEP),
    doc="The gradient array of an array, one for each source. Writes to it are summed.",
)
register_op(
    "TensorArrayGradWithShape",
    ("handle: resource", "flow_in: float", "shape_to_prepend: int32"),
    ("grad_handle: resource", "flow_out: float"),
    {"source": "string"},
    _gradient_with_shape_shape,
    traits=Traits(state=State.STEP),
    doc="Like TensorArrayGradV3, for gradients with additional leading axes.",
)
register_op(
    "TensorArrayWriteV3",
    ("handle: resource", "index: int32", "value: T", "flow_in: float"),
    ("flow_out: float",),
    {"T": "type"},
    _write_shape,
    traits=Traits(state=State.STEP, cost=free),
    doc="Stores an element.",
)
register_op(
    "TensorArrayReadV3",
    ("handle: resource", "index: int32", "flow_in: float"),
    ("value: dtype",),
    {"dtype": "type"},
    _read_shape,
    traits=Traits(state=State.STEP, cost=free),
    doc="Reads an element.",
)
register_op(
    "TensorArrayGatherV3",
    ("handle: resource", "indices: int32", "flow_in: float"),
    ("value: dtype",),
    {"dtype": "type", "element_shape": "shape = unknown"},
    _gather_shape,
    traits=Traits(state=State.STEP),
    doc="Elements of equal shapes, stacked along a new first axis.",
)
register_op(
    "TensorArrayScatterV3",
    ("handle: resource", "indices: int32", "value: T", "flow_in: float"),
    ("flow_out: float",),
    {"T": "type"},
    _scatter_shape,
    traits=Traits(state=State.STEP),
    doc="Stores the rows of a value as elements.",
)
register_op(
    "TensorArrayConcatV3",
    ("handle: resource", "flow_in: float"),
    ("value: dtype", "lengths: int64"),
    {"dtype": "type", "element_shape_except0": "shape = unknown"},
    _concat_shape,
    traits=Traits(state=State.STEP),
    doc="All elements concatenated along their first axis, and their sizes along it.",
)
register_op(
    "TensorArraySplitV3",
    ("handle: resource", "value: T", "lengths: int64", "flow_in: float"),
    ("flow_out: float",),
    {"T": "type"},
    _split_shape,
    traits=Traits(state=State.STEP),
    doc="Splits a value along its first axis, and stores the pieces as elements.",
)
register_op(
    "TensorArraySizeV3",
    ("handle: resource", "flow_in: float"),
    ("size: int32",),
    shape=_size_shape,
    traits=Traits(state=State.STEP, differentiable=False),
    doc="The number of elements, written or not.",
)
register_op(
    "TensorArrayCloseV3",
    ("handle: resource",),
    (),
    traits=Traits(state=State.STEP, differentiable=False),
    doc="Releases the contents of an array; later uses are errors.",
)

# --------------------------------------------------------------------------- functions


def _type(dtype: Any) -> DType:
    return dtypes.as_dtype(dtype).base_dtype


def tensor_array_v3(
    size: Any,
    dtype: Any,
    element_shape: Any = None,
    dynamic_size: bool = False,
    clear_after_read: bool = True,
    identical_element_shapes: bool = False,
    tensor_array_name: str = "",
    name: str | None = None,
) -> tuple[Output, Output]:
    """Create a new array each time it runs; return its handle and the initial flow.

    Args:
      size: int32, rank 0, at least 0.
      dtype: element type.
      element_shape: shape with which every element must be compatible; unknown by default.
      dynamic_size: grow the array on writes beyond the end.
      clear_after_read: remove an element when it is read.
      identical_element_shapes: require all elements to have the same shape.
      tensor_array_name: name in messages; the node's name by default.
    Raises: InvalidArgumentError: `size` is negative.
    """
    attrs = {
        "dtype": _type(dtype),
        "element_shape": as_dims(element_shape),
        "dynamic_size": dynamic_size,
        "clear_after_read": clear_after_read,
        "identical_element_shapes": identical_element_shapes,
        "tensor_array_name": tensor_array_name,
    }
    handle, flow = create("TensorArrayV3", [size], attrs, name).outputs
    return handle, flow


def tensor_array_grad_v3(
    handle: Any, flow_in: Any, source: str, name: str | None = None
) -> tuple[Output, Output]:
    """Return the handle and flow of an array's gradient array.

    It is created at the first use; then the forward array can no longer grow. Unwritten elements
    read as zeros of the shape of the forward elements.

    Args:
      handle: handle of the forward array, which may itself be a gradient array.
      flow_in: flow after the writes to the forward array.
      source: name that distinguishes several gradient arrays of one forward array.
    """
    node = create("TensorArrayGradV3", [handle, flow_in], {"source": source}, name)
    return node.outputs[0], node.outputs[1]


def tensor_array_grad_with_shape(
    handle: Any, flow_in: Any, shape_to_prepend: Any, source: str, name: str | None = None
) -> tuple[Output, Output]:
    """Return `tensor_array_grad_v3` with additional leading axes of each element.

    Args:
      shape_to_prepend: int32, rank 1: sizes of the leading axes.
    """
    inputs = [handle, flow_in, shape_to_prepend]
    node = create("TensorArrayGradWithShape", inputs, {"source": source}, name)
    return node.outputs[0], node.outputs[1]


def tensor_array_write_v3(
    handle: Any, index: Any, value: Any, flow_in: Any, name: str | None = None
) -> Output:
    """Store an element; return the new flow.

    Args:
      index: int32, rank 0.
      value: the array's element type and element shape; it is not copied.
    Raises (at run time): InvalidArgumentError: `index` is out of range or was written before, or
      the shape does not match.
    """
    return out("TensorArrayWriteV3", [handle, index, value, flow_in], None, name)


def tensor_array_read_v3(
    handle: Any, index: Any, flow_in: Any, dtype: Any, name: str | None = None
) -> Output:
    """Return an element.

    Args:
      index: int32, rank 0.
    Returns: the element; zeros if it was never written and the element shape is known.
    Raises (at run time): InvalidArgumentError: `index` is out of range or was read before, or the
      element was never written and its shape is unknown.
    """
    return out("TensorArrayReadV3", [handle, index, flow_in], {"dtype": _type(dtype)}, name)


def tensor_array_gather_v3(
    handle: Any,
    indices: Any,
    flow_in: Any,
    dtype: Any,
    element_shape: Any = None,
    name: str | None = None,
) -> Output:
    """Stack elements along a new first axis.

    Args:
      indices: int32, shape (N,).
      element_shape: static shape of the elements; required if N is 0.
    Returns: shape (N, *element_shape).
    Raises (at run time): InvalidArgumentError: as for a read, or shapes differ.
    """
    attrs = {"dtype": _type(dtype), "element_shape": as_dims(element_shape)}
    return out("TensorArrayGatherV3", [handle, indices, flow_in], attrs, name)


def tensor_array_scatter_v3(
    handle: Any, indices: Any, value: Any, flow_in: Any, name: str | None = None
) -> Output:
    """Store rows as elements; return the new flow.

    Args:
      indices: int32, shape (N,).
      value: shape (N, *element_shape).
    Raises (at run time): InvalidArgumentError: as for a write.
    """
    return out("TensorArrayScatterV3", [handle, indices, value, flow_in], None, name)


def tensor_array_concat_v3(
    handle: Any,
    flow_in: Any,
    dtype: Any,
    element_shape_except0: Any = None,
    name: str | None = None,
) -> tuple[Output, Output]:
    """Concatenate all elements along their first axis.

    Args:
      element_shape_except0: their static shape without the first axis; required if there are no
        elements.
    Returns: the concatenation, and the first size of each element: int64, shape (size,).
    Raises (at run time): InvalidArgumentError: as for a read, shapes differ in the other axes, or
      elements have rank 0.
    """
    attrs = {"dtype": _type(dtype), "element_shape_except0": as_dims(element_shape_except0)}
    node = create("TensorArrayConcatV3", [handle, flow_in], attrs, name)
    return node.outputs[0], node.outputs[1]


def tensor_array_split_v3(
    handle: Any, value: Any, lengths: Any, flow_in: Any, name: str | None = None
) -> Output:
    """Split a value and store the pieces as elements; return the new flow.

    Args:
      value: rank at least 1.
      lengths: int64, shape (size,): sizes of the pieces along the first axis.
    Raises (at run time): InvalidArgumentError: the errors of a write; or `lengths` do not add up to
      the first size of the value; or there is not one length for each element.
    """
    return out("TensorArraySplitV3", [handle, value, lengths, flow_in], None, name)


def tensor_array_size_v3(handle: Any, flow_in: Any, name: str | None = None) -> Output:
    """Return the number of elements: int32, shape ()."""
    return out("TensorArraySizeV3", [handle, flow_in], None, name)


def tensor_array_close_v3(handle: Any, name: str | None = None) -> Node:
    """Release the contents of an array; later uses are errors."""
    return create("TensorArrayCloseV3", [handle], None, name)
