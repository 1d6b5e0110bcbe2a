"""Refusals of masters, tasks and commands, each with a call that only this check refuses."""

from __future__ import annotations

import argparse
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors
from weft_distrib.client.link import RemoteLink
from weft_distrib.cluster.environment import task_from_environment
from weft_distrib.commands import certificates, launch, server as server_command
from weft_distrib.master import master, sessions, state_location
from weft_distrib.master.limits import WaitLimit
from weft_distrib.protocol import messages
from weft_distrib.protocol.service import STATUS, ControlClient
from weft_distrib.protocol.tables import encode
from weft_distrib.security.credentials import Credentials
from weft_distrib.server import Server
from weft_distrib.wire import inproc, listener as listeners, methods, streams
from weft_distrib.wire.channel import Channel
from weft_distrib.wire.future import Reply
from weft_distrib.wire.handshake import HELLO, ConnectionOptions, Hello
from weft_distrib.wire.listener import Listener, ask, dial
from weft_distrib.wire.methods import RunStep
from weft_distrib.wire.same_machine import Invitation
from weft_distrib.wire.streams import LocalStream, SocketStream
from weft_distrib.worker import tracing
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.serialize import graph_to_bytes

LOCAL = {"worker": ["localhost:0"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with closing(Server(LOCAL)) as made:
        yield made


@pytest.fixture
def link(server: Server) -> Iterator[RemoteLink]:
    with closing(RemoteLink(server.target.removeprefix("grpc://"), Credentials(), 30)) as made:
        yield made


@pytest.fixture
def session(link: RemoteLink) -> int:
    """A session with x and y = 2 x in its graph."""
    number = link.create_session(messages.OpenSession(), 30).session
    with wf.Graph().as_default() as graph:
        wf.multiply(wf.placeholder(wf.float32, [], name="x"), 2.0, name="y")
        segment = np.frombuffer(graph_to_bytes(graph, 0, len(graph.nodes)), np.uint8)
        link.extend(messages.SessionRequest(number), segment)
    return number


def outcome(call: Callable[[Reply], Any]) -> Any:
    reply = Reply()
    call(reply)
    assert reply.wait(60)
    return reply.result()[0]


# ---------------------------------------------------------------------------- masters


def test_sessions_are_bounded(link: RemoteLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "MAX_SESSIONS", 1)
    link.create_session(messages.OpenSession(), 30)
    with pytest.raises(errors.ResourceExhaustedError, match="already has 1 open sessions"):
        link.create_session(messages.OpenSession(), 30)


def test_signatures_of_a_session_are_bounded(
    link: RemoteLink, session: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SIGNATURES", 1)
    signature = messages.Signature(session, ["x:0"], ["y:0"])
    link.plan(signature)
    with pytest.raises(errors.ResourceExhaustedError, match="1 signatures, which is the maximum"):
        link.plan(signature)


def test_a_config_that_is_none(link: RemoteLink) -> None:
    with pytest.raises(errors.DataLossError, match="not a ConfigProto"):
        link.create_session(messages.OpenSession(config=b"\xff"), 30)


def test_a_signature_that_was_not_planned(link: RemoteLink, session: int) -> None:
    run = RunStep(session, 9)
    with pytest.raises(errors.NotFoundError, match="no signature 9"):
        outcome(lambda reply: link.run(run, (), reply))
    with pytest.raises(errors.NotFoundError, match="no signature 9"):
        link.begin_partial(run)


def test_a_partial_run_that_is_fed_and_fetched_wrongly(link: RemoteLink, session: int) -> None:
    planned = link.plan(messages.Signature(session, ["x:0"], ["y:0"], partial=True))
    step = link.begin_partial(RunStep(session, planned.signature)).step
    feed, fetch = f"caller;{planned.home};feed:0", f"{planned.home};caller;fetch:0"
    one = np.float32(1)

    def advance(fed: list[str], wanted: list[str], values: list[Any]) -> Any:
        request = messages.Advance(session, step, fed, wanted)
        return outcome(lambda reply: link.advance(request, values, reply))

    for fed, values in ([feed], []), ([], [one]), ([feed], [one, one]):
        with pytest.raises(errors.DataLossError, match="feeds were named"):
            advance(fed, [], values)
    for name in "y:0", feed, "a;b", f"{planned.home};{planned.home};fetch:0":
        with pytest.raises(errors.DataLossError, match="is not a fetch of the partial run"):
            advance([], [name], [])
    assert advance([feed], [fetch], [one]) == [2.0]


def test_a_task_that_drains_takes_no_sessions_in_its_own_process() -> None:
    with closing(Server(LOCAL)) as draining:
        doubled = wf.placeholder_with_default(1.0, []) * 2.0
        with wf.Session(draining.target) as session:
            session.run(doubled)
            draining.master.leave()
            with pytest.raises(errors.UnavailableError, match="is shutting down"):
                session.run(doubled)
            with pytest.raises(errors.UnavailableError, match="is shutting down"):
                wf.Session(draining.target)


def test_a_client_that_gives_up_while_its_session_is_made(server: Server) -> None:
    before = server.master.open_sessions
    with pytest.raises(errors.CancelledError, match="no longer waits"):
        server.master.create_session(messages.OpenSession(), is_wanted=lambda: False)
    assert server.master.open_sessions == before


def test_answers_of_tasks_that_do_not_fit() -> None:
    reply = Reply()
    reply((), encode(messages.Found([1, 0])))
    with pytest.raises(errors.DataLossError, match="must report on 3 resources, got 2"):
        state_location._receive_locations(DeviceParts("ps", 0, 0), reply, WaitLimit(0), 3)
    with pytest.raises(errors.DeadlineExceededError, match=r"/job:ps.* did not report"):
        state_location._receive_locations(DeviceParts("ps", 0, 0), Reply(), WaitLimit(1), 3)


# ------------------------------------------------------------------------------ tasks


@pytest.mark.parametrize(
    ("method", "meta", "kind", "message"),
    [
        (99, b"", errors.UnimplementedError, "unknown method 99"),
        (
            methods.JOIN,
            encode(messages.Join(size=0)),
            errors.InvalidArgumentError,
            "members, got 0",
        ),
        (methods.JOIN, encode(messages.Join(size=1 << 40)), errors.InvalidArgumentError, "members"),
        (methods.RUN_STEP, b"", errors.DataLossError, "meta of a call has 0 bytes"),
        (methods.ABORT, methods.StepKey(7, 1).pack(b"x"), errors.DataLossError, "cannot be read"),
        (
            methods.REGISTER,
            encode(messages.Register(7, 1, [messages.Part("/device:CPU:0")])),
            errors.DataLossError,
            "1 partitions were announced, but 0 graphs",
        ),
        (
            methods.FIND,
            encode(messages.Find(["a"], [])),
            errors.DataLossError,
            "1 containers were received for 0 names",
        ),
    ],
)
def test_calls_of_peers_that_do_not_fit(
    server: Server, method: int, meta: bytes, kind: type[errors.OpError], message: str
) -> None:
    opening = ConnectionOptions(messages.VERSION)
    to = ("localhost", server._listener.port)
    with (
        closing(dial(to, "it", opening, server.incarnation, 30)) as channel,
        pytest.raises(kind, match=message),
    ):
        ask(channel, method, meta, (), 30)


def test_another_task_than_the_one_expected() -> None:
    with ExitStack() as stack:
        other = stack.enter_context(closing(Server(LOCAL)))
        address = other.target.removeprefix("grpc://")
        cluster = {"ps": [address], "worker": ["localhost:0"]}
        worker = stack.enter_context(closing(Server(cluster, "worker", 0)))
        with pytest.raises(errors.FailedPreconditionError, match="should be /job:ps"):
            wf.Session(worker.target)
        task = worker._connections._task(DeviceParts("ps", 0, 0))
        with pytest.raises(errors.FailedPreconditionError, match="version 99 of the protocol"):
            task._check(messages.Status(99, 1, "/job:ps/replica:0/task:0"))
        with pytest.raises(errors.UnavailableError, match="not connected to /job:ps"):
            worker._connections.channel(DeviceParts("ps", 0, 0))


def test_what_speaks_http_1_is_no_server_of_weft() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock = listener.accept()[0]
            with sock:
                sock.recv(100)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        control = ControlClient(f"127.0.0.1:{listener.getsockname()[1]}", "it")
        with closing(control), pytest.raises(errors.UnimplementedError, match="speaks HTTP/1"):
            control.call(STATUS, messages.Empty(), 30)


# -------------------------------------------------------------------------- the wire

FRAME = struct.Struct("<BBHIQ")


def head(code: int, meta: bytes, values: bytes = b"", count: int = 0) -> bytes:
    return struct.pack("<HHI", code, count, len(meta)) + meta + values


@contextmanager
def channel_of(serve: Any = lambda call: None) -> Iterator[tuple[Channel, socket.socket]]:
    """A channel and its other end."""
    ours, theirs = socket.socketpair()
    with theirs, closing(Channel(SocketStream(ours), "the other", serve)) as channel:
        yield channel, theirs


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([(1, 0, 5, head(1, b"")), (1, 0, 5, head(1, b""))], "call number 5 was received twice"),
        ([(7, 0, 5, b"")], "released a block that it does not use"),
        ([(1, 0, 5, head(1, b"", struct.pack("<BBBxxxxxQqQ", 1, 1, 4, 8, 2, 3), 1))], "shared"),
        (
            [
                (1, 0, 5, head(1, b"", struct.pack("<BBBxxxxxQq", 1, 1, 0, 8, 2), 1)),
                (2, 0, 5, bytes(12)),
            ],
            "more data than",
        ),
    ],
)
def test_frames_that_do_not_fit_end_the_connection(
    frames: list[tuple[int, int, int, bytes]], message: str
) -> None:
    with channel_of() as (channel, other):
        for kind, reply, call, payload in frames:
            other.sendall(FRAME.pack(kind, reply, 0, len(payload), call) + payload)
        wait_until(lambda: channel.lost)
        assert isinstance(channel.lost, errors.DataLossError)
        assert message in channel.lost.message


def test_what_is_too_large_or_no_value_is_not_sent() -> None:
    with channel_of() as (channel, _):
        with pytest.raises(errors.InvalidArgumentError, match="head must have at most"):
            channel.call(1, bytes(1 << 24), (), Reply())
        with pytest.raises(
            errors.InvalidArgumentError, match="3 cannot be sent to another process"
        ):
            channel.call(1, b"", [np.array([b"a", 3], object)], Reply())


def test_a_hello_whose_values_follow_is_refused() -> None:
    meta = ConnectionOptions(1).hello(7).pack()
    values = struct.pack("<BBBxxxxxQq", 1, 1, 0, 8, 2)
    payload = head(HELLO, meta, values, 1)
    with ExitStack() as stack:
        listener = Listener("127.0.0.1", ConnectionOptions(1), 7, lambda call: None)
        stack.enter_context(closing(listener))
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        sock.sendall(FRAME.pack(1, 0, 0, len(payload), 5) + payload)
        sock.settimeout(30)
        assert not sock.recv(1)
        assert not listener.traffic()


def test_a_call_that_looks_like_a_hello_is_none() -> None:
    payload = head(HELLO + 1, ConnectionOptions(1).hello(7).pack())
    with (
        closing(Listener("127.0.0.1", ConnectionOptions(1), 7, lambda call: None)) as listener,
        socket.create_connection(("127.0.0.1", listener.port)) as sock,
    ):
        sock.sendall(FRAME.pack(1, 0, 0, len(payload), 5) + payload)
        sock.settimeout(30)
        assert b"must begin with a handshake" in sock.recv(1 << 12)
        assert not listener.traffic()


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_MAX_CONNECTIONS", 1)
    opening = ConnectionOptions(1, local=False)
    with closing(Listener("127.0.0.1", opening, 7, lambda call: None)) as listener:
        to = ("127.0.0.1", listener.port)
        with closing(dial(to, "it", opening, 7, 30)), pytest.raises(errors.UnavailableError):
            dial(to, "it", opening, 7, 30)
        wait_until(lambda: not listener.traffic())
        dial(to, "it", opening, 7, 30).close()


def test_a_connection_within_the_process_begins_with_a_hello_as_well() -> None:
    served: list[Any] = []
    opening = ConnectionOptions(1, inproc=True)
    with closing(Listener("127.0.0.1", opening, 77, served.append)):
        stream = inproc.reach(77)
        assert stream is not None
        refused = pytest.raises(errors.PermissionDeniedError, match="must begin with a handshake")
        with closing(Channel(stream, "it")) as channel, refused:
            ask(channel, 1, opening.hello(77).pack(), (), 30)
    assert not served


@pytest.mark.parametrize(
    ("read", "data", "kind", "message"),
    [
        (
            Hello.unpack,
            Hello(1, 7, token=b"abc").pack()[:-1],
            errors.PermissionDeniedError,
            "truncated",
        ),
        (Invitation.unpack, bytes(31), errors.DataLossError, "of 31 bytes"),
        (
            methods.RunParts.unpack,
            methods.RunParts(1, 2, 3, 4).pack() + b"x",
            errors.DataLossError,
            "1",
        ),
        (methods.RunStep.unpack, b"\1", errors.DataLossError, "meta of a call has 1 bytes"),
        (
            lambda data: tracing.unpack(data, 0, 1),
            b"x",
            errors.DataLossError,
            "of 1 bytes",
        ),
        (
            lambda data: tracing.unpack(data, 0, 1),
            struct.pack("<QQQ", 0, 1, 0) + b"[[1]]",
            errors.DataLossError,
            "cannot be read",
        ),
    ],
)
def test_bytes_that_are_no_message(
    read: Callable[[bytes], Any], data: bytes, kind: type[errors.OpError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        read(data)


def test_files_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_MAX_WAITING", 2)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with closing(LocalStream(ours)) as sender, closing(LocalStream(theirs)) as receiver:
        for _ in range(3):
            sender.attach(os.memfd_create("weft-test"))
        sender.send([memoryview(b"x")], wait=True)
        with pytest.raises(OSError, match="sent too many file descriptors"):
            receiver.recv_into(memoryview(bytearray(9)))


def test_parts_of_devices_and_signatures_that_a_task_has_not(server: Server) -> None:
    worker = server._worker
    with pytest.raises(errors.NotFoundError, match="does not have the device /device:none"):
        worker.register(messages.Register(7, 1, [messages.Part("/device:none")]), [b""])
    with pytest.raises(errors.AbortedError, match="no partitions of signature 9"):
        worker.register(messages.Register(7, 1, same_as=9), [])
    worker.forget(7)


# --------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must be like"),
        ('{"task": {"type": "ps"}}', "must be like"),
        ('{"cluster": {"ps": ["a:1"]}, "task": {}}', "must be like"),
        ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": "x"}}', "must be a number"),
    ],
)
def test_a_place_that_the_environment_does_not_tell(text: str, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        task_from_environment({"TF_CONFIG": text})
    assert task_from_environment({}) is None


def parsed(command: Any, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (server_command, ["--cluster", "{"], "not valid JSON"),
        (server_command, ["--job", "ps"], "pass --cluster"),
        (server_command, ["--task", "1"], "pass --cluster"),
        (certificates, ["somewhere", "--cluster", "{"], "not valid JSON"),
        (certificates, ["somewhere"], "pass --cluster"),
        (launch, ["--local", "--job", "ps=x"], "NAME=2"),
        (launch, ["--local", "--ps", "1", "--env", "x"], "NAME=VALUE"),
        (launch, ["--local", "--ps", "1", "--env", "=x"], "NAME=VALUE"),
        (launch, ["--kubernetes", "jobs", "--ps", "1"], "needs --image"),
    ],
)
def test_arguments_that_do_not_fit(
    command: Any, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        command.run(parsed(command, *arguments))


@pytest.mark.parametrize(
    ("address", "task", "is_refused"),
    [("10.0.0.1:1", None, True), ("[::]:1", 0, True), ("localhost:1", None, False)],
)
def test_insecure_said_once_is_for_this_machine(
    address: str, task: int | None, is_refused: bool
) -> None:
    cluster = {"worker": [address]}
    if not is_refused:
        server_command._check_loopback(cluster, None, task)
        return
    with pytest.raises(errors.InvalidArgumentError, match="pass the option twice"):
        server_command._check_loopback(cluster, "worker", task)
