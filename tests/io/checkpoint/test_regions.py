from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from weft_io.checkpoint.regions import Region, parse_spec, tiles
from weft_tensor import errors


class TestSpecs:
    def test_the_whole(self) -> None:
        assert parse_spec("") is None

    @pytest.mark.parametrize(
        ("spec", "full", "start", "shape"),
        [
            ("10 20 0,5:-", (10, 20), (0, 0), (5, 20)),
            ("10 20 5,5:3,7", (10, 20), (5, 3), (5, 7)),
            ("4 -", (4,), (0,), (4,)),
            ("4 0,0", (4,), (0,), (0,)),
        ],
    )
    def test_a_part(
        self, spec: str, full: tuple[int, ...], start: tuple[int, ...], shape: tuple[int, ...]
    ) -> None:
        assert parse_spec(spec) == (full, Region(start, shape))

    @pytest.mark.parametrize(
        "spec",
        [
            "10",
            " ",
            "10 20 0,5",
            "10 0,5:-",
            "10 6,5",
            "10 -1,5",
            "10 0,-5",
            "a -",
            "10 0,5,1",
            "-1 -",
        ],
    )
    def test_nonsense_is_refused(self, spec: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="slice"):
            parse_spec(spec)


class TestTiles:
    def test_grids_cover(self) -> None:
        parts = [Region((row, column), (2, 5)) for row in (0, 2, 4) for column in (0, 5)]
        assert tiles(parts, (6, 10))
        assert not tiles(parts[1:], (6, 10))
        assert not tiles([*parts, parts[0]], (6, 10))
        assert not tiles([*parts[1:], parts[1]], (6, 10)), "the right number, one twice"

    def test_against_counting(self) -> None:
        rng = random.Random(5)
        for _ in range(300):
            parts = [
                Region(
                    (rng.randrange(3), rng.randrange(3)),
                    (rng.randrange(1, 3), rng.randrange(1, 3)),
                )
                for _ in range(rng.randrange(1, 5))
            ]
            counted = np.zeros((5, 5), int)
            for part in parts:
                counted[part.slices((0, 0))] += 1
            inside = counted[:3, :3]
            expected = bool((inside == 1).all()) and counted.sum() == 9
            assert tiles(parts, (3, 3)) == expected

    def test_rank_zero_and_empty(self) -> None:
        assert tiles([Region((), ())], ())
        assert not tiles([], ())
        assert not tiles([Region((), ())] * 2, ())
        assert tiles([Region.whole_tensor((0, 3))], (0, 3))


def test_overlap_is_the_common_box() -> None:
    boxes = [Region((a,), (n,)) for a, n in itertools.product(range(4), range(1, 4))]
    for one, other in itertools.product(boxes, boxes):
        common = set(range(one.start[0], one.start[0] + one.shape[0])) & set(
            range(other.start[0], other.start[0] + other.shape[0])
        )
        found = one.overlap(other)
        got = (
            set() if found is None else set(range(found.start[0], found.start[0] + found.shape[0]))
        )
        assert got == common
