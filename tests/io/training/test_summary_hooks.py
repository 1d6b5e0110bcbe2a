"""Summaries at steps and seconds, and how fast steps go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_graph import Graph, proto
from weft_graph.variables.reference import Variable
from weft_io import summary
from weft_io.summary.reading import summary_iterator
from weft_io.training import (
    ChiefSessionCreator,
    MonitoredSession,
    Scaffold,
    StepCounterHook,
    SummarySaverHook,
)
from weft_tensor import errors


class Writer:
    """Stores the written summaries."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.flushes = 0

    def add_summary(self, data: Any, step: int) -> None:
        message = data if isinstance(data, proto.Summary) else proto.Summary.FromString(data)
        self.found += [(step, value.tag, value.simple_value) for value in message.value]

    def add_session_log(self, log: Any, step: int) -> None:
        self.found.append((step, "log", log.status))

    def flush(self) -> None:
        self.flushes += 1


START = proto.SessionLog.START


def run(model: Any, hook: Any, count: int, clock: Any = None, seconds: float = 0) -> None:
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(count):
            session.run(model.train)
            if clock is not None:
                clock.now += seconds


def test_at_steps(model: Any) -> None:
    writer = Writer()
    hook = SummarySaverHook(3, summary_writer=writer, summary_op=summary.scalar("w_now", model.w))
    run(model, hook, 8)
    assert writer.found == [
        (1, "log", START),
        *[(1, "w_now", 0.0), (4, "w_now", 3.0), (7, "w_now", 6.0)],
    ]
    assert writer.flushes == 1


def test_at_seconds_and_several(model: Any, clock: Any) -> None:
    writer = Writer()
    both = [summary.scalar("w_now", model.w), summary.scalar("x_now", model.x)]
    hook = SummarySaverHook(save_secs=5, summary_writer=writer, summary_op=both)
    run(model, hook, 6, clock, 2)
    assert writer.found == [
        (1, "log", START),
        *[(1, "w_now", 0.0), (1, "x_now", 1.0)],
        *[(4, "w_now", 3.0), (4, "x_now", 1.0)],
    ]


def test_the_summaries_are_not_computed_between(model: Any) -> None:
    counted = Variable(0.0, name="counted")
    with model.w.graph.control_dependencies([counted.assign_add(1.0)]):
        op = summary.scalar("w_now", model.w)
    hook = SummarySaverHook(4, summary_writer=Writer(), summary_op=op)
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(9):
            session.run(model.train)
        assert session._tf_sess().run(counted) == 3.0


def test_those_of_a_scaffold_into_a_directory(model: Any, tmp_path: Path) -> None:
    summary.scalar("w_now", model.w)
    scaffold = Scaffold()
    hook = SummarySaverHook(2, output_dir=tmp_path, scaffold=scaffold)
    with MonitoredSession(ChiefSessionCreator(scaffold), [hook]) as session:
        for _ in range(3):
            session.run(model.train)
    (path,) = tmp_path.iterdir()
    found = [
        (event.step, [value.simple_value for value in event.summary.value])
        for event in summary_iterator(str(path))
        if event.WhichOneof("what") == "summary"
    ]
    assert found == [(1, [0.0]), (3, [2.0])]


def test_no_summaries_and_no_writer(model: Any) -> None:
    writer = Writer()
    scaffold = Scaffold()
    hooks = [
        SummarySaverHook(1, summary_writer=writer, scaffold=scaffold),
        SummarySaverHook(1, scaffold=scaffold),
    ]
    with MonitoredSession(ChiefSessionCreator(scaffold), hooks) as session:
        for _ in range(2):
            session.run(model.train)
    assert writer.found == [(1, "log", START)]


def test_steps_per_second(model: Any, clock: Any, logged: Callable[[], list[str]]) -> None:
    writer = Writer()
    run(model, StepCounterHook(4, summary_writer=writer), 10, clock, 0.5)
    assert writer.found == [(5, "global_step/sec", 2.0), (9, "global_step/sec", 2.0)]
    assert writer.flushes == 1
    assert [line for line in logged() if "sec:" in line] == ["global_step/sec: 2"] * 2


def test_steps_per_second_at_seconds(model: Any, clock: Any, tmp_path: Path) -> None:
    run(model, StepCounterHook(None, 3, output_dir=tmp_path), 5, clock, 1)
    (path,) = tmp_path.iterdir()
    (event,) = [e for e in summary_iterator(str(path)) if e.WhichOneof("what") == "summary"]
    assert (event.step, event.summary.value[0].simple_value) == (4, 1.0)


def test_hooks_begin_anew_with_each_session(model: Any, clock: Any) -> None:
    counts, values = Writer(), Writer()
    hooks = [
        StepCounterHook(2, summary_writer=counts),
        SummarySaverHook(2, summary_writer=values, summary_op=summary.scalar("w_now", model.w)),
    ]
    for _ in range(2):
        for hook in hooks:
            run(model, hook, 4, clock, 1)
    assert [step for step, *_ in counts.found] == [3, 3]
    assert [step for step, tag, _ in values.found if tag == "w_now"] == [1, 3] * 2


def test_no_time_has_passed(model: Any, clock: Any) -> None:
    writer = Writer()
    run(model, StepCounterHook(1, summary_writer=writer), 3)
    assert writer.found == []


def test_a_step_that_nobody_counts(model: Any, logged: Callable[[], list[str]]) -> None:
    with MonitoredSession(hooks=[StepCounterHook(10)]) as session:
        for _ in range(20):
            session.run(model.w)
        assert not any("not been increased" in line for line in logged())
        for _ in range(30):
            session.run(model.w)
    assert sum("has not been increased" in line for line in logged()) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepCounterHook(1, 1), "exactly one of every_n_steps and every_n_secs"),
        (lambda: StepCounterHook(None), "exactly one of every_n_steps and every_n_secs"),
        (lambda: StepCounterHook(0), "every_n_steps must be at least 1"),
        (lambda: SummarySaverHook(1), "Exactly one of scaffold or summary_op"),
        (lambda: SummarySaverHook(1, scaffold=1, summary_op=2), "Exactly one of scaffold or"),
        (lambda: SummarySaverHook(scaffold=1), "exactly one of save_steps and save_secs"),
        (lambda: SummarySaverHook(1, 1, scaffold=1), "exactly one of save_steps and save_secs"),
        (lambda: SummarySaverHook(1.5, scaffold=1), "save_steps must be an integer"),
    ],
)
def test_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        make()


@pytest.mark.parametrize("hook", [StepCounterHook(), SummarySaverHook(1, scaffold=Scaffold())])
def test_a_global_step_is_needed(graph: Graph, hook: Any) -> None:
    Variable(1.0)
    with pytest.raises(RuntimeError, match=f"should be created to use {type(hook).__name__}"):
        MonitoredSession(hooks=[hook])
