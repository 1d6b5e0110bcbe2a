"""Arrays of tensors, exported as ONNX sequences or as tensors of their rows."""

from __future__ import annotations

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_io.onnx.export_graph import Filling, Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.registry import exporter
from weft_tensor import dtypes, errors
from weft_tensor.shape import as_dims

# -------------------------------------------------------------------------------- export


@exporter("TensorArrayV3")
def _write_array(export: NodeExport) -> list[Value | None]:
    """Export a new array of zeros; elements of unknown shape are empty."""
    dtype, dims = export.attribute("dtype"), as_dims(export.attribute("element_shape"))
    handle = export.constant(0, dtypes.int32)  # only the flow counts
    same_shapes = bool(export.attribute("identical_element_shapes"))
    if _grows(export.node):
        result = export.empty_sequence(dtype)
        result.filling = (
            Filling(None, dims) if same_shapes and export.of(export.node.inputs[0]) == 0 else None
        )
        return [handle, result]
    has_known_dims = dims is not None and None not in dims
    inner = export.ints(dims if has_known_dims else [0])
    sizes = export.add("Concat", export.vector(export[0]), inner, axis=0)
    if not has_known_dims:  # a placeholder: the shape of later writes is unknown
        sizes = export.add("Compress", sizes, export.constant([True, True]), axis=0)
    filling = Filling(export[0], dims) if same_shapes else None
    rows = export.filled(0, sizes, dtype)
    return [handle, Value(dtype, sequence=True, rows=rows, filling=filling)]


def _grows(node: Node) -> bool:
    return bool(node.attrs["dynamic_size"])


def _find_creator(handle: Output) -> Node:
    """Return the node that created an array."""
    node = handle.node
    while node.role is not Role.TENSOR_ARRAY:
        node = node.inputs[0].node
    return node


@exporter("TensorArrayWriteV3")
def _write_write(export: NodeExport) -> Value:
    """Export a write; a growing array must be written in order, as ONNX requires."""
    value, index = export[2], export.reshape(export.int64(export[1]), [])
    old_filling = export[3].filling
    flow = export.add("SequenceInsert", export.sequence(3), value, index, sequence=True)
    if not _grows(_find_creator(export.node.inputs[0])):
        next_index = export.add("Add", index, export.ints(1))
        flow = export.add("SequenceErase", flow, next_index, sequence=True)
    flow.filling = None if old_filling is None else old_filling.with_write(index, value)
    return flow


@exporter("TensorArrayReadV3")
def _write_read(export: NodeExport) -> Value:
    rows, index = export[2].rows, export.reshape(export.int64(export[1]), [])
    if rows is not None:
        return export.add("Gather", rows, index, axis=0)
    return export.add("SequenceAt", export[2], index)


@exporter("TensorArrayGatherV3")
def _write_gather(export: NodeExport) -> Value:
    rows = export[2].rows
    if rows is None:
        rows = export.add("ConcatFromSequence", export[2], axis=0, new_axis=1)
    return rows if _is_all(export, 1) else export.add("Gather", rows, export.int64(export[1]))


@exporter("TensorArrayScatterV3")
def _write_scatter(export: NodeExport) -> Value:
    if not _is_all(export, 1):
        raise errors.UnimplementedError("a growing TensorArray must be written in order")
    rows = export[2]
    rows.dims = export.node.inputs[2].dims if rows.dims is None else rows.dims
    return Value(rows.dtype, sequence=True, rows=rows)


def _is_all(export: NodeExport, index: int) -> bool:
    """Return True if indices select all elements in order, as in `stack` and `unstack`."""
    known_indices, node = export.value(index), export.node.inputs[index].node
    if known_indices is not None:
        return bool(np.array_equal(known_indices, np.arange(known_indices.size)))
    if node.type != "Range":
        return False
    bounds = [export.of(source) for source in (node.inputs[0], node.inputs[2])]
    return [None if item is None else int(item) for item in bounds] == [0, 1]


@exporter("TensorArraySizeV3")
def _write_size(export: NodeExport) -> Value:
    rows = export[1].rows
    if rows is None:
        count = export.add("SequenceLength", export[1], dtype=dtypes.int64)
    else:
        sizes = export.add("Shape", rows, dtype=dtypes.int64)
        count = export.add("Gather", sizes, export.ints(0))
    return export.narrow(count, dtypes.int32)


@exporter("TensorArrayConcatV3")
def _write_concat(export: NodeExport) -> list[Value | None]:
    return [export.add("ConcatFromSequence", export.sequence(1), axis=0), None]


@exporter("TensorArraySplitV3")
def _write_split(export: NodeExport) -> Value:
    return export.add("SplitToSequence", export[1], export[2], axis=0, sequence=True)
