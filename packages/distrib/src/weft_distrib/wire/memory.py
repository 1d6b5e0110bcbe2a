"""Shared memory between the ends of a connection: blocks to which sent values are copied.

Each end has blocks for the values that it sends (`Pool`) and maps the blocks of the other end
(`BlockMap`). A block is an anonymous file, which can only be opened through a descriptor that was
passed. It contains one value at a time, from the copy by the sender until the receiver has released
the last array over it.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import resource
import stat
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from weft_tensor import errors

SHARED_BYTES: Final = 1 << 18
"""Minimum size in bytes of values that use shared memory; the calling thread sends smaller ones
directly.
"""

_MAX_BLOCKS = 64
"""Maximum number of blocks of one end. Each is an open file at both ends, which are limited."""

_MAX_TOTAL_BYTES = 1 << 32
# A file that shrinks while it is mapped would end the other process with SIGBUS.
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_BYTE = np.dtype(np.uint8)


class SharedValue(NamedTuple):
    """An array in a shared block, as messages describe it."""

    block: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int


def is_shared(value: Any) -> bool:
    """Return True if a value should be transferred through shared memory."""
    return (
        isinstance(value, np.ndarray) and value.nbytes >= SHARED_BYTES and not value.dtype.hasobject
    )


class Budget:
    """The limit of the blocks of all connections of a process.

    Args:
      limit: the maximum number of bytes.
      blocks: the maximum number of blocks.
    """

    def __init__(self, limit: int, blocks: int = 1 << 16) -> None:
        self.limit, self._blocks = limit, blocks
        self._used = self._count = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """The bytes in use."""
        return self._used

    def take(self, nbytes: int) -> bool:
        """Count a new block if the limits permit it; return True if so."""
        with self._lock:
            fits = self._used + nbytes <= self.limit and self._count < self._blocks
            if fits:
                self._used += nbytes
                self._count += 1
            return fits

    def give_back(self, nbytes: int) -> None:
        """Remove a released block from the count."""
        with self._lock:
            self._used -= nbytes
            self._count -= 1


def _usual_limit() -> int:
    return min(_MAX_TOTAL_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)


def _usual_blocks() -> int:
    """Return the default number of blocks: an eighth of the files that the process may open."""
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8, 1)


process_budget: Final = Budget(_usual_limit(), _usual_blocks())
"""The budget of this process."""


class _Block(NamedTuple):
    number: int
    size: int
    memory: mmap.mmap


class Pool:
    """The blocks for the values that one end of a connection sends.

    Args:
      hand_over: passes the descriptor of a new block to the other end, and closes it.
      budget: shared by all such pools.
    """

    def __init__(
        self, hand_over: Callable[[int, int], None], budget: Budget = process_budget
    ) -> None:
        self._hand_over = hand_over
        self._budget = budget
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._free: dict[int, list[_Block]] = {}
        self._used: dict[int, _Block] = {}
        self._closed = False

    def put(self, array: np.ndarray) -> SharedValue | None:
        """Copy an array to a block; return None if there is no room."""
        block = self._take(array.nbytes)
        if block is None:
            return None
        target = np.ndarray(array.shape, array.dtype, block.memory)
        np.copyto(target, array, casting="no")
        return SharedValue(block.number, array.dtype, array.shape, array.nbytes)

    def _take(self, nbytes: int) -> _Block | None:
        size = _size_class(nbytes)
        with self._lock:
            if self._closed:
                return None
            free = self._free.get(size)
            if free:
                block = free.pop()
                self._used[block.number] = block
                return block
        return self._new(size)

    def _new(self, size: int) -> _Block | None:
        with self._lock:
            count = len(self._used) + sum(map(len, self._free.values()))
        if count >= _MAX_BLOCKS or not self._budget.take(size):
            return None
        try:
            file = _anonymous_file(size)
        except OSError:  # no memory, or too many open files: the socket needs neither
            self._budget.give_back(size)
            return None
        block = _Block(next(self._numbers), size, mmap.mmap(file, size))
        with self._lock:
            closed = self._closed
            if not closed:
                self._used[block.number] = block
        if closed:
            os.close(file)
            self._budget.give_back(size)
            return None
        self._hand_over(block.number, file)
        return block

    def give_back(self, number: int) -> None:
        """Reclaim a block that the other end has released.

        Raises: DataLossError: there is no block with that number.
        """
        with self._lock:
            block = self._used.pop(number, None)
            if block is None:
                if self._closed:
                    return
                raise errors.DataLossError(f"block {number} was released but is not in use")
            self._free.setdefault(block.size, []).append(block)

    def trim(self) -> list[int]:
        """Release free blocks; return their numbers for the other end."""
        with self._lock:
            removed = [block for blocks in self._free.values() for block in blocks]
            self._free.clear()
        for block in removed:
            self._budget.give_back(block.size)
        return [block.number for block in removed]

    @property
    def idle(self) -> bool:
        """True if there are free blocks."""
        return any(self._free.values())

    def close(self) -> None:
        """Release all blocks; the other end keeps those that it has mapped."""
        with self._lock:
            self._closed = True
            blocks = list(self._used.values())
            self._used.clear()
        self.trim()
        for block in blocks:
            self._budget.give_back(block.size)


def _size_class(nbytes: int) -> int:
    """Round a size up by at most an eighth, so that values of similar size share blocks."""
    step = max(mmap.PAGESIZE, 1 << max(nbytes.bit_length() - 4, 0))
    return -(-nbytes // step) * step


def _anonymous_file(size: int) -> int:
    """Create an anonymous file whose size cannot change."""
    file = os.memfd_create("weft-values", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Pages are allocated now, with an error if memory is short. On first use it would be a
        # SIGBUS.
        os.posix_fallocate(file, 0, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(file)
        raise
    return file


class _Lease(np.ndarray[Any, Any]):
    """The base of an array over a block, which reports the release of the array's last view."""

    __slots__ = ("end",)

    end: Callable[[], None]

    def __del__(self) -> None:
        try:
            end = self.end
        except AttributeError:  # a view or copy of the lease itself
            return
        end()


class BlockMap:
    """The blocks of the other end of a connection, mapped into this process.

    Args:
      next_file: returns the next received file descriptor; None if there is none.
      release: called when a block is free again, on any thread and with any locks held.
    """

    def __init__(self, next_file: Callable[[], int | None], release: Callable[[int], None]) -> None:
        self._next_file = next_file
        self._release = release
        self._blocks: dict[int, mmap.mmap] = {}
        self._leased: set[int] = set()

    def add(self, number: int) -> None:
        """Map a block whose descriptor was received.

        Raises:
          DataLossError: no descriptor was received, or the size of the file could change.
          ResourceExhaustedError: there are too many blocks.
        """
        file = self._next_file()
        if file is None:
            raise errors.DataLossError(f"block {number} was announced without a file descriptor")
        try:
            if number in self._blocks or len(self._blocks) >= 2 * _MAX_BLOCKS:
                raise errors.ResourceExhaustedError(
                    f"block {number} exceeds the maximum number of blocks, or was announced twice"
                )
            self._blocks[number] = mmap.mmap(file, _check_size(file))
        except (OSError, ValueError) as error:
            raise errors.DataLossError(f"block {number} cannot be mapped: {error}") from error
        finally:
            os.close(file)

    def lease(self, number: int, nbytes: int) -> np.ndarray:
        """Return the first bytes of a block; it is released with the last view of them.

        Raises: DataLossError: the block does not exist, is too short, or is in use by another
          value.
        """
        block = self._blocks.get(number)
        if block is None or nbytes > len(block) or number in self._leased:
            raise errors.DataLossError(f"block {number} cannot contain a value of {nbytes} bytes")
        self._leased.add(number)
        lease = _Lease(nbytes, _BYTE, block)  # over an array NumPy would make that the base
        lease.end = lambda: self._end(number)
        return np.ndarray(nbytes, _BYTE, lease)

    def _end(self, number: int) -> None:
        self._leased.discard(number)
        self._release(number)

    def forget(self, number: int) -> None:
        """Remove a block that the other end has released."""
        self._blocks.pop(number, None)

    def close(self) -> None:
        """Release all blocks without live arrays."""
        self._blocks.clear()


def _check_size(file: int) -> int:
    """Return the size of a memory file, after checking that it cannot shrink while it is mapped.

    Raises: OSError, ValueError: the file is not such a file.
    """
    if not fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:  # before its size is read
        raise ValueError("its file is not sealed against shrinking (F_SEAL_SHRINK)")
    result = os.fstat(file)
    if not stat.S_ISREG(result.st_mode):
        raise ValueError("it is not a regular file")
    if not result.st_size:
        raise ValueError("it is empty")
    return result.st_size
