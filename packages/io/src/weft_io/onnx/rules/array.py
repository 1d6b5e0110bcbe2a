"""Shapes, slices and arrangements of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import constant
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import clip_by_value, maximum, minimum
from weft_graph.ops.array import fill, zeros_like
from weft_graph.ops.broadcasting import broadcast_dynamic_shape, broadcast_to
from weft_graph.ops.casting import bitcast
from weft_graph.ops.comparison import equal, greater_equal, less, less_equal
from weft_graph.ops.division import floormod
from weft_graph.ops.gather import dynamic_stitch, gather, tensor_scatter_nd_update
from weft_graph.ops.join import concat, split, tile
from weft_graph.ops.masks import where, where_v2
from weft_graph.ops.padding import pad
from weft_graph.ops.permutation import reverse_sequence, transpose
from weft_graph.ops.reduction import reduce_prod
from weft_graph.ops.search import setdiff1d
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape, shape, size, squeeze
from weft_graph.ops.slicing import slice as part
from weft_graph.ops.space_to_batch import depth_to_space, space_to_depth
from weft_graph.ops.string_conversion import as_string, to_number
from weft_io.onnx.element_types import onnx_type
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like, rank_of
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.transpositions import channels_first, inverse
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

_MAX_PIECES: Final = 1 << 16
"""Maximum number of pieces of a Split; each piece is a node's output."""


def shape64(x: Output) -> Output:
    """Return the shape as int64, ONNX's type."""
    return shape(x, out_type=dtypes.int64)


@importer("Cast", elementwise=True)
def _cast(operation: Operation) -> Output:
    x, target = operation[0], operation.dtype_of("to", dtypes.float32)
    if target in (dtypes.float32, dtypes.float64) and x.dtype.is_integer:
        return operation.cast_to_floats(x, target)
    return convert_elements(x, target, bool(operation.attribute("saturate", 1)))


@importer("CastLike")
def _cast_like(operation: Operation) -> Output:
    target = operation[1].dtype.base_dtype
    return convert_elements(operation[0], target, bool(operation.attribute("saturate", 1)))


def convert_elements(x: Output, target: DType, saturate: bool = True) -> Output:
    """Convert elements to another type; text is parsed and formatted as in ONNX.

    Args:
      saturate: convert overflows of small float types to the largest value instead of infinity.
    """
    if x.dtype.base_dtype is target:
        return x
    if target is dtypes.string:
        return as_string(x, shortest=True) if x.dtype.is_floating else as_string(x)
    if x.dtype is dtypes.string:
        if target in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
            return to_number(x, target)
        return cast(to_number(x, dtypes.float32), target)
    if saturate and target.is_small and target.is_floating and not x.dtype.is_small:
        max_value = float(target.max)
        return cast(clip_by_value(cast(x, dtypes.float32), -max_value, max_value), target)
    return cast(x, target)


@importer("BitCast")
def _bitcast(operation: Operation) -> Output:
    x, target = operation[0], operation.dtype_of("to", dtypes.float32)
    if x.dtype.is_bool or target.is_bool:
        return cast(x, target)
    return bitcast(x, target)


@importer("Reshape")
def _reshape(operation: Operation) -> Output:
    x, target_shape = operation[0], operation.tensor(1, "shape")
    if target_shape is None:
        raise errors.InvalidArgumentError("Reshape requires a shape")
    if operation.attribute("allowzero", 0):
        return reshape(x, target_shape)
    known_shape = operation.operand(1, "shape") if operation.value(1) is not None else None
    if operation.get(1) is None:
        known_shape = np.asarray(operation.attribute("shape"))
    if known_shape is not None and not np.any(known_shape == 0):
        return reshape(x, target_shape)
    # Zeros mean the sizes of the input.
    sizes = concat([shape64(x), zeros_like(target_shape)], 0)[: size(target_shape)]
    return reshape(x, where_v2(equal(target_shape, like(0, target_shape)), sizes, target_shape))


@importer("Flatten")
def _flatten(operation: Operation) -> Output:
    x, count = operation[0], operation.rank()
    axis = operation.attribute("axis", 1)
    if not -count <= axis <= count:
        raise errors.InvalidArgumentError(
            f"axis of Flatten must be in [{-count}, {count}], got {axis}"
        )
    sizes = shape64(x)
    axis = axis + count if axis < 0 else axis
    return reshape(x, [reduce_prod(sizes[:axis]), reduce_prod(sizes[axis:])])


@importer("Transpose")
def _transpose(operation: Operation) -> Output:
    x, order = operation[0], operation.attribute("perm")
    if order is None or x.dims is None or sorted(order) != list(range(len(x.dims))):
        return transpose(x, order)
    return operation.transposed(x, order)


@importer("Squeeze")
def _squeeze(operation: Operation) -> Output:
    x, axes = operation[0], operation.tensor(1, "axes")
    if axes is None:
        return squeeze(x)
    known_axes = operation.operand(1, "axes") if operation.value(1) is not None else None
    if operation.get(1) is None:
        known_axes = np.asarray(operation.attribute("axes"))
    if known_axes is not None:
        return squeeze(x, [int(item) for item in known_axes.reshape(-1)]) if known_axes.size else x
    remaining_axes = _complement_axes(axes, cast(rank_of(x), dtypes.int64))
    return reshape(x, gather(shape64(x), remaining_axes))


@importer("Unsqueeze")
def _unsqueeze(operation: Operation) -> Output:
    x, axes = operation[0], operation.tensor(1, "axes")
    if axes is None:
        raise errors.InvalidArgumentError("Unsqueeze requires axes")
    known_axes = operation.value(1) if operation.get(1) is not None else operation.attribute("axes")
    if known_axes is not None and x.dims is None and _is_one_sided(np.asarray(known_axes)):
        order = sorted(np.asarray(known_axes).reshape(-1).tolist(), key=abs)
        return reduce(lambda result, axis: expand_dims(result, operation.shared(axis)), order, x)
    if known_axes is not None and x.dims is not None:
        axis_list = np.asarray(known_axes).reshape(-1)
        count = len(x.dims) + len(axis_list)
        if np.any(axis_list < -count) or np.any(axis_list >= count):
            raise errors.InvalidArgumentError(
                f"axes of Unsqueeze must be in [{-count}, {count}), got {axis_list.tolist()}"
            )
        for axis in sorted(int(item) % count for item in axis_list):
            x = expand_dims(x, operation.shared(axis))
        return x
    axes = reshape(axes, [-1])
    count64 = cast(rank_of(x), dtypes.int64) + size(axes, out_type=dtypes.int64)
    places64 = floormod(axes, count64)
    remaining_axes = cast(_complement_axes(axes, count64), dtypes.int32)
    unit_sizes = zeros_like(places64) + like(1, places64)
    return reshape(
        x, dynamic_stitch([remaining_axes, cast(places64, dtypes.int32)], [shape64(x), unit_sizes])
    )


def _is_one_sided(axes: np.ndarray[Any, Any]) -> bool:
    """Return True if axes can be inserted one after the other for any rank."""
    distinct = len(set(axes.reshape(-1).tolist())) == axes.size
    return distinct and bool(np.all(axes >= 0) or np.all(axes < 0))


def _complement_axes(axes: Output, count: Output) -> Output:
    """Return the axes that are not among `axes`, which may be negative."""
    return setdiff1d(sequence(count), floormod(reshape(axes, [-1]), count))[0]


@importer("Expand")
def _expand(operation: Operation) -> Output:
    x = operation[0]
    return broadcast_to(x, broadcast_dynamic_shape(shape64(x), operation[1]))


@importer("Tile")
def _tile(operation: Operation) -> Output:
    if operation.version >= 6:
        return tile(operation[0], operation[1])
    times, axis = operation.known(1, "tiles"), operation.known(2, "axis")
    counts = [1] * operation.rank()
    if times.size != 1 or axis.size != 1 or not 0 <= axis.item() < len(counts):
        raise errors.InvalidArgumentError(
            f"Tile requires one count and one axis in [0, {len(counts)}), "
            f"got {times.tolist()} and {axis.tolist()}"
        )
    counts[int(axis.item())] = int(times.item())
    return tile(operation[0], counts)


@importer("Concat")
def _concat(operation: Operation) -> Output:
    values = [operation[index] for index in range(len(operation.inputs))]
    axis = operation.attribute("axis", 1)
    if len(values) == 1:
        return values[0]
    if any(item.dims is None for item in values):
        return concat(values, axis)
    sources = [operation.plain(index) for index in range(len(values))]
    order = sources[0][1]
    if any(item[1] != order for item in sources) or order == sorted(order):
        return concat(values, axis)
    return operation.transposed(concat([x for x, _ in sources], order[operation.axis()]), order)


@importer("Split")
def _split(operation: Operation) -> list[Output]:
    x, order = operation.plain()
    return [operation.transposed(item, order) for item in _pieces(operation, x, order)]


def _pieces(operation: Operation, x: Output, order: Sequence[int]) -> list[Output]:
    axis = order[operation.axis()]
    sizes = operation.tensor(1, "split")
    count = operation.attribute("num_outputs") or operation.num_outputs
    if not 0 < count <= _MAX_PIECES:
        raise errors.InvalidArgumentError(f"Split supports 1 to {_MAX_PIECES} parts, got {count}")
    if sizes is not None:
        return split(x, sizes, axis, num=count)
    total = x.dims[axis] if x.dims is not None else None
    if total is not None:
        return split(x, _even_sizes(total, count), axis)
    if operation.attribute("num_outputs") is None:  # before version 18, of equal sizes
        return split(x, count, axis)
    largest = (shape64(x)[axis] + (count - 1)) // count
    remaining_sizes = shape64(x)[axis] - largest * constant(np.arange(count))
    return split(
        x, clip_by_value(remaining_sizes, like(0, remaining_sizes), largest), axis, num=count
    )


def _even_sizes(total: int, count: int) -> list[int]:
    """Return the sizes of the pieces of an axis; the last may be smaller."""
    largest = -(-total // count)
    return [max(min(largest, total - largest * index), 0) for index in range(count)]


@importer("Pad")
def _pad(operation: Operation) -> Output:
    x, order = operation.plain()
    return operation.transposed(_pad_sides(operation, x, _sides(operation, order)), order)


def _sides(operation: Operation, order: Sequence[int]) -> Output:
    """Return the padding of each axis of the untransposed input, shape (rank, 2)."""
    count, pads, axes = len(order), operation.tensor(1, "pads"), operation.get(3)
    if pads is None:
        pads = constant(operation.required("paddings"), dtypes.int64)
    known_pads, axis_indices = constant_value(pads), np.arange(count)
    if axes is not None and known_pads is not None:
        chosen = constant_value(axes)
        known_pads, axis_indices = (
            (None, axis_indices) if chosen is None else (known_pads, chosen % max(count, 1))
        )
    if known_pads is not None:
        all_pads = np.zeros((count, 2), np.int64)
        all_pads[np.asarray(order)[axis_indices]] = known_pads.reshape(2, -1).T
        return constant(all_pads)
    sides = transpose(reshape(pads, [2, -1]))
    if axes is not None:
        rows = expand_dims(floormod(cast(axes, dtypes.int64), like(count, sides)), 1)
        none = constant(np.zeros((count, 2), np.int64))
        sides = tensor_scatter_nd_update(none, rows, sides)
    if order != sorted(order):
        sides = gather(sides, constant(inverse(order), dtypes.int64))
    return sides


def _pad_sides(operation: Operation, x: Output, sides: Output) -> Output:
    mode = operation.attribute("mode", "constant")
    if mode == "constant":
        value: Any = operation.get(2)
        if value is None:
            value = operation.attribute("value", 0.0)
        return pad_axes(x, sides, value)
    if mode not in ("reflect", "edge", "wrap"):
        raise errors.InvalidArgumentError(
            f"mode of Pad must be constant, reflect, edge or wrap, got {mode!r}"
        )
    x, sides = _crop(x, sides)
    known_sides = constant_value(sides)
    for axis in range(operation.rank()):
        if known_sides is not None and not known_sides[axis].any():
            continue
        x = gather(x, _mirror(mode, shape64(x)[axis], sides[axis, 0], sides[axis, 1]), axis=axis)
    return x


def _crop(x: Output, sides: Output) -> tuple[Output, Output]:
    """Crop a tensor by the negative paddings, and return it with the others."""
    known_sides = constant_value(sides)
    if known_sides is not None and np.all(known_sides >= 0):
        return x, sides
    zero = like(0, sides)
    cut = minimum(sides, zero)
    begin = -cut[:, 0]
    return part(x, begin, cast(shape64(x), cut.dtype) - begin + cut[:, 1]), maximum(sides, zero)


def pad_axes(x: Output, sides: Output, value: Any = 0) -> Output:
    """Pad with `value`, and crop where the padding is negative."""
    if not isinstance(value, Output):
        value = constant(value, x.dtype.base_dtype) if x.dtype is not dtypes.string else b""
    if not isinstance(value, Output) or value.dims != ():
        value = reshape(value, [])
    known_sides = constant_value(sides)
    if known_sides is not None and np.all(known_sides >= 0):
        return pad(x, sides, constant_values=value)
    zero = like(0, sides)
    enlarged = pad(x, maximum(sides, zero), constant_values=value)
    return _crop(enlarged, minimum(sides, zero))[0]


def _mirror(mode: str, count: Output, leading: Output, trailing: Output) -> Output:
    """Return the input position of each position of a padded axis."""
    axis_list = sequence(-leading, count + trailing)
    if mode == "edge":
        return maximum(minimum(axis_list, count - 1), like(0, axis_list))
    if mode == "wrap":
        return floormod(axis_list, count)
    period = maximum(2 * count - 2, like(1, count))
    axis_list = floormod(axis_list, period)
    return where_v2(less(axis_list, count), axis_list, period - axis_list)


@importer("ConstantOfShape")
def _constant_of_shape(operation: Operation) -> Output:
    value = operation.attribute("value")
    filled = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(-1)[0]
    return fill(operation[0], constant(filled))


@importer("Range")
def _range(operation: Operation) -> Output:
    start, limit, delta = (reshape(operation[i], []) for i in range(3))
    if start.dtype in (dtypes.int16, dtypes.float16, dtypes.bfloat16):
        wide = dtypes.int32 if start.dtype.is_integer else dtypes.float32
        return cast(sequence(cast(start, wide), cast(limit, wide), cast(delta, wide)), start.dtype)
    return sequence(start, limit, delta)


@importer("EyeLike")
def _eye_like(operation: Operation) -> Output:
    x, k = operation[0], operation.attribute("k", 0)
    dtype = operation.dtype_of("dtype", x.dtype.base_dtype)
    sizes = shape64(x)
    rows = expand_dims(sequence(sizes[0]), 1)
    return cast(equal(sequence(sizes[1]) - rows, constant(k, dtypes.int64)), dtype)


@importer("Trilu")
def _trilu(operation: Operation) -> Output:
    x, k = operation[0], operation.get(1)
    offset = constant(0, dtypes.int64) if k is None else reshape(k, [])
    sizes = shape64(x)
    rows = expand_dims(sequence(sizes[operation.rank() - 2]), 1)
    distance = sequence(sizes[operation.rank() - 1]) - rows
    rule = greater_equal if operation.attribute("upper", 1) else less_equal
    return where_v2(rule(distance, offset), x, zeros_like(x))


@importer("ReverseSequence")
def _reverse_sequence(operation: Operation) -> Output:
    return reverse_sequence(
        operation[0],
        operation[1],
        seq_axis=operation.attribute("time_axis", 0),
        batch_axis=operation.attribute("batch_axis", 1),
    )


@importer("Compress")
def _compress(operation: Operation) -> Output:
    x, remaining_axes = operation[0], where(operation[1])[:, 0]
    if operation.attribute("axis") is None:
        return gather(reshape(x, [-1]), remaining_axes)
    return gather(x, remaining_axes, axis=operation.axis())


@importer("NonZero")
def _non_zero(operation: Operation) -> Output:
    return transpose(where(operation[0]))


@importer("DepthToSpace")
def _depth_to_space(operation: Operation) -> Output:
    x, block = operation[0], operation.required("blocksize")
    if operation.attribute("mode", "DCR") == "DCR":
        return depth_to_space(x, block, data_format="NCHW")
    n, c, h, w = (shape64(x)[axis] for axis in range(4))
    parts = reshape(x, [n, c // (block * block), block, block, h, w])
    return reshape(
        transpose(parts, [0, 1, 4, 2, 5, 3]), [n, c // (block * block), h * block, w * block]
    )


@importer("SpaceToDepth")
def _space_to_depth(operation: Operation) -> Output:
    x, block = operation[0], operation.required("blocksize")
    if operation.attribute("mode", "DCR") == "DCR":
        return space_to_depth(x, block, data_format="NCHW")
    n, c, h, w = (shape64(x)[axis] for axis in range(4))
    parts = reshape(x, [n, c, h // block, block, w // block, block])
    return reshape(
        transpose(parts, [0, 1, 3, 5, 2, 4]), [n, c * block * block, h // block, w // block]
    )


# -------------------------------------------------------------------------------- export


@exporter("Cast")
def _write_cast(export: NodeExport) -> Value:
    kind = export.node.outputs[0].dtype
    if export.attribute("Truncate"):
        raise errors.UnimplementedError(
            "ONNX rounds to the nearest number; export requires Truncate=False"
        )
    if export[0].array is not None or export[0].dtype is kind:
        return export.cast(export[0], kind)
    if export[0].dtype is dtypes.int32 and kind is dtypes.int64 and export[0].wide is not None:
        return export[0].wide
    return export.elementwise("Cast", export[0], dtype=kind, to=onnx_type(kind))


@exporter("Reshape")
def _write_reshape(export: NodeExport) -> Value:
    sizes = export.value(1)
    if sizes is None or 0 in sizes:  # which otherwise means a size of the input
        return export.add("Reshape", export[0], export.int64(export[1]), allowzero=1)
    return export.reshape(export[0], [int(size) for size in sizes])


@exporter("Transpose")
def _write_transpose(export: NodeExport) -> Value:
    order = export.known(1, "the permutation")
    return export.transposed(export[0], [int(axis) % len(order) for axis in order])


@exporter("ExpandDims")
def _write_expand_dims(export: NodeExport) -> Value:
    return export.add("Unsqueeze", export[0], export.vector(export[1]))


@exporter("Squeeze")
def _write_squeeze(export: NodeExport) -> Value:
    axes = export.attribute("squeeze_dims")
    return export.add("Squeeze", export[0], export.ints(list(axes)) if axes else None)


@exporter("Shape", "ShapeN")
def _write_shape(export: NodeExport) -> list[Value | None]:
    return [
        export.narrow(export.add("Shape", x, dtype=dtypes.int64), output.dtype)
        for x, output in zip(export.inputs(), export.node.outputs, strict=True)
    ]


@exporter("Size")
def _write_size(export: NodeExport) -> Value:
    result = export.add("Size", export[0], dtype=dtypes.int64)
    return export.narrow(result, export.node.outputs[0].dtype)


@exporter("Rank")
def _write_rank(export: NodeExport) -> Value:
    sizes = export.add("Shape", export[0], dtype=dtypes.int64)
    return export.narrow(export.add("Size", sizes), dtypes.int32)


@exporter("Fill")
def _write_fill(export: NodeExport) -> Value:
    return export.add("Expand", export[1], export.int64(export[0]))


@exporter("BroadcastTo")
def _write_broadcast(export: NodeExport) -> Value:
    return export.add("Expand", export[0], export.int64(export[1]))


@exporter("ZerosLike", "OnesLike")
def _write_like(export: NodeExport) -> Value:
    number = export.like(int(export.node.type == "OnesLike"), export[0])
    return export.add("Expand", number, export.add("Shape", export[0], dtype=dtypes.int64))


@exporter("IdentityN", "EnsureShape")
def _write_as_it_is(export: NodeExport) -> list[Value | None]:
    return [*export.inputs()]


@exporter("Tile")
def _write_tile(export: NodeExport) -> Value:
    return export.add("Tile", export[0], export.int64(export[1]))


@exporter("Range")
def _write_range(export: NodeExport) -> Value:
    return export.add("Range", *export.inputs())


@exporter("Pad", "PadV2")
def _write_pad(export: NodeExport) -> Value:
    if export.node.inputs[0].dims == ():
        return export[0]
    value = export[2] if export.node.type == "PadV2" else export.like(0, export[0])
    return export.add("Pad", export[0], _write_sides(export), value, mode="constant")


@exporter("MirrorPad")
def _write_mirror_pad(export: NodeExport) -> Value:
    if export.attribute("mode") != "REFLECT":
        raise errors.UnimplementedError("ONNX supports only mode='REFLECT'")
    return export.add("Pad", export[0], _write_sides(export), mode="reflect")


def _write_sides(export: NodeExport) -> Value:
    """Return the padding in ONNX's order: all leading ones, then all trailing ones."""
    sides = export.value(1)
    if sides is not None:
        return export.ints(sides.T.ravel())
    return export.reshape(export.transposed(export.int64(export[1]), [1, 0]), [-1])


@exporter("ReverseV2")
def _write_reverse(export: NodeExport) -> Value:
    axes = [int(axis) for axis in export.known(1, "the axes")]
    if not axes:
        return export[0]
    int64_range = np.iinfo(np.int64)
    starts, ends = [int64_range.max] * len(axes), [int64_range.min] * len(axes)
    parts = (export.ints(item) for item in (starts, ends, axes, [-1] * len(axes)))
    return export.add("Slice", export[0], *parts)


@exporter("SpaceToDepth", "DepthToSpace")
def _write_space(export: NodeExport) -> Value:
    first = export.attribute("data_format", "NHWC") != "NHWC"
    order = [0, 1, 2, 3] if first else channels_first(4)
    x, size = export.transposed(export[0], order), int(export.attribute("block_size"))
    return export.transposed(export.add(export.node.type, x, blocksize=size), inverse(order))


@exporter("ReverseSequence")
def _write_reverse_sequence(export: NodeExport) -> Value:
    batch, time = int(export.attribute("batch_dim")), int(export.attribute("seq_dim"))
    if {batch, time} != {0, 1}:
        raise errors.UnimplementedError("ONNX's ReverseSequence supports only axes 0 and 1")
    lengths = export.int64(export[1])
    return export.add("ReverseSequence", export[0], lengths, batch_axis=batch, time_axis=time)
