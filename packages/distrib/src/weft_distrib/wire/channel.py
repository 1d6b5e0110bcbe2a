"""Bidirectional calls over a connection, with a reader thread and a writer thread."""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from weft_distrib.security.roles import Role
from weft_distrib.wire.frames import (
    BLOCK,
    CANCEL,
    FORGET,
    HEAD,
    PING,
    PONG,
    RELEASE,
    Inbox,
    Message,
    Outbox,
)
from weft_distrib.wire.memory import SHARED_BYTES, BlockMap, Pool, SharedValue, is_shared
from weft_distrib.wire.streams import LocalStream, Stream
from weft_distrib.wire.traffic import Counters, Traffic, carried
from weft_distrib.wire.values import ValueLayout
from weft_graph.ir.interrupts import defer_interrupts
from weft_tensor import errors

_log = logging.getLogger("weft")

MAX_VALUES_BYTES: Final = 1 << 36
"""Maximum total size of the values of one message, in bytes."""

MAX_CALLS: Final = 1 << 16
"""Maximum number of pending calls of one connection."""

_MAX_DIRECT_SEND_BYTES = 1 << 18
"""Maximum number of bytes that a calling thread sends itself; the writer thread sends the rest."""

_IDLE_SECONDS = 5.0
"""Seconds for which free blocks of shared memory are kept for later values."""

OK: Final = 0


class Answer(Protocol):
    """Receiver of a reply; it is called once, on a thread that must not be blocked."""

    def __call__(self, values: Sequence[Any], meta: bytes, /) -> None:
        """Receive the reply."""
        ...

    def fail(self, error: errors.OpError) -> None:
        """Receive the error."""
        ...


class Call:
    """An incoming call, which is replied to once, on any thread.

    Attributes:
      channel: its connection.
      method: the number of the called method.
      meta, values: the arguments.
      on_cancel: called when the caller cancels the call or is lost.
    """

    __slots__ = ("_completions", "_number", "channel", "meta", "method", "on_cancel", "values")

    def __init__(self, channel: Channel, message: Message) -> None:
        self.channel = channel
        self._number = message.call
        self._completions = itertools.count()
        self.method = message.code
        self.meta = message.meta
        self.values = message.values
        self.on_cancel: Callable[[], None] | None = None

    def reply(self, values: Sequence[Any] = (), meta: bytes = b"") -> None:
        """Send the results; further replies are dropped."""
        # Replies of several threads may race. `next` is atomic and returns 0 only once.
        if next(self._completions):
            return
        try:
            self.channel.reply(self._number, OK, meta, values)
        except errors.OpError as error:  # a value cannot leave its process
            self.channel.reply(self._number, error.code, _error_bytes(error))

    def fail(self, error: errors.OpError) -> None:
        """Send an error instead of results."""
        if not next(self._completions):
            self.channel.reply(self._number, error.code or errors.UNKNOWN, _error_bytes(error))


def _error_bytes(error: errors.OpError) -> bytes:
    return json.dumps(error.to_dict(), default=str).encode()


def _error_from(meta: bytes) -> errors.OpError:
    try:
        return errors.OpError.from_dict(json.loads(meta))
    except (UnicodeDecodeError, ValueError, RecursionError, errors.OpError) as error:
        return errors.InternalError(f"a call failed, but its error cannot be decoded: {error}")


OnLost = Callable[[errors.OpError], None]

Serve = Callable[[Call], None]
"""Handler of calls on the reader thread, which it must not block; it may reply later."""


class Channel:
    """Bidirectional calls over one connection.

    Args:
      stream: the transport; the channel closes it.
      peer: the other end, for messages: "/job:ps/task:0 at host:2223".
      serve: handles calls of the other end; None if calls are not allowed.
      limit: the maximum total size of the values of one message, in bytes.
      caller: the role of the other end; None if it is not known yet.
    Attributes:
      caller: the role of the other end; None until it is known.
      heard: a counter that grows with all received data.
    """

    def __init__(
        self,
        stream: Stream,
        peer: str,
        serve: Serve | None = None,
        limit: int = MAX_VALUES_BYTES,
        caller: Role | None = None,
    ) -> None:
        self.peer = peer
        self.caller = caller or Role.CLIENT
        self._is_admitted = caller is not None
        self._stream = stream
        self._serve = serve
        self._loss_listeners: dict[Any, OnLost] = {}
        self._pool: Pool | None = None
        self._mapped: BlockMap | None = None
        # The writer's queue: None for data to send, a message whose values are to be copied, or the
        # number of a free block. Finalizers of arrays use it, whatever lock their thread holds.
        self._work: SimpleQueue[Message | int | None] = SimpleQueue()
        if isinstance(stream, LocalStream):
            self._pool = Pool(self._send_block)
            self._mapped = BlockMap(stream.next_file, self._work.put)
        self._inbox = Inbox(limit, mapped=self._mapped)
        self._outbox = Outbox()
        self._lock = threading.Lock()
        self._sending = False  # whether a thread is sending; it also sends what is added meanwhile
        self._writer: threading.Thread | None = None
        self._counters = Counters()
        self._next_release = 0.0
        self._waiting: dict[int, Answer] = {}
        self._serving: dict[int, Call] = {}
        self._numbers = itertools.count(1)
        self._error: errors.OpError | None = None
        self.heard = 0
        carried.begin(self._counters)
        if self._pool is not None:
            self._start_writer()
        threading.Thread(target=self._read, name=f"weft-read-{peer}", daemon=True).start()

    @property
    def traffic(self) -> Traffic:
        """Return the traffic of this connection."""
        return self._counters.traffic(self.peer, self._stream.transport)

    def link_of(self, nbytes: int) -> str:
        """Return the transport of a value of `nbytes`: "shared memory", "socket" or "tls"."""
        transport = self._stream.transport
        small = self._pool is not None and nbytes < SHARED_BYTES
        return "socket" if small else transport

    # -------------------------------------------------------------------------- calls

    def call(self, method: int, meta: bytes, values: Sequence[Any], answer: Answer) -> int:
        """Call a method of the other end.

        Returns: the number of the call, for `cancel`.
        Raises: InvalidArgumentError: a value cannot be sent to another process. `answer` is then
          not called.
        """
        with self._lock:
            error = self._error
            if error is None:
                number = next(self._numbers)
                # Registered before the message is sent, because the reply may arrive before this
                # thread continues.
                self._waiting[number] = answer
                try:
                    self._add(Message(HEAD, False, number, method, meta, values))
                except errors.OpError:
                    del self._waiting[number]
                    raise
        if error is not None:
            answer.fail(error.copy())
            return 0
        self._send()
        return number

    def cancel(self, number: int) -> bool:
        """Cancel a call and notify the other end; return False if the reply has already arrived."""
        with self._lock:
            if self._waiting.pop(number, None) is None:
                return False
            self._outbox.add(Message(CANCEL, False, number))
        self._send()
        return True

    def reply(self, number: int, code: int, meta: bytes, values: Sequence[Any] = ()) -> None:
        """Answer a call of the other end, unless it was cancelled."""
        with self._lock:
            if self._serving.pop(number, None) is None or self._error is not None:
                return
            try:
                self._add(Message(HEAD, True, number, code, meta, values))
            except errors.OpError:
                # The call stays open for the error that `Call.reply` sends next.
                self._serving[number] = _UNANSWERED
                raise
        self._send()

    def answer_hello(self, number: int, meta: bytes) -> None:
        """Reply to the hello of the other end, which arrived before the channel was created."""
        with self._lock:
            if self._error is None:
                self._outbox.add(Message(HEAD, True, number, OK, meta))
        self._send()

    def ping(self) -> None:
        """Ping the other end; `heard` grows when anything arrives."""
        with self._lock:
            self._outbox.add(Message(PING, False, 0))
        self._send()

    @property
    def lost(self) -> errors.OpError | None:
        """The error that ended the connection; None while it is usable."""
        return self._error

    def when_lost(self, key: Any, listener: OnLost) -> None:
        """Call `listener` with the error when the connection ends; immediately if it has ended.

        Args:
          key: a later listener with the same key replaces it.
        """
        with self._lock:
            error = self._error
            if error is None:
                self._loss_listeners[key] = listener
        if error is not None:
            listener(error)

    def forget_listener(self, key: Any) -> None:
        """Remove the listener of a key."""
        with self._lock:
            self._loss_listeners.pop(key, None)

    def close(self, error: errors.OpError | None = None) -> None:
        """End the connection: pending calls fail with `error`, and the other end is notified."""
        error = error or errors.CancelledError(f"the connection to {self.peer} was closed")
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            waiting, self._waiting = self._waiting, {}
            serving, self._serving = self._serving, {}
            listeners = list(self._loss_listeners.values())
            self._loss_listeners.clear()
        with suppress(OSError):  # the other end was faster
            self._stream.shutdown()
        self._work.put(None)
        if self._pool is not None:
            self._pool.close()
        # Each receiver raises its own copy, since an exception carries the traceback of its thread.
        for answer in waiting.values():
            answer.fail(error.copy())
        for call in serving.values():
            if call.on_cancel is not None:
                call.on_cancel()
        for listener in listeners:
            listener(error)

    # ------------------------------------------------------------------------ sending

    def _add(self, message: Message) -> None:
        """Queue a message for sending.

        If values must be copied first, the writer thread does that.
        """
        if self._pool is not None and any(is_shared(value) for value in message.values):
            self._work.put(message)
            return
        self._count(self._outbox.add(message))

    def _count(self, packed: ValueLayout) -> None:
        counters = self._counters
        counters.sent += 1
        counters.sent_bytes += packed.nbytes
        counters.copied += packed.copied
        counters.shared += packed.shared

    def _send(self) -> None:
        """Send as much as the socket accepts now; the writer thread sends the rest."""
        with defer_interrupts():  # else the sent part of a frame would be unknown
            self._wake_sender()

    def _wake_sender(self) -> None:
        with self._lock:
            if self._sending:
                return
            self._sending = True
        remaining_bytes = _MAX_DIRECT_SEND_BYTES
        while remaining_bytes > 0:
            count = self._send_frames(wait=False)
            if count is None:
                return
            if count == 0:
                break
            remaining_bytes -= count
        if self._writer is None:
            self._start_writer()
        self._work.put(None)

    def _start_writer(self) -> None:
        self._writer = threading.Thread(
            target=self._write, name=f"weft-write-{self.peer}", daemon=True
        )
        self._writer.start()

    def _send_frames(self, wait: bool) -> int | None:
        """Send some frames; return the number of bytes, or None if there is nothing to send."""
        with self._lock:
            buffers = self._outbox.next() if self._error is None else []
            if not buffers:
                # Cleared while the lock that found the queue empty is still held. Otherwise a
                # message added in between would wait for the next one.
                self._sending = False
                return None
        try:
            count = self._stream.send(buffers, wait)
        except OSError as error:
            self._lose(error)
            # Counted as sent, so that the senders' loops end.
            count = sum(map(len, buffers))
        with self._lock:
            self._outbox.sent(count)
        return count

    def _write(self) -> None:
        try:
            self._write_all()
        except Exception as error:  # because receivers of answers must be notified
            _log.exception("the connection to %s was closed", self.peer)
            self.close(errors.InternalError(f"the connection to {self.peer} was closed: {error!r}"))

    def _write_all(self) -> None:
        pool = self._pool
        while True:
            try:
                work = self._work.get(timeout=_IDLE_SECONDS if pool and pool.idle else None)
            except Empty:
                assert pool is not None
                self._release_blocks(pool)
                continue
            if self._error is not None:
                return
            if work is None:
                while self._send_frames(wait=True) is not None:
                    pass
            elif isinstance(work, int):
                self._notify([Message(RELEASE, False, work)])
            else:
                # Release copied values before sending: when the reply arrives, their owner must
                # hold the only reference, or an in-place update would copy.
                work = self._copy_to_shared_memory(work)
                self._add_copied(work)
            del work  # else its values live on until the next

    def _notify(self, frames: Sequence[Message]) -> None:
        with self._lock:
            for frame in frames:
                self._outbox.add(frame)
        self._send()

    # ----------------------------------------------------------------- shared memory

    def _send_block(self, number: int, file: int) -> None:
        """Pass a new block to the other end, before a value in it is sent."""
        assert isinstance(self._stream, LocalStream)
        with self._lock:
            if self._error is not None:
                os.close(file)
                return
            self._stream.attach(file)
            self._outbox.add(Message(BLOCK, False, number))

    def _copy_to_shared_memory(self, message: Message) -> Message:
        """Return a message whose large values are in shared memory, as far as there is room."""
        values = [(self._share(v) or v) if is_shared(v) else v for v in message.values]
        return message._replace(values=values)

    def _add_copied(self, message: Message) -> None:
        """Send a message with values in shared memory."""
        shared = [value for value in message.values if isinstance(value, SharedValue)]
        with self._lock:
            if self._error is not None:
                return
            if message.reply or message.call in self._waiting:  # else it was cancelled
                refused = self._try_to_add(message, shared)
            else:
                refused = None
                self._return_blocks(shared)
            answer = None if refused is None else self._waiting.pop(message.call, None)
        if refused is not None and message.reply:
            with self._lock:
                error = Message(HEAD, True, message.call, refused.code, _error_bytes(refused))
                self._outbox.add(error)
        elif refused is not None and answer is not None:
            answer.fail(refused)
        self._send()

    def _share(self, value: Any) -> SharedValue | None:
        """Copy a value to shared memory; return None if there is no room."""
        assert self._pool is not None
        result = self._pool.put(value)
        if result is None and self._pool.idle and time.monotonic() > self._next_release:
            self._next_release = time.monotonic() + _IDLE_SECONDS
            self._release_blocks(self._pool)  # blocks of other sizes
            result = self._pool.put(value)
        return result

    def _release_blocks(self, pool: Pool) -> None:
        """Release free blocks at both ends."""
        self._notify([Message(FORGET, False, number) for number in pool.trim()])

    def _try_to_add(self, message: Message, shared: Sequence[SharedValue]) -> errors.OpError | None:
        try:
            self._count(self._outbox.add(message))
        except errors.OpError as error:
            self._return_blocks(shared)
            return error
        return None

    def _return_blocks(self, shared: Sequence[SharedValue]) -> None:
        assert self._pool is not None
        for value in shared:
            self._pool.give_back(value.block)

    # ------------------------------------------------------------------------ reading

    def _read(self) -> None:
        inbox, stream = self._inbox, self._stream
        try:
            certified = stream.begin()
            if not self._is_admitted:
                self.caller = certified
            while True:
                count = stream.recv_into(inbox.space())
                if not count:
                    self._lose(None)
                    return
                self.heard += 1
                for message in inbox.received(count):
                    self._take(message)
                    del message  # else its values live on until the next
        except OSError as error:
            self._lose(error)
        except errors.OpError as error:
            _log.warning("the connection to %s was closed: %s", self.peer, error.message)
            self.close(error.copy())  # its frames would keep shared memory mapped
        except MemoryError as error:
            self.close(
                errors.ResourceExhaustedError(
                    f"out of memory for a message of {self.peer}: {error}"
                )
            )
        except Exception as error:  # because receivers of replies must be notified
            _log.exception("the connection to %s was closed", self.peer)
            self.close(errors.InternalError(f"the connection to {self.peer} was closed: {error!r}"))
        finally:
            carried.end(self._counters)
            stream.close()
            if self._mapped is not None:
                self._mapped.close()

    def _take(self, message: Message) -> None:
        if message.kind == PING:
            with self._lock:
                self._outbox.add(Message(PONG, True, 0))
            self._send()
        elif message.kind == CANCEL:
            with self._lock:
                cancelled = self._serving.pop(message.call, None)
            if cancelled is not None and cancelled.on_cancel is not None:
                cancelled.on_cancel()
        elif message.kind == RELEASE:
            if self._pool is None:
                raise errors.DataLossError("the other end released a block that it does not use")
            self._pool.give_back(message.call)
        elif message.kind == HEAD and message.reply:
            self._counters.received += 1
            self._counters.received_bytes += message.nbytes
            with self._lock:
                answer = self._waiting.pop(message.call, None)
            if answer is None:
                return  # it was cancelled meanwhile
            if message.code == OK:
                answer(message.values, message.meta)
            else:
                answer.fail(_error_from(message.meta))
        elif message.kind == HEAD:
            self._take_call(message)

    def _take_call(self, message: Message) -> None:
        call = Call(self, message)
        self._counters.received += 1
        self._counters.received_bytes += message.nbytes
        with self._lock:
            if message.call in self._serving:
                raise errors.DataLossError(f"call number {message.call} was received twice")
            self._serving[message.call] = call
            is_overloaded = len(self._serving) > MAX_CALLS
        if is_overloaded:
            call.fail(
                errors.ResourceExhaustedError(
                    f"{MAX_CALLS} calls are already pending, which is the maximum"
                )
            )
            return
        if self._serve is None:
            call.fail(
                errors.PermissionDeniedError(f"{self.peer} is not permitted to call this process")
            )
            return
        try:
            self._serve(call)
        except errors.OpError as error:
            call.fail(error)

    def _lose(self, error: OSError | None) -> None:
        reason = "the peer closed the connection" if error is None else str(error)
        self.close(errors.UnavailableError(f"{self.peer} is lost: {reason}"))


_UNANSWERED: Any = object()
"""Marks a call whose results are replaced by an error."""
