"""Callers that are not known cost a server little: memory, threads, connections and time."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from weft_testing.tasks import Process, jobs
from weft_testing.waiting import wait_until

from weft_distrib.protocol import health, messages, service
from weft_distrib.protocol.service import MAX_CALL_BYTES, REPORT, RESET, STATUS, ControlClient
from weft_distrib.protocol.tables import decode
from weft_distrib.security.authority import credentials_in, make_certificates
from weft_distrib.security.credentials import Credentials
from weft_distrib.wire import reception
from weft_distrib.wire.handshake import HELLO, MAX_HELLO_BYTES, ConnectionOptions
from weft_distrib.wire.listener import Listener, ask, dial
from weft_tensor import errors

GROWTH_BYTES = 6 << 20
LARGE_BYTES = 200_000_000
FRAME = struct.Struct("<BBHIQ")


class Guarded:
    """Start a server in a new process that requires a token."""

    def __init__(self, token: Path, stack: ExitStack) -> None:
        self.opening = ConnectionOptions(messages.VERSION, Credentials(token=str(token)))
        cluster = jobs(worker=1)
        self.address = cluster["worker"][0]
        self._task = stack.enter_context(Process(cluster, "worker", 0, ["--token", str(token)]))
        self.control = stack.enter_context(closing(self._client(self.opening)))
        self.status = self.control.call(STATUS, messages.Empty(), 30)

    def _client(self, opening: ConnectionOptions) -> ControlClient:
        return ControlClient(self.address, "the server", opening)

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._task.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def num_threads(self) -> int:
        return len(os.listdir(f"/proc/{self._task.pid}/task"))

    def check_works(self) -> None:
        assert self.control.call(REPORT, messages.Empty(), 30).state
        to = ("localhost", self.status.wire_port)
        dial(to, "the server", self.opening, self.status.incarnation, 30).close()

    def stranger(self, number: int) -> grpc.Channel:
        options = [("grpc.max_send_message_length", -1), ("weft.number", number)]
        return grpc.insecure_channel(self.address, options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("0123456789abcdef")
    with ExitStack() as stack:
        yield Guarded(token, stack)


def refused(call: Any) -> str:
    """Return the error of a call that the server answers."""
    return decode(messages.Reply, call.result()).error


def test_large_calls_of_strangers_take_no_memory(server: Guarded) -> None:
    server.check_works()
    before, data = server.resident_bytes(), bytes(LARGE_BYTES)
    most, done = before, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, server.resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(6):  # two at a time, as this end keeps what it sends
        with server.stranger(2 * number) as one, server.stranger(2 * number + 1) as other:
            path = f"/{service.SERVICE}/Reset"
            calls = [channel.unary_unary(path).future(data, timeout=60) for channel in (one, other)]
            assert all("requires a token" in refused(call) for call in calls)
    done.set()
    watcher.join()
    assert max(most, server.resident_bytes()) - before < GROWTH_BYTES
    server.check_works()


def test_a_known_caller_may_not_send_more_by_control_calls(server: Guarded) -> None:
    fits = messages.Reset(containers=["x" * (MAX_CALL_BYTES - 100)])
    assert server.control.call(RESET, fits, 30) == messages.Empty()
    over = messages.Reset(containers=["x" * MAX_CALL_BYTES])
    with pytest.raises(errors.ResourceExhaustedError, match=r"server at .* Reset"):
        server.control.call(RESET, over, 30)


def test_calls_whose_requests_never_come_take_no_threads(server: Guarded) -> None:
    def never() -> Iterator[bytes]:
        ended.wait(60)
        yield b""

    server.check_works()
    before, ended = server.num_threads(), threading.Event()
    with ExitStack() as stack:
        stack.callback(ended.set)
        channels = [stack.enter_context(server.stranger(number)) for number in range(4)]
        path = f"/{service.SERVICE}/Reset"
        calls = [
            c.stream_unary(path).future(never(), timeout=60) for c in channels for _ in range(20)
        ]
        assert all("requires a token" in refused(call) for call in calls)
        path = f"/{health.NAME}/Check"
        asked = [
            c.stream_unary(path).future(never(), timeout=60) for c in channels for _ in range(30)
        ]
        # Some wait for the few threads, the rest is refused at once, and known callers go on.
        wait_until(lambda: sum(call.done() for call in asked) >= 120 - health._MAX_PENDING)
        server.check_works()
        few = health._MAX_WATCHING + health._CHECKING_THREADS + 8
        assert server.num_threads() - before < few
        for call in asked:
            call.cancel()


def test_connections_that_say_nothing_take_no_threads(server: Guarded) -> None:
    before, memory = server.num_threads(), server.resident_bytes()
    with ExitStack() as stack:
        for port in (server.status.wire_port, int(server.address.rpartition(":")[2])):
            for _ in range(150):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        server.check_works()
        assert server.num_threads() - before < 8
        assert server.resident_bytes() - memory < GROWTH_BYTES


# ------------------------------------------------------------------- the value port


def listening(opening: ConnectionOptions, stack: ExitStack) -> Listener:
    made = Listener("127.0.0.1", opening, 7, lambda call: call.reply(call.values, call.meta))
    return stack.enter_context(closing(made))


def has_ended(sock: socket.socket) -> bool:
    sock.settimeout(30)
    try:
        return not sock.recv(1)
    except ConnectionResetError:
        return True


def test_the_oldest_connection_that_says_nothing_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reception, "MAX_NEWCOMERS", 3)
    with ExitStack() as stack:
        opening = ConnectionOptions(1, local=False)
        listener = listening(opening, stack)
        address = ("127.0.0.1", listener.port)
        idle = [stack.enter_context(socket.create_connection(address)) for _ in range(4)]
        assert has_ended(idle[0])
        channel = stack.enter_context(closing(dial(address, "it", opening, 7, 30)))
        assert has_ended(idle[1])
        assert ask(channel, 1, b"m", (), 30)[1] == b"m"
        with pytest.raises(BlockingIOError):
            idle[3].recv(1, socket.MSG_DONTWAIT)


@pytest.mark.parametrize("secure", [False, True])
def test_a_hello_that_comes_byte_by_byte_ends_in_time(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "HELLO_SECONDS", 0.3)
    credentials = None
    if secure:
        make_certificates(tmp_path, {"worker-0": "localhost"})
        credentials = credentials_in(tmp_path, "worker-0")
    before = threading.active_count()
    with ExitStack() as stack:
        listener = listening(ConnectionOptions(1, credentials), stack)
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        sock.sendall(FRAME.pack(1, 0, 0, 100, 1)[:9])
        assert has_ended(sock)
        assert threading.active_count() <= before + 4


def test_a_hello_in_pieces_is_read(tmp_path: Path) -> None:
    opening = ConnectionOptions(1, local=False)
    meta = opening.hello(7).pack()
    head = struct.pack("<HHI", HELLO, 0, len(meta)) + meta
    frame = FRAME.pack(1, 0, 0, len(head), 5) + head
    with ExitStack() as stack:
        listener = listening(opening, stack)
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame:
            sock.sendall(bytes([byte]))
        sock.settimeout(30)
        kind, reply, _, _, call = FRAME.unpack(sock.recv(FRAME.size, socket.MSG_WAITALL))
        assert (kind, reply, call) == (1, 1, 5)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(FRAME.pack(1, 0, 0, MAX_HELLO_BYTES + 1, 1), id="too long"),
        pytest.param(FRAME.pack(1, 1, 0, 64, 1), id="a reply"),
        pytest.param(FRAME.pack(2, 0, 0, 64, 1), id="data"),
        pytest.param(FRAME.pack(4, 0, 0, 0, 0), id="a ping"),
        pytest.param(FRAME.pack(1, 0, 0, 4, 1) + bytes(4), id="too short"),
    ],
)
def test_what_is_no_hello_ends_the_connection(frame: bytes) -> None:
    with ExitStack() as stack:
        listener = listening(ConnectionOptions(1), stack)
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        sock.sendall(frame)
        assert has_ended(sock)
        assert not listener.traffic()


def test_many_at_once_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(16) as pool:
        opening = ConnectionOptions(1, local=False)
        listener = listening(opening, stack)
        address = ("127.0.0.1", listener.port)

        def echo(number: int) -> bytes:
            with closing(dial(address, "it", opening, 7, 30)) as channel:
                return ask(channel, 1, b"%d" % number, (), 30)[1]

        assert list(pool.map(echo, range(64))) == [b"%d" % number for number in range(64)]
