"""A test of several parts fails for each that fails, and names them."""

from __future__ import annotations

import pytest
from weft_testing.parts import Parts


def test_all_parts_run_and_the_failing_ones_are_named() -> None:
    ran = []
    with pytest.raises(ExceptionGroup) as caught, Parts() as parts:
        for number in range(4):
            with parts.part(f"part {number}"):
                ran.append(number)
                assert number % 2 == 0
    assert ran == [0, 1, 2, 3]
    assert "2 of 4 parts failed: part 1; part 3" in str(caught.value)
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["in the part: part 1"],
        ["in the part: part 3"],
    ]


def test_no_parts_are_no_success() -> None:
    with pytest.raises(AssertionError, match="nothing was checked"), Parts():
        pass


def test_an_interrupt_is_not_kept() -> None:
    with pytest.raises(KeyboardInterrupt), Parts() as parts, parts.part("interrupted"):
        raise KeyboardInterrupt
