"""TensorArrays and stacks of compiled loops: conversion of their content to arrays, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_exec.resources.nested_rows import Levels, StackType, levels_of, to_nested_rows, values_of
from weft_exec.resources.resources import ResourceHandle
from weft_exec.resources.tensor_arrays import (
    BoundedStack,
    GradientArrayState,
    Stack,
    TensorArrayState,
)
from weft_graph.ops.stack import producer
from weft_graph.passes.whole_loops import Extent, LoopStorage, Use
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_WRITTEN, _READ = 1, 2
_TAKEN = 2


class TensorListBuffer:
    """A TensorArray or a stack in one run of a loop.

    Args:
      levels: the content of stacks of stacks that the loop pops.
    Attributes:
      extent: the shape of its content.
      use, node: how nodes use it, and one of these nodes.
    """

    def __init__(
        self, tensor_list: LoopStorage, resource: Any, extent: Extent, levels: Levels | None = None
    ) -> None:
        self.use = tensor_list.use
        self.node = tensor_list.nodes[-1]
        self._resource = resource
        self.extent = extent
        self._tensor_list = tensor_list
        self._levels = levels

    def inputs(self) -> list[Any]:
        """Return the arrays that a compiled loop reads for it."""
        if self.use is Use.READ:
            return [self._resource.as_rows(), np.array(self._resource.written_mask(), np.uint8)]
        if self.use is Use.POP:
            if self._levels is not None:
                return [self._levels.rows, np.array(self._levels.handles), *self._levels.ends]
            rows, count = self._resource.as_rows()
            return [rows, np.array(count)]
        if self.extent.begun:
            marks = np.zeros(self.extent.shape, np.uint8)
            marks[: len(self._resource.places)] = [
                0 if element is None else _TAKEN for element in self._resource.places
            ]
            return [marks]
        return []

    @property
    def outputs(self) -> int:
        """Number of arrays that a compiled loop fills for it."""
        if self.use in (Use.READ, Use.POP):
            return 1
        return 3 if self.extent.grows else 2 + 2 * len(self.extent.above)

    @property
    def room(self) -> tuple[int, ...]:
        """Capacity for elements and for handles, the outermost first."""
        return (self.extent.shape[0], *self.extent.above)

    def required_capacity(self, outputs: Sequence[Any]) -> tuple[int, ...]:
        """Return the capacity that a loop would have needed; see `room`."""
        if self.use is Use.PUSH:
            return tuple([int(count) for count in outputs[1::2]])
        return (int(outputs[2]) + 1,) if self.extent.grows else ()

    def may_take(self, outputs: Sequence[Any]) -> bool:
        """Return True if the arrays that a loop has filled fit."""
        return self.use is not Use.WRITE or self._resource.may_be_filled(outputs[0].shape[1:])

    def beside(self, outputs: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return pairs of the contents that a loop filled and that its kernels stored here."""
        resource = self._resource
        if self.use is Use.PUSH:
            count = int(outputs[1])
            values = values_of(resource, len(self.extent.above))
            own_values = values[len(values) - count :]
            return list(zip(outputs[0][:count], own_values, strict=False))
        if self.use is Use.WRITE and not self.extent.adds:
            pairs = zip(outputs[0], outputs[1], resource.places, strict=not self.extent.grows)
            return [(row, own_values) for row, mark, own_values in pairs if mark == _WRITTEN]
        return []

    def keep(self, outputs: Sequence[Any]) -> None:
        """Store the contents that a loop has computed."""
        resource = self._resource
        if self.use is Use.READ:
            for index in np.flatnonzero(outputs[0] == _READ).tolist():
                resource.read(index)
        elif self.use is Use.WRITE:
            rows, marks = outputs[:2]
            written = np.flatnonzero(marks == _WRITTEN).tolist()
            leading = rows[: len(written)]  # correct if these are the first
            resource.scatter(written, [rows[index] for index in written], leading)
        elif self.use is Use.PUSH:
            rows, count = outputs[0], int(outputs[1])
            if self.extent.above:
                rows, count = (
                    to_nested_rows(rows, outputs[2::2], self._stack_types()),
                    int(outputs[3]),
                )
            resource.push_rows(rows, count)
        else:
            resource.keep_rows(int(outputs[0]))

    def _stack_types(self) -> list[StackType]:
        """Return the names and types of the stacks whose handles are pushed."""
        stacks = [producer(push.inputs[1]) for push in self._tensor_list.nodes[:-1]]
        return [
            StackType(node.attrs["stack_name"] or node.name, node.attrs["elem_type"])
            for node in stacks
        ]


def buffer_for(
    tensor_list: LoopStorage, values: Sequence[Any], room: Sequence[int]
) -> TensorListBuffer | None:
    """Return the place of a loop's `LoopStorage`; None if only kernels can handle it.

    Args:
      values: the values that enter the loop.
      room: capacity for values that are pushed, or written to an array that grows, and for handles.
    """
    handle = values[tensor_list.store.handle]
    resource = handle.resource if isinstance(handle, ResourceHandle) else None
    if tensor_list.use in (Use.PUSH, Use.POP):
        return _stack(tensor_list, resource, room)
    if not isinstance(resource, TensorArrayState) or resource.closed:
        return None
    if tensor_list.store.source:
        resource = resource.gradient(tensor_list.store.source).resource
        assert isinstance(resource, TensorArrayState)
    return _array(tensor_list, resource, room[0])


def _stack(tensor_list: LoopStorage, stack: Any, room: Sequence[int]) -> TensorListBuffer | None:
    depth = len(tensor_list.nodes) - 1
    dtype = dtypes.resource if depth else _dtype(tensor_list)
    if not isinstance(stack, Stack) or isinstance(stack, BoundedStack) or stack.dtype is not dtype:
        return None
    if tensor_list.use is Use.PUSH:
        return TensorListBuffer(tensor_list, stack, Extent((room[0],), tuple(room[1:])))
    if depth:
        levels = levels_of(stack, depth, _dtype(tensor_list))
        if levels is None:
            return None
        outer_sizes = tuple([len(ends) for ends in levels.ends])
        return TensorListBuffer(tensor_list, stack, Extent(levels.rows.shape, outer_sizes), levels)
    if not stack.below and (not stack or any(v.shape != stack[0].shape for v in stack)):
        return None
    if stack.below and (stack or len(stack.below) > 1):
        shapes = {rows.shape[1:] for rows, _ in stack.below} | {v.shape for v in stack}
        if len(shapes) > 1:
            return None
    return TensorListBuffer(tensor_list, stack, Extent(stack.as_rows()[0].shape))


def _array(tensor_list: LoopStorage, array: TensorArrayState, room: int) -> TensorListBuffer | None:
    grows = array.dynamic and tensor_list.use is Use.WRITE
    if array.dtype is not _dtype(tensor_list) or not (array.places or grows):
        return None
    if tensor_list.use is Use.READ:
        shape = array.shape_of_rows()
        return (
            None
            if shape is None
            else TensorListBuffer(tensor_list, array, Extent(shape, clear=array.clear))
        )
    adds = isinstance(array, GradientArrayState)
    has_elements = not adds and any([element is not None for element in array.places])
    size = max(room, len(array.places)) if grows else len(array.places)
    return TensorListBuffer(
        tensor_list, array, Extent((size,), adds=adds, grows=grows, begun=has_elements)
    )


def _dtype(tensor_list: LoopStorage) -> DType:
    """Return the dtype of the elements."""
    node = tensor_list.nodes[-1]
    output = node.inputs[2] if tensor_list.use is Use.WRITE else node.outputs[0]
    return output.dtype.base_dtype
