"""Retention of checkpoints, with an injected clock."""

from __future__ import annotations

from weft_io.saving.retention import Retention


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_last_n_stay() -> None:
    keeper = Retention(3, 10000.0, Clock())
    assert [keeper.record(f"m-{i}") for i in range(5)] == [[], [], [], ["m-0"], ["m-1"]]
    assert [path for path, _ in keeper.last] == ["m-2", "m-3", "m-4"]


def test_all_stay() -> None:
    for number in (None, 0):
        keeper = Retention(number, 10000.0, Clock())
        assert not any(keeper.record(f"m-{i}") for i in range(20))


def test_the_same_name_counts_once() -> None:
    keeper = Retention(2, 10000.0, Clock())
    for name in ("a", "b", "a", "b", "b"):
        assert keeper.record(name) == []
    assert keeper.record("c") == ["a"]


def test_one_per_interval_stays_for_good() -> None:
    clock = Clock()
    keeper = Retention(2, 1.0, clock)
    removed = []
    for i in range(60):
        clock.now += 600
        removed += keeper.record(f"m-{i}")
    kept = [i for i in range(60) if f"m-{i}" not in removed]
    assert kept == [*range(6, 58, 6), 58, 59]


def test_after_a_long_pause_one_is_due_and_not_all() -> None:
    clock = Clock()
    keeper = Retention(1, 1.0, clock)
    keeper.record("before")
    clock.now += 36000
    removed = []
    for i in range(6):
        clock.now += 60
        removed += keeper.record(f"m-{i}")
    assert removed == ["before", "m-1", "m-2", "m-3", "m-4"]
