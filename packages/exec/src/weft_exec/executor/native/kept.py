"""What compiled loops keep in TensorArrays and on stacks: from these to arrays, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_exec.resources.resources import ResourceHandle
from weft_exec.resources.tensor_arrays import (
    BoundedStack,
    GradientArrayState,
    Stack,
    TensorArrayState,
)
from weft_graph.passes.whole_loops import Extent, Kept, Use
from weft_tensor.dtypes import DType

_WRITTEN, _READ = 1, 2
_TAKEN = 2


class Place:
    """A TensorArray or a stack in one run of a loop.

    Attributes:
      extent: what is behind it.
      use, node: what is done to it, and one of those that do.
    """

    def __init__(self, kept: Kept, resource: Any, extent: Extent) -> None:
        self.use = kept.use
        self.node = kept.nodes[0]
        self._resource = resource
        self.extent = extent

    def inputs(self) -> list[Any]:
        """The arrays that a compiled loop is given of it."""
        if self.use is Use.READ:
            size = self.extent.shape[0]
            return [self._resource.as_rows(), np.ones(size, np.uint8)]
        if self.use is Use.POP:
            rows, count = self._resource.as_rows()
            return [rows, np.array(count)]
        if self.extent.begun:
            marks = np.zeros(self.extent.shape, np.uint8)
            marks[: len(self._resource.places)] = [
                0 if place is None else _TAKEN for place in self._resource.places
            ]
            return [marks]
        return []

    @property
    def outputs(self) -> int:
        """How many arrays a compiled loop fills for it."""
        if self.use in (Use.READ, Use.POP):
            return 1
        return 3 if self.extent.grows else 2

    def wanted(self, outputs: Sequence[Any]) -> int:
        """For how many elements a loop would have filled there had to be room."""
        if self.use is Use.PUSH:
            return int(outputs[1])
        return int(outputs[2]) + 1 if self.extent.grows else 0

    def may_take(self, outputs: Sequence[Any]) -> bool:
        """Whether what a loop has filled fits."""
        return self.use is not Use.WRITE or self._resource.may_be_filled(outputs[0].shape[1:])

    def beside(self, outputs: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Of what a loop has filled, and its kernels have put here too, both."""
        resource = self._resource
        if self.use is Use.PUSH:
            count = int(outputs[1])
            own = list(resource)[len(resource) - count :]
            return list(zip(outputs[0][:count], own, strict=False))
        if self.use is Use.WRITE and not self.extent.adds:
            pairs = zip(outputs[0], outputs[1], resource.places, strict=not self.extent.grows)
            return [(row, own) for row, mark, own in pairs if mark == _WRITTEN]
        return []

    def keep(self, outputs: Sequence[Any]) -> None:
        """Let it have what a loop has made of it."""
        resource = self._resource
        if self.use is Use.READ:
            for at in np.flatnonzero(outputs[0] == _READ).tolist():
                resource.read(at)
        elif self.use is Use.WRITE:
            rows, marks = outputs[:2]
            written = np.flatnonzero(marks == _WRITTEN).tolist()
            whole = rows[: len(written)]  # if these are the first
            resource.scatter(written, [rows[at] for at in written], whole)
        elif self.use is Use.PUSH:
            resource.push_rows(outputs[0], int(outputs[1]))
        else:
            resource.keep_rows(int(outputs[0]))


def place_of(kept: Kept, values: Sequence[Any], room: int) -> Place | None:
    """What is behind a loop's `Kept`; None where only its kernels can deal with it.

    Args:
      values: what enters the loop.
      room: for how many values that are pushed, or written to an array that grows, there is to be
        room.
    """
    handle = values[kept.store.handle]
    resource = handle.resource if isinstance(handle, ResourceHandle) else None
    if kept.use in (Use.PUSH, Use.POP):
        return _stack(kept, resource, room)
    if not isinstance(resource, TensorArrayState) or resource.closed:
        return None
    if kept.store.source:
        resource = resource.gradient(kept.store.source).resource
        assert isinstance(resource, TensorArrayState)
    return _array(kept, resource, room)


def _stack(kept: Kept, stack: Any, room: int) -> Place | None:
    dtype = _dtype(kept)
    if not isinstance(stack, Stack) or isinstance(stack, BoundedStack) or stack.dtype is not dtype:
        return None
    if kept.use is Use.PUSH:
        return Place(kept, stack, Extent((room,)))
    if not stack.below and (not stack or any(v.shape != stack[0].shape for v in stack)):
        return None
    if stack.below and (stack or len(stack.below) > 1):
        shapes = {rows.shape[1:] for rows, _ in stack.below} | {v.shape for v in stack}
        if len(shapes) > 1:
            return None
    return Place(kept, stack, Extent(stack.as_rows()[0].shape))


def _array(kept: Kept, array: TensorArrayState, room: int) -> Place | None:
    grows = array.dynamic and kept.use is Use.WRITE
    if array.dtype is not _dtype(kept) or not (array.places or grows):
        return None
    if kept.use is Use.READ:
        shape = array.shape_of_rows()
        return None if shape is None else Place(kept, array, Extent(shape, clear=array.clear))
    adds = isinstance(array, GradientArrayState)
    begun = not adds and any([place is not None for place in array.places])
    size = max(room, len(array.places)) if grows else len(array.places)
    return Place(kept, array, Extent((size,), adds=adds, grows=grows, begun=begun))


def _dtype(kept: Kept) -> DType:
    """The type of the elements."""
    node = kept.nodes[0]
    output = node.inputs[2] if kept.use is Use.WRITE else node.outputs[0]
    return output.dtype.base_dtype
