"""Sequential streams of the decompressed bytes of a file, read in bounded pieces."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from functools import cache
from typing import Any, Final, Protocol

import numpy as np

from weft_exec.resources.file_access import open_checked
from weft_io.files.systems import is_url, locate
from weft_tensor import errors
from weft_tensor.finalizers import call_when_gone
from weft_tensor.os_errors import convert_os_errors

PIECE: Final = 1 << 18
"""Number of bytes read at a time: few system calls, and small enough for the processor's cache."""

MAX_INFLATED: Final = 2**31 - 1
"""Maximum number of decompressed bytes of one record, or of a tensor's strings."""

NONE: Final = ""
ZLIB: Final = "ZLIB"
GZIP: Final = "GZIP"
_WINDOW_BITS: Final = {ZLIB: zlib.MAX_WBITS, GZIP: zlib.MAX_WBITS + 16}

_BINARY: Final = getattr(os, "O_BINARY", 0)
_PREALLOCATED_BYTES: Final = 1 << 24


@cache
def _keep_freed_memory() -> None:
    """Free one large block, so that the C library keeps smaller blocks that are freed later.

    Before a block of this size has been freed, glibc returns the memory of every batch to the
    system and gets it back with a page fault per 4 kB, which makes reading five times slower.
    """
    np.empty(_PREALLOCATED_BYTES, np.uint8)


class Stream(Protocol):
    """A stream of bytes, read in order.

    Attributes:
      path: path of the file, for messages.
    """

    path: str

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most `size`; empty at the end."""
        ...

    def remaining(self) -> int | None:
        """Return the maximum number of remaining bytes; None if it is unknown before reading."""
        ...

    def close(self) -> None:
        """Close the file; do nothing if it is closed."""
        ...


class _LocalStream:
    def __init__(self, path: str) -> None:
        self.path = path
        inner = locate(path)[1]
        with convert_os_errors("reading", path):
            self._descriptor = open_checked(inner, os.O_RDONLY | _BINARY)
            self._descriptors = [self._descriptor]
            call_when_gone(self, _close_all, self._descriptors)
            self._size = os.fstat(self._descriptor).st_size
        self._position = 0

    def read(self, size: int) -> bytes:
        with convert_os_errors("reading", self.path):
            data = os.read(self._descriptor, size)
        self._position += len(data)
        return data

    def remaining(self) -> int | None:
        """Return the remaining size; None for pipes and devices."""
        num_remaining = self._size - self._position
        return num_remaining if num_remaining > 0 else self._grow()

    def _grow(self) -> int | None:
        with convert_os_errors("reading", self.path):
            self._size = os.fstat(self._descriptor).st_size
        return max(0, self._size - self._position) if self._size else None

    def skip(self, count: int) -> None:
        """Skip `count` bytes."""
        with convert_os_errors("reading", self.path):
            self._position = os.lseek(self._descriptor, count, os.SEEK_CUR)

    def close(self) -> None:
        self._descriptor = -1
        _close_all(self._descriptors)


def _close_all(descriptors: list[int]) -> None:
    """Close descriptors and remove them from the list; only one thread closes each of them."""
    while descriptors:
        with suppress(IndexError):
            os.close(descriptors.pop())


class _RemoteStream:
    def __init__(self, path: str) -> None:
        self.path = path
        fs, inner = locate(path)
        with convert_os_errors("reading", path):
            self._file: Any = fs.open(inner, "rb")
        size = getattr(self._file, "size", None)
        self._size: int | None = size if isinstance(size, int) else None

    def read(self, size: int) -> bytes:
        with convert_os_errors("reading", self.path):
            data: bytes = self._file.read(size)
        return data

    def remaining(self) -> int | None:
        if self._size is None:
            return None
        with convert_os_errors("reading", self.path):
            position: int = self._file.tell()
        return max(0, self._size - position)

    def skip(self, count: int) -> None:
        """Skip `count` bytes."""
        with convert_os_errors("reading", self.path):
            self._file.seek(count, os.SEEK_CUR)

    def close(self) -> None:
        self._file.close()


class _Inflated:
    """The contents of a compressed stream; consecutive compressed parts are concatenated."""

    def __init__(self, source: _LocalStream | _RemoteStream, compression: str) -> None:
        self.path = source.path
        self._source = source
        self._bits = _WINDOW_BITS[compression]
        self._kind = compression
        self._inflate = zlib.decompressobj(self._bits)
        self._pending = b""
        self._consumed = 0
        self._has_started = False
        self._may_have_more = False
        self._broken = False

    def read(self, size: int) -> bytes:
        while True:
            if not self._pending and not self._may_have_more and not self._fill():
                return b""
            try:
                data = self._inflate.decompress(self._pending, size)
            except zlib.error as cause:
                raise self._damaged_error(str(cause)) from cause
            # All input may be taken in before all output is given out.
            self._may_have_more = len(data) == size
            self._advance()
            if data:
                return data

    def _fill(self) -> bool:
        if self._broken:
            return False
        self._pending = self._source.read(PIECE)
        if not self._pending and self._has_started:
            raise self._damaged_error("the file ends before its compressed data")
        self._has_started = self._has_started or bool(self._pending)
        return bool(self._pending)

    def _advance(self) -> None:
        if self._inflate.eof:
            remaining = self._inflate.unused_data
            self._inflate = zlib.decompressobj(self._bits)
            self._has_started = bool(remaining)
        else:
            remaining = self._inflate.unconsumed_tail
        self._consumed += len(self._pending) - len(remaining)
        self._pending = remaining

    def _damaged_error(self, reason: str) -> errors.DataLossError:
        self._pending, self._may_have_more, self._broken = b"", False, True  # the stream ends here
        return errors.DataLossError(
            f"{self.path} is not complete {self._kind} data at offset {self._consumed} of the "
            "file: "
            f"{reason}",
            details={"file": self.path, "offset": self._consumed},
        )

    def remaining(self) -> int | None:
        return None

    def close(self) -> None:
        self._source.close()


def open_stream(path: str, compression: str = NONE, offset: int = 0) -> Stream:
    """Open a stream of the bytes of a file, starting at `offset`.

    Args:
      path: local, or a URL that fsspec supports.
      compression: "", "ZLIB" or "GZIP".
      offset: start in the decompressed bytes.
    Raises:
      NotFoundError, PermissionDeniedError, ...: the file cannot be opened.
      InvalidArgumentError: the compression is unknown.
      DataLossError: the file ends before `offset`.
    """
    if compression not in (NONE, ZLIB, GZIP):
        raise errors.InvalidArgumentError(
            f"compression must be '', 'ZLIB' or 'GZIP', got {compression!r}"
        )
    _keep_freed_memory()
    source = _RemoteStream(path) if is_url(path) else _LocalStream(path)
    if compression == NONE:
        num_remaining = source.remaining()
        if num_remaining is not None and num_remaining < offset:
            source.close()
            raise _too_short_error(path, offset, num_remaining)
        if offset:
            source.skip(offset)
        return source
    stream = _Inflated(source, compression)
    _skip(stream, offset)
    return stream


def _skip(stream: Stream, offset: int) -> None:
    num_remaining = offset
    while num_remaining:
        data = stream.read(min(num_remaining, PIECE))
        if not data:
            stream.close()
            raise _too_short_error(stream.path, offset, offset - num_remaining)
        num_remaining -= len(data)


def _too_short_error(path: str, offset: int, size: int) -> errors.DataLossError:
    return errors.DataLossError(
        f"{path} ends at offset {size}, before the position to resume from,  {offset}",
        details={"file": path, "offset": size},
    )


def read_exactly(stream: Stream, size: int) -> bytes:
    """Read `size` bytes, or fewer at the end of the file; memory is bounded by the actual size.

    Raises: DataLossError: the remaining size is unknown, and `size` exceeds the limit.
    """
    limit = stream.remaining()
    if limit is None:
        refuse_inflated(stream.path, size)
    data = stream.read(min(size, PIECE if limit is None else max(limit, 1)))
    if len(data) == size or not data:
        return data
    parts = [data]
    num_remaining = size - len(data)
    while num_remaining and (
        data := stream.read(min(num_remaining, max(PIECE, size - num_remaining)))
    ):
        parts.append(data)
        num_remaining -= len(data)
    return b"".join(parts)


def refuse_inflated(path: str, size: int) -> None:
    """Reject a large record in data of unknown size.

    Raises: DataLossError: the record has more than `MAX_INFLATED` bytes.
    """
    if size > MAX_INFLATED:
        raise errors.DataLossError(
            f"a record of {path} must have at most {MAX_INFLATED} bytes, as its data are "
            f"compressed or have no size, got {size} or more",
            details={"file": path},
        )
