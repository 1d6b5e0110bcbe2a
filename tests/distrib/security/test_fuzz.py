"""A live server that receives mutated messages stays available and releases all of them."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from weft_testing.waiting import rounds, wait_until

import weft as wf
from weft_distrib.client import target as client_target
from weft_distrib.protocol import authentication, health, messages, service
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.wire import methods
from weft_distrib.wire.address import address_of
from weft_distrib.wire.frames import HEAD, PING, Inbox, Message, Outbox
from weft_distrib.wire.handshake import HELLO, ConnectionOptions, Hello
from weft_exec.config import SessionConfig
from weft_exec.devices.description import DeviceDescription
from weft_exec.devices.device import make_devices
from weft_exec.executor.overlap import Overlap
from weft_exec.resources.resources import ResourceManager
from weft_exec.session.planning import PartPlanner
from weft_graph import proto
from weft_graph.serialize import graph_to_bytes, part_to_bytes

COUNT = 150
LONG_COUNT = int(os.environ.get("WEFT_FUZZ_COUNT", "100000"))
FRAMES_AT_ONCE = 25
CALLS_AT_ONCE = 50
SLOW = {"Kernels": 20}  # which takes 20 ms and more, and is for peers
LEAK_BYTES = 96 << 20

INTERNAL = f'"code": {wf.errors.INTERNAL}'.encode()

SERVE = """
import json, logging, sys, threading
logging.disable(logging.CRITICAL)
from weft_distrib import Server
server = Server({"worker": ["localhost:0"]}, lease=2.0, file_roots=[])
worker, master = server._worker, server.master
print(server.target, flush=True)
for line in sys.stdin:
    told = [len(master.open_sessions), len(worker._signatures),
            len(worker._scopes._by_session), worker.running_steps, threading.active_count()]
    print(json.dumps(told), flush=True)
"""


class Target:
    """Start a server in a new process; return it with valid messages for it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.target = self._process.stdout.readline().strip()
        self.address = self.target.removeprefix("grpc://")
        self.channel = grpc.insecure_channel(self.address)
        self.opening = ConnectionOptions(messages.VERSION)
        reply = decode(messages.Reply, self.call("Status", encode(messages.Empty())))
        self.status = decode(messages.Status, reply.body)

    def call(self, name: str, request: bytes) -> bytes:
        found: bytes = self.begin(f"/{service.SERVICE}/{name}", request).result()
        return found

    def begin(self, path: str, request: bytes) -> Any:
        call = self.channel.unary_unary(path)
        return call.future(
            request, timeout=60, metadata=authentication.metadata(self.opening, self.token())
        )

    def token(self) -> bytes:
        return self.opening.token_for(*address_of(self.address))

    def connect(self) -> socket.socket:
        host, port = self.address.rpartition(":")[0], self.status.wire_port
        return socket.create_connection((host, port), 60)

    def kept(self) -> list[int]:
        """Return the numbers of sessions, signatures, isolated states, steps and threads."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return list(json.loads(self._process.stdout.readline()))

    def used(self) -> tuple[int, int]:
        """Bytes of memory, and open files."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        files = len(os.listdir(f"/proc/{self._process.pid}/fd"))
        return pages * os.sysconf("SC_PAGESIZE"), files

    def close(self) -> None:
        self.channel.close()
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Target]:
    made = Target()
    yield made
    made.close()


# -------------------------------------------------------------------------- messages


def graph_and_part(target: Target) -> tuple[bytes, bytes, str]:
    """A graph, and the part of it that the server's device has."""
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 3], name="x")
        v = wf.get_variable("v", [3, 2])
        y = wf.nn.relu(wf.matmul(x, v), name="y")
        wf.while_loop(lambda i: i < 3, lambda i: i + 1, [0], name="loop")
        wf.string_join(["a", "b"], name="text")
    described = [DeviceDescription.from_dict(json.loads(each)) for each in target.status.devices]
    config = SessionConfig(device_count={"CPU": 1, "GPU": 0})
    host = make_devices(ResourceManager(), config)[0]
    planner = PartPlanner(described, host, config, Overlap.EVERYTHING)
    planner.extend(graph.nodes)
    ((device, part),) = planner.parts([x], [y], [], 0).items()
    return graph_to_bytes(graph, 0, len(graph.nodes)), part_to_bytes(part), device


def graph_def() -> bytes:
    """A GraphDef of a placeholder and of nodes without the attributes that can be inferred."""
    message = proto.GraphDef()
    a = message.node.add(name="a", op="Placeholder")
    a.attr["dtype"].type = wf.float32.as_datatype_enum
    a.attr["shape"].shape.dim.add(size=3)
    message.node.add(name="list", op="Pack", input=["a", "a:0"])
    message.node.add(name="sum", op="AddV2", input=["list", "two"], device="/device:CPU:0")
    parts = message.node.add(name="parts", op="Unpack", input=["sum", "^a"])
    parts.attr["num"].i = 2
    return bytes(message.SerializeToString())


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


WireMessage = tuple[int, bytes, list[Any]]  # the method, the meta and the values


def wire_messages(target: Target, session: int = 7) -> dict[str, WireMessage]:
    segment, part, device = graph_and_part(target)
    fed = [np.ones((2, 3), np.float32), np.array([b"a", b"bc"], object)]
    key = methods.StepKey(7, 1)
    register = messages.Register(7, 1, [messages.Part(device)])
    definition = [array(graph_def()), np.float32(2)]
    function = messages.DefineFunction(session, "f", ["a"], ["sum:0"], ["c"], ["two"])
    gradients = messages.Differentiate(session, ["y:0"], ["x:0"], [], "slopes", True, True)
    return {
        "pull": (methods.PULL, key.pack(b"a;b;c;0:0"), []),
        "run parts": (methods.RUN_PARTS, methods.RunParts(7, 1, 1, 1, 9).pack(), fed),
        "abort": (methods.ABORT, key.pack(b'{"code": 1, "message": "m"}'), []),
        "register": (methods.REGISTER, encode(register), [array(part)]),
        "forget": (methods.FORGET, encode(messages.SessionRequest(7)), []),
        "join": (methods.JOIN, encode(messages.Empty()), []),
        "create session": (methods.CREATE_SESSION, encode(OPEN_SESSION), []),
        "extend": (methods.EXTEND, encode(messages.SessionRequest(session)), [array(segment)]),
        "plan": (methods.PLAN, encode(messages.Signature(session, ["x:0"], ["y:0"], ["y"], 3)), []),
        "run step": (methods.RUN_STEP, methods.RunStep(session, 1, 9).pack(), fed),
        "define": (methods.DEFINE, encode(messages.Define(session, ["two"])), definition),
        "define function": (methods.DEFINE_FUNCTION, encode(function), definition),
        "differentiate": (methods.DIFFERENTIATE, encode(gradients), []),
        "shapes": (methods.SHAPES, encode(messages.Names(session, ["y:0", "text:0"])), []),
        "functions": (methods.FUNCTIONS, encode(messages.Names(session, ["f"])), []),
        "wire status": (methods.STATUS, encode(messages.Empty()), []),
        "record": (methods.RECORD, methods.Record(1, 20).pack(), []),
        "trace task": (methods.TRACE_TASK, methods.TraceTask(methods.BEGIN, 1).pack(), []),
        "wire reset": (methods.RESET, encode(messages.Reset(False, ["a container"])), []),
        "close session": (methods.CLOSE_SESSION, encode(messages.SessionRequest(session)), []),
    }


WIRE = ["pull", "run parts", "abort", "register", "forget", "join", "create session"]
WIRE += ["wire status", "wire reset", "record", "trace task"]
GRAPH_CALLS = ["define", "define function", "differentiate", "shapes", "functions"]
OF_SESSIONS = ["extend", "plan", "run step", "close session", *GRAPH_CALLS]
OPEN_SESSION = messages.OpenSession(
    config=wf.ConfigProto(
        device_filters=["/job:worker"], log_device_placement=True
    ).SerializeToString()
)

CONTROL: dict[str, Any] = {
    "Status": messages.Empty(),
    "Kernels": messages.KernelsOf("CPU"),
    "Reset": messages.Reset(False, ["a container"]),
    "Clear": messages.Reset(True, ["a container"]),
}


def framed(number: int, method: int, meta: bytes, values: list[Any]) -> bytes:
    box = Outbox()
    box.add(Message(HEAD, False, number, method, meta, values))
    found = b""
    while buffers := box.next():
        found += b"".join(buffers)
        box.sent(sum(map(len, buffers)))
    return found


def changed(data: bytes, by: random.Random, first: int = 0) -> bytes:
    """The bytes with some changes, from a place on."""
    made = bytearray(data)
    for _ in range(by.choice((1, 1, 1, 2, 3, 8))):
        at = by.randrange(first, len(made)) if len(made) > first else first
        kind = by.randrange(6)
        if kind == 0:
            made[at : at + 1] = bytes([by.randrange(256)])
        elif kind == 1 and at < len(made):
            made[at] ^= 1 << by.randrange(8)
        elif kind == 2:
            size = by.choice((2, 4, 8))
            value = by.choice((0, 1, (1 << 8 * size) - 1, 1 << (8 * size - 1), by.getrandbits(16)))
            made[at : at + size] = value.to_bytes(size, "little")
        elif kind == 3:
            made[at:] = b""
        elif kind == 4:
            made[at:at] = by.randbytes(by.randrange(1, 9))
        else:
            other = by.randrange(first, len(made) + 1)
            made[at:at] = made[other : other + by.randrange(1, 17)]
    return bytes(made)


# --------------------------------------------------------------------------- sending

_FRAME = struct.Struct("<BBHIQ")


def changed_frame(number: int, valid: WireMessage, by: random.Random) -> bytes:
    """A whole frame of a message whose content is changed: its meta, or one of its values."""
    method, meta, values = valid
    place = by.randrange(len(values) + 1)
    if place and values[place - 1].dtype == np.uint8:
        values = list(values)
        values[place - 1] = array(changed(values[place - 1].tobytes(), by))
        return framed(number, method, meta, values)
    if by.random() < 0.5:
        return framed(number, method, changed(meta, by), values)
    frame = framed(number, method, meta, values)
    size = _FRAME.unpack_from(frame)[3]
    if len(frame) != _FRAME.size + size:  # what follows the head would be out of place
        return frame
    payload = changed(frame[_FRAME.size :], by)
    return _FRAME.pack(HEAD, 0, 0, len(payload), number) + payload


def send_frames(
    server: Target,
    begin: Callable[[socket.socket], WireMessage],
    count: int,
    by: random.Random,
) -> None:
    """Send changed messages: whole frames, and last on each connection anything at all.

    Args:
      begin: sends what goes before them on a connection; returns a valid one.
    """
    left = count
    while left > 0:
        many = min(FRAMES_AT_ONCE, left)
        left -= many
        with server.connect() as sock:
            valid = begin(sock)
            frames = [changed_frame(9 + i, valid, by) for i in range(many - 1)]
            frames.append(changed(framed(9 + many, *valid), by))
            exchange(sock, frames)


def greeting(server: Target) -> bytes:
    hello = server.opening.hello(server.status.incarnation, server.token())
    return framed(1, HELLO, hello.pack(), [])


def call_on(sock: socket.socket, number: int, message: WireMessage) -> bytes:
    """Call, and return the meta of the reply."""
    sock.sendall(framed(number, *message))
    inbox = Inbox(1 << 20)
    while count := sock.recv_into(inbox.space()):
        for reply in inbox.received(count):
            if reply.call == number:
                assert not reply.code, reply.meta
                return reply.meta
    raise AssertionError("the server has ended the connection")


def open_session(server: Target, sock: socket.socket, planned: bool) -> int:
    """Open a session on a new connection, with a graph and a planned signature of it or without."""
    sock.sendall(greeting(server))
    create = (methods.CREATE_SESSION, encode(messages.OpenSession()), [])
    session = decode(messages.Session, call_on(sock, 2, create)).session
    if planned:
        call_on(sock, 3, wire_messages(server, session)["extend"])
        signature = encode(messages.Signature(session, ["x:0"], ["text:0"], []))
        call_on(sock, 4, (methods.PLAN, signature, []))
    return session


def exchange(sock: socket.socket, frames: list[bytes]) -> None:
    """Send data and read responses until the server has read all of it or disconnects."""
    said = b""
    with suppress(OSError):  # the server has ended the connection
        sock.sendall(b"".join(frames) + _FRAME.pack(PING, 0, 0, 0, 0))
        sock.shutdown(socket.SHUT_WR)
        while more := sock.recv(1 << 16):
            said += more
    assert INTERNAL not in said, said[said.index(INTERNAL) - 300 :][:900]


def send_calls(server: Target, path: str, valid: bytes, count: int, by: random.Random) -> None:
    for start in range(0, count, CALLS_AT_ONCE):
        many = range(min(CALLS_AT_ONCE, count - start))
        for call in [server.begin(path, changed(valid, by)) for _ in many]:
            error = call.exception()
            assert error is None or error.code() is not grpc.StatusCode.UNKNOWN, error
            if error is None and path.startswith(f"/{service.SERVICE}"):
                told = decode(messages.Reply, call.result()).error
                assert INTERNAL not in told.encode(), told


def check(server: Target, name: str, count: int, send: Callable[[random.Random], None]) -> None:
    """Check that the server still works and holds no additional resources."""
    by = random.Random(name)
    work(server)
    before, (memory, files) = server.kept(), server.used()
    send(by)
    work(server)
    wait_until(
        lambda: (
            all(now <= then for now, then in zip(server.kept()[:4], before, strict=False))
            and server.used()[1] <= files + 4
        )
    )
    grown = server.used()[0] - memory
    assert grown < LEAK_BYTES, f"{grown} bytes more after {count} messages"


def work(server: Target) -> None:
    """A program runs."""
    with wf.Graph().as_default(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_target, "find_server", lambda target: None)
        total = wf.placeholder_with_default(1.0, []) + 1.0
        deadline = time.monotonic() + 60
        for _ in rounds():  # other clients have a lease on the rate of new sessions
            try:
                with wf.Session(server.target) as session:
                    assert session.run(total) == 2.0
                return
            except wf.errors.ResourceExhaustedError:
                assert time.monotonic() < deadline
                time.sleep(0.2)


# ----------------------------------------------------------------------------- tests


def fuzz(server: Target, name: str, count: int) -> None:
    if name in WIRE:
        known = wire_messages(server)
        first = [framed(2, *known["register"])] if name in ("pull", "run parts") else []

        def begin(sock: socket.socket) -> WireMessage:
            sock.sendall(b"".join([greeting(server), *first]))
            return known[name]

        check(server, name, count, lambda by: send_frames(server, begin, count, by))
    elif name in OF_SESSIONS:

        def begin_session(sock: socket.socket) -> WireMessage:
            session = open_session(server, sock, planned=name != "extend")
            return wire_messages(server, session)[name]

        check(server, name, count, lambda by: send_frames(server, begin_session, count, by))
    elif name == "hello":

        def greet(by: random.Random) -> None:
            for _ in range(count):
                with server.connect() as sock:
                    exchange(sock, [changed(greeting(server), by)])

        check(server, name, count, greet)
    elif name == "pulse":
        check(server, name, count, lambda by: ask_pulse(server, count, by))
    else:
        path = f"/{service.SERVICE}/{name}"
        request = encode(CONTROL[name]) if name in CONTROL else b"\x0a\x09weft.Task"
        path = path if name in CONTROL else f"/{health.NAME}/{name}"
        check(server, name, count, lambda by: send_calls(server, path, request, count, by))


def ask_pulse(server: Target, count: int, by: random.Random) -> None:
    address = (server.address.rpartition(":")[0], server.status.heart_port)
    for _ in range(-(-count // 1000)):
        with socket.create_connection(address, 60) as sock:
            sock.sendall(by.randbytes(1000))
            assert sock.recv(1)


ALL = [*WIRE, *OF_SESSIONS, "hello", "pulse", *CONTROL, "Check"]


@pytest.mark.parametrize("name", ALL)
def test_changed_messages(server: Target, name: str) -> None:
    fuzz(server, name, COUNT)


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_many_changed_messages(server: Target, name: str) -> None:
    fuzz(server, name, LONG_COUNT // SLOW.get(name, 1))


def test_a_hello_that_is_changed_is_read_or_refused() -> None:
    by, valid = random.Random(0), Hello(1, 7, token=b"token", offer=b"offer").pack()
    for _ in range(2000):
        try:
            assert isinstance(Hello.unpack(changed(valid, by)), Hello)
        except wf.errors.PermissionDeniedError:
            continue
