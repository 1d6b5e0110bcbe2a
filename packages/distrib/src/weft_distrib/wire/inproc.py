"""Connections between servers of one process, without sockets: `inproc://`.

A server registers a function here that accepts connections, under its incarnation number, which
callers must know. The bytes of a large value are copied once, from their source to their
destination.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from weft_distrib.security.roles import Role

INPROC: Final = "inproc"
"""The protocol of servers that accept connections within their process; also the transport's name
in `Traffic`.
"""

_PIPE_BYTES = 1 << 16
"""Maximum number of bytes that one direction buffers without blocking the writer."""


class _Pipe:
    """A one-way byte pipe: a bounded buffer, followed by the bytes of a blocked writer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: deque[memoryview] = deque()
        self._writes: deque[memoryview] = deque()
        self._room = _PIPE_BYTES
        self._closed = False

    def send(self, buffers: Sequence[memoryview], wait: bool) -> int:
        """See `Stream`; a writer that waits is blocked until all bytes have been read."""
        with self._changed:
            self._check_open()
            if not wait:
                return self._hold(buffers)
            self._writes.extend(buffers)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or not self._writes)
            self._check_open()
        return sum(map(len, buffers))

    def _check_open(self) -> None:
        if self._closed:
            raise BrokenPipeError("the other end is closed")

    def _hold(self, buffers: Sequence[memoryview]) -> int:
        """Copy the bytes that fit into the pipe's buffer."""
        num_held = 0
        for buffer in buffers:
            chunk = bytes(buffer[: self._room])
            if not chunk:
                break
            self._chunks.append(memoryview(chunk))
            self._room -= len(chunk)
            num_held += len(chunk)
        if num_held:
            self._changed.notify_all()
        return num_held

    def recv_into(self, buffer: memoryview) -> int:
        """See `Stream`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._chunks or self._writes)
            if self._chunks:
                count = _move(self._chunks, buffer)
                self._room += count
            elif self._writes:
                count = _move(self._writes, buffer)
                if not self._writes:
                    self._changed.notify_all()
            else:
                count = 0
        return count

    def close(self) -> None:
        """Release a blocked writer; buffered bytes can still be read."""
        with self._changed:
            self._closed = True
            self._writes.clear()
            self._changed.notify_all()


def _move(source: deque[memoryview], buffer: memoryview) -> int:
    """Copy bytes from the first of several buffers; return their number."""
    first = source.popleft()
    count = min(len(first), len(buffer))
    buffer[:count] = first[:count]
    if count < len(first):
        source.appendleft(first[count:])
    return count


class InprocStream:
    """One end of a connection within a process; a `Stream`.

    Args:
      inward, outward: the pipes for both directions.
    """

    transport = INPROC

    def __init__(self, inward: _Pipe, outward: _Pipe) -> None:
        self._pipes = inward, outward
        self.recv_into = inward.recv_into
        self.send = outward.send

    def begin(self) -> Role:
        """See `Stream`: code in this process is trusted."""
        return Role.PEER

    def shutdown(self) -> None:
        """See `Stream`."""
        for pipe in self._pipes:
            pipe.close()

    close = shutdown


def pair() -> tuple[InprocStream, InprocStream]:
    """Return the two ends of a new connection."""
    forward, backward = _Pipe(), _Pipe()
    return InprocStream(backward, forward), InprocStream(forward, backward)


Welcome = Callable[[InprocStream], None]

_doors: dict[int, Welcome] = {}

if hasattr(os, "register_at_fork"):  # behind them are threads that a child does not have
    os.register_at_fork(after_in_child=_doors.clear)


def open_door(incarnation: int, welcome: Welcome) -> None:
    """Register the function that accepts connections to a task within this process."""
    _doors[incarnation] = welcome


def close_door(incarnation: int) -> None:
    """Stop accepting connections to a task; do nothing if it does not accept any."""
    _doors.pop(incarnation, None)


def reach(incarnation: int) -> InprocStream | None:
    """Connect to a task of this process.

    Return None if it is in another process or rejects the connection.
    """
    welcome = _doors.get(incarnation)
    if welcome is None:
        return None
    client_end, server_end = pair()
    welcome(server_end)
    return client_end
