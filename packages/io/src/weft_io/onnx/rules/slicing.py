"""Slices; ONNX's are those of Python, without masks, for the named axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import constant
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import maximum
from weft_graph.ops.array import zeros_like
from weft_graph.ops.comparison import less
from weft_graph.ops.division import floormod
from weft_graph.ops.gather import gather, tensor_scatter_nd_update
from weft_graph.ops.join import concat
from weft_graph.ops.masks import where_v2
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, shape, size
from weft_graph.ops.slicing import strided_slice
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, like
from weft_io.onnx.registry import exporter, importer
from weft_tensor import dtypes, errors

_FAR: Final = int(np.iinfo(np.int64).max)
_BEFORE: Final = int(np.iinfo(np.int64).min)
_COUNTED_FROM_THE_END: Final = 11
"""The first opset in which Gather accepts negative positions."""


@importer("Slice")
def _slice(operation: Operation) -> Output:
    starts, ends = operation.tensor(1, "starts"), operation.tensor(2, "ends")
    if starts is None or ends is None:
        raise errors.InvalidArgumentError("Slice requires starts and ends")
    axes = _constant_axes(operation, starts)
    if (
        operation[0].dims is None
        and axes is not None
        and (min(axes, default=0) < 0) == (max(axes, default=0) < 0)
    ):
        return _ranges(operation, operation[0], axes, starts, ends)
    x, order = operation.plain()
    if axes is None and operation.tensor(3, "axes") is None:  # the first ones
        operation.inputs[3:4] = [sequence(size(starts, out_type=dtypes.int64))]
    if axes is None:
        result = _ranges_of_computed_axes(operation, x, order, starts, ends)
    elif any(not -len(order) <= axis < len(order) for axis in axes):
        raise errors.InvalidArgumentError(
            f"axes of Slice must be in [{-len(order)}, {len(order)}), got {list(axes)}"
        )
    else:
        result = _ranges(operation, x, [order[axis] for axis in axes], starts, ends)
    return operation.transposed(result, order)


def _constant_axes(operation: Operation, starts: Output) -> list[int] | None:
    """Return the sliced axes; None if they are not constant."""
    if operation.tensor(3, "axes") is None:
        count = (starts.dims or (None,))[0]
        return None if count is None else list(range(count))
    if operation.get(3) is None:
        return [int(axis) for axis in operation.attribute("axes")]
    known_axes = operation.value(3)
    return None if known_axes is None else [int(axis) for axis in known_axes.reshape(-1)]


def _ranges(
    operation: Operation, x: Output, axes: Sequence[int], starts: Output, ends: Output
) -> Output:
    """Return a range for each axis, all counted from the front or all from the end."""
    if not axes:
        return x
    steps = operation.get(4)
    for name, item in (("starts", starts), ("ends", ends), ("steps", steps)):
        if item is not None and item.dims not in (None, (None,), (len(axes),)):
            raise errors.InvalidArgumentError(
                f"Slice requires {len(axes)} {name}, got shape {list(item.dims or ())}"
            )
    if steps is not None:
        starts = _clamp_starts(x, axes, starts, steps)
    from_end = axes[0] < 0
    first = min(axes) - 1 if from_end else 0  # one more, for all the axes before
    positions = [axis - first for axis in axes]
    size = max(positions) + 1
    full_mask = sum(1 << i for i in range(size) if i not in positions)
    return strided_slice(
        x,
        _entries(starts, positions, size, 0),
        _entries(ends, positions, size, 0),
        None if steps is None else _entries(steps, positions, size, 1),
        begin_mask=full_mask,
        end_mask=full_mask,
        ellipsis_mask=int(from_end),
    )


def _clamp_starts(x: Output, axes: Sequence[int], starts: Output, steps: Output) -> Output:
    """Return the starts of ranges, clamped to the first element for negative steps.

    Python's slice is empty there, whereas ONNX starts at the first element.
    """
    begin, step_values = constant_value(starts), constant_value(steps)
    if step_values is not None and (
        np.all(step_values > 0) or (begin is not None and np.all(begin >= -1))
    ):
        return starts
    dtype = starts.dtype.base_dtype
    sizes = shape(x, out_type=dtype)
    sizes = gather(sizes, floormod(constant(list(axes), dtype), shape(sizes, out_type=dtype)[0]))
    return where_v2(less(steps, like(0, steps)), maximum(starts, -sizes), starts)


def _entries(values: Output, positions: Sequence[int], size: int, default: int) -> Output:
    """Return a vector with `values` at some positions and a default elsewhere."""
    if list(positions) == list(range(size)):
        return values
    known_values = constant_value(values)
    dtype = values.dtype.base_dtype
    if known_values is not None:
        entries: Any = np.full(size, default, dtype.numpy)
        entries[list(positions)] = known_values
        return constant(entries)
    index = np.zeros(size, np.int64)
    index[list(positions)] = np.arange(1, len(positions) + 1)
    return gather(concat([constant([default], dtype), values], 0), constant(index))


def _ranges_of_computed_axes(
    operation: Operation, x: Output, order: Sequence[int], starts: Output, ends: Output
) -> Output:
    axes, steps, index = operation[3], operation.get(4), starts.dtype.base_dtype
    chosen = floormod(axes, like(len(order), axes))
    rows = expand_dims(gather(constant(order, axes.dtype.base_dtype), chosen), 1)
    sizes = shape(x, out_type=index)
    begin = tensor_scatter_nd_update(zeros_like(sizes), rows, starts)
    end = tensor_scatter_nd_update(sizes, rows, ends)
    if steps is None:
        return strided_slice(x, begin, end)
    unit_steps = zeros_like(sizes) + like(1, sizes)
    step_values = tensor_scatter_nd_update(unit_steps, rows, steps)
    begin = where_v2(less(step_values, like(0, step_values)), maximum(begin, -sizes), begin)
    return strided_slice(x, begin, end, step_values)


@exporter("Slice")
def _write_slice(export: NodeExport) -> Value:
    begin, size = export.value(1), export.value(2)
    if begin is not None and size is not None:
        ends = [_FAR if n == -1 else int(b + n) for b, n in zip(begin, size, strict=True)]
        if not ends:
            return export[0]
        return export.add("Slice", export[0], export.ints(begin), export.ints(ends))
    starts, sizes = export.int64(export[1]), export.int64(export[2])
    full_mask = export.add("Equal", sizes, export.ints(-1), dtype=dtypes.bool_)
    stops = export.add("Add", starts, sizes)
    stops = export.add("Where", full_mask, export.ints(_FAR), stops, dtype=dtypes.int64)
    return export.add("Slice", export[0], starts, stops)


@dataclass
class _Part:
    """The effect of a strided slice on the axes of its input.

    Attributes:
      axes, steps: the sliced axes of the input.
      starts, ends: the bounds of each axis: a number, or a vector of one element.
      gone: axes of the input that are reduced to one element and removed.
      picked: the same for positions that are vectors of one element.
      new: axes of the result with one element.
      fronts: for axes that are cropped at the end first, the new ends.
    """

    axes: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    starts: list[int | Value] = field(default_factory=list)
    ends: list[int | Value] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    picked: list[tuple[int, Value]] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    fronts: dict[int, int] = field(default_factory=dict)


@exporter("StridedSlice")
def _write_strided_slice(export: NodeExport) -> Value:
    part = _part(export)
    result = export[0]
    if part.fronts:
        bounds = [0] * len(part.fronts), list(part.fronts.values()), list(part.fronts)
        result = export.add("Slice", result, *map(export.ints, bounds))
    if part.axes:
        starts, ends = _vector(export, part.starts), _vector(export, part.ends)
        result = export.add(
            "Slice", result, starts, ends, export.ints(part.axes), export.ints(part.steps)
        )
    if part.gone:
        result = export.add("Squeeze", result, export.ints(part.gone))
    for axis, index in reversed(part.picked):
        position = axis - sum(item < axis for item in part.gone)
        result = export.add("Gather", result, export.reshape(index, []), axis=position)
    if part.new:
        result = export.add("Unsqueeze", result, export.ints(part.new))
    return result


def _part(export: NodeExport) -> _Part:
    steps = export.known(3, "the strides")
    masks = {
        name: int(export.attribute(f"{name}_mask"))
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    count, result, axis, position = len(steps), _Part(), 0, 0
    for i in range(count):
        bit = 1 << i
        if masks["ellipsis"] & bit:
            later = sum(1 for j in range(i + 1, count) if not masks["new_axis"] >> j & 1)
            skipped = export.rank() - axis - later
            axis, position = axis + skipped, position + skipped
        elif masks["new_axis"] & bit:
            result.new.append(position)
            position += 1
        else:
            if masks["shrink_axis"] & bit:
                _shrink(export, result, i, axis)
            else:
                is_open = (bool(masks["begin"] & bit), bool(masks["end"] & bit))
                _cut(export, result, i, axis, int(steps[i]), is_open)
                position += 1
            axis += 1
    return result


def _shrink(export: NodeExport, slice_parts: _Part, i: int, axis: int) -> None:
    """Export an axis with a single index: a slice up to the next element, or to the end."""
    start = _entry(export, 1, i)
    if isinstance(start, Value) and export.opset >= _COUNTED_FROM_THE_END:
        slice_parts.picked.append((axis, start))
        return
    slice_parts.axes.append(axis)
    slice_parts.gone.append(axis)
    slice_parts.steps.append(1)
    slice_parts.starts.append(start)
    if isinstance(start, int):
        slice_parts.ends.append(_FAR if start == -1 else start + 1)
        return
    last = export.add("Equal", start, export.ints([-1]), dtype=dtypes.bool_)
    next_index = export.add("Add", start, export.ints([1]))
    slice_parts.ends.append(
        export.add("Where", last, export.ints([_FAR]), next_index, dtype=dtypes.int64)
    )


def _cut(
    export: NodeExport, slice_parts: _Part, i: int, axis: int, step: int, is_open: tuple[bool, bool]
) -> None:
    open_begin, open_end = is_open
    if open_begin and open_end and step == 1:
        return
    start = (0 if step > 0 else _FAR) if open_begin else _entry(export, 1, i)
    end = (_FAR if step > 0 else _BEFORE) if open_end else _entry(export, 2, i)
    dims = export.node.inputs[0].dims
    size = None if dims is None else dims[axis]
    if step < 0 and isinstance(start, int) and start < -1 and (size is None or start < -size):
        # There is nothing before the first element, but ONNX starts at the first one.
        slice_parts.fronts[axis] = start + 1
        if isinstance(end, int) and _BEFORE < end < 0:
            end = min(end - start, 0) - 1
        start = -1
    slice_parts.axes.append(axis)
    slice_parts.steps.append(step)
    slice_parts.starts.append(start)
    slice_parts.ends.append(end)


def _entry(export: NodeExport, index: int, i: int) -> int | Value:
    """Return one element of an input: a number if it is known, else a vector of one element."""
    known_entries = export.value(index)
    if known_entries is not None:
        return int(known_entries[i])
    partial = constant_value(export.node.inputs[index], partial=True)
    if partial is not None and partial[i] is not None:
        return int(partial[i])
    packed = export.node.inputs[index].node
    if packed.type == "Pack":
        return export.vector(export.at(packed.inputs[i]))
    return export.add("Gather", export.int64(export[index]), export.ints([i]), axis=0)


def _vector(export: NodeExport, entries: list[int | Value]) -> Value:
    known_numbers = [item for item in entries if isinstance(item, int)]
    if len(known_numbers) == len(entries):
        return export.ints(known_numbers)
    parts = [export.ints([item]) if isinstance(item, int) else item for item in entries]
    return parts[0] if len(parts) == 1 else export.add("Concat", *parts, axis=0)
