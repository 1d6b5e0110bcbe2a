"""Slot variables in checkpoints of earlier versions, which stored one tensor per part.

For a variable `w` in two parts, they saved the slot `Adagrad` as `w/part_0/Adagrad` and
`w/part_1/Adagrad`. Now, as in TensorFlow, it is one tensor `w/Adagrad`, which this module assembles
from the old ones. A variable `w` of `create_partitioned_variables` was saved as `w/w`, or as
`w/part` if it had its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, NamedTuple

from weft_io.checkpoint import regions
from weft_io.checkpoint.encoding import Array
from weft_io.checkpoint.format import StoredTensor
from weft_io.checkpoint.regions import Region, Shape


class Source(NamedTuple):
    """A stored tensor that is a part of the tensor to read.

    Attributes:
      name: name of the stored tensor.
      inner: the box to read of it.
      outer: the same box within the whole.
    """

    name: str
    inner: Region
    outer: Region


class SplitSlot(NamedTuple):
    """A slot variable that is stored as several tensors.

    Attributes:
      dtype, shape: element type and shape of the whole.
      pieces: the name of each tensor, and the box of the whole that it contains.
    """

    dtype: Any
    shape: Shape
    pieces: tuple[tuple[str, Region], ...]

    def overlaps(self, box: Region) -> list[Source]:
        """Return the sources that make up a box of the whole, in order."""
        result = [(name, region, region.overlap(box)) for name, region in self.pieces]
        return [
            Source(name, Region(_difference(shared.start, region.start), shared.shape), shared)
            for name, region, shared in result
            if shared is not None
        ]


def find_split_slot(tensors: Mapping[str, StoredTensor], name: str) -> SplitSlot | None:
    """Return the slot `name` of a partitioned variable; None if it is not stored in parts.

    Args:
      tensors: tensors of a checkpoint that lacks a tensor `name`.
    """
    former = _former_name(tensors, name)
    if former is not None:
        tensor = tensors[former]
        return SplitSlot(tensor.dtype, tensor.shape, ((former, Region.whole_tensor(tensor.shape)),))
    variable, slash, slot = name.rpartition("/")
    while slash:
        stored = variable if variable in tensors else _former_name(tensors, variable)
        if stored is not None:
            names = (f"{stored}/part_{i}/{slot}" for i in count())
            pieces = list(takewhile(tensors.__contains__, names))
            return _join(tensors, tensors[stored].shape, pieces) if pieces else None
        variable, slash, remaining = variable.rpartition("/")
        slot = f"{remaining}/{slot}"
    return None


def _former_name(tensors: Mapping[str, StoredTensor], name: str) -> str | None:
    """Return the earlier name of a variable of `create_partitioned_variables`, or None."""
    names = (f"{name}/{name.rpartition('/')[2]}", f"{name}/part")
    result = (name for name in names if name in tensors and len(tensors[name].parts) > 1)
    return next(result, None)


def join_parts(sources: Sequence[Source], arrays: Iterator[Array], target: Array) -> Array:
    """Copy the next array of each source to its position in `target`; return `target`.

    Args:
      sources: in the order of their offsets; the first starts where `target` does.
    """
    for source, array in zip(sources, arrays, strict=False):
        target[source.outer.slices(sources[0].outer.start)] = array
    return target


def _join(tensors: Mapping[str, StoredTensor], full: Shape, names: list[str]) -> SplitSlot | None:
    """Join tensors along the axis where they are smaller than the variable."""
    parts = [tensors[name] for name in names]
    shape = full[: len(parts[0].shape)]
    axis = next((i for i, size in enumerate(shape) if parts[0].shape[i] != size), 0)
    boxes, start = [], 0
    for part in parts:
        if len(part.shape) != len(shape) or not shape or part.dtype != parts[0].dtype:
            return None
        boxes.append(Region(tuple([start * (i == axis) for i in range(len(shape))]), part.shape))
        start += part.shape[axis]
    if not regions.tiles(boxes, shape):
        return None
    return SplitSlot(parts[0].dtype, shape, tuple(zip(names, boxes, strict=True)))


def _difference(a: Shape, b: Shape) -> Shape:
    return tuple([x - y for x, y in zip(a, b, strict=True)])
