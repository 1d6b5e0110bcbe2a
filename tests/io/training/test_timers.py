"""Times at which a timer triggers, with an injected clock."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, strategies as st

from weft_io.training.timers import SecondOrStepTimer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_every_so_many_steps(clock: list[float]) -> None:
    timer = SecondOrStepTimer(every_steps=3)
    assert timer.last_triggered_step() is None and timer.should_trigger_for_step(7)
    assert timer.update_last_triggered_step(7) == (None, None)
    assert [timer.should_trigger_for_step(step) for step in (7, 8, 9, 10, 15)] == [
        False, False, False, True, True
    ]  # fmt: skip
    clock[0] += 2.5
    assert timer.update_last_triggered_step(11) == (2.5, 4)
    assert timer.last_triggered_step() == 11


def test_every_so_many_seconds(clock: list[float]) -> None:
    timer = SecondOrStepTimer(every_secs=2)
    assert timer.should_trigger_for_step(0)
    timer.update_last_triggered_step(0)
    clock[0] += 1.5
    assert not timer.should_trigger_for_step(50)
    clock[0] += 0.5
    assert timer.should_trigger_for_step(51)
    assert not timer.should_trigger_for_step(0), "never twice at one step"
    assert timer.update_last_triggered_step(51) == (2.0, 51)


def test_reset() -> None:
    timer = SecondOrStepTimer(every_steps=100)
    timer.update_last_triggered_step(5)
    assert not timer.should_trigger_for_step(6)
    timer.reset()
    assert timer.should_trigger_for_step(6) and timer.last_triggered_step() is None


def test_exactly_one_interval() -> None:
    for both in ({}, {"every_secs": 1.0, "every_steps": 1}):
        with pytest.raises(ValueError, match="every_secs and every_steps"):
            SecondOrStepTimer(**both)


@given(st.integers(1, 20), st.lists(st.integers(0, 5), max_size=60))
def test_the_gaps_are_never_shorter(every: int, advances: list[int]) -> None:
    timer = SecondOrStepTimer(every_steps=every)
    step, done = 0, []
    for advance in advances:
        step += advance
        if timer.should_trigger_for_step(step):
            timer.update_last_triggered_step(step)
            done.append(step)
    assert all(b - a >= every for a, b in itertools.pairwise(done))
    assert not done or step - done[-1] < every or not timer.should_trigger_for_step(done[-1])
