"""Threads that keep queues filled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from weft_testing.waiting import rounds, wait_until

from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.builder import constant, create
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.variables.reference import Variable
from weft_io.coordination.coordinator import Coordinator
from weft_io.coordination.queue_runner import QueueRunner, add_queue_runner, start_queue_runners
from weft_io.queues.queue import FIFOQueue
from weft_tensor import dtypes, errors


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


def counting(session: Any, limit: int, capacity: int = 10) -> tuple[FIFOQueue, Any]:
    """A queue, and an op that enqueues 0, 1, ... until the limit is reached."""
    counter = Variable(0, dtype=dtypes.int64)
    queue = FIFOQueue(capacity, dtypes.int64, [[]], name="q")
    enqueue = queue.enqueue(counter.count_up_to(limit))
    session.run(counter.initializer)
    return queue, enqueue


def drained(session: Any, queue: FIFOQueue) -> list[int]:
    take, numbers = queue.dequeue(), []
    with pytest.raises(errors.OutOfRangeError):
        for _ in rounds():
            numbers.append(int(session.run(take)))
    return numbers


def test_a_queue_is_filled_to_the_end_of_the_data(session: Any) -> None:
    queue, enqueue = counting(session, 30)
    runner = QueueRunner(queue, [enqueue])
    assert runner.queue is queue and runner.enqueue_ops == [enqueue] and runner.name == "q"
    assert runner.queue_closed_exception_types == (errors.OutOfRangeError,)
    (thread,) = runner.create_threads(session, start=True)
    assert drained(session, queue) == list(range(30))
    thread.join(30)
    assert runner.exceptions_raised == []


def test_several_threads_fill_one_queue(session: Any) -> None:
    queue, enqueue = counting(session, 60)
    runner = QueueRunner(queue, [enqueue] * 3)
    threads = runner.create_threads(session)
    assert len({thread.name for thread in threads}) == 1 and len(threads) == 3
    assert not any(thread.is_alive() or thread.daemon for thread in threads)
    for thread in threads:
        thread.start()
    assert sorted(drained(session, queue)) == list(range(60))


def test_threads_are_made_once_per_session(session: Any) -> None:
    queue, enqueue = counting(session, 3)
    runner = QueueRunner(queue, [enqueue])
    coord = Coordinator()
    threads = runner.create_threads(session, coord, daemon=True)
    assert len(threads) == 2 and all(thread.daemon for thread in threads)
    assert runner.create_threads(session, coord) == []
    for thread in threads:
        thread.start()
    coord.request_stop()
    coord.join()
    again = runner.create_threads(session, start=True)
    assert len(again) == 1
    again[0].join(30)


def test_stopping_cancels_pending_enqueues(session: Any) -> None:
    queue, enqueue = counting(session, 10**9, capacity=3)
    coord = Coordinator()
    QueueRunner(queue, [enqueue, enqueue]).create_threads(session, coord, start=True)
    size, closed = queue.size(), queue.is_closed()
    wait_until(lambda: session.run(size) == 3)
    coord.request_stop()
    coord.join()
    assert session.run(closed) and session.run(size) == 3


def test_another_error_may_be_the_end_of_the_data(session: Any) -> None:
    queue, enqueue = counting(session, 10**9, capacity=3)
    close = queue.close(cancel_pending_enqueues=True)
    coord = Coordinator()
    ends = (errors.OutOfRangeError, errors.CancelledError)
    runner = QueueRunner(queue, [enqueue], queue_closed_exception_types=ends)
    filler, _ = runner.create_threads(session, coord, start=True)
    size = queue.size()
    wait_until(lambda: session.run(size) == 3)
    session.run(close)
    filler.join(30)
    assert not filler.is_alive() and not coord.should_stop()
    coord.request_stop()
    coord.join()


def test_failures_reach_the_coordinator(session: Any) -> None:
    queue = FIFOQueue(3, dtypes.float32, [[]])
    broken = create("Assert", [constant(False), [constant("broken")]])
    coord = Coordinator()
    QueueRunner(queue, [broken]).create_threads(session, coord, start=True)
    with pytest.raises(errors.InvalidArgumentError, match="broken"):
        coord.join()


def test_failures_without_a_coordinator_are_kept_and_raised(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    queue = FIFOQueue(3, dtypes.float32, [[]])
    broken = create("Assert", [constant(False), [constant("broken")]])
    runner = QueueRunner(queue, [broken])
    (thread,) = runner.create_threads(session, start=True)
    thread.join(30)
    (error,) = runner.exceptions_raised
    assert isinstance(error, errors.InvalidArgumentError)
    assert raised[0].exc_value is error


def test_other_operations_may_close_and_cancel(session: Any) -> None:
    queue, enqueue = counting(session, 2)
    closed = Variable(0)
    session.run(closed.initializer)
    close_op = closed.assign(1).op
    cancel_op = queue.close(cancel_pending_enqueues=True)
    runner = QueueRunner(queue, [enqueue], close_op=close_op, cancel_op=cancel_op)
    assert runner.close_op is close_op and runner.cancel_op is cancel_op
    runner.create_threads(session, start=True)[0].join(30)
    assert session.run(closed) == 1
    assert not session.run(queue.is_closed())


def test_runners_of_a_graph_start_together(session: Any) -> None:
    first, fill_first = counting(session, 5)
    second, fill_second = counting(session, 7)
    add_queue_runner(QueueRunner(first, [fill_first]))
    add_queue_runner(QueueRunner(second, [fill_second]))
    assert len(session.graph.get_collection(GraphKeys.QUEUE_RUNNERS)) == 2
    coord = Coordinator()
    threads = start_queue_runners(coord=coord)
    assert len(threads) == 4 and all(thread.daemon for thread in threads)
    assert drained(session, first) == list(range(5))
    assert drained(session, second) == list(range(7))
    coord.request_stop()
    coord.join(threads)


def test_starting_needs_a_session(caplog: pytest.LogCaptureFixture) -> None:
    with Graph().as_default() as graph:
        with pytest.raises(ValueError, match="No default session"):
            start_queue_runners()
        with pytest.raises(TypeError, match="must be a `Session`"):
            start_queue_runners(sess=3)
        with Session(graph=graph) as session:
            assert start_queue_runners(session) == []
    assert "no queue runners" in caplog.text


def test_messages(session: Any) -> None:
    graph = session.graph
    with graph.name_scope("input"):
        queue, enqueue = counting(session, 4)
        ends = (errors.OutOfRangeError, errors.CancelledError)
        runner = QueueRunner(queue, [enqueue], queue_closed_exception_types=ends)
    message = runner.to_proto()
    assert message is not None
    assert message.queue_name == "input/q" and list(message.enqueue_op_name) == [enqueue.name]
    assert list(message.queue_closed_exception_types) == [proto.OUT_OF_RANGE, proto.CANCELLED]
    again = QueueRunner.from_proto(message)
    assert again.queue_closed_exception_types == ends
    again.create_threads(session, start=True)
    assert drained(session, queue) == [0, 1, 2, 3]
    inner = runner.to_proto("input")
    assert inner is not None and inner.queue_name == "q"
    assert QueueRunner(queue_runner_def=inner, import_scope="input").close_op is runner.close_op
    assert runner.to_proto("elsewhere") is None


def test_wrong_arguments(session: Any) -> None:
    queue, enqueue = counting(session, 1)
    with pytest.raises(ValueError, match="Must provide queue and enqueue_ops"):
        QueueRunner(queue)
    with pytest.raises(TypeError, match="tuple of error types"):
        QueueRunner(queue, [enqueue], queue_closed_exception_types=(KeyError,))  # type: ignore
    with pytest.raises(ValueError, match="mutually exclusive"):
        QueueRunner(queue, [enqueue], queue_runner_def=proto.QueueRunnerDef())


def _queue() -> FIFOQueue:
    return FIFOQueue(2, dtypes.int64, [[]])


def _runner(*args: Any, **options: Any) -> QueueRunner:
    return QueueRunner(_queue(), *(args or ([constant(1).op],)), **options)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: QueueRunner(3, [constant(1).op]), "queue must be a queue, got 3"),
        (lambda: _runner(3), "enqueue_ops must be a list, got 3"),
        (lambda: _runner("abc"), "enqueue_ops must be a list, got 'abc'"),
        (lambda: _runner([3]), "each of enqueue_ops must be an operation, got 3"),
        (lambda: _runner([None]), "each of enqueue_ops must be an operation, got None"),
        (lambda: _runner(close_op=3), "close_op must be an operation, got 3"),
        (lambda: _runner(cancel_op="x"), "cancel_op must be an operation, got 'x'"),
        (lambda: QueueRunner(queue_runner_def=3), "must be a QueueRunnerDef, got 3"),
        (lambda: QueueRunner.from_proto(None), "must be a QueueRunnerDef, got None"),
        (lambda: _runner().create_threads(None), "sess must be a session, got None"),
        (lambda: _runner().create_threads(Session(), 3), "must be a Coordinator or None, got 3"),  # type: ignore[arg-type]
        (lambda: add_queue_runner(3), "a QueueRunner is required, got 3"),  # type: ignore[arg-type]
        (lambda: start_queue_runners(Session(), 3), "must be a Coordinator or None, got 3"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_the_wrong_type(session: Any, call: Any, text: str) -> None:
    with pytest.raises(errors.InvalidTypeError, match=text):
        call()
