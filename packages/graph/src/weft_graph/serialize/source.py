"""Bounded reading of bytes from a file or from memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.serialize.layout import ALIGNMENT
from weft_tensor import errors

_CHUNK = 16 << 20


class Source:
    """A stream of bytes with a position, for messages, and a limit.

    Args:
      data: bytes-like object, of which views are returned, or a binary file with `readinto`.
      limit: largest number of bytes to read; None for no limit.
    """

    def __init__(self, data: Any, limit: int | None = None) -> None:
        self.position = 0
        self._limit = limit
        self._file: Any = data if hasattr(data, "readinto") else None
        if self._file is None:
            try:
                self._memory = np.frombuffer(data, np.uint8)
            except (TypeError, ValueError, BufferError) as cause:
                raise errors.InvalidTypeError(
                    f"a graph is read from bytes or a binary file, got {type(data).__name__}"
                ) from cause

    def take(self, count: int, label: str, *, at_end: bool = False) -> np.ndarray:
        """Return the next `count` bytes as uint8; with `at_end`, an empty array at the end.

        Raises:
          ResourceExhaustedError: the limit is exceeded.
          DataLossError: there are fewer bytes.
        """
        if self._limit is not None and self.position + count > self._limit:
            raise errors.ResourceExhaustedError(
                f"{label} would end at byte {self.position + count}; "
                f"the limit is {self._limit} bytes"
            )
        if self._file is None:
            data = self._memory[self.position : self.position + count]
        else:
            data = self._read(count)
        if data.size < count and not (at_end and data.size == 0):
            raise errors.DataLossError(
                f"byte {self.position}: {label} takes {count} bytes, {data.size} are left"
            )
        self.position += data.size
        return data

    def _read(self, count: int) -> np.ndarray:
        """Read up to `count` bytes, allocating incrementally because `count` is untrusted."""
        buffer = _aligned_empty(min(count, _CHUNK))
        filled = 0
        while filled < count:
            if filled == buffer.size:
                larger = _aligned_empty(min(count, 2 * buffer.size))
                larger[:filled] = buffer
                buffer = larger
            readinto = self._file.readinto(buffer[filled:].data)
            if not readinto:
                break
            filled += readinto
        return buffer[:filled]


def _aligned_empty(size: int) -> np.ndarray:
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + size]
