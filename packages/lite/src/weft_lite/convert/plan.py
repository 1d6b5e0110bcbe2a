"""The memory plan: an arena offset for each value, so that live values do not overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft_lite.convert.lowered import Lowered, Operation, Value
from weft_lite.convert.prune import called_subgraphs
from weft_lite.convert.registry import in_place
from weft_lite.schema.codec import aligned
from weft_lite.schema.enums import DataType, OpKind, Storage

SIZES = {
    DataType.FLOAT32: 4,
    DataType.INT32: 4,
    DataType.UINT8: 1,
    DataType.INT16: 2,
    DataType.INT8: 1,
    DataType.INT64: 8,
    DataType.BOOL: 1,
    DataType.FLOAT16: 2,
}


class LiveRange(NamedTuple):
    """The live range of a value, as its first and last tick."""

    first: int
    last: int


class Plan(NamedTuple):
    """Arena offsets of the values, and the size of the arena."""

    offsets: dict[Value, int]
    size: int


def size_of(value: Value) -> int:
    """Return the size of a value in bytes, at its largest shape."""
    count = SIZES[value.dtype]
    for size in value.shape:
        count *= size
    return count


def plan(lowered: Lowered) -> Plan:
    """Place values, largest first, at the lowest offset that is free during their live range."""
    alive = LiveRanges(lowered)
    homes = find_overwritten(lowered, alive)
    lives = {value: life for value, life in alive.found.items() if value not in homes}
    for value, home in homes.items():
        first, last = lives[home]
        lives[home] = LiveRange(first, max(last, alive.found[value].last))
    offsets: dict[Value, int] = {}
    placed: list[tuple[int, int, LiveRange]] = []  # offset, end, life
    size = 0
    for value in sorted(lives, key=lambda item: -size_of(item)):
        expected, life, start = aligned(size_of(value)), lives[value], 0
        for offset, end, other in placed:  # in the order of offsets
            if other.last < life.first or life.last < other.first:
                continue
            if start + expected <= offset:
                break
            start = max(start, end)
        offsets[value] = start
        placed.append((start, start + expected, life))
        placed.sort(key=lambda item: item[0])
        size = max(size, start + expected)
    offsets.update({value: offsets[home] for value, home in homes.items()})
    return Plan(offsets, size)


def find_overwritten(lowered: Lowered, alive: LiveRanges) -> dict[Value, Value]:
    """Return the results that reuse the buffer of a dead operand, with that operand."""
    values: dict[Value, Value] = {}
    for op in _all_ops(lowered):
        if not in_place(op.kind) or len(op.outputs) != 1:
            continue
        (result,) = op.outputs
        for operand in op.inputs[: in_place(op.kind)]:
            if (
                operand is not None
                and operand.storage is Storage.ARENA
                and alive.found[operand].last == alive.begins[op]
                and _has_same_bytes(op, operand, result)
            ):
                values[result] = values.get(operand, operand)
                break
    return values


def _has_same_bytes(op: Operation, operand: Value, result: Value) -> bool:
    """Return True if both values always have the same size, even with unknown dimensions."""
    is_open = -1 in operand.declared or -1 in result.declared
    return size_of(operand) == size_of(result) > 0 and (len(op.inputs) == 1 or not is_open)


class LiveRanges:
    """Live ranges of values, on the clock that `runtime/plan.c` verifies."""

    def __init__(self, lowered: Lowered) -> None:
        self.found: dict[Value, LiveRange] = {}
        self.begins: dict[Operation, int] = {}
        self._clock = 0
        self._lowered = lowered
        self._loops: list[tuple[set[Value], list[Value]]] = []
        for value in lowered.inputs:
            self._make(value)
        self._run(lowered)
        for value in [*lowered.inputs, *lowered.outputs]:
            self._extend(value, 1 << 60)
        for op in _all_ops(lowered):
            for input_ in op.inputs:
                if input_ is not None and input_.storage is Storage.VARIABLE:
                    self.found[input_] = LiveRange(0, 1 << 60)

    def _make(self, value: Value) -> None:
        """Start the live range of a value."""
        self.found[value] = LiveRange(self._clock, self._clock)
        for inside, _ in self._loops:
            inside.add(value)

    def _extend(self, value: Value, tick: int) -> None:
        """Extend the live range of a value to a tick."""
        if value in self.found:
            life = self.found[value]
            self.found[value] = LiveRange(life.first, max(life.last, tick))

    def _read(self, value: Value) -> None:
        """Extend the live range of a value to the current tick."""
        self._extend(value, self._clock)
        for inside, outside in self._loops:
            if value not in inside:
                outside.append(value)
                break

    def _run(self, graph: Lowered) -> None:
        """Advance the clock over the ops of a graph."""
        for op in graph.ops:
            self._clock += 1
            self.begins[op] = self._clock
            for value in op.inputs:
                if value is not None:
                    self._read(value)
            if op.kind is OpKind.While:
                self._loop(op)
            elif op.kind is OpKind.If:
                self._branches(op)
            for value in op.outputs:
                self._make(value)

    def _branches(self, op: Operation) -> None:
        """Advance the clock over the branches of an If."""
        branches = called_subgraphs(op, self._lowered)
        for branch in branches:
            self._run(branch)
        self._clock += 1
        for value in (value for branch in branches for value in branch.outputs):
            self._read(value)

    def _loop(self, op: Operation) -> None:
        """Advance the clock over a While; outer values stay alive in all its iterations."""
        cond, body = called_subgraphs(op, self._lowered)
        for value in body.inputs:
            self._make(value)
        outside: list[Value] = []
        self._loops.append((set(), outside))
        self._run(cond)
        self._run(body)
        self._loops.pop()
        self._clock += 1
        for value in [*outside, *body.inputs, *body.outputs, *cond.outputs]:
            self._extend(value, self._clock)
            for inside, around in self._loops:
                if value not in inside:
                    around.append(value)
                    break


def _all_ops(lowered: Lowered) -> Iterator[Operation]:
    """Yield the ops of the main graph and of all bodies."""
    yield from lowered.ops
    for body in lowered.bodies:
        yield from body.ops
