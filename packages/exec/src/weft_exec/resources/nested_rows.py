"""Stacks whose values are handles of stacks, as compiled loops keep them: all values in one array.

A loop inside of another pushes onto a stack that the outer one makes in each turn, and whose handle
it pushes. Kernels have an object for each of these stacks; a compiled loop has the values of all of
them one after the other, and where those of each end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.resources.resources import ResourceHandle
from weft_exec.resources.tensor_arrays import BoundedStack, Stack
from weft_tensor.dtypes import DType

_DEVICE: Final = "/device:CPU:0"
"""Of handles, for people: these never leave the step."""


class Made(NamedTuple):
    """What stacks are made as: their name, and their element type."""

    name: str
    dtype: DType


class NestedRows:
    """Handles of stacks, which are made when somebody asks for them.

    Args:
      rows: the values of all stacks, or their handles again, one stack after the other.
      ends: int64: where the rows of each stack end.
      made: what the stacks are made as.
      first: where the rows of the first begin.
    """

    def __init__(self, rows: Any, ends: Any, made: Made, first: int = 0) -> None:
        self.rows = rows
        self.ends = ends
        self.first = first
        self._made = made

    def __getitem__(self, of: slice) -> list[ResourceHandle]:
        return [self._handle(at) for at in range(*of.indices(len(self.ends)))]

    def _begin(self, at: int) -> int:
        return int(self.ends[at - 1]) if at else self.first

    def _handle(self, at: int) -> ResourceHandle:
        name, dtype = self._made
        begin, end = self._begin(at), int(self.ends[at])
        stack = Stack(name, dtype)
        rows = self.rows
        stack.push_rows(
            rows.part(begin, end) if isinstance(rows, NestedRows) else rows[begin:end], end - begin
        )
        return ResourceHandle(_DEVICE, "", name, stack)

    def part(self, begin: int, end: int) -> NestedRows:
        """Some of the stacks."""
        return NestedRows(self.rows, self.ends[begin:end], self._made, self._begin(begin))


class Levels(NamedTuple):
    """All that is on stacks of stacks.

    Attributes:
      rows: the values.
      handles: how many are on the outermost stack.
      ends: where each stack ends among what is on those of one level, the outermost level first.
    """

    rows: Any
    handles: int
    ends: list[Any]


def levels_of(stack: Stack, depth: int, dtype: DType) -> Levels | None:
    """What is on a stack of stacks, which from now on has it as rows.

    Args:
      depth: how many levels of handles there are.
      dtype: of the values.
    Returns: None where there are no values, or these have several shapes.
    """
    whole = _whole(stack, depth)
    return whole if whole is not None else _gathered(stack, depth, dtype)


def _whole(stack: Stack, depth: int) -> Levels | None:
    """What a compiled loop has left as it is."""
    if stack or len(stack.below) != 1:
        return None
    rows, count = stack.below[0]
    ends: list[Any] = []
    while isinstance(rows, NestedRows) and rows.first == 0:
        ends.append(rows.ends)
        rows = rows.rows
    return Levels(rows, count, ends) if len(ends) == depth else None


def _gathered(stack: Stack, depth: int, dtype: DType) -> Levels | None:
    """What kernels have pushed, copied."""
    on_top = _values(stack)
    ends: list[Any] = []
    made: list[Made] = []
    values = on_top
    for level in range(depth):
        below: list[Any] = []
        until: list[int] = []
        for handle in values:
            inner = handle.resource
            leads_on = level < depth - 1 or inner.dtype is dtype
            if not isinstance(inner, Stack) or isinstance(inner, BoundedStack) or not leads_on:
                return None
            below += _values(inner)
            until.append(len(below))
        if not below:
            return None
        made.append(Made(values[0].name, values[0].resource.dtype))
        ends.append(_padded(until))
        values = below
    if any(value.shape != values[0].shape for value in values):
        return None
    count = len(on_top)
    rows = np.empty((_room(len(values)), *values[0].shape), np.asarray(values[0]).dtype)
    np.stack(values, out=rows[: len(values)])
    _keep(stack, rows, ends, made, count)
    return Levels(rows, count, ends)


def _keep(stack: Stack, rows: Any, ends: Sequence[Any], made: Sequence[Made], count: int) -> None:
    """Let a stack have rows in the place of handles."""
    stack.clear()
    stack.push_rows(nested(rows, ends, made), count)


def nested(rows: Any, ends: Sequence[Any], made: Sequence[Made]) -> NestedRows:
    """Handles of the outermost of stacks of stacks.

    Args:
      rows: the values.
      ends, made: of each level, the outermost first.
    """
    for until, what in zip(reversed(ends), reversed(made), strict=True):
        rows = NestedRows(rows, until, what)
    found: NestedRows = rows
    return found


def values_of(stack: Stack, depth: int) -> list[Any]:
    """The values on stacks of stacks, the last ones last."""
    found = _values(stack)
    for _ in range(depth):
        found = [value for handle in found for value in _values(handle.resource)]
    return found


def _values(stack: Stack) -> list[Any]:
    while stack.bring_up():
        pass
    return list(stack)


def _padded(ends: Sequence[int]) -> Any:
    found = np.zeros(_room(len(ends)), np.int64)
    found[: len(ends)] = ends
    return found


def _room(count: int) -> int:
    """One of few sizes, since programs are compiled for them."""
    return 1 << (count - 1).bit_length()
