"""Predictions for a cluster whose transfers are then really made slower or faster."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import jobs, servers

import weft as wf
from weft_distrib.worker import rendezvous
from weft_trace import Kind, load
from weft_trace.analysis.changes import Change
from weft_trace.analysis.replay import Replay
from weft_trace.analysis.steps import StepIndex

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
STEPS = 5
LEAST_BYTES = 1000
"""Size from which a value is delayed; the predicates of loops are smaller."""


def slow_down(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let values leave a task so much later, as if the link needed the time."""

    def reply(served: Any, value: Any = None) -> None:
        served._rendezvous.note(served._key)
        if getattr(value, "nbytes", 0) < LEAST_BYTES:
            served._call.reply([value])
        else:
            threading.Timer(seconds, served._call.reply, ([value],)).start()

    monkeypatch.setattr(rendezvous._ServedRequest, "__call__", reply)


def one_after_the_other(x: Any) -> Any:
    """Four transfers that wait for each other, and work on both tasks."""
    for i in range(2):
        with wf.device(PS):
            x = wf.tanh(x, name=f"there{i}")
        with wf.device(WORKER):
            x = wf.square(x, name=f"back{i}")
    return wf.reduce_sum(x)


def in_a_loop(x: Any) -> Any:
    """Two transfers in each of three iterations."""

    def body(i: Any, state: Any) -> Any:
        with wf.device(PS):
            there = wf.tanh(state, name="there")
        with wf.device(WORKER):
            return i + 1, wf.square(there, name="back")

    with wf.device(WORKER):
        return wf.reduce_sum(wf.while_loop(lambda i, _: i < 3, body, [0, x])[1])


def run_steps(target: str, build: Any, path: Path) -> int:
    """Run a program; return the duration of its fastest step in nanoseconds."""
    times = []
    with wf.Graph().as_default():
        with wf.device(WORKER):
            x = wf.placeholder(wf.float32, [16, 64], name="x")
            y = wf.identity(x, name="here")
        total = build(y)
        with wf.Session(target) as session:
            for _ in range(2):
                session.run(total, {x: np.zeros((16, 64))})
            with wf.trace(path):
                for _ in range(STEPS):
                    begin = time.perf_counter_ns()
                    session.run(total, {x: np.zeros((16, 64))})
                    times.append(time.perf_counter_ns() - begin)
    return min(times)


@pytest.mark.parametrize(
    ("build", "before", "after"),
    [
        (one_after_the_other, 0.02, 0.05),
        pytest.param(one_after_the_other, 0.05, 0.02, marks=pytest.mark.long),
        pytest.param(in_a_loop, 0.02, 0.04, marks=pytest.mark.long),
    ],
)
def test_a_slowed_link_is_predicted(
    build: Any, before: float, after: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers(jobs(ps=1, worker=1)) as tasks:
        for attempt in range(4):  # other processes may disturb a measurement
            slow_down(monkeypatch, before)
            run_steps(tasks[1].target, build, tmp_path / "before")
            slow_down(monkeypatch, after)
            true = run_steps(tasks[1].target, build, tmp_path / "after")
            trace = load(tmp_path / "before")
            index = StepIndex(trace)
            span = min(index.spans(), key=lambda span: span.duration)
            change = Change("link", "ps0", after / before)
            predicted = Replay(index, span).predict([change]).predicted
            if abs(predicted - true) <= 0.05 * true or attempt == 3:
                break
    transfers = trace.events[trace.events["kind"] == Kind.TRANSFER]
    durations = transfers["end"] - transfers["start"]
    assert (durations >= 0.9 * before * 1e9).sum() >= STEPS
    assert predicted == pytest.approx(true, rel=0.05)
