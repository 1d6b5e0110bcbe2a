"""The supervisor: its sessions, the threads beside them, and loops that begin again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft_testing.waiting import new_threads, wait_until

from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.ir.builder import constant
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ops.array import placeholder
from weft_graph.ops.control import no_op
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_io import summary
from weft_io.checkpoint.state import latest_checkpoint
from weft_io.coordination.queue_runner import QueueRunner, add_queue_runner
from weft_io.queues.queue import FIFOQueue
from weft_io.summary.reading import summary_iterator
from weft_io.training import Supervisor, basic_train_loop
from weft_tensor import dtypes, errors


def written(directory: Path) -> list[tuple[str, int]]:
    (path,) = directory.glob("events*")
    return [
        (event.summary.value[0].tag if event.summary.value else event.WhichOneof("what"),
         event.session_log.status or event.step)
        for event in summary_iterator(str(path))
    ]  # fmt: skip


def test_the_services(model: Any, tmp_path: Path, logged: Callable[[], list[str]]) -> None:
    summary.scalar("w_now", model.w)
    supervisor = Supervisor(logdir=tmp_path)
    assert model.w.graph.finalized
    with supervisor.managed_session() as session:
        threads = list(supervisor.coord._registered)
        wait_until(lambda: any("global_step/sec" in line for line in logged()))
        wait_until(lambda: latest_checkpoint(str(tmp_path)) is not None)
        wait_until(lambda: any("Recording summary at step 0" in line for line in logged()))
        session.run(model.train)
    assert len(threads) == 3 and not any(thread.is_alive() for thread in threads)
    assert supervisor.should_stop() and (tmp_path / "graph.pbtxt").exists()
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-0")
    found = written(tmp_path)
    log = proto.SessionLog
    assert {"graph_def", "meta_graph_def", "w_now", "global_step/sec"} <= {w for w, _ in found}
    assert found[3] == ("session_log", log.START) and found[-1] == ("session_log", log.STOP)
    assert ("session_log", log.CHECKPOINT) in found


def test_a_session_goes_on_where_the_last_one_saved(model: Any, tmp_path: Path) -> None:
    supervisor = Supervisor(logdir=tmp_path, save_model_secs=0, save_summaries_secs=0)
    for expected in (0, 2):
        with supervisor.managed_session() as session:
            assert not supervisor.should_stop() and session.run(model.w) == expected
            for _ in range(2):
                session.run(model.train)
            assert supervisor.saver.save(session, supervisor.save_path, model.step)
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-4")
    starts = [
        event.step
        for path in tmp_path.glob("events*")
        for event in summary_iterator(str(path))
        if event.session_log.status == proto.SessionLog.START
    ]
    assert sorted(starts) == [0, 2]  # the writer was opened again


@pytest.mark.parametrize("error", [None, errors.OutOfRangeError("the data have ended")])
def test_queue_runners_and_silent_ends(graph: Graph, error: Any) -> None:
    queue = FIFOQueue(2, [dtypes.float32], shapes=[[]])
    add_queue_runner(QueueRunner(queue, [queue.enqueue([constant(3.0)])]))
    taken = queue.dequeue()
    supervisor = Supervisor()
    with supervisor.managed_session() as session:
        assert session.run(taken) == 3.0
        threads = list(supervisor.coord._registered)
        if error is not None:
            raise error
    assert len(threads) == 2 and not any(thread.is_alive() for thread in threads)
    with pytest.raises(errors.FailedPreconditionError, match="has been closed"):
        session.run(taken)


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt()])
def test_other_errors_are_raised(model: Any, error: BaseException) -> None:
    supervisor = Supervisor()
    with pytest.raises(type(error)) as raised, supervisor.managed_session() as session:
        raise error
    assert raised.value is error and supervisor.should_stop()
    with pytest.raises(errors.FailedPreconditionError, match="has been closed"):
        session.run(model.w)


def test_a_session_is_closed_where_its_threads_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    supervisor = Supervisor()
    found: list[Any] = []

    def fail(session: Any, queue_runners: Any = None) -> None:
        found.append(session)
        raise ValueError("no more threads")

    monkeypatch.setattr(supervisor, "start_queue_runners", fail)
    with pytest.raises(ValueError, match="no more threads"), supervisor.managed_session():
        raise AssertionError("never reached")
    with pytest.raises(errors.FailedPreconditionError, match="has been closed"):
        found[0].run(model.w)


def test_what_a_loop_fails_with_is_raised_at_the_end(model: Any) -> None:
    supervisor = Supervisor()
    calls: list[int] = []

    def work(number: int, other: int) -> None:
        calls.append(number + other)
        if len(calls) == 3:
            raise ValueError("in the loop")

    with pytest.raises(ValueError, match="in the loop"), supervisor.managed_session():
        supervisor.loop(None, work, args=[1], kwargs={"other": 2})
        supervisor.wait_for_stop()
    assert calls == [3, 3, 3]


def test_an_error_beside_stops_instead_of_being_raised(model: Any) -> None:
    supervisor = Supervisor()
    with supervisor.stop_on_exception():
        raise KeyError("x")
    assert supervisor.should_stop()
    with pytest.raises(KeyError):
        supervisor.stop()


def test_a_worker_waits(make_model: Any) -> None:
    target = "inproc://a-supervised-worker"
    with Graph().as_default() as chief_graph, chief_graph.device("/cpu:0"):
        make_model()
        init = global_variables_initializer()
    with Session(target, chief_graph) as chief, Graph().as_default() as graph:
        chief.run(init)
        with graph.device("/cpu:0"):
            model = make_model()
        supervisor = Supervisor(is_chief=False, logdir="nowhere")
        with supervisor.managed_session(target) as session:
            session.run(model.train)
            with pytest.raises(RuntimeError, match="Only chief supervisor can start"):
                supervisor.start_standard_services(session)
        assert chief.run("w:0") == 1.0
        assert (supervisor.save_path, supervisor.summary_writer) == (None, None)
        assert supervisor.save_model_secs is None and supervisor.save_summaries_secs is None
    Session.reset(target)


def test_nodes_are_found_made_or_left_out(graph: Graph, model: Any) -> None:
    supervisor = Supervisor()
    for key, found in (
        (GraphKeys.READY_OP, supervisor.ready_op),
        (GraphKeys.INIT_OP, supervisor.init_op),
        (GraphKeys.SAVERS, supervisor.saver),
        (GraphKeys.GLOBAL_STEP, supervisor.global_step),
    ):
        assert graph.get_collection(key) == [found] != [None]
    assert supervisor.summary_op is supervisor.ready_for_local_init_op is None
    graph.unfinalize()
    second = no_op()
    graph.add_to_collection(GraphKeys.INIT_OP, second)
    again = Supervisor(saver=None, ready_op=second, global_step=None)
    assert again.init_op is supervisor.init_op and again.ready_op is second
    assert again.saver is None and again.global_step is None
    assert again.is_chief and again.save_model_secs == 600 and again.save_summaries_secs == 120


def test_what_initializes(graph: Graph) -> None:
    start = placeholder(dtypes.float32, [])
    w = Variable(start, name="w")
    supervisor = Supervisor(
        init_feed_dict={start: 2.0}, init_fn=lambda session: w.load(session.run(w) + 1, session)
    )
    with supervisor.managed_session() as session:
        assert session.run(w) == 3.0
    graph.unfinalize()
    with (
        pytest.raises(RuntimeError, match="Variables not initialized: w"),
        Supervisor(init_op=None).managed_session(),
    ):
        pass


def test_summaries_of_the_program(model: Any, tmp_path: Path) -> None:
    op = summary.scalar("w_now", model.w)
    supervisor = Supervisor(logdir=tmp_path, summary_op=None, save_model_secs=0)
    with supervisor.managed_session(start_standard_services=False) as session:
        session.run(model.train)
        supervisor.summary_computed(session, session.run(op))
        supervisor.summary_computed(session, session.run(op), 7)
    assert [pair for pair in written(tmp_path) if pair[0] == "w_now"] == [
        ("w_now", 1), ("w_now", 7)
    ]  # fmt: skip


def test_no_directory_and_no_writer(model: Any, logged: Callable[[], list[str]]) -> None:
    supervisor = Supervisor()
    with supervisor.managed_session() as session:
        assert supervisor.start_standard_services(session) == []
        assert any("need a 'logdir'" in line for line in logged())
        with pytest.raises(RuntimeError, match="requires a summary writer"):
            supervisor.summary_computed(session, b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"graph": 3}, "graph must be a Graph"),
        ({"is_chief": False}, "must have their device set: global_step"),
        ({"stop_grace_secs": -1}, "stop_grace_secs must be a number >= 0"),
        ({"save_model_secs": "x"}, "save_model_secs must be a number"),
        ({"save_summaries_secs": -1}, "save_summaries_secs must be a number >= 0"),
        ({"checkpoint_basename": 3}, "checkpoint_basename must be text"),
    ],
)
def test_arguments(model: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        Supervisor(**arguments)
    assert not model.w.graph.finalized


# ------------------------------------------------------------------------- basic_train_loop


def test_a_loop_that_begins_again_when_it_is_aborted(model: Any, tmp_path: Path) -> None:
    supervisor = Supervisor(logdir=tmp_path, save_model_secs=0, save_summaries_secs=0)
    seen: list[tuple[int, str]] = []

    def step(session: Any, first: str, last: str = "") -> None:
        seen.append((int(session.run(model.step)), first + last))
        session.run(model.train)
        supervisor.saver.save(session, supervisor.save_path, model.step)
        if len(seen) in (2, 3):
            raise errors.AbortedError("gone")
        if len(seen) == 5:
            supervisor.request_stop()

    begun = new_threads()
    basic_train_loop(supervisor, step, args=["a"], kwargs={"last": "b"})
    assert seen == [(number, "ab") for number in range(5)]
    assert not begun()


def test_a_loop_raises_what_is_no_preemption(model: Any) -> None:
    def step(session: Any) -> None:
        raise errors.UnavailableError("gone")

    with pytest.raises(errors.UnavailableError):
        basic_train_loop(Supervisor(), step)
    with pytest.raises(TypeError, match="supervisor must be a Supervisor, got 3"):
        basic_train_loop(3, step)
    with pytest.raises(TypeError, match="train_step_fn"):
        basic_train_loop(Supervisor(saver=None), 3)  # type: ignore[arg-type]
