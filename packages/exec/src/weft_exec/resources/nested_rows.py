"""Stacks of stack handles as compiled loops use them: all values in one array.

In each iteration, an outer loop creates a stack, to which its inner loop pushes, and pushes the
handle of that stack onto its own stack. Kernels use one object for each stack. A compiled loop
stores the values of all stacks contiguously, with the end offset of each stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.resources.resources import ResourceHandle
from weft_exec.resources.tensor_arrays import BoundedStack, Stack
from weft_tensor.dtypes import DType

_DEVICE: Final = "/device:CPU:0"
"""The device of the handles, for messages; handles never leave the step."""


class StackType(NamedTuple):
    """The name and element type of the created stacks."""

    name: str
    dtype: DType


class NestedRows:
    """Handles of stacks; a handle is created when it is read.

    Args:
      rows: the concatenated values of all stacks; a value may be a handle itself.
      ends: the end offset of each stack, int64.
      result: the name and element type of the stacks.
      first: the start offset of the first stack.
    """

    def __init__(self, rows: Any, ends: Any, result: StackType, first: int = 0) -> None:
        self.rows = rows
        self.ends = ends
        self.first = first
        self._array = result

    def __getitem__(self, part: slice) -> list[ResourceHandle]:
        return [self._handle(index) for index in range(*part.indices(len(self.ends)))]

    def _begin(self, index: int) -> int:
        return int(self.ends[index - 1]) if index else self.first

    def _handle(self, index: int) -> ResourceHandle:
        name, dtype = self._array
        begin, end = self._begin(index), int(self.ends[index])
        stack = Stack(name, dtype)
        rows = self.rows
        stack.push_rows(
            rows.part(begin, end) if isinstance(rows, NestedRows) else rows[begin:end], end - begin
        )
        return ResourceHandle(_DEVICE, "", name, stack)

    def part(self, begin: int, end: int) -> NestedRows:
        """Return a range of the stacks."""
        return NestedRows(self.rows, self.ends[begin:end], self._array, self._begin(begin))


class Levels(NamedTuple):
    """The contents of stacks of stacks.

    Attributes:
      rows: the values.
      handles: the number of handles on the outermost stack.
      ends: the end offsets of the stacks of each level, the outermost level first.
    """

    rows: Any
    handles: int
    ends: list[Any]


def levels_of(stack: Stack, depth: int, dtype: DType) -> Levels | None:
    """Return the contents of a stack of stacks, and convert the stack to rows.

    Args:
      depth: the number of levels of handles.
      dtype: element type of the values.
    Returns: None if there are no values, or if their shapes differ.
    """
    is_whole = _unchanged_rows(stack, depth)
    return is_whole if is_whole is not None else _gather_levels(stack, depth, dtype)


def _unchanged_rows(stack: Stack, depth: int) -> Levels | None:
    """Return the contents if they are still the rows that a compiled loop left."""
    if stack or len(stack.below) != 1:
        return None
    rows, count = stack.below[0]
    ends: list[Any] = []
    while isinstance(rows, NestedRows) and rows.first == 0:
        ends.append(rows.ends)
        rows = rows.rows
    return Levels(rows, count, ends) if len(ends) == depth else None


def _gather_levels(stack: Stack, depth: int, dtype: DType) -> Levels | None:
    """Copy the contents that kernels have pushed to rows, and return them."""
    on_top = _values(stack)
    ends: list[Any] = []
    mades: list[StackType] = []
    values = on_top
    for level in range(depth):
        inner_values: list[Any] = []
        row_ends: list[int] = []
        for handle in values:
            inner = handle.resource
            leads_on = level < depth - 1 or inner.dtype is dtype
            if not isinstance(inner, Stack) or isinstance(inner, BoundedStack) or not leads_on:
                return None
            inner_values += _values(inner)
            row_ends.append(len(inner_values))
        if not inner_values:
            return None
        mades.append(StackType(values[0].name, values[0].resource.dtype))
        ends.append(_pad_rows(row_ends))
        values = inner_values
    if any(value.shape != values[0].shape for value in values):
        return None
    count = len(on_top)
    rows = np.empty((_capacity(len(values)), *values[0].shape), np.asarray(values[0]).dtype)
    np.stack(values, out=rows[: len(values)])
    _keep(stack, rows, ends, mades, count)
    return Levels(rows, count, ends)


def _keep(
    stack: Stack, rows: Any, ends: Sequence[Any], mades: Sequence[StackType], count: int
) -> None:
    """Replace the handles of a stack by rows."""
    stack.clear()
    stack.push_rows(to_nested_rows(rows, ends, mades), count)


def to_nested_rows(rows: Any, ends: Sequence[Any], mades: Sequence[StackType]) -> NestedRows:
    """Return the handles of the outermost of nested stacks.

    Args:
      rows: the values.
      ends, mades: the end offsets, and the name and element type, for each level, the outermost
        first.
    """
    for row_ends, label in zip(reversed(ends), reversed(mades), strict=True):
        rows = NestedRows(rows, row_ends, label)
    nested_rows: NestedRows = rows
    return nested_rows


def values_of(stack: Stack, depth: int) -> list[Any]:
    """Return the values of nested stacks, in the order of pushing."""
    values = _values(stack)
    for _ in range(depth):
        values = [value for handle in values for value in _values(handle.resource)]
    return values


def _values(stack: Stack) -> list[Any]:
    while stack.unpack_rows():
        pass
    return list(stack)


def _pad_rows(ends: Sequence[int]) -> Any:
    result = np.zeros(_capacity(len(ends)), np.int64)
    result[: len(ends)] = ends
    return result


def _capacity(count: int) -> int:
    """Round a count up to one of a few sizes, because programs are compiled for each size."""
    return 1 << (count - 1).bit_length()
