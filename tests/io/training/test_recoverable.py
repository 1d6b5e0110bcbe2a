"""The recovering loop alone: sessions that fail by a plan, as often as they like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from weft_testing.waiting import rounds

from weft_io.training.sessions import RecoverableSession
from weft_tensor import errors

PREEMPTED = [errors.AbortedError, errors.UnavailableError]
outcomes = st.sampled_from([None, None, None, *PREEMPTED, errors.InternalError])


class Planned:
    """A session whose calls fail as planned."""

    def __init__(self, plan: Iterator[Any]) -> None:
        self.plan = plan
        self.closed = 0
        self.opened = False

    def _next(self) -> None:
        kind = next(self.plan, None)
        if kind is not None:
            raise kind("planned")

    def run(self, fetches: int) -> int:
        assert not self.closed, "a closed session was used"
        self._next()
        return fetches

    def run_step_fn(self, step_fn: Any) -> Any:
        return self.run(step_fn)

    def should_stop(self) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1
        self._next()


def attempts(plan: list[Any], steps: int) -> tuple[list[Any], int]:
    """Return the values that a program of some steps sees, and the number of its sessions.

    In each state the next outcome of the plan is of making a session, of a step, or of closing.
    """
    left, seen, made, opened = iter(plan), [], 0, False
    closing = False
    for number in range(-1, steps):  # first the session is made, without a step
        for _ in rounds():
            if closing:
                closing, opened = False, False
                if (kind := next(left, None)) is errors.InternalError:
                    seen.append(kind)
                    break
            if not opened:
                made += 1
                kind = next(left, None)
                if kind is not None:
                    if kind in PREEMPTED:
                        continue
                    seen.append(kind)
                    break
                opened = True
            if number < 0:
                break
            kind = next(left, None)
            if kind in PREEMPTED:
                closing = True
                continue
            seen.append(number if kind is None else kind)
            break
        if number < 0 and seen:
            return seen, made
    return seen, made


@given(plan=st.lists(outcomes, max_size=30), steps=st.integers(0, 8))
def test_it_does_what_the_model_does(plan: list[Any], steps: int) -> None:
    left, made, seen = iter(plan), [], []

    def create() -> Any:
        made.append(Planned(left))
        made[-1]._next()
        made[-1].opened = True
        return made[-1]

    def attempt(work: Any) -> Any:
        try:
            return seen.append(work())
        except errors.InternalError as error:
            seen.append(type(error))
            return None

    session: list[Any] = []
    attempt(lambda: session.append(RecoverableSession(create)))
    seen[:] = [each for each in seen if each is not None]
    if session:
        for number in range(steps):
            use = session[0].run if number % 2 else session[0].run_step_fn
            attempt(lambda use=use, number=number: use(number))
    assert (seen, len(made)) == attempts(plan, steps)
    assert all(each.closed <= 1 for each in made)
    assert sum(each.opened and not each.closed for each in made) <= 1, "two sessions were open"


def test_closing_what_is_preempted_is_no_error() -> None:
    sessions = [Planned(iter([errors.AbortedError]))]
    recoverable = RecoverableSession(lambda: sessions[0])  # type: ignore[arg-type, return-value]
    recoverable.close()
    assert sessions[0].closed == 1 and recoverable.should_stop()
    recoverable.close()
    assert sessions[0].closed == 1


def test_closing_raises_what_else_failed() -> None:
    failing = Planned(iter([errors.InternalError]))
    recoverable = RecoverableSession(lambda: failing)  # type: ignore[arg-type, return-value]
    with pytest.raises(errors.InternalError):
        recoverable.close()
