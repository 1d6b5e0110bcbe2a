"""TensorArrays, lowered to tensors whose first axis indexes the elements; the flow is the tensor.

The size and the element shape of an array are known when it is created, except for open sizes: an
array with open sizes has no elements until the first is written.
"""

from __future__ import annotations

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.ops.stack import producer
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.lowered import Value
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.tables import AxisOptions, RowsOptions


@rule("TensorArrayV3")
def make(node: Node, b: Builder) -> None:
    """Lower to a Fill with zeros; the first axis of the result is that of the elements."""
    first = b.shapes.value(node.inputs[0])
    size = b.shapes.named.get(node.name, (first,))[0]
    if size is None or (node.attrs["dynamic_size"] and node.name not in b.shapes.named):
        raise NotInLiteError(
            "its number of elements is unknown: pass the largest number as "
            f"bounds={{{node.name!r}: [...]}}"
        )
    element = b.shapes.element(node)
    flow = b.new(node.name, node.attrs["dtype"].name, (int(size), *element))
    b.arrays.add(flow)
    b.same(node.outputs[1], flow)
    declared = node.attrs["element_shape"] or (None,) * len(element)
    started = [
        limit if static_size is not None or not b.open else 0
        for static_size, limit in zip(declared, element, strict=True)
    ]
    zero = b.constant(f"{node.name}/zero", np.zeros((), node.attrs["dtype"].as_numpy_dtype))
    if first is not None and (b.array(node.inputs[0]) is not None or not b.open):
        shape = b.ints(f"{node.name}/shape", [int(first), *started])
    else:
        shape = b.new(f"{node.name}/shape", "int32", (1 + len(started),))
        shape.declared = shape.shape
        count = b.new(f"{node.name}/size", "int32", (1,))
        count.declared = (1,)
        one = b.ints(f"{node.name}/one", [1])
        b.add(OpKind.Reshape, [b.value(node.inputs[0]), one], [count], None, node.name)
        remaining = b.ints(f"{node.name}/element", started)
        b.add(OpKind.Concat, [count, remaining], [shape], AxisOptions(0), node.name)
    b.add(OpKind.Fill, [shape, zero], [flow], None, node.name)


def array_of(flow: Output, b: Builder) -> Value:
    """Return the value of an array's flow."""
    value = b.value(flow)
    if value not in b.arrays:
        raise NotInLiteError("its TensorArray cannot be converted")
    return value


def _is_all_elements(indices: Output, handle: Output, rows: int | None, b: Builder) -> bool:
    """Return True if the indices are those of all elements, in order."""
    node = indices.node
    constant = b.array(indices)
    if constant is not None:
        return rows is not None and np.array_equal(constant, np.arange(rows))
    if node.type != "Range" or b.array(node.inputs[0]) != 0 or b.array(node.inputs[2]) != 1:
        return False
    limit, size = node.inputs[1], producer(handle).inputs[0]
    if limit.node.type == "TensorArraySizeV3":
        return producer(limit.node.inputs[0]) is producer(handle)
    return limit is size


@rule("TensorArrayWriteV3", "TensorArrayScatterV3")
def write(node: Node, b: Builder) -> None:
    """Lower to SetRows; a scatter that writes all elements of a new array replaces the array."""
    handle, indices, value, flow = node.inputs
    array = array_of(flow, b)
    rows = b.value(value)
    scatters = node.type == "TensorArrayScatterV3"
    fresh = flow.node.role is Role.TENSOR_ARRAY
    if scatters and fresh and _fills(indices, handle, rows, b):
        all_rows = rows
        b.arrays.add(all_rows)
    else:
        all_rows = b.like(array, node.name)
        grows = RowsOptions(bool(producer(handle).attrs["dynamic_size"]))
        b.add(OpKind.SetRows, [array, b.value(indices), rows], [all_rows], grows, node.name)
    b.same(node.outputs[0], all_rows)


def _fills(indices: Output, handle: Output, rows: Value, b: Builder) -> bool:
    """Return True if a scatter writes all elements, as `unstack` does with a range."""
    if _is_all_elements(indices, handle, rows.shape[0], b):
        return True
    node = indices.node
    return (
        node.type == "Range"
        and b.array(node.inputs[0]) == 0
        and b.array(node.inputs[2]) == 1
        and b.shapes.value(node.inputs[1]) == rows.shape[0]
        and b.shapes.value(producer(handle).inputs[0]) == rows.shape[0]
    )


@rule("TensorArrayReadV3")
def read(node: Node, b: Builder) -> None:
    """Lower to Gather with a single index."""
    _, index, flow = node.inputs
    array = array_of(flow, b)
    result = b.new(node.name, node.outputs[0].dtype.name, array.shape[1:])
    b.same(node.outputs[0], result)
    b.add(OpKind.Gather, [array, b.value(index)], [result], AxisOptions(0), node.name)


@rule("TensorArrayGatherV3")
def gather(node: Node, b: Builder) -> None:
    """Lower to Gather; reading all elements in order returns the array itself."""
    handle, indices, flow = node.inputs
    array = array_of(flow, b)
    if _is_all_elements(indices, handle, array.shape[0], b):
        result = array
    else:
        value = b.value(indices)
        result = b.new(node.name, node.outputs[0].dtype.name, (*value.shape, *array.shape[1:]))
        b.add(OpKind.Gather, [array, value], [result], AxisOptions(0), node.name)
    b.same(node.outputs[0], result)


@rule("TensorArrayConcatV3")
def concat(node: Node, b: Builder) -> None:
    """Lower to a Reshape that joins the first two axes."""
    array = array_of(node.inputs[1], b)
    if b.open or len(array.shape) < 2:
        raise NotInLiteError("elements to concatenate must have one static shape")
    count, length, *remaining = array.shape
    result = b.new(node.name, node.outputs[0].dtype.name, (count * length, *remaining))
    target = b.ints(f"{node.name}/shape", result.shape)
    b.add(OpKind.Reshape, [array, target], [result], None, node.name)
    b.same(node.outputs[0], result)
    lengths = np.full(count, length, np.int64)
    b.same(node.outputs[1], b.constant(f"{node.name}/lengths", lengths))


@rule("TensorArraySplitV3")
def split(node: Node, b: Builder) -> None:
    """Lower to a Reshape of the value to (pieces, size, ...)."""
    _, value, lengths, flow = node.inputs
    sizes = b.require_array(lengths, "the lengths of a split")
    if b.open or sizes.size == 0 or (sizes != sizes[0]).any():
        raise NotInLiteError("pieces must have equal static sizes")
    if flow.node.role is not Role.TENSOR_ARRAY:
        raise NotInLiteError("the pieces of a split must be written to a new array")
    rows = b.value(value)
    shape = (sizes.size, int(sizes[0]), *rows.shape[1:])
    result = b.new(node.name, value.dtype.name, shape)
    b.arrays.add(result)
    b.add(OpKind.Reshape, [rows, b.ints(f"{node.name}/shape", shape)], [result], None, node.name)
    b.same(node.outputs[0], result)


@rule("TensorArraySizeV3")
def size(node: Node, b: Builder) -> None:
    """Lower to a constant, or to the first size of the array at run time."""
    array = array_of(node.inputs[1], b)
    if not b.open:
        b.same(node.outputs[0], b.constant(node.name, np.int32(array.shape[0])))
        return
    shape = b.new(f"{node.name}/shape", "int32", (len(array.shape),))
    shape.declared = shape.shape
    b.add(OpKind.Shape, [array], [shape], None, node.name)
    result = b.new(node.name, "int32", ())
    first = b.constant(f"{node.name}/first", np.int32(0))
    b.add(OpKind.Gather, [shape, first], [result], AxisOptions(0), node.name)
    b.same(node.outputs[0], result)


@rule("TensorArrayCloseV3")
def ignore_close(node: Node, b: Builder) -> None:
    """Do nothing, because arrays need not be closed on a device."""
