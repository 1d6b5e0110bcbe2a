"""Channels over real sockets: calls, cancellation, loss, and large values both ways at once."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import wait_until

from weft_distrib.wire import inproc
from weft_distrib.wire.channel import Call, Channel
from weft_distrib.wire.future import Reply
from weft_distrib.wire.handshake import ConnectionOptions
from weft_distrib.wire.listener import Listener, ask, dial
from weft_distrib.wire.streams import SocketStream
from weft_exec.resources.resources import ResourceHandle
from weft_tensor import errors

Pair = Callable[..., tuple[Channel, Channel]]


@pytest.fixture(params=["sockets", "inproc"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made: list[Channel] = []

    def connect(serve: Any = None, other: Any = None) -> tuple[Channel, Channel]:
        if request.param == "inproc":
            a, b = inproc.pair()
        else:
            a, b = map(SocketStream, socket.socketpair())
        made.extend((Channel(a, "b", other), Channel(b, "a", serve)))
        return made[-2], made[-1]

    yield connect
    for channel in made:
        channel.close()


def echo(call: Call) -> None:
    call.reply(call.values, call.meta)


def test_calls_and_replies(pair: Pair) -> None:
    a, _ = pair(echo)
    values, meta = ask(a, 1, b"meta", [np.float32(2), np.arange(3)], 30)
    assert meta == b"meta" and values[0] == 2 and values[1].tolist() == [0, 1, 2]


def test_ctrl_c_ends_no_message_half_way() -> None:
    """The error arrives after some uncounted bytes were sent; the next call succeeds."""

    class Interrupted(SocketStream):
        due = False

        def send(self, buffers: Sequence[memoryview], wait: bool) -> int:
            count = super().send(buffers, wait)
            if self.due and threading.current_thread() is threading.main_thread():
                self.due = False
                signal.raise_signal(signal.SIGINT)
            return count

    near, far = socket.socketpair()
    stream = Interrupted(near)
    a, b = Channel(stream, "b"), Channel(SocketStream(far), "a", echo)
    for size in (1, 100_000):
        stream.due = True
        with pytest.raises(KeyboardInterrupt):
            ask(a, 1, b"first", [np.zeros(size)], 30)
        assert not stream.due
        values, meta = ask(a, 1, b"second", [np.arange(size)], 30)
        assert meta == b"second" and values[0].tolist() == list(range(size))
    a.close()
    b.close()


def test_errors_come_whole(pair: Pair) -> None:
    def fail(call: Call) -> None:
        raise errors.OutOfRangeError("the end", op="Read", node="n", line="x.py:1", inputs=["i"])

    a, _ = pair(fail)
    with pytest.raises(errors.OutOfRangeError) as caught:
        ask(a, 1, b"", (), 30)
    error = caught.value
    assert (error.op, error.node, error.line, error.inputs) == ("Read", "n", "x.py:1", ("i",))


def test_large_values_both_ways_at_once(pair: Pair) -> None:
    a, b = pair(echo, echo)
    big = np.random.default_rng(0).integers(0, 255, 30_000_000, np.uint8)
    replies = [Reply() for _ in range(6)]
    for i, reply in enumerate(replies):
        (a, b)[i % 2].call(1, b"", [big, np.int64(i)], reply)
    for i, reply in enumerate(replies):
        assert reply.wait(60)
        (found, number), _ = reply.result()
        assert number == i and np.array_equal(found, big)


def test_a_cancelled_call_is_not_answered_and_the_other_end_is_told(pair: Pair) -> None:
    told, calls = threading.Event(), []

    def keep(call: Call) -> None:
        call.on_cancel = told.set
        calls.append(call)

    a, _ = pair(keep)
    reply = Reply()
    number = a.call(1, b"", (), reply)
    wait_until(lambda: bool(calls))
    assert a.cancel(number) and not a.cancel(number)
    assert told.wait(30)
    calls[0].reply([np.int64(1)])
    calls[0].reply([np.int64(2)])
    assert ask_fails(a)  # the channel still works; the late reply is dropped
    assert not reply.wait(0)


def ask_fails(channel: Channel) -> bool:
    try:
        ask(channel, 2, b"", (), 0.05)
    except errors.DeadlineExceededError:
        return True
    return False


def test_a_lost_connection_fails_calls_and_cancels_those_of_the_other_end(pair: Pair) -> None:
    calls: list[Call] = []
    cancelled, lost = threading.Event(), []

    def keep(call: Call) -> None:
        call.on_cancel = cancelled.set
        calls.append(call)

    a, b = pair(keep)
    b.when_lost(0, lambda error: lost.append("an earlier one of the same key"))
    b.when_lost(0, lost.append)
    reply = Reply()
    a.call(1, b"", (), reply)
    wait_until(lambda: bool(calls))
    a.close()
    with pytest.raises(errors.CancelledError, match="closed"):
        reply.result()
    assert cancelled.wait(30)
    wait_until(lambda: b.lost is not None)
    b.when_lost(1, lost.append)
    assert [error.message for error in lost] == ["a is lost: the peer closed the connection"] * 2
    calls[0].reply()
    with pytest.raises(errors.CancelledError):
        ask(a, 1, b"", (), 30)


def test_an_answer_that_cannot_leave_is_an_error(pair: Pair) -> None:
    def serve(call: Call) -> None:
        if call.method == 1:
            call.reply([ResourceHandle("/cpu:0", "", "v")])
        else:
            echo(call)

    a, _ = pair(serve)
    with pytest.raises(errors.InvalidArgumentError, match="cannot be sent"):
        ask(a, 1, b"", (), 30)
    assert ask(a, 2, b"m", (), 30)[1] == b"m"


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(MemoryError("64 GiB"), errors.ResourceExhaustedError), (KeyError("x"), errors.InternalError)],
)
def test_what_goes_wrong_while_reading_is_told(
    pair: Pair, raised: Exception, kind: type[errors.OpError], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair(echo)

    def fail(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr("weft_distrib.wire.frames.describe", fail)
    with pytest.raises((kind, errors.UnavailableError)):
        ask(a, 1, b"", [np.float32(1)], 30)


def test_who_breaks_the_protocol_is_dropped() -> None:
    a, b = socket.socketpair()
    channel = Channel(SocketStream(b), "a", echo)
    a.sendall(b"GET / HTTP/1.1\r\n\r\n")
    wait_until(lambda: channel.lost is not None)
    assert a.recv(1) == b""
    a.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1", ConnectionOptions(3), 77, echo)
    yield made
    made.close()


def test_a_task_that_does_not_greet_is_unavailable() -> None:
    """Training then restarts instead of ending, as it would if nothing listened."""
    with (
        socket.create_server(("127.0.0.1", 0)) as frozen,
        pytest.raises(errors.UnavailableError, match=r"the task did not answer within 0\.2 s"),
    ):
        dial(frozen.getsockname(), "the task", ConnectionOptions(3), 77, 0.2)


def test_who_calls_says_who_is_expected(listener: Listener) -> None:
    address = ("127.0.0.1", listener.port)
    channel = dial(address, "task", ConnectionOptions(3), 77, 30)
    assert ask(channel, 1, b"m", (), 30)[1] == b"m"
    channel.close()
    with pytest.raises(errors.AbortedError, match="was restarted"):
        dial(address, "task", ConnectionOptions(3), 78, 30)
    with pytest.raises(errors.FailedPreconditionError, match=r"version 3 .* version 4"):
        dial(address, "task", ConnectionOptions(4), 77, 30)
    sock = socket.create_connection(address)
    stranger = Channel(SocketStream(sock), "task")
    with pytest.raises(errors.PermissionDeniedError, match="must begin with a handshake"):
        ask(stranger, 1, b"m", (), 30)
    stranger.close()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    with pytest.raises(errors.UnavailableError, match="task cannot be reached"):
        dial(("127.0.0.1", port), "task", ConnectionOptions(3), 77, 30)


class _Lacking:
    """A socket that accepts, but not the first time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.lacked = False

    def accept(self) -> Any:
        if not self.lacked:
            self.lacked = True
            raise OSError(errno.EMFILE, "too many open files")
        return self._sock.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_a_listener_outlives_a_lack_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda *a, **k: _Lacking(create(*a, **k)))
    listener = Listener("127.0.0.1", ConnectionOptions(3), 77, echo)
    channel = dial(("127.0.0.1", listener.port), "task", ConnectionOptions(3), 77, 5)
    assert listener._socket.lacked  # type: ignore[attr-defined]
    assert ask(channel, 1, b"m", (), 30)[1] == b"m"
    channel.close()
    listener.close()
