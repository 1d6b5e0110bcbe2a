"""Transports of values between tasks, and remaining resources when a task is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import jobs, memory_files, processes
from weft_testing.waiting import rounds, wait_until

import weft as wf
from weft import errors
from weft_distrib.security.roles import Role
from weft_distrib.server import Server
from weft_distrib.wire import listener as listeners, same_machine
from weft_distrib.wire.channel import Call, Channel
from weft_distrib.wire.handshake import ConnectionOptions
from weft_distrib.wire.listener import Listener, ask, dial
from weft_distrib.wire.memory import process_budget
from weft_distrib.wire.traffic import Traffic
from weft_exec.resources.resources import VariableState

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
LARGE = 1 << 22  # floats: 16 MB


def total(server: Server) -> Traffic:
    """Return the traffic of all connections of a server, which have one transport."""
    found = server.traffic()
    (transport,) = {each.transport for each in found}
    return Traffic("", transport, *map(sum, zip(*[each[2:] for each in found], strict=True)))


@pytest.mark.parametrize(
    ("protocol", "transport"), [("grpc", "shared memory"), ("grpc+tcp", "socket")]
)
def test_a_step_goes_as_its_server_was_told(protocol: str, transport: str) -> None:
    cluster = jobs(ps=1, worker=1)
    with (
        wf.Graph().as_default(),
        processes(cluster, "ps"),
        closing(Server(cluster, "worker", 0, protocol)) as worker,
        wf.Session(worker.target) as session,
    ):
        with wf.device(PS):
            v = wf.Variable(wf.ones([LARGE]))
        with wf.device(WORKER):
            doubled = v * 2.0
        update = v.assign_add(doubled).op
        session.run(wf.global_variables_initializer())
        for _ in range(3):
            session.run(update)
        assert session.run(wf.reduce_max(v)) == 27.0
        told = total(worker)
    assert told.transport == transport
    assert min(told.bytes_sent, told.bytes_received) >= 3 * 4 * LARGE
    assert told.bytes_copied == 0
    assert told.bytes_shared == (3 * 4 * LARGE if transport == "shared memory" else 0)


def test_an_update_of_a_parameter_server_copies_nothing() -> None:
    """The variable is not moved, and its transfers are copied at most to shared memory."""
    cluster = jobs(ps=1, worker=1)
    with (
        wf.Graph().as_default(),
        processes(cluster, "worker"),
        closing(Server(cluster, "ps", 0)) as ps,
        wf.Session(ps.target) as session,
    ):
        with wf.device(PS):
            v = wf.Variable(wf.zeros([LARGE]), name="v")
        with wf.device(WORKER):
            gradient = v + 1.0
        update = wf.assign_sub(v, gradient).op
        session.run(v.initializer)

        def place() -> int:
            (state,) = ps.resources.resources(VariableState)
            return int(state.read().ctypes.data)

        places = set()
        for _ in range(4):
            session.run(update)
            places.add(place())
        told = total(ps)
    assert len(places) == 1, "the variable moved, so it was copied"
    assert told.bytes_copied == 0 and told.bytes_shared == 4 * 4 * LARGE


def test_a_value_is_let_go_before_its_copy_leaves(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the reply may come while the writer has it, and its owner copies it to write to it."""
    send, counted = Channel._send, threading.Event()

    def send_and_stay(self: Channel) -> None:
        send(self)
        if threading.current_thread().name.startswith("weft-write"):
            counted.wait(30)

    monkeypatch.setattr(Channel, "_send", send_and_stay)
    value = np.ones(LARGE, np.float32)
    with closing(tasks.dial()) as channel:
        ask(channel, 1, b"", [value], 30)
        references = sys.getrefcount(value)
        counted.set()
    assert channel.traffic.bytes_shared == value.nbytes
    assert references == 2  # the name, and what counts


class Tasks:
    """A listener, and functions that connect to it."""

    def __init__(self) -> None:
        self.roles: list[Role] = []
        self.listener = Listener("127.0.0.1", ConnectionOptions(1), 7, self._serve)

    def _serve(self, call: Call) -> None:
        self.roles.append(call.channel.caller)
        call.reply(call.values)

    def dial(self, role: Role = Role.PEER, **options: Any) -> Any:
        opening = ConnectionOptions(1, None, role, **options)
        return dial(("127.0.0.1", self.listener.port), "the task", opening, 7, 30)


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    made = Tasks()
    yield made
    made.listener.close()


def test_processes_of_one_machine_share_memory(tasks: Tasks) -> None:
    for role in Role.CLIENT, Role.PEER:
        channel = tasks.dial(role)
        assert channel.traffic.transport == "shared memory"
        ask(channel, 1, b"", [np.zeros(LARGE)], 30)
        channel.close()
    assert tasks.roles == [Role.CLIENT, Role.PEER], "an invitation gives no rights"
    wait_until(lambda: not tasks.listener.traffic())


def test_who_does_not_want_to_or_cannot_stays_with_the_socket(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tasks.dial(local=False).traffic.transport == "socket"
    monkeypatch.setattr(same_machine, "_address", lambda name: b"\0weft-of-another-machine")
    assert tasks.dial().traffic.transport == "socket"


def test_another_users_process_is_not_let_in(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_machine, "is_own_user", lambda sock: False)
    assert tasks.dial().traffic.transport == "socket"
    monkeypatch.undo()
    monkeypatch.setattr(listeners, "is_own_user", lambda sock: False)
    with pytest.raises(errors.UnavailableError):
        tasks.dial()


def test_without_a_ticket_nobody_gets_in(tasks: Tasks) -> None:
    name = tasks.listener._name
    for offer in b"", b"local", b"x" * 16:
        sock = same_machine.reach(name)
        assert sock is not None
        with pytest.raises((errors.PermissionDeniedError, errors.UnavailableError)):
            hello = ConnectionOptions(1).hello(7, offer=offer)
            listeners._do_handshake(listeners.LocalStream(sock), "the task", hello, 30)
    assert not tasks.roles


_PULLS = """
import sys, threading, os
import weft as wf
from weft_distrib.server import Server
server = Server(eval(sys.argv[1], {}), "worker", 0)
with wf.device("/job:ps/task:0"):
    v = wf.Variable(wf.ones([1 << 24]))
with wf.device("/job:worker/task:0"):
    y = v + 1.0
session = wf.Session(server.target)
session.run(v.initializer)
session.run(y.op)
print("ready", flush=True)
while True:
    session.run(y.op)
"""


def test_nothing_is_left_when_the_receiver_is_killed_in_a_transfer() -> None:
    cluster = jobs(ps=1, worker=1)
    used, of_others = process_budget.used, memory_files(os.getpid())
    with closing(Server(cluster, "ps", 0)) as ps:
        command = [sys.executable, "-c", _PULLS, repr(cluster)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as puller:
            assert puller.stdout is not None and puller.stdout.readline() == "ready\n"
            assert memory_files(puller.pid) and memory_files(os.getpid()) - of_others
            wait_until(lambda: ps._worker._steps.count)
            puller.kill()
        wait_until(lambda: not ps.traffic())
        wait_until(lambda: process_budget.used == used)
        wait_until(lambda: memory_files(os.getpid()) <= of_others)


def test_nothing_is_left_when_the_sender_is_killed_in_a_transfer() -> None:
    cluster = jobs(ps=1, worker=1)
    of_others = memory_files(os.getpid())
    with (
        wf.Graph().as_default(),
        processes(cluster, "ps") as (ps,),
        closing(Server(cluster, "worker", 0)) as worker,
        wf.Session(worker.target) as session,
    ):
        with wf.device(PS):
            v = wf.Variable(wf.ones([1 << 24]))
        with wf.device(WORKER):
            y = v + 1.0
        session.run(v.initializer)
        kept = session.run(v)  # lies in the memory that is shared
        session.run(y.op)
        assert memory_files(os.getpid()) - of_others
        before = total(worker).bytes_received

        def strike() -> None:
            wait_until(lambda: total(worker).bytes_received > before)
            ps.kill()

        threading.Thread(target=strike).start()
        with pytest.raises(errors.UnavailableError, match="/job:ps"):
            for _ in rounds():
                session.run(y.op)
        assert kept.min() == kept.max() == 1.0
        del kept
        wait_until(lambda: memory_files(os.getpid()) <= of_others)


@pytest.mark.parametrize("whole", [False, True])
def test_half_of_the_bits_go_where_that_is_asked_for(whole: bool) -> None:
    cluster = jobs(ps=1, worker=1)
    config = wf.ConfigProto(graph_options=wf.GraphOptions(enable_bfloat16_sendrecv=whole))
    with (
        wf.Graph().as_default(),
        closing(Server(cluster, "ps", 0)) as ps,
        closing(Server(cluster, "worker", 0)) as worker,
        wf.Session(worker.target, config=config) as session,
    ):
        with wf.device(PS):
            v = wf.Variable(wf.fill([LARGE], 1.0 + 2.0**-9), name="v")
        with wf.device(WORKER):
            got = wf.reduce_max(v if whole else wf.lossy_transfers(v, WORKER))
        session.run(v.initializer)
        before = total(ps).bytes_sent
        assert session.run(got) == 1.0
        assert 2 * LARGE <= total(ps).bytes_sent - before < 2 * LARGE + 100
