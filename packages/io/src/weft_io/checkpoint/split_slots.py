"""Slots in checkpoints of earlier versions, which stored one tensor per part of a variable.

They saved the slot `Adagrad` of a variable `w` in two parts as `w/part_0/Adagrad` and
`w/part_1/Adagrad`. Now it is `w/Adagrad`, as in TensorFlow, which these tensors together stand for.
The variable `w` of `create_partitioned_variables` was `w/w`, or `w/part` if the name was its own.
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
    """A tensor that is stored as several.

    Attributes:
      dtype, shape: those of the whole.
      pieces: the name of each tensor, and the box of the whole that it holds.
    """

    dtype: Any
    shape: Shape
    pieces: tuple[tuple[str, Region], ...]

    def overlaps(self, box: Region) -> list[Source]:
        """Return the sources that a box of the whole consists of, in order."""
        result = [(name, region, region.overlap(box)) for name, region in self.pieces]
        return [
            Source(name, Region(_difference(shared.start, region.start), shared.shape), shared)
            for name, region, shared in result
            if shared is not None
        ]


def find_split_slot(tensors: Mapping[str, StoredTensor], name: str) -> SplitSlot | None:
    """Return the slot `name` of a partitioned variable; None if there is none in parts.

    Args:
      tensors: of a checkpoint that has no tensor `name`.
    """
    former = _former_name(tensors, name)
    if former is not None:
        tensor = tensors[former]
        return SplitSlot(tensor.dtype, tensor.shape, ((former, Region.whole(tensor.shape)),))
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
    """Return the old name of a variable of `create_partitioned_variables`, or None."""
    names = (f"{name}/{name.rpartition('/')[2]}", f"{name}/part")
    result = (name for name in names if name in tensors and len(tensors[name].parts) > 1)
    return next(result, None)


def joined(sources: Sequence[Source], arrays: Iterator[Array], target: Array) -> Array:
    """Copy the next array of each source to its place in `target`, and return that.

    Args:
      sources: in the order of their offsets; the first starts where `target` does.
    """
    for source, array in zip(sources, arrays, strict=False):
        target[source.outer.slices(sources[0].outer.start)] = array
    return target


def _join(tensors: Mapping[str, StoredTensor], full: Shape, names: list[str]) -> SplitSlot | None:
    """Stack tensors along the axis on which they are shorter than the variable."""
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
