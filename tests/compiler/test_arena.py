"""The memory that compiled programs share: slots, growth, programs at once, and its end."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import errors
from weft_compiler.ir.parser import parse
from weft_compiler.native import arena, program as programs
from weft_compiler.native.arena import ARENA, SLOTS, Arena
from weft_compiler.native.entry import BUSY
from weft_compiler.native.program import NativeProgram, load
from weft_tensor import finalizers


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Arena:
    """The arena of a process in which no other programs are."""
    made = Arena()
    monkeypatch.setattr(programs, "ARENA", made)
    return made


def turned(size: int, factor: float, again: int = 1) -> tuple[NativeProgram, Callable[[Any], Any]]:
    """Return a program that reverses products in a work buffer, and its expected result."""
    made = load(
        parse(f"""
program turned(x: float32[{size}]) -> (y: float32[{size}]):
  alloc t: float32[{size}]
  for turn in {again}:
    vector i in {size}:
      t[i] = x[i] * {factor}
    vector i in {size}:
      y[i] = t[{size - 1} - i] + 1.0
""")
    )
    return made, lambda x: x[::-1] * np.float32(factor) + np.float32(1)


def words(of: Arena) -> Any:
    """Return the words of the slots: occupied or free, address, size."""
    return np.frombuffer(of._slots, np.uint64).reshape(SLOTS, -1)


def test_programs_have_one_memory_of_the_largest_ones_size(own: Arena) -> None:
    small, _ = turned(5000, 2.0)
    assert own.usage() == (20_032, 1)
    large, wanted = turned(50_000, 3.0)
    assert own.usage() == (200_000, 1)
    x = np.arange(50_000, dtype=np.float32)
    np.testing.assert_array_equal(large(x)[0], wanted(x))
    copies = [large.copy() for _ in range(3)]
    assert own.usage() == (200_000, 1)
    np.testing.assert_array_equal(copies[0](x)[0], wanted(x))
    assert not words(own)[:, 0].any()
    enter, out = small.enter, np.empty(5000, np.float32)
    del large, copies, small
    gc.collect()
    assert own.usage() == (20_032, 1)
    assert words(own)[0, 2] == 20_032, "what only the large one wanted has gone"
    assert enter(x[:5000], out) is None
    assert out[0] == 4999 * 2 + 1
    del enter
    gc.collect()
    assert own.usage() == (0, 0)


def test_a_program_without_memory_takes_none(own: Arena) -> None:
    plain = load(
        parse("program p(x: float32[3]) -> (y: float32[3]):\n  for i in 3:\n    y[i] = x[i]\n")
    )
    words(own)[:, 0] = 1
    out = np.empty(3, np.float32)
    assert plain.enter(np.ones(3, np.float32), out) is None
    assert out.tolist() == [1, 1, 1]
    assert own.usage() == (0, 0)


def test_a_slot_that_is_taken_is_left_alone_and_another_one_is_made(own: Arena) -> None:
    small, wanted = turned(5000, 2.0)
    x = np.arange(5000, dtype=np.float32)
    words(own)[0, 0] = 1
    before = words(own)[0].tolist()
    assert small.enter(x, np.empty_like(x)) == BUSY
    np.testing.assert_array_equal(small(x)[0], wanted(x))
    assert own.usage().slots == 2
    large, wanted_of_large = turned(9000, 3.0)
    assert words(own)[0].tolist() == before
    y = np.arange(9000, dtype=np.float32)
    np.testing.assert_array_equal(large(y)[0], wanted_of_large(y))
    words(own)[0, 0] = 0
    np.testing.assert_array_equal(small(x)[0], wanted(x))
    words(own)[:, 0] = 1  # all
    np.testing.assert_array_equal(small(x)[0], wanted(x))
    words(own)[:, 0] = 0
    del small, large
    gc.collect()
    assert own.usage() == (0, 0)


def test_a_small_slot_is_skipped_and_replaced_once_it_is_free(own: Arena) -> None:
    small, _ = turned(5000, 2.0)
    words(own)[0, 0] = 1
    large, wanted = turned(9000, 3.0)
    words(own)[0, 0] = 0  # too small, and free
    y = np.arange(9000, dtype=np.float32)
    assert large.enter(y, np.empty_like(y)) == BUSY
    np.testing.assert_array_equal(large(y)[0], wanted(y))
    assert own.usage() == (36_032, 1)
    assert words(own)[0, 2] == 36_032
    del small


@pytest.mark.parametrize("different", [False, True])
def test_threads_in_programs_at_once_are_right(own: Arena, different: bool) -> None:
    first = turned(30_000, 2.0, 100)
    made = [first, turned(20_000, 3.0, 100) if different else first]
    failed: list[str] = []
    begin = threading.Barrier(4)

    def run(program: NativeProgram, wanted: Callable[[Any], Any], seed: int) -> None:
        size = program.program.inputs[0].shape[0]
        x = np.random.default_rng(seed).normal(size=size).astype(np.float32)
        begin.wait()
        for _ in range(60):
            if not np.array_equal(program(x)[0], wanted(x)):
                failed.append(f"{size} of {seed}")
                return

    threads = [threading.Thread(target=run, args=(*made[at % 2], at)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert 2 <= own.usage().slots <= 4
    assert not words(own)[:, 0].any()


def test_programs_come_and_go_while_others_run(own: Arena) -> None:
    large, wanted = turned(30_000, 2.0, 20)
    x = np.arange(30_000, dtype=np.float32)
    ended = threading.Event()
    failed: list[bool] = []

    def run() -> None:
        while not ended.is_set():
            failed.extend([True] * (not np.array_equal(large(x)[0], wanted(x))))

    thread = threading.Thread(target=run)
    thread.start()
    for size in range(31_000, 31_100):
        other, of_other = turned(size - size % 50, 3.0)
        y = np.arange(size - size % 50, dtype=np.float32)
        assert np.array_equal(other(y)[0], of_other(y))
        del other
    ended.set()
    thread.join()
    assert not failed
    assert own.usage().required_bytes == 120_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_a_fork_has_all_slots() -> None:
    small, wanted = turned(5000, 2.0)
    x, out = np.arange(5000, dtype=np.float32), np.empty(5000, np.float32)
    before = words(ARENA)[:, 0].copy()
    words(ARENA)[:, 0] = 1  # as if threads were there, which the child has not
    try:
        child = os.fork()
        if not child:
            right = small.enter(x, out) is None and np.array_equal(out, wanted(x))
            os._exit(0 if right else 1)
    finally:
        words(ARENA)[:, 0] = before
    assert os.waitpid(child, 0)[1] == 0


def test_no_more_slots_than_there_are(own: Arena) -> None:
    small, _ = turned(5000, 2.0)
    assert [own.grow() for _ in range(SLOTS)] == [True] * (SLOTS - 1) + [False]
    assert own.usage().slots == SLOTS
    del small
    gc.collect()
    assert own.usage() == (0, 0)


def test_what_goes_while_a_slot_gets_memory_is_counted(
    own: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, _ = turned(5000, 2.0)
    large = [turned(50_000, 3.0)[0]]
    pooled = arena._allocate_pooled

    def meanwhile(size: int) -> Any:
        large.clear()
        gc.collect()
        finalizers.settle()
        return pooled(size)

    monkeypatch.setattr(arena, "_allocate_pooled", meanwhile)
    assert own.grow()
    assert words(own)[0, 2] == 20_032
    del small


def test_where_the_system_has_no_memory_the_program_is_refused(
    own: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(size: int) -> Any:
        raise errors.ResourceExhaustedError(f"no {size} bytes")

    kept, _ = turned(5000, 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(arena, "_allocate_pooled", none)
        with pytest.raises(errors.ResourceExhaustedError):
            turned(9000, 3.0)
    gc.collect()
    assert own.usage().required_bytes == 20_032
    x = np.arange(5000, dtype=np.float32)
    assert kept(x)[0][0] == 4999 * 2 + 1
