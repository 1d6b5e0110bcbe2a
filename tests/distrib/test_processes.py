"""Tasks that are processes: they are killed, frozen and started again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from weft_testing.tasks import Process, jobs, processes
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors
from weft_distrib.client import target as client_target
from weft_distrib.cluster.connections import Connections

PS = "/job:ps/task:0"


class Program:
    """A variable and a queue on a parameter server, and a worker here that waits for the queue."""

    def __init__(self, worker: wf.train.Server, ps: Process) -> None:
        self.target, self.master, self.ps = worker.target, worker.master, ps
        with wf.device(PS):
            self.v = wf.Variable(1.0, name="v")
            self.taken = wf.FIFOQueue(1, [wf.float32], [[]], shared_name="q").dequeue()
        with wf.device("/job:worker/task:0"):
            self.y = self.v * 2.0
            self.late = self.taken + 1.0
        self.session = wf.Session(self.target)
        self.session.run(self.v.initializer)

    def lose(self, how: Any, waits: Any = None) -> tuple[errors.OpError, float]:
        """Return the error of a waiting step when the server is lost, and the delay."""
        began: list[float] = []
        with wf.Session(self.target) as other:
            assert other.run(self.y) == 2.0

        def strike() -> None:
            wait_until(lambda: self.master.running_steps)
            began.append(time.monotonic())
            how()

        threading.Thread(target=strike).start()
        with pytest.raises(errors.UnavailableError) as caught:
            self.session.run(self.late if waits is None else waits)
        return caught.value, time.monotonic() - began[0]

    def recover(self) -> None:
        """A new session finds the new life of the server, without the state of the old one."""
        self.session.close()
        with wf.Session(self.target) as session:
            with pytest.raises(errors.FailedPreconditionError, match="v"):
                session.run(self.y)
            session.run(self.v.initializer)
            assert session.run(self.y) == 2.0


@pytest.fixture
def program() -> Iterator[Program]:
    cluster = jobs(ps=1, worker=1)
    with (
        wf.Graph().as_default(),
        processes(cluster, "ps") as (ps,),
        closing(wf.train.Server(cluster, "worker", 0)) as worker,
    ):
        yield Program(worker, ps)


def test_a_killed_server_is_an_error_at_once_and_its_next_life_another(program: Program) -> None:
    error, seconds = program.lose(program.ps.kill)
    assert "/job:ps/replica:0/task:0 is lost" in error.message
    assert error.op_type == "_Recv" and "Dequeue" in str(error.node)  # what waited for it
    assert seconds < 10  # 1 is wanted
    with pytest.MonkeyPatch.context() as patch:
        # A new signature, whose parts are here and there: nobody looks for who is lost already.
        patch.setattr(Connections, "connect", lambda self, task: pytest.fail(f"asked for {task}"))
        with pytest.raises(errors.UnavailableError, match="is lost"):
            program.session.run(program.y)
    program.ps.restart()
    program.recover()


def test_a_frozen_server_is_an_error_though_it_holds_its_connections(program: Program) -> None:
    error, seconds = program.lose(program.ps.stop)
    assert "/job:ps/replica:0/task:0 is lost: for 4 s it is stopped" in error.message
    assert error.op_type == "_Recv"
    assert seconds < 50  # 5 are wanted
    program.ps.kill()
    program.ps.restart()
    program.recover()


def test_what_a_lost_task_may_have_waited_in_is_named(program: Program) -> None:
    error, _ = program.lose(program.ps.kill, program.taken)  # nobody else has a part of the step
    assert error.node is None and "/job:ps/replica:0/task:0 is lost" in error.message
    name = program.taken.op.name
    assert f"the step was running '{name}' (op QueueDequeueV2), which may block" in str(error)


def test_clients_in_other_processes_share_the_state(program: Program) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_target, "find_server", lambda target: None)
        with wf.Session(program.target) as session:
            session.run(program.v.assign(4.0))
            assert session.run(wf.constant("a string")) == b"a string"
    assert program.session.run(program.y) == 8.0


def test_what_a_lost_master_has_begun_does_not_go_on() -> None:
    cluster = jobs(ps=1, worker=2)
    with (
        wf.Graph().as_default(),
        processes(cluster, "worker") as (_, lost),
        closing(wf.train.Server(cluster, "ps", 0)) as ps,
        wf.Session(ps.target) as session,
    ):
        with wf.device(PS):
            queue = wf.FIFOQueue(9, [wf.int32], [[]], shared_name="q")
        put, taken, size = queue.enqueue(1), queue.dequeue(), queue.size()
        session.run(size)
        known = ps._worker._steps.count
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client_target, "find_server", lambda target: None)
            other = wf.Session(f"grpc://{cluster['worker'][1]}")
        raised: list[Any] = []

        def take() -> None:
            try:
                other.run(taken)
            except errors.OpError as error:
                raised.append(error)

        thread = threading.Thread(target=take)
        thread.start()
        wait_until(lambda: ps._worker._steps.count > known)
        lost.kill()
        thread.join(60)
        assert isinstance(raised[0], errors.UnavailableError)
        wait_until(lambda: ps._worker._steps.count == known)
        session.run(put)
        assert session.run(size) == 1


@pytest.mark.parametrize("run", ["assert session.run(wf.constant(1.0) + 1.0) == 2.0", ""])
def test_sessions_of_clients_that_are_gone_are_closed(run: str) -> None:
    with closing(wf.train.Server.create_local_server()) as server:
        program = f"""
import os
import weft as wf
session = wf.Session({server.target!r})
{run}
os._exit(0)
"""
        subprocess.run([sys.executable, "-c", program], check=True)
        wait_until(lambda: not server.master.open_sessions)


def test_a_server_ends_with_its_standard_input() -> None:
    command = [sys.executable, "-m", "weft", "server", "--stop-at-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            assert server.stdout.readline().startswith(b"listening on grpc://localhost:")
            server.stdin.close()
            assert server.wait(30) == 0
        finally:
            server.kill()
