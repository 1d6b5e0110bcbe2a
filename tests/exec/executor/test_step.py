"""The ready queue, event by event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_exec.executor.frames import StepPlan
from weft_exec.executor.linear import Segment
from weft_exec.executor.queue_entries import Entry
from weft_exec.executor.step import StepMachine, Token
from weft_tensor import errors


def entries(edges: dict[int, list[int]], count: int) -> list[Entry]:
    made = [Entry(i, Segment((), (), ())) for i in range(count)]
    for before, after in edges.items():
        for successor in after:
            made[before].edges.successors.append(made[successor])
            made[successor].pending += 1
    return made


def machine_of(made: list[Entry], uses: dict[int, int] | None = None) -> StepMachine:
    return StepMachine(StepPlan.for_root(made, uses or {}), [None] * 10)


def test_entries_become_ready_in_the_order_of_construction() -> None:
    machine = machine_of(entries({0: [2], 1: [2]}, 3))
    first, second = machine.take(), machine.take()
    assert first is not None and second is not None
    assert (first[0].index, second[0].index) == (0, 1)
    assert machine.take() is None
    machine.finished(second)
    assert machine.take() is None
    machine.finished(first)
    last = machine.take()
    assert last is not None and last[0].index == 2
    machine.finished(last)
    assert machine.done


def test_a_failure_lets_running_entries_end_and_nothing_start() -> None:
    machine = machine_of(entries({0: [2]}, 3))
    first, second = machine.take(), machine.take()
    assert first is not None and second is not None
    error = errors.AbortedError("gone")
    assert machine.failed(first, error)
    assert not machine.done and machine.take() is None
    assert not machine.failed(second, errors.AbortedError("later"))
    assert machine.done and machine.error is error


def test_a_slot_is_forgotten_when_its_last_user_has_finished() -> None:
    made = entries({0: [1, 2]}, 3)
    for entry in made:
        entry.shared = (7,)
    machine = machine_of(made, {7: 3})
    machine.root.slots[7] = np.float32(1)
    held = []
    while not machine.done:
        token = machine.take()
        assert token is not None
        machine.finished(token)
        held.append(machine.root.slots[7] is not None)
    assert held == [True, True, False]


def test_finishing_an_entry_that_does_not_run_is_an_error() -> None:
    made = entries({}, 1)
    machine = machine_of(made)
    with pytest.raises(errors.InternalError, match="without running"):
        machine.finished((made[0], machine.root))


@given(st.data())
def test_every_entry_runs_once_after_all_it_waits_for(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    chosen = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    edges: dict[int, list[int]] = {}
    for before, after in sorted(chosen):
        edges.setdefault(before, []).append(after)
    machine = machine_of(entries(edges, count))
    running: list[Token] = []
    finished: list[int] = []
    while not machine.done:
        machine.check()
        token = machine.take()
        if token is not None:
            assert {b for b, a in chosen if a == token[0].index} <= set(finished)
            running.append(token)
        if running and (token is None or data.draw(st.booleans())):
            over = running.pop(data.draw(st.integers(0, len(running) - 1)))
            machine.finished(over)
            finished.append(over[0].index)
    assert sorted(finished) == list(range(count))
