"""The number of calls that parallel maps start ahead of the requested elements."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import weft as wf


@pytest.mark.parametrize("calls", [1, 3, wf.data.experimental.AUTOTUNE])
@pytest.mark.parametrize("processors", [1, 3])
def test_calls_begin_ahead(calls: int, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTOTUNE counts the processors that the process may use, not those of the machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    taken = 0

    def numbers() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    dataset = wf.data.Dataset.from_generator(numbers, wf.int32, [])
    doubled = dataset.map(lambda number: number * 2, num_parallel_calls=calls)
    step = doubled.make_one_shot_iterator().get_next()
    ahead = calls if calls > 0 else 4 * processors
    with wf.Session() as session:
        for number in range(5):
            assert session.run(step) == 2 * number
            assert taken == number + 1 + ahead
