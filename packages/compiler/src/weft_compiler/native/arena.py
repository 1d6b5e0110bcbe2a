"""Arenas: the memory for temporaries of the compiled programs of a process.

The programs of a step run one after another, so they share **slots**. A slot has enough memory for
any program, and a flag that says if it is in use. The C function that enters a program acquires the
first free slot and releases it at the end. Concurrent programs use several slots. If all are in
use, memory is allocated for another slot, up to `SLOTS`; beyond that, calls allocate their own
memory. `weft_compiler/runtime/arena.c` acquires and changes slots.

A slot is as large as the largest program of the process requires; pages that are not touched only
use address space. The memory belongs to the tensor pool. It returns there when the last program is
destroyed, or when the remaining ones require less than half of it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter, deque
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from weft_compiler.codegen.memory import ALIGNMENT
from weft_compiler.codegen.runtime import REPLACE_ARENA
from weft_compiler.native.layouts import ArenaSlot
from weft_compiler.native.linking import call_once
from weft_compiler.native.runtime import library
from weft_graph.ir.interrupts import defer_interrupts
from weft_tensor import errors
from weft_tensor.allocator import cpu_allocator
from weft_tensor.finalizers import call_when_gone, settle

SLOTS: Final = 16
"""Maximum number of concurrent programs with pooled memory: `WEFT_ARENA_SLOTS`."""

_BYTE: Final = np.dtype(np.uint8)
_Replace: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Usage(NamedTuple):
    """The current arena memory of a process.

    Attributes:
      required_bytes: the size that the largest program requires, in bytes.
      slots: the number of slots with memory, one for each concurrent program so far.
    """

    required_bytes: int
    slots: int


class Arena:
    """The slots of a process, safe to use from any thread and from finalizers.

    Attributes:
      table: the address of the slots.
    """

    def __init__(self) -> None:
        memory = allocate_aligned(SLOTS * ctypes.sizeof(ArenaSlot))
        self._slots = (ArenaSlot * SLOTS).from_buffer(memory)
        self.table = address_of(memory)
        self._memory: list[tuple[Any, ...]] = [()] * SLOTS
        self._sizes: Counter[int] = Counter()
        self._changes: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def lease(self, size: int) -> Lease:
        """Return a program's claim to `size` bytes of memory while it runs.

        Raises: ResourceExhaustedError: the system has no memory.
        """
        lease = Lease()
        if size:
            call_when_gone(lease, self._end, size)
            self._change(size, 1)
        return lease

    def grow(self) -> bool:
        """Allocate memory for one more slot; return False if all slots have memory."""
        self._settle()
        try:
            with self._lock:
                maximum = self._max_size()
                short = [slot for slot in range(SLOTS) if self._size(slot) < maximum]
                return any(self._fill(slot, maximum) for slot in short)
        finally:
            self._settle()  # changes made meanwhile found the lock held

    def usage(self) -> Usage:
        """Return the current usage, without programs that were destroyed."""
        settle()
        self._settle()
        with self._lock:
            return Usage(self._max_size(), sum(map(bool, self._memory)))

    def reset(self) -> None:
        """Reset all slots in the child of a fork, in which no other thread uses one."""
        self._lock = threading.Lock()
        for slot in self._slots:
            slot.in_use = 0

    def _end(self, size: int) -> None:
        """Remove a lease.

        If memory cannot be allocated now, the next call of a program reports that.
        """
        with suppress(errors.ResourceExhaustedError):
            self._change(size, -1)

    def _change(self, size: int, count: int) -> None:
        """Add or remove a lease."""
        self._changes.append((size, count))
        self._settle()

    def _settle(self) -> None:
        """Apply pending changes of leases, unless another thread holds the lock and does it."""
        while self._changes:
            with defer_interrupts():  # otherwise Ctrl-C could leave the lock held
                if not self._lock.acquire(blocking=False):
                    return
                try:
                    self._count()
                    self._fit()
                finally:
                    self._lock.release()

    def _count(self) -> None:
        """Apply the added and removed leases to the counts."""
        while self._changes:
            size, count = self._changes.popleft()
            self._sizes[size] += count
            if not self._sizes[size]:
                del self._sizes[size]

    def _max_size(self) -> int:
        return max(self._sizes, default=0)

    def _size(self, slot: int) -> int:
        return int(self._slots[slot].size)

    def _fit(self) -> None:
        """Make the first slot large enough, and empty slots that are too large or too small."""
        maximum = self._max_size()
        for slot, memory in enumerate(self._memory):
            if memory and not maximum <= self._size(slot) <= 2 * maximum:
                self._fill(slot, 0)
        if maximum and not self._memory[0]:
            self._fill(0, maximum)

    def _fill(self, slot: int, size: int) -> bool:
        """Change the memory of a slot, unless a program uses it."""
        replace, previous = _replace(), self._memory[slot]
        new = _allocate_pooled(size) if size else None
        # Both stay referenced until one is known to be unused, as Ctrl-C may interrupt this.
        self._memory[slot] = (*previous, new)
        address = 0 if new is None else address_of(new)
        is_replaced = bool(replace(ctypes.addressof(self._slots[slot]), address, size))
        self._memory[slot] = (() if new is None else (new,)) if is_replaced else previous
        return is_replaced


class Lease:
    """A claim to arena memory; it ends when the object is destroyed."""

    __slots__ = ("__weakref__",)


@call_once
def _replace() -> Any:
    return _Replace(library().address(REPLACE_ARENA))


def _allocate_pooled(size: int) -> Any:
    """Allocate aligned memory from the tensor pool."""
    return cpu_allocator().empty((size,), _BYTE, "compiled programs")


def address_of(array: Any) -> int:
    """Return the address of an array's first element."""
    return int(array.__array_interface__["data"][0])


def allocate_aligned(size: int) -> Any:
    """Return zeros in memory whose address is a multiple of 64."""
    padded = np.zeros(size + ALIGNMENT, np.uint8)
    return padded[-address_of(padded) % ALIGNMENT :][:size]


ARENA: Final = Arena()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ARENA.reset)
