"""Steps of a task: the first event begins a step, and no later one begins it again."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from weft_distrib.wire.methods import StepKey
from weft_distrib.worker.steps import Steps
from weft_tensor import errors

ERROR = errors.CancelledError("over")


class Step:
    def __init__(self, key: StepKey) -> None:
        self.key = key
        self.errors: list[errors.OpError] = []

    def abort(self, error: errors.OpError) -> None:
        self.errors.append(error)


class Messages(RuleBasedStateMachine):
    """Messages in any order: a step is one object from its begin to its end, and is ended once."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Step] = []
        self.steps: Steps[Step] = Steps(self.make)
        self.sessions: set[int] = set()
        self.ended: dict[int, int] = {}

    def make(self, key: StepKey) -> Step:
        self.made.append(Step(key))
        return self.made[-1]

    session = st.integers(1, 2)
    number = st.integers(1, 5)

    @rule(session=session)
    def add(self, session: int) -> None:
        self.steps.add_session(session)
        if session not in self.sessions:
            self.made = [step for step in self.made if step.key.session != session]
            self.ended[session] = 0
        self.sessions.add(session)

    @rule(session=session, number=number)
    def open(self, session: int, number: int) -> None:
        known = session in self.sessions and number >= self.ended[session]
        if known:
            assert self.steps.open(StepKey(session, number)).key == (session, number)
        else:
            with pytest.raises(errors.AbortedError):
                self.steps.open(StepKey(session, number))

    @rule(session=session, number=number)
    def abort(self, session: int, number: int) -> None:
        known = session in self.sessions and number >= self.ended[session]
        self.steps.abort(StepKey(session, number), ERROR)
        assert not known or self.steps.open(StepKey(session, number)).errors

    @rule(session=session, number=number)
    def end_before(self, session: int, number: int) -> None:
        self.steps.end_before(session, number)
        if session in self.sessions:
            self.ended[session] = max(self.ended[session], number)

    @rule(session=session)
    def remove(self, session: int) -> None:
        self.steps.remove_session(session, ERROR)
        self.sessions.discard(session)

    @invariant()
    def a_step_is_made_once_and_ended_when_it_is_forgotten(self) -> None:
        keys = [step.key for step in self.made]
        assert len(keys) == len(set(keys))
        open_now = [
            step
            for step in self.made
            if step.key.session in self.sessions and step.key.step >= self.ended[step.key.session]
        ]
        assert self.steps.count == len(open_now)
        assert all(self.steps.has_session(s) == (s in self.sessions) for s in (1, 2))
        assert all(step.errors for step in self.made if step not in open_now)


TestMessages = Messages.TestCase
TestMessages.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_step_that_waits_for_long_keeps_no_later_ones() -> None:
    steps: Steps[Step] = Steps(Step)
    steps.add_session(1)
    waiting, later = steps.open(StepKey(1, 2)), steps.open(StepKey(1, 3))
    steps.end_before(1, 5, [2])
    assert later.errors and not waiting.errors and steps.count == 1
    assert steps.open(StepKey(1, 2)) is waiting
    with pytest.raises(errors.AbortedError):
        steps.open(StepKey(1, 3))
    steps.end_before(1, 6)
    assert waiting.errors and steps.count == 0
