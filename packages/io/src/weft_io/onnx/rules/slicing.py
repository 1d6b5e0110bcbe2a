"""Parts of tensors on the way to ONNX, whose slices are Python's without masks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from weft_graph.ir.constant_value import constant_value
from weft_io.onnx.node_export import NodeExport, Value
from weft_io.onnx.registry import exporter
from weft_tensor import dtypes

_FAR: Final = int(np.iinfo(np.int64).max)
_BEFORE: Final = int(np.iinfo(np.int64).min)


@exporter("Slice")
def _write_slice(export: NodeExport) -> Value:
    begin, size = export.value(1), export.value(2)
    if begin is not None and size is not None:
        ends = [_FAR if n == -1 else int(b + n) for b, n in zip(begin, size, strict=True)]
        if not ends:
            return export[0]
        return export.add("Slice", export[0], export.ints(begin), export.ints(ends))
    starts, sizes = export.int64(export[1]), export.int64(export[2])
    whole = export.add("Equal", sizes, export.ints(-1), dtype=dtypes.bool_)
    stops = export.add("Add", starts, sizes)
    stops = export.add("Where", whole, export.ints(_FAR), stops, dtype=dtypes.int64)
    return export.add("Slice", export[0], starts, stops)


@dataclass
class _Part:
    """What a strided slice does, axis by axis of its input.

    Attributes:
      axes, steps: of the input, those that are cut.
      starts, ends: for each a number, or a vector of one element.
      gone: axes of the input of which one element is left, without the axis.
      new: axes of the result that have one element.
    """

    axes: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    starts: list[int | Value] = field(default_factory=list)
    ends: list[int | Value] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)


@exporter("StridedSlice")
def _write_strided_slice(export: NodeExport) -> Value:
    part = _part(export)
    found = export[0]
    if part.axes:
        starts, ends = _vector(export, part.starts), _vector(export, part.ends)
        found = export.add(
            "Slice", found, starts, ends, export.ints(part.axes), export.ints(part.steps)
        )
    if part.gone:
        found = export.add("Squeeze", found, export.ints(part.gone))
    if part.new:
        found = export.add("Unsqueeze", found, export.ints(part.new))
    return found


def _part(export: NodeExport) -> _Part:
    steps = export.known(3, "the strides")
    masks = {
        name: int(export.attribute(f"{name}_mask"))
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    count, found, axis, place = len(steps), _Part(), 0, 0
    for i in range(count):
        bit = 1 << i
        if masks["ellipsis"] & bit:
            later = sum(1 for j in range(i + 1, count) if not masks["new_axis"] >> j & 1)
            skipped = export.rank() - axis - later
            axis, place = axis + skipped, place + skipped
        elif masks["new_axis"] & bit:
            found.new.append(place)
            place += 1
        else:
            if masks["shrink_axis"] & bit:
                _shrink(export, found, i, axis)
            else:
                is_open = (bool(masks["begin"] & bit), bool(masks["end"] & bit))
                _cut(export, found, i, axis, int(steps[i]), is_open)
                place += 1
            axis += 1
    return found


def _shrink(export: NodeExport, found: _Part, i: int, axis: int) -> None:
    """One element along an axis: up to the next one, or to the end after the last one."""
    start = _entry(export, 1, i)
    found.axes.append(axis)
    found.gone.append(axis)
    found.steps.append(1)
    found.starts.append(start)
    if isinstance(start, int):
        found.ends.append(_FAR if start == -1 else start + 1)
        return
    last = export.add("Equal", start, export.ints([-1]), dtype=dtypes.bool_)
    after = export.add("Add", start, export.ints([1]))
    found.ends.append(export.add("Where", last, export.ints([_FAR]), after, dtype=dtypes.int64))


def _cut(
    export: NodeExport, found: _Part, i: int, axis: int, step: int, is_open: tuple[bool, bool]
) -> None:
    open_begin, open_end = is_open
    if open_begin and open_end and step == 1:
        return
    start = (0 if step > 0 else _FAR) if open_begin else _entry(export, 1, i)
    end = (_FAR if step > 0 else _BEFORE) if open_end else _entry(export, 2, i)
    found.axes.append(axis)
    found.steps.append(step)
    found.starts.append(start)
    found.ends.append(end)


def _entry(export: NodeExport, index: int, i: int) -> int | Value:
    """One element of an input: a number where it is known, else a vector of one element."""
    known = export.value(index)
    if known is not None:
        return int(known[i])
    partial = constant_value(export.node.inputs[index], partial=True)
    if partial is not None and partial[i] is not None:
        return int(partial[i])
    return export.add("Gather", export.int64(export[index]), export.ints([i]), axis=0)


def _vector(export: NodeExport, entries: list[int | Value]) -> Value:
    known = [each for each in entries if isinstance(each, int)]
    if len(known) == len(entries):
        return export.ints(known)
    parts = [export.ints([each]) if isinstance(each, int) else each for each in entries]
    return parts[0] if len(parts) == 1 else export.add("Concat", *parts, axis=0)
