"""Schedules of collective operations, all members of a group in one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft_distrib.collective import schedule
from weft_distrib.collective.groups import Groups, Member
from weft_distrib.collective.schedule import Action
from weft_tensor import errors

COUNTS = (0, 1, 5, 64, 1000)


def play(scripts: list[list[Action]], buffers: list[Any], finish: Any = None) -> int:
    """Run all members until none can continue; return the number of sent elements."""
    sent: dict[Any, Any] = {}
    place, total = [0] * len(scripts), 0
    moved = True
    while moved:
        moved = False
        for rank, script in enumerate(scripts):
            while place[rank] < len(script):
                kind, peer, start, stop, phase = script[place[rank]]
                mine = buffers[rank][start:stop]
                sources = [peer]
                if kind == schedule.FOLD:
                    sources = [i for i in range(len(scripts)) if i != rank]
                keys = [(source, rank, phase, start) for source in sources]
                if kind in (schedule.SEND, schedule.GIVE):
                    key = rank, peer, phase, start
                    assert key not in sent, "sent twice"
                    sent[key] = mine.copy()
                    total += len(mine)
                elif kind == schedule.FINISH:
                    mine *= finish or 1
                elif any(key not in sent for key in keys):
                    break
                else:
                    got = dict(zip(sources, map(sent.pop, keys), strict=True))
                    if kind == schedule.STORE:
                        mine[...] = got[peer]
                    else:
                        each = [got.get(i, mine) for i in sorted({rank, *got})]
                        mine[...] = sum(each[1:], each[0].copy())
                place[rank] += 1
                moved = True
    assert place == list(map(len, scripts)), "somebody waits for ever"
    assert not sent, "somebody sent what nobody wants"
    return total


@pytest.mark.parametrize(
    "make", [schedule.ring, schedule.tree, schedule.ordered_schedule, schedule.direct]
)
def test_all_members_get_the_sum_of_all(make: Callable[..., Any]) -> None:
    for size in range(1, 9):
        for count in COUNTS:
            buffers = [np.arange(count, dtype=float) * 3**i + i for i in range(size)]
            want = 2 * sum(buffers[1:], buffers[0].copy())
            scripts = [list(make(i, size, count, 7)) for i in range(size)]
            if size == 1:
                scripts = [list(schedule.direct(0, 1, count, 7))]
            total = play(scripts, buffers, finish=2)
            for buffer in buffers:
                np.testing.assert_array_equal(buffer, want)
            if make in (schedule.ring, schedule.ordered_schedule):
                assert total == 2 * (size - 1) * count


def test_one_member_gives_its_buffer_to_all() -> None:
    for size in range(1, 9):
        for source in range(size):
            buffers = [np.full(20, float(i)) for i in range(size)]
            scripts = [list(schedule.broadcast(i, size, 20, 7, source)) for i in range(size)]
            play(scripts, buffers)
            assert all((buffer == source).all() for buffer in buffers)


def test_segments_of_all_go_round() -> None:
    for size in range(1, 9):
        buffers = [np.repeat(np.arange(size), 10) * (np.arange(size * 10) // 10 == i)
                   for i in range(size)]  # fmt: skip
        play([list(schedule.gather(i, size, size * 10, 7)) for i in range(size)], buffers)
        assert all((buffer == np.repeat(np.arange(size), 10)).all() for buffer in buffers)


# ----------------------------------------------------------------------------- groups


def member(task: int, number: int = 0) -> Member:
    return Member(f"/job:w/replica:0/task:{task}/device:CPU:0", number or 100 + task)


class Joining:
    """Members that join one group, and the results that they received."""

    def __init__(self) -> None:
        self.groups, self.told = Groups(), {}

    def join(self, each: Member, size: int = 2, key: int = 5) -> None:
        def answer(outcome: Any) -> None:
            assert each.number not in self.told, "told twice"
            self.told[each.number] = outcome

        self.tell(self.groups.join(key, size, each, answer))

    def tell(self, told: Any) -> None:
        for answer, outcome in told:
            answer(outcome)


def test_members_are_in_the_order_of_their_names_and_groups_can_form_again() -> None:
    joining = Joining()
    for first, second in (((10, 1), (2, 2)), ((2, 3), (10, 4))):
        joining.join(member(*first))
        assert first[1] not in joining.told and joining.groups.waiting == 1
        joining.join(member(*second))
        want = tuple(sorted([member(*first), member(*second)], key=lambda m: len(m.device)))
        assert joining.told[first[1]] == joining.told[second[1]] == want
        assert joining.groups.waiting == 0


def test_who_gives_up_is_forgotten_and_who_comes_again_is_one() -> None:
    joining = Joining()
    joining.join(member(0, 1))
    joining.groups.leave(5, 1)
    joining.groups.leave(5, 1)
    joining.join(member(1, 2))
    joining.join(member(1, 3))
    assert isinstance(joining.told[2], errors.AbortedError)
    joining.join(member(2, 4), key=6)
    joining.tell(joining.groups.expire(6, 4, 3.0))
    joining.tell(joining.groups.expire(6, 4, 3.0))
    error = joining.told[4]
    assert isinstance(error, errors.DeadlineExceededError)
    assert "1 of 2 members after 3 s" in error.message and "/task:2/" in error.message
    joining.join(member(0, 5))
    assert joining.told[3] == joining.told[5] == (member(0, 5), member(1, 3))
    joining.tell(joining.groups.expire(5, 5, 3.0))


def test_sizes_of_one_group_must_agree() -> None:
    joining = Joining()
    joining.join(member(0, 1))
    joining.join(member(1, 2), size=3)
    error = joining.told[2]
    assert isinstance(error, errors.InvalidArgumentError)
    assert "2 members for /job:w/replica:0/task:0/" in error.message
    assert 1 not in joining.told
