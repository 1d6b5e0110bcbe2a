"""Calls both ways over a connection: one thread reads, one writes what is large."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from weft_distrib.security.roles import Role
from weft_distrib.wire.frames import (
    CANCEL,
    HEAD,
    MAX_HEAD_BYTES,
    PING,
    PONG,
    Inbox,
    Message,
    Outbox,
)
from weft_distrib.wire.streams import Stream
from weft_tensor import errors

_log = logging.getLogger("weft")

MAX_VALUES_BYTES: Final = 1 << 36
"""The most bytes that the values of one message may have."""

MAX_CALLS: Final = 1 << 16
"""How many calls of one connection may wait for their replies."""

_OWN_BYTES = 1 << 18
"""What a thread that has something to send may send itself; the writer sends the rest."""

OK: Final = 0


class Answer(Protocol):
    """Who waits for the reply to a call: told once, by a thread that must not be kept waiting."""

    def __call__(self, values: Sequence[Any], meta: bytes) -> None:
        """Take what the reply holds."""
        ...

    def fail(self, error: errors.OpError) -> None:
        """Take the reason why there is none."""
        ...


class Call:
    """A call that came in; replied to once, by any thread.

    Attributes:
      channel: by which it came.
      method: what is called.
      meta, values: with what.
      on_cancel: called when the caller does not want the reply any more, or is gone.
    """

    __slots__ = ("_number", "_once", "channel", "meta", "method", "on_cancel", "values")

    def __init__(self, channel: Channel, message: Message) -> None:
        self.channel = channel
        self._number = message.call
        self._once = itertools.count()
        self.method = message.code
        self.meta = message.meta
        self.values = message.values
        self.on_cancel: Callable[[], None] | None = None

    def reply(self, values: Sequence[Any] = (), meta: bytes = b"") -> None:
        """Send the results; what comes second is dropped."""
        if next(self._once):
            return
        try:
            self.channel.reply(self._number, OK, meta, values)
        except errors.OpError as error:  # a value cannot leave its process
            self.channel.reply(self._number, error.code, _error_bytes(error))

    def fail(self, error: errors.OpError) -> None:
        """Send the reason why there are none."""
        if not next(self._once):
            self.channel.reply(self._number, error.code or errors.UNKNOWN, _error_bytes(error))


def _error_bytes(error: errors.OpError) -> bytes:
    return json.dumps(error.to_dict(), default=str).encode()


def _error_from(meta: bytes) -> errors.OpError:
    try:
        return errors.OpError.from_dict(json.loads(meta))
    except (UnicodeDecodeError, ValueError, errors.OpError) as error:
        return errors.InternalError(f"a call failed, and its error cannot be read: {error}")


OnLost = Callable[[errors.OpError], None]

Serve = Callable[[Call], None]
"""Takes a call in the thread that reads, which it must not keep: replies come later or at once."""


class Channel:
    """Calls both ways over one connection.

    Args:
      stream: what carries them; the channel closes it.
      peer: what is at the other end, for messages: "/job:ps/task:0 at host:2223".
      serve: takes the calls of the other end; None where it may call nothing.
      limit: the most bytes that the values of one message may have.
      head_limit: the most bytes that its head may have.
    Attributes:
      caller: what the other end may do here, once it has said who it is.
      heard: grows whenever something comes.
    """

    def __init__(
        self,
        stream: Stream,
        peer: str,
        serve: Serve | None = None,
        limit: int = MAX_VALUES_BYTES,
        head_limit: int = MAX_HEAD_BYTES,
    ) -> None:
        self.peer = peer
        self.caller = Role.CLIENT
        self._stream = stream
        self._serve = serve
        self._when_lost: dict[Any, OnLost] = {}
        self._inbox = Inbox(limit, head_limit)
        self._outbox = Outbox()
        self._lock = threading.Lock()
        self._sending = False  # whether somebody is at it, who will send what is added meanwhile
        self._more = threading.Semaphore(0)  # for the writer
        self._writer: threading.Thread | None = None
        self._waiting: dict[int, Answer] = {}
        self._serving: dict[int, Call] = {}
        self._numbers = itertools.count(1)
        self._error: errors.OpError | None = None
        self.heard = 0
        self.bytes_in = self.bytes_out = 0
        traffic.begin(self)
        threading.Thread(target=self._read, name=f"weft-read-{peer}", daemon=True).start()

    def admit(self, role: Role) -> None:
        """Let the other end, which has said who it is, do what its role may, in full size."""
        self.caller = role
        self._inbox.limit, self._inbox.head_limit = MAX_VALUES_BYTES, MAX_HEAD_BYTES

    # -------------------------------------------------------------------------- calls

    def call(self, method: int, meta: bytes, values: Sequence[Any], answer: Answer) -> int:
        """Call something at the other end.

        Returns: the call's number, for `cancel`.
        Raises: InvalidArgumentError: a value cannot leave its process; `answer` is not told then.
        """
        with self._lock:
            error = self._error
            if error is None:
                number = next(self._numbers)
                self._waiting[number] = answer
                try:
                    self._outbox.add(Message(HEAD, False, number, method, meta, values))
                except errors.OpError:
                    del self._waiting[number]
                    raise
        if error is not None:
            answer.fail(error.copy())
            return 0
        self._send()
        return number

    def cancel(self, number: int) -> bool:
        """Forget a call; returns whether its answer had not come. The other end is told."""
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
                self._outbox.add(Message(HEAD, True, number, code, meta, values))
            except errors.OpError:
                self._serving[number] = _UNANSWERED
                raise
        self._send()

    def ping(self) -> None:
        """Ask the other end for a sign of life; `heard` grows when anything comes."""
        with self._lock:
            self._outbox.add(Message(PING, False, 0))
        self._send()

    @property
    def lost(self) -> errors.OpError | None:
        """Why the connection is of no use any more; None while it is."""
        return self._error

    def when_lost(self, key: Any, listener: OnLost) -> None:
        """Tell `listener` once when the connection ends, and why; at once if it has ended.

        Args:
          key: a later listener with the same key takes its place.
        """
        with self._lock:
            error = self._error
            if error is None:
                self._when_lost[key] = listener
        if error is not None:
            listener(error)

    def forget_listener(self, key: Any) -> None:
        """Do not tell the listener of a key."""
        with self._lock:
            self._when_lost.pop(key, None)

    def close(self, error: errors.OpError | None = None) -> None:
        """End the connection: who waits is told `error`, and the other end sees that it ended."""
        error = error or errors.CancelledError(f"the connection to {self.peer} was closed")
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            waiting, self._waiting = self._waiting, {}
            serving, self._serving = self._serving, {}
            listeners = list(self._when_lost.values())
            self._when_lost.clear()
        with suppress(OSError):  # the other end was faster
            self._stream.shutdown()
        self._more.release()
        for answer in waiting.values():
            answer.fail(error.copy())
        for call in serving.values():
            if call.on_cancel is not None:
                call.on_cancel()
        for told in listeners:
            told(error)

    # ------------------------------------------------------------------------ sending

    def _send(self) -> None:
        """Send what the socket takes at once; leave the rest to the writer."""
        with self._lock:
            if self._sending:
                return
            self._sending = True
        left = _OWN_BYTES
        while left > 0:
            count = self._send_frames(wait=False)
            if count is None:
                return
            if count == 0:
                break
            left -= count
        if self._writer is None:
            self._writer = threading.Thread(
                target=self._write, name=f"weft-write-{self.peer}", daemon=True
            )
            self._writer.start()
        self._more.release()

    def _send_frames(self, wait: bool) -> int | None:
        """Send some; returns how many bytes, or None where all is sent and `_sending` is over."""
        with self._lock:
            buffers = self._outbox.next() if self._error is None else []
            if not buffers:
                self._sending = False
                return None
        try:
            count = self._stream.send(buffers, wait)
        except OSError as error:
            self._lose(error)
            count = sum(map(len, buffers))
        with self._lock:
            self._outbox.sent(count)
            self.bytes_out += count
        return count

    def _write(self) -> None:
        while True:
            self._more.acquire()
            if self._error is not None:
                return
            while self._send_frames(wait=True) is not None:
                pass

    # ------------------------------------------------------------------------ reading

    def _read(self) -> None:
        inbox, stream = self._inbox, self._stream
        try:
            self.caller = stream.begin()
            while True:
                count = stream.recv_into(inbox.space())
                if not count:
                    self._lose(None)
                    return
                self.heard += 1
                self.bytes_in += count
                for message in inbox.received(count):
                    self._take(message)
        except OSError as error:
            self._lose(error)
        except errors.OpError as error:
            _log.warning("the connection to %s is given up: %s", self.peer, error.message)
            self.close(error)
        except MemoryError as error:
            self.close(
                errors.ResourceExhaustedError(f"no memory for what {self.peer} sent: {error}")
            )
        except Exception as error:  # because whoever waits for a reply must be told
            _log.exception("the connection to %s is given up", self.peer)
            self.close(
                errors.InternalError(f"the connection to {self.peer} is given up: {error!r}")
            )
        finally:
            traffic.end(self)
            stream.close()

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
        elif message.kind == HEAD and message.reply:
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
        with self._lock:
            if message.call in self._serving:
                raise errors.DataLossError(f"the call {message.call} came twice")
            self._serving[message.call] = call
            many = len(self._serving) > MAX_CALLS
        if many:
            call.fail(errors.ResourceExhaustedError(f"{MAX_CALLS} calls are waiting already"))
            return
        if self._serve is None:
            call.fail(errors.PermissionDeniedError(f"{self.peer} may call nothing here"))
            return
        try:
            self._serve(call)
        except errors.OpError as error:
            call.fail(error)

    def _lose(self, error: OSError | None) -> None:
        why = "it ended the connection" if error is None else str(error)
        self.close(errors.UnavailableError(f"{self.peer} is lost: {why}"))


class Traffic:
    """What the connections of this process have carried."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Channel] = set()
        self._ended = (0, 0)

    def begin(self, channel: Channel) -> None:
        """Count a connection."""
        with self._lock:
            self._open.add(channel)

    def end(self, channel: Channel) -> None:
        """Keep the count of a connection, and let go of it."""
        with self._lock:
            self._open.discard(channel)
            self._ended = _sum([self._ended, (channel.bytes_in, channel.bytes_out)])

    def bytes(self) -> tuple[int, int]:
        """The bytes that have come in, and those that went out."""
        with self._lock:
            return _sum([self._ended, *((c.bytes_in, c.bytes_out) for c in self._open)])


def _sum(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(came for came, _ in counts), sum(went for _, went in counts)


traffic: Final = Traffic()

_UNANSWERED: Any = object()
"""Keeps a call's place while an error takes that of its results."""
