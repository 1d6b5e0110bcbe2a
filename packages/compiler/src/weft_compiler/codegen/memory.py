"""Memory planning of allocated buffers: on the stack, or at offsets in an arena.

Statements are numbered in the order of `walk`.  The live range of a buffer extends from the first
to the last statement beside its `Allocate` that uses it. Buffers with disjoint live ranges may
share memory. Buffers that are allocated in a parallel loop exist once for each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from weft_compiler.ir.expressions import Load, walk as walk_expression
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    For,
    Order,
    Program,
    Statement,
    Store,
    While,
    bodies,
    expressions,
    walk,
)
from weft_tensor.dtypes import uint8

ALIGNMENT: Final = 64
_STACK_BUFFER: Final = 4096
_STACK: Final = 1 << 16


@dataclass(slots=True)
class Allocation:
    """The location of a buffer.

    Attributes:
      region: "stack", or the part of the arena, "shared" or "thread".
      offset: its distance from the start of that part, in bytes.
      rivals: buffers in the same part whose live ranges overlap with its own.
    """

    buffer: Buffer
    region: str
    first: int
    last: int
    offset: int = 0
    rivals: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """The locations of all allocated buffers of a program.

    Attributes:
      shared: size of the part that all threads share, in bytes; this part comes first.
      thread: size of the part of each thread, in bytes.
    """

    places: dict[str, Allocation]
    shared: int
    thread: int

    def arena(self, threads: int = 1) -> int:
        """Return the size of the arena of a run, in bytes."""
        return self.shared + threads * self.thread


def plan_memory(program: Program, workspace: int = 0) -> Plan:
    """Plan the locations of the buffers of a program.

    Args:
      workspace: bytes at the start of each thread's part that routines use.
    """
    allocations = list(_Numbering(program).places(program.body, False, False))
    on_stack = 0
    for allocation in allocations:
        if allocation.region == "stack":
            on_stack += round_up(allocation.buffer.bytes)
            if on_stack > _STACK:
                allocation.region = "thread"
    sizes = {
        part: arrange([p for p in allocations if p.region == part]) for part in ("shared", "thread")
    }
    workspace = round_up(workspace)
    for allocation in allocations:
        allocation.offset += workspace if allocation.region == "thread" else 0
    named = {allocation.buffer.name: allocation for allocation in allocations}
    return Plan(named, sizes["shared"], sizes["thread"] + workspace)


def plan_shared(
    lives: Mapping[Buffer, tuple[int, int]], private_sizes: Sequence[int]
) -> tuple[dict[str, int], int]:
    """Plan the buffers that are used by several pieces of a program.

    Args:
      private_sizes: for each piece, the bytes of its own memory, which is at the end.
    Returns: the offsets of the buffers, and the total size.
    """
    last = [
        Allocation(Buffer("", uint8, (size,)), "shared", index, index)
        for index, size in enumerate(private_sizes)
        if size
    ]
    allocations = [Allocation(buffer, "shared", *life) for buffer, life in lives.items()]
    size = arrange(allocations, last)  # from the end
    return {p.buffer.name: size - p.offset - round_up(p.buffer.bytes) for p in allocations}, size


class _Numbering:
    """Visitor that numbers the statements of a program."""

    def __init__(self, program: Program) -> None:
        self._numbers = {id(statement): index for index, statement in enumerate(walk(program.body))}
        self._ends: dict[int, int] = {}
        self._names: dict[int, frozenset[str]] = {}
        self._parallel: dict[int, bool] = {}

    def _end(self, statement: Statement) -> int:
        """Return the number of the last statement nested inside one."""
        result = self._ends.get(id(statement))
        if result is None:
            inner = [self._end(body[-1]) for body in bodies(statement) if body]
            result = self._ends[id(statement)] = max([self._numbers[id(statement)], *inner])
        return result

    def _touched_buffers(self, statement: Statement) -> frozenset[str]:
        """Return the buffers that a statement, including its bodies, reads or writes."""
        result = self._names.get(id(statement))
        if result is None:
            inner = [
                self._touched_buffers(inner_statement)
                for body in bodies(statement)
                for inner_statement in body
            ]
            result = self._names[id(statement)] = frozenset(_own_buffers(statement)).union(*inner)
        return result

    def _has_parallel(self, statement: Statement) -> bool:
        result = self._parallel.get(id(statement))
        if result is None:
            result = self._parallel[id(statement)] = any(
                isinstance(nested, For) and nested.order is Order.PARALLEL
                for nested in walk((statement,))
            )
        return result

    def places(self, body: Body, in_loop: bool, in_parallel: bool) -> Iterator[Allocation]:
        for index, statement in enumerate(body):
            if isinstance(statement, Allocate):
                yield self._place(statement, body[index + 1 :], in_loop, in_parallel)
            loop = in_loop or isinstance(statement, For | While)
            parallel = in_parallel or (
                isinstance(statement, For) and statement.order is Order.PARALLEL
            )
            for inner in bodies(statement):
                yield from self.places(inner, loop, parallel)

    def _place(
        self, allocate: Allocate, remaining: Body, in_loop: bool, in_parallel: bool
    ) -> Allocation:
        buffer = allocate.buffer
        first = last = self._numbers[id(allocate)]
        used = shared_with_threads = False
        for sibling in remaining:
            if buffer.name in self._touched_buffers(sibling):
                if not used:
                    used, first = True, self._numbers[id(sibling)]
                last = self._end(sibling)
                shared_with_threads |= not in_parallel and self._has_parallel(sibling)
        # A buffer of one number becomes a register.
        is_short_lived = in_loop or not buffer.shape
        small = buffer.bytes <= _STACK_BUFFER and is_short_lived and not shared_with_threads
        region = "stack" if small else "thread" if in_parallel else "shared"
        return Allocation(buffer, region, first, last)


def _own_buffers(statement: Statement) -> Iterator[str]:
    """Return the buffers that a statement reads or writes outside its bodies."""
    if isinstance(statement, Store):
        yield statement.buffer
    for expression in expressions(statement):
        yield from (e.buffer for e in walk_expression(expression) if isinstance(e, Load))


def round_up(size: int) -> int:
    """Round a size up to the next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def arrange(allocations: Sequence[Allocation], lowest: Sequence[Allocation] = ()) -> int:
    """Assign each buffer the lowest offset that is free during its live range, largest first.

    Args:
      lowest: buffers that are already placed at offset 0.
    """
    total = max(
        [round_up(lowest_allocation.buffer.bytes) for lowest_allocation in lowest], default=0
    )
    assigned = list(lowest)
    for allocation in sorted(
        allocations, key=lambda candidate: (-candidate.buffer.bytes, candidate.first)
    ):
        rivals = [p for p in assigned if p.first <= allocation.last and allocation.first <= p.last]
        size = round_up(allocation.buffer.bytes)
        for rival in sorted(rivals, key=lambda neighbor: neighbor.offset):
            if allocation.offset + size <= rival.offset:
                break
            allocation.offset = max(allocation.offset, rival.offset + round_up(rival.buffer.bytes))
        for rival in rivals:
            rival.rivals.append(allocation.buffer.name)
            allocation.rivals.append(rival.buffer.name)
        assigned.append(allocation)
        total = max(total, allocation.offset + size)
    return total
