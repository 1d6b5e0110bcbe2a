"""Boxes within a tensor: stored parts and requested slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft_tensor import errors

Shape = tuple[int, ...]


class Region(NamedTuple):
    """A box: its start and its size on each axis."""

    start: Shape
    shape: Shape

    @staticmethod
    def whole_tensor(shape: Shape) -> Region:
        """Return the box of a whole tensor."""
        return Region((0,) * len(shape), shape)

    def is_within(self, shape: Shape) -> bool:
        """Return True if the box is inside a tensor of that shape."""
        return len(self.start) == len(self.shape) == len(shape) and all(
            start + size <= full
            for start, size, full in zip(self.start, self.shape, shape, strict=True)
        )

    def overlap(self, other: Region) -> Region | None:
        """Return the intersection of two boxes; None if it is empty."""
        start = tuple(map(max, self.start, other.start))
        ends = [
            min(a + m, b + n)
            for a, m, b, n in zip(self.start, self.shape, other.start, other.shape, strict=True)
        ]
        shape = tuple([end - first for first, end in zip(start, ends, strict=True)])
        return Region(start, shape) if all(size > 0 for size in shape) else None

    def slices(self, origin: Shape) -> tuple[slice, ...]:
        """Return the index of this box in an array that starts at `origin`."""
        return tuple(
            [
                slice(start - first, start - first + size)
                for start, first, size in zip(self.start, origin, self.shape, strict=True)
            ]
        )


def parse_spec(spec: str) -> tuple[Shape, Region] | None:
    """Parse TensorFlow's slice text, such as "10 20 0,5:-", to the shape of the whole and a box.

    The sizes of the whole come first, then "start,length" per axis, or "-" for the whole axis.

    Returns: None for "", which means the whole tensor of any shape.
    Raises: InvalidArgumentError: it is malformed, or the box exceeds the tensor.
    """
    if not spec:
        return None
    *sizes, box = spec.split(" ")
    try:
        full = tuple([int(size) for size in sizes])
        pairs = [
            (0, size) if axis == "-" else tuple(map(int, axis.split(",")))
            for axis, size in zip(box.split(":"), full, strict=True)
        ]
        start, shape = tuple([a for a, _ in pairs]), tuple([n for _, n in pairs])
    except ValueError as cause:
        raise errors.InvalidArgumentError(
            "a slice is written like '10 20 0,5:-' (the full shape, then start,length or - for "
            f"each axis), got {spec!r}"
        ) from cause
    region = Region(start, shape)
    if min((*full, *start, *shape), default=0) < 0 or not region.is_within(full):
        raise errors.InvalidArgumentError(f"the slice {spec!r} is outside the tensor")
    return full, region


def count(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    total = 1
    for size in shape:
        total *= size
    return total


def tiles(regions: Sequence[Region], shape: Shape) -> bool:
    """Return True if the boxes cover a tensor of that shape, each element once."""
    if len(regions) == 1 and regions[0].shape == shape and not any(regions[0].start):
        return True
    if not all(region.is_within(shape) for region in regions):
        return False
    if sum(count(region.shape) for region in regions) != count(shape):
        return False
    if len(regions) == 1 or not shape:
        return len(regions) == 1
    starts = np.array([region.start for region in regions], np.int64)
    ends = starts + np.array([region.shape for region in regions], np.int64)
    for i in range(len(regions) - 1):
        is_disjoint = (starts[i + 1 :] >= ends[i]) | (ends[i + 1 :] <= starts[i])
        if not is_disjoint.any(axis=1).all():
            return False
    return True
