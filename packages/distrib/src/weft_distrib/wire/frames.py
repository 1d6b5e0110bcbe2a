"""Conversion of messages to frames and back, without a socket: `Outbox` and `Inbox`."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from weft_distrib.wire.memory import BlockMap
from weft_distrib.wire.values import Slot, ValueLayout, describe, pack
from weft_tensor import errors

HEAD, DATA, CANCEL, PING, PONG = 1, 2, 3, 4, 5
BLOCK, RELEASE, FORGET = 6, 7, 8
_EMPTY = frozenset((CANCEL, PING, PONG, RELEASE))

CHUNK_BYTES: Final = 1 << 20
"""Maximum number of bytes of one value that are sent before another message is interleaved."""

MAX_HEAD_BYTES: Final = 1 << 24
BUFFER_BYTES: Final = 1 << 16
"""Size of the read-ahead buffer; larger payloads are read directly to their destination."""

_FRAME = struct.Struct("<BBHIQ")
_HEAD = struct.Struct("<HHI")
FRAME_BYTES: Final = _FRAME.size
"""Size of the header of a frame, in bytes."""


_NOTHING: Final = ValueLayout(b"", [])


def call_bytes(frame: bytes | bytearray, limit: int) -> int:
    """Return the size of the payload of a frame, which must belong to a call.

    Args:
      frame: at least the first `FRAME_BYTES` of the frame.
    Raises: DataLossError: the frame is of another kind, or its payload exceeds `limit` bytes.
    """
    kind, reply, _, size, _ = _FRAME.unpack_from(frame)
    if kind != HEAD or reply or size > limit:
        raise errors.DataLossError(
            f"a connection must begin with a call of at most {limit} bytes, got a frame of kind "
            f"{kind} with {size} bytes"
        )
    return int(size)


class Message(NamedTuple):
    """A complete message, or a frame without content.

    Attributes:
      kind: HEAD for a message, else the kind of a frame without content.
      reply: True if it is a reply to a call.
      call: the number of the call, or of a block.
      code: the called method, or the status of a reply.
      nbytes: the size of the values of a received message.
    """

    kind: int
    reply: bool
    call: int
    code: int = 0
    meta: bytes = b""
    values: Sequence[Any] = ()
    nbytes: int = 0


class Outbox:
    """Queue of outgoing messages as frames: heads first, then chunks of large values."""

    def __init__(self) -> None:
        self._heads: deque[bytes] = deque()
        self._bulk: deque[_Outgoing] = deque()
        self._frame: list[memoryview] = []

    def add(self, message: Message) -> ValueLayout:
        """Queue a message; its head is sent after earlier heads.

        Of a call that is cancelled, no more values are sent.

        Returns: the layout of its values.
        Raises: InvalidArgumentError: a value cannot be sent to another process, or the head is too
          long.
        """
        if message.kind == CANCEL:
            self._bulk = deque(item for item in self._bulk if not item.is_of_call(message.call))
        if message.kind != HEAD:
            self._heads.append(_FRAME.pack(message.kind, message.reply, 0, 0, message.call))
            return _NOTHING
        packed = pack(message.values)
        head = _HEAD.pack(message.code, len(message.values), len(message.meta))
        size = len(head) + len(message.meta) + len(packed.head)
        if size > MAX_HEAD_BYTES:
            raise errors.InvalidArgumentError(
                f"a message's head must have at most {MAX_HEAD_BYTES} bytes, got {size}"
            )
        frame = _FRAME.pack(HEAD, message.reply, 0, size, message.call)
        self._heads.append(b"".join((frame, head, message.meta, packed.head)))
        if packed.bulk:
            self._bulk.append(_Outgoing(message.reply, message.call, packed.bulk))
        return packed

    def next(self) -> list[memoryview]:
        """Return the buffers to send next, which are complete frames; empty if all was sent."""
        if self._frame:
            return self._frame
        if self._heads:
            self._frame = [memoryview(b"".join(self._heads))]
            self._heads.clear()
        if self._bulk:
            # Round robin over messages, one chunk each, so that a large value does not delay small
            # ones.
            outgoing = self._bulk[0]
            self._frame += outgoing.chunk()
            self._bulk.rotate(-1)
            if outgoing.done:
                self._bulk.pop()
        return self._frame

    def sent(self, count: int) -> None:
        """Record that the first `count` bytes of the result of `next` were sent."""
        while count:
            first = self._frame[0]
            if count < len(first):
                self._frame[0] = first[count:]
                return
            count -= len(first)
            self._frame.pop(0)


class _Outgoing:
    """The large values of one message."""

    def __init__(self, reply: bool, call: int, buffers: list[memoryview]) -> None:
        self._reply, self._call = reply, call
        self._buffers = deque(buffers)

    @property
    def done(self) -> bool:
        return not self._buffers

    def is_of_call(self, number: int) -> bool:
        return self._call == number and not self._reply

    def chunk(self) -> list[memoryview]:
        first = self._buffers.popleft()
        if len(first) > CHUNK_BYTES:
            self._buffers.appendleft(first[CHUNK_BYTES:])
            first = first[:CHUNK_BYTES]
        return [memoryview(_FRAME.pack(DATA, self._reply, 0, len(first), self._call)), first]


class Inbox:
    """Reassembles incoming messages; large values are written directly to their destination.

    The socket writes to `space()` and reports the number of bytes by `received`.

    Args:
      limit: the maximum total size of the values of a message, in bytes.
      head_limit: the maximum size of the head of a message, in bytes.
      mapped: the shared memory of the other end, or None.
    """

    def __init__(
        self, limit: int, head_limit: int = MAX_HEAD_BYTES, mapped: BlockMap | None = None
    ) -> None:
        self.limit, self.head_limit = limit, head_limit
        self._mapped = mapped
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0
        self._frame: tuple[int, bool, int] | None = None  # kind, reply, call
        self._frame_remaining = 0  # bytes of the frame that are still to come
        self._head: _Incoming | None = None
        self._partial: dict[tuple[bool, int], _Incoming] = {}

    def space(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._frame_remaining and self._start == self._end:
            target = self._target()
            # A large payload is received directly into its array instead of being copied from the
            # buffer.
            if len(target) > BUFFER_BYTES:
                return target
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer):
            remaining = bytes(self._buffer[self._start : self._end])
            self._buffer[: len(remaining)] = remaining
            self._start, self._end = 0, len(remaining)
        return self._buffer[self._end :]

    def received(self, count: int) -> list[Message]:
        """Process `count` bytes written to `space()`; return the completed messages.

        Raises: OpError: the data violate the protocol or a limit, and the connection is unusable.
        """
        messages: list[Message] = []
        # `space` has returned the destination of the payload under the same condition.
        if (
            self._frame_remaining
            and self._start == self._end
            and len(self._target()) > BUFFER_BYTES
        ):
            self._advance(count, messages)
            return messages
        self._end += count
        while self._end > self._start:
            if self._frame_remaining:
                target = self._target()
                size = min(len(target), self._end - self._start)
                target[:size] = self._buffer[self._start : self._start + size]
                self._start += size
                self._advance(size, messages)
            elif self._end - self._start >= _FRAME.size:
                self._begin_message(messages)
            else:
                break
        return messages

    def _begin_message(self, messages: list[Message]) -> None:
        kind, reply, _, size, call = _FRAME.unpack_from(self._buffer, self._start)
        self._start += _FRAME.size
        frame = self._frame = (kind, bool(reply), call)
        if kind in _EMPTY and not size:
            if kind == CANCEL:  # the caller sends no more values of the call
                self._partial.pop((False, call), None)
            messages.append(Message(kind, frame[1], call))
            return
        if kind in (BLOCK, FORGET) and not size and self._mapped is not None:
            (self._mapped.add if kind == BLOCK else self._mapped.forget)(call)
            return
        if (
            kind == HEAD
            and _HEAD.size <= size <= self.head_limit
            and frame[1:] not in self._partial
        ):
            self._head = _Incoming(bytearray(size))
        elif kind == DATA and frame[1:] in self._partial and 0 < size <= CHUNK_BYTES:
            pass
        else:
            raise errors.DataLossError(
                f"a frame of kind {kind} and {size} bytes is not expected here"
            )
        self._frame_remaining = size

    def _target(self) -> memoryview:
        """Return the destination of the next bytes of the frame's payload."""
        assert self._frame is not None
        incoming = self._head or self._partial[self._frame[1:]]
        return incoming.target()[: self._frame_remaining]

    def _advance(self, count: int, messages: list[Message]) -> None:
        assert self._frame is not None
        kind, reply, call = self._frame
        incoming = self._head or self._partial[reply, call]
        incoming.advance(count)
        self._frame_remaining -= count
        if self._frame_remaining:
            if not incoming.target():
                raise errors.DataLossError("received more data than the message declares")
            return
        if kind == HEAD:
            self._head = None
            incoming.read_head(self.limit, self._mapped)
            self._partial[reply, call] = incoming
        if not incoming.target():
            del self._partial[reply, call]
            messages.append(incoming.message(reply, call))


class _Incoming:
    """A message that has arrived only in part."""

    def __init__(self, head: bytearray) -> None:
        self._head_bytes = memoryview(head)
        self._targets = deque([self._head_bytes])
        self._slots: list[Slot] = []
        self._code = self._nbytes = 0
        self._meta = b""

    def target(self) -> memoryview:
        return self._targets[0] if self._targets else memoryview(b"")

    def advance(self, count: int) -> None:
        remaining = self._targets.popleft()[count:]
        if remaining:
            self._targets.appendleft(remaining)

    def read_head(self, limit: int, mapped: BlockMap | None) -> None:
        head = self._head_bytes
        self._code, count, length = _HEAD.unpack_from(head)
        start = _HEAD.size + length
        if start > len(head):
            raise errors.DataLossError(
                f"invalid head: {len(head)} bytes with {length} bytes of meta"
            )
        self._meta = bytes(head[_HEAD.size : start])
        self._slots, size, self._nbytes = describe(head[start:], count, limit, mapped)
        start += size
        for slot in self._slots:
            buffer = slot.buffer
            if not buffer:
                continue
            if not slot.inline:
                self._targets.append(buffer)
                continue
            if len(buffer) > len(head) - start:
                raise errors.DataLossError("a value in the head is truncated")
            buffer[:] = head[start : start + len(buffer)]
            start += len(buffer)
        if start != len(head):
            raise errors.DataLossError(f"{len(head) - start} unexpected bytes at the end of a head")

    def message(self, reply: bool, call: int) -> Message:
        values = [slot.take() for slot in self._slots]
        return Message(HEAD, reply, call, self._code, self._meta, values, self._nbytes)
