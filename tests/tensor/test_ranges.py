"""Free ranges against a model that keeps every 64-byte cell in a set."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from weft_tensor.errors import InternalError
from weft_tensor.ranges import FreeRanges

Place = tuple[int, int, int]


class FreeRangesMachine(RuleBasedStateMachine):
    """Takes, gives and region changes in any order."""

    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.ranges = FreeRanges()
        self.free: dict[int, set[int]] = {}
        self.sizes: dict[int, int] = {}

    @rule(size=st.integers(1, 40))
    def add_region(self, size: int) -> None:
        index = len(self.sizes)
        self.ranges.add_region(index, size)
        self.sizes[index] = size
        self.free[index] = set(range(size))

    @rule(target=taken, size=st.integers(1, 12))
    def take(self, size: int) -> object:
        fitting = [run for run in self._runs() if run[0] >= size]
        place = self.ranges.take(size)
        if not fitting:
            assert place is None
            return multiple()
        assert place is not None
        assert place == min(fitting)[1:], "the best fit, the oldest, the lowest"
        region, offset = place
        self.free[region] -= set(range(offset, offset + size))
        return region, offset, size

    @rule(place=consumes(taken))
    def release_range(self, place: Place) -> None:
        region, offset, size = place
        self.ranges.release_range(region, offset, size)
        self.free[region] |= set(range(offset, offset + size))

    @rule()
    def drop_free_regions(self) -> None:
        whole = [i for i, free in self.free.items() if len(free) == self.sizes[i]]
        assert sorted(self.ranges.free_regions()) == sorted(whole)
        for index in whole:
            self.ranges.remove_region(index)
            self.free.pop(index)

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.ranges.check_integrity()
        runs = self._runs()
        assert self.ranges.ranges() == sorted((r, o, s) for s, r, o in runs)
        assert self.ranges.largest() == max((s for s, _, _ in runs), default=0)
        assert self.ranges.free_bytes == sum(s for s, _, _ in runs)

    def _runs(self) -> list[Place]:
        runs = []
        for region, cells in self.free.items():
            for start in sorted(cells):
                if start - 1 not in cells:
                    end = start
                    while end in cells:
                        end += 1
                    runs.append((end - start, region, start))
        return runs


TestFreeRanges = FreeRangesMachine.TestCase


def test_a_region_in_use_can_not_be_removed() -> None:
    ranges = FreeRanges()
    ranges.add_region(0, 128)
    ranges.take(64)
    with pytest.raises(InternalError, match="in use"):
        ranges.remove_region(0)


def test_integrity_sees_what_is_wrong() -> None:
    ranges = FreeRanges()
    ranges.add_region(0, 128)
    ranges.free_bytes = 1
    with pytest.raises(InternalError, match="sum"):
        ranges.check_integrity()
