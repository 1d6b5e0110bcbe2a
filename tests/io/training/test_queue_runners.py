"""The threads that fill the queues of a monitored session: started, stopped, heard of."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft_testing.waiting import wait_until

from weft_autodiff.optimizers.training_util import get_or_create_global_step
from weft_graph import Graph
from weft_graph.ir.builder import constant
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ops.control import Assert, py_func
from weft_graph.ops.identity import identity
from weft_graph.variables.reference import Variable
from weft_io.coordination.queue_runner import QueueRunner, add_queue_runner
from weft_io.data.dataset import Dataset
from weft_io.input.pipeline import limit_epochs
from weft_io.queues.queue import FIFOQueue
from weft_io.training import MonitoredSession, MonitoredTrainingSession, SingularMonitoredSession
from weft_tensor import dtypes, errors


def filled(values: Any, many: bool = False) -> Any:
    """The next element of a queue that is filled with `values`."""
    queue = FIFOQueue(2, [dtypes.float32], shapes=[[]])
    put = queue.enqueue_many([values]) if many else queue.enqueue([values])
    add_queue_runner(QueueRunner(queue, [put, put]))
    return queue.dequeue()


def test_the_end_of_the_input_ends_the_block(
    graph: Graph, told: Callable[..., Any], story: list[str]
) -> None:
    queue = FIFOQueue(2, [dtypes.float32], shapes=[[]])
    values = limit_epochs(constant([1.0, 2.0]), num_epochs=2)
    add_queue_runner(QueueRunner(queue, [queue.enqueue_many([values])]))
    taken, found = queue.dequeue(), []
    with MonitoredSession(hooks=[told("a")]) as session:
        while not session.should_stop():
            found.append(float(session.run(taken)))
    assert found == [1.0, 2.0, 1.0, 2.0] and story[-1] == "a.end"


@pytest.mark.parametrize("kind", [MonitoredSession, SingularMonitoredSession])
@pytest.mark.parametrize("error", [None, KeyError("x"), KeyboardInterrupt()])
def test_no_thread_outlives_the_session(graph: Graph, kind: Any, error: Any) -> None:
    taken = filled(constant(1.0))  # without end, into a queue that is full
    try:
        with kind() as session:
            assert session.run(taken) == 1.0
            threads = session._creator.coord._registered
            assert len(threads) == 3 and all(thread.is_alive() for thread in threads)
            threads = list(threads)
            if error is not None:
                raise error
    except (KeyError, KeyboardInterrupt) as raised:
        assert raised is error
    assert not any(thread.is_alive() for thread in threads)


def test_an_interrupt_in_the_middle_of_a_step(
    graph: Graph, told: Callable[..., Any], story: list[str], tmp_path: Path
) -> None:
    step = get_or_create_global_step()
    train = [step.assign_add(1), filled(constant(1.0))]

    def interrupt(place: str) -> None:
        if place == "before" and story.count("a.before") == 4:
            signal.raise_signal(signal.SIGINT)

    def session() -> Any:
        return MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_steps=2, hooks=[told("a", fail=interrupt)]
        )

    with pytest.raises(KeyboardInterrupt), session() as first:
        threads = list(first._creator.coord._registered)
        while not first.should_stop():
            first.run(train)
    assert not any(thread.is_alive() for thread in threads) and "a.end" not in story
    with session() as second:
        assert second.run(step) == 2
        assert second.run(train) == [3, 1.0]


def test_the_end_of_a_dataset_ends_the_block(
    graph: Graph, told: Callable[..., Any], story: list[str]
) -> None:
    iterator = Dataset.range(3).make_initializable_iterator()
    graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    value, found = iterator.get_next(), []
    with MonitoredSession(hooks=[told("a")]) as session:
        while not session.should_stop():
            found.append(int(session.run(value)))
    assert found == [0, 1, 2] and story[-1] == "a.end"


def test_threads_end_where_the_session_cannot_be_made(graph: Graph) -> None:
    filled(constant(1.0))
    found: list[Any] = []

    class Bad:
        def begin(self) -> None: ...
        def before_run(self, run_context: Any) -> None: ...
        def after_run(self, run_context: Any, run_values: Any) -> None: ...
        def end(self, session: Any) -> None: ...

        def after_create_session(self, session: Any, coord: Any) -> None:
            found.extend(coord._registered)
            raise ValueError("in create")

    with pytest.raises(ValueError, match="in create"):
        MonitoredSession(hooks=[Bad()])  # type: ignore[list-item]
    assert len(found) == 3 and not any(thread.is_alive() for thread in found)


def test_what_a_thread_failed_with_is_raised(graph: Graph, told: Callable[..., Any]) -> None:
    with graph.control_dependencies([Assert(False, ["bad input"])]):
        taken = filled(identity(1.0))
    with (
        pytest.raises(errors.InvalidArgumentError, match="bad input"),
        MonitoredSession(hooks=[told("a")]) as session,
    ):
        session.run(taken)


def test_what_a_thread_failed_with_goes_before_what_the_block_did(graph: Graph) -> None:
    with graph.control_dependencies([Assert(False, ["bad input"])]):
        filled(identity(1.0))
    with (
        pytest.raises(errors.InvalidArgumentError, match="bad input") as raised,
        MonitoredSession() as session,
    ):
        wait_until(session.should_stop)
        raise KeyError("x")
    assert isinstance(raised.value.__context__, KeyError)


def test_a_preempted_thread_makes_the_session_again(graph: Graph) -> None:
    calls = [0]

    def value() -> float:
        calls[0] += 1
        if calls[0] == 1:
            raise errors.AbortedError("the input is gone")
        return 3.0

    queue = FIFOQueue(2, [dtypes.float64], shapes=[[]])
    put = queue.enqueue([py_func(value, [], dtypes.float64)])
    add_queue_runner(QueueRunner(queue, [put]))
    taken = queue.dequeue()
    made: list[Any] = []

    class Making:
        def begin(self) -> None: ...
        def before_run(self, run_context: Any) -> None: ...
        def after_run(self, run_context: Any, run_values: Any) -> None: ...
        def end(self, session: Any) -> None: ...

        def after_create_session(self, session: Any, coord: Any) -> None:
            made.append(session)

    with MonitoredSession(hooks=[Making()]) as session:  # type: ignore[list-item]
        assert session.run(taken) == 3.0
    assert len(made) == 2


def test_a_thread_that_asks_for_the_end_is_heard(graph: Graph, told: Callable[..., Any]) -> None:
    Variable(1.0)
    with MonitoredSession() as session:
        assert not session.should_stop()
        session._creator.coord.request_stop()
        assert session.should_stop()
