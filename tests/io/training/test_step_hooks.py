"""Hooks that say when to begin and to stop, and that feed, or fetch at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_graph import Graph
from weft_graph.variables.reference import Variable
from weft_io.checkpoint.state import load_variable
from weft_io.queues.queue import FIFOQueue
from weft_io.training import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    MonitoredSession,
    MonitoredTrainingSession,
    StopAtStepHook,
)
from weft_tensor import dtypes, errors


def steps_until_stop(session: Any, model: Any) -> int:
    count = 0
    while not session.should_stop():
        session.run(model.train)
        count += 1
    return count


def test_a_number_of_steps_or_a_last_one(model: Any) -> None:
    with MonitoredSession(hooks=[StopAtStepHook(last_step=4)]) as session:
        model.step.load(1, session._tf_sess())
        assert steps_until_stop(session, model) == 3
    with MonitoredSession(hooks=[StopAtStepHook(num_steps=4)]) as session:
        assert steps_until_stop(session, model) == 4


@pytest.mark.parametrize("arguments", [{"last_step": 0}, {"last_step": -1}, {"num_steps": 0}])
def test_where_there_is_nothing_to_do_no_step_is_made(
    model: Any, arguments: dict[str, int]
) -> None:
    with MonitoredSession(hooks=[StopAtStepHook(**arguments)]) as session:
        assert steps_until_stop(session, model) == 0


def test_a_training_that_has_come_to_its_end_makes_no_step(model: Any, tmp_path: Path) -> None:
    hook = StopAtStepHook(last_step=4)
    for wanted in (4, 0, 0):
        with MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[hook]) as session:
            assert steps_until_stop(session, model) == wanted
    assert load_variable(str(tmp_path), "w") == 4.0


def test_a_number_of_steps_is_of_each_session(model: Any, tmp_path: Path) -> None:
    hook = StopAtStepHook(num_steps=3)
    for last in (3, 6):
        with MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[hook]) as session:
            assert steps_until_stop(session, model) == 3
        assert load_variable(str(tmp_path), "global_step") == last


def test_steps_that_count_more_than_one_do_not_go_too_far(model: Any) -> None:
    count = model.step.assign_add(3, read_value=False)
    with MonitoredSession(hooks=[StopAtStepHook(last_step=8)]) as session:
        while not session.should_stop():
            session.run(count)
        assert session._tf_sess().run(model.step) == 9


def test_the_step_counts_and_not_the_runs(model: Any) -> None:
    with MonitoredSession(hooks=[StopAtStepHook(num_steps=1)]) as session:
        for _ in range(3):
            session.run(model.w)
        assert not session.should_stop()
        session.run(model.train)
        assert session.should_stop()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({}, ValueError),
        ({"num_steps": 1, "last_step": 1}, ValueError),
        ({"num_steps": 1.5}, TypeError),
        ({"last_step": True}, TypeError),
    ],
)
def test_arguments_of_stop_at_step(arguments: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        StopAtStepHook(**arguments)


@pytest.mark.parametrize("hook", [StopAtStepHook(3), GlobalStepWaiterHook(3)])
def test_a_global_step_is_needed(graph: Graph, hook: Any) -> None:
    Variable(1.0)
    with pytest.raises(RuntimeError, match=f"should be created to use {type(hook).__name__}"):
        MonitoredSession(hooks=[hook])


def test_waiting_for_a_step(model: Any, clock: Any, logged: Callable[[], list[str]]) -> None:
    with MonitoredSession(hooks=[GlobalStepWaiterHook(3000)]) as session:
        raw = session._tf_sess()
        values = iter([500, 1200, 2900, 3000])
        clock.on_sleep = lambda: model.step.load(next(values), raw)
        session.run(model.train)
        assert clock.slept == [0.5] * 4 and raw.run(model.step) == 3001
        session.run(model.train)
        assert len(clock.slept) == 4
    assert [line for line in logged() if "Waiting for global step 3000" in line] == [
        "Waiting for global step 3000 before starting training.",
        "Waiting for global step 3000 before starting training. Current step is 1200.",
        "Waiting for global step 3000 before starting training. Current step is 2900.",
    ]


def test_each_session_waits(model: Any, clock: Any) -> None:
    hook = GlobalStepWaiterHook(3)
    for _ in range(2):
        with MonitoredSession(hooks=[hook]) as session:
            raw = session._tf_sess()
            clock.on_sleep = lambda raw=raw: model.step.load(3, raw)
            session.run(model.train)
    assert clock.slept == [0.5] * 2


def test_nothing_to_wait_for(model: Any, clock: Any) -> None:
    with MonitoredSession(hooks=[GlobalStepWaiterHook(0)]) as session:
        session.run(model.train)
    assert clock.slept == []
    with pytest.raises(TypeError, match="wait_until_step must be an integer"):
        GlobalStepWaiterHook("3")  # type: ignore[arg-type]


def test_final_values(model: Any) -> None:
    hook = FinalOpsHook({"w": model.w, "x": [model.x]}, {model.x: 5.0})
    empty = FinalOpsHook(None)
    with MonitoredSession(hooks=[hook, empty]) as session:
        session.run(model.train)
        assert hook.final_ops_values is None
    assert hook.final_ops_values == {"w": 1.0, "x": [5.0]} and empty.final_ops_values is None


def test_final_values_that_depend_on_the_input(model: Any, logged: Callable[[], list[str]]) -> None:
    queue = FIFOQueue(1, [dtypes.float32])
    close, taken = queue.close(), queue.dequeue()
    with (
        pytest.raises(errors.OutOfRangeError),
        MonitoredSession(hooks=[FinalOpsHook(taken)]) as session,
    ):
        session.run(close)
    assert any("dependency back to some input source" in line for line in logged())


def test_a_function_feeds(model: Any) -> None:
    values = iter([2.0, 3.0])
    with MonitoredSession(hooks=[FeedFnHook(lambda: {model.x: next(values)})]) as session:
        session.run(model.train)
        session.run(model.train)
        assert session._tf_sess().run(model.w) == 5.0
    with pytest.raises(TypeError, match="feed_fn"):
        FeedFnHook({model.x: 1.0})  # type: ignore[arg-type]
