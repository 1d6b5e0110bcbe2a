"""Export of concatenation, stacking and splitting."""

from __future__ import annotations

from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.registry import exporter
from weft_tensor import dtypes, errors


@exporter("ConcatV2", "Concat")
def _write_concat(export: NodeExport) -> Value:
    last = export.node.type == "ConcatV2"
    values = export.inputs()[:-1] if last else export.inputs()[1:]
    axis = int(export.known(len(values) if last else 0, "the axis"))
    return _join(export, values, axis)


def _join(export: NodeExport, values: list[Value], axis: int) -> Value:
    """Concatenate values; transposed values are concatenated before the transposition."""
    orders = {None if v.untransposed is None else v.untransposed[1] for v in values}
    order = next(iter(orders))
    if len(orders) > 1 or order is None:
        return export.add("Concat", *values, axis=axis)
    sources = [value.untransposed[0] for value in values if value.untransposed is not None]
    return export.transposed(export.add("Concat", *sources, axis=order[axis % len(order)]), order)


@exporter("Pack")
def _write_pack(export: NodeExport) -> Value:
    axis = int(export.attribute("axis"))
    if all(value.dtype is dtypes.int32 and _is_size(value) for value in export.inputs()):
        # Sizes of a shape stay int64 all the way.
        wide = [export.vector(value) for value in export.inputs()]
        if export.rank() == 0:
            return export.narrow(export.add("Concat", *wide, axis=0), dtypes.int32)
    parts = [export.add("Unsqueeze", value, export.ints([axis])) for value in export.inputs()]
    return export.add("Concat", *parts, axis=axis)


def _is_size(value: Value) -> bool:
    return value.array is not None or value.wide is not None


@exporter("Unpack")
def _write_unpack(export: NodeExport) -> list[Value | None]:
    axis, count = int(export.attribute("axis")), len(export.node.outputs)
    if not count:
        return []
    parts = _parts(export, export[0], axis, [1] * count)
    return [export.add("Squeeze", part, export.ints([axis])) for part in parts]


@exporter("Split")
def _write_split(export: NodeExport) -> list[Value | None]:
    axis = int(export.known(0, "the axis"))
    size, count = export.dims(1)[axis], len(export.node.outputs)
    if size is not None:
        return [*_parts(export, export[1], axis, [size // count] * count)]
    kinds = [None] * count
    return [*export.add_many("Split", export[1], dtypes=kinds, axis=axis, num_outputs=count)]


@exporter("SplitV")
def _write_split_v(export: NodeExport) -> list[Value | None]:
    axis = int(export.known(2, "the axis"))
    sizes = [int(size) for size in export.known(1, "the sizes")]
    if -1 in sizes:
        axis_size = export.dims()[axis]
        if axis_size is None:
            raise errors.UnimplementedError(
                "a size of -1 requires a known size of the axis to split"
            )
        sizes[sizes.index(-1)] = axis_size - sum(sizes) - 1
    return [*_parts(export, export[0], axis, sizes)]


def _parts(export: NodeExport, x: Value, axis: int, sizes: list[int]) -> list[Value]:
    """Split a value along an axis; a transposed value is split before the transposition."""
    kinds = [None] * len(sizes)
    if x.untransposed is None:
        return export.add_many("Split", x, export.ints(sizes), dtypes=kinds, axis=axis)
    source, order = x.untransposed
    axis = order[axis % len(order)]
    parts = export.add_many("Split", source, export.ints(sizes), dtypes=kinds, axis=axis)
    return [export.transposed(part, order) for part in parts]
