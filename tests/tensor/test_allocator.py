"""The pooled allocator: life of blocks, statistics, limits, threads, and its speed."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from weft_tensor.allocator import ALIGNMENT, AllocatorStatistics, CpuAllocator, cpu_allocator
from weft_tensor.errors import InvalidArgumentError, ResourceExhaustedError

F4 = np.dtype(np.float32)
U1 = np.dtype(np.uint8)
LIMIT = 64 * 1024


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


class AllocatorMachine(RuleBasedStateMachine):
    """Arrays come, are viewed, and go in any order, under a limit."""

    arrays = Bundle("arrays")

    def __init__(self) -> None:
        super().__init__()
        self.pool = CpuAllocator(LIMIT)
        self.live: dict[int, np.ndarray[Any, Any]] = {}
        self.sizes: dict[int, int] = {}
        self.count = 0
        self.served = 0
        self.peak = 0
        self.largest = 0

    def _used(self) -> int:
        return sum(_rounded(size) for size in self.sizes.values())

    @rule(
        target=arrays,
        shape=st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
        dtype=st.sampled_from([U1, F4, np.dtype(np.complex128), np.dtype(ml_dtypes.bfloat16)]),
    )
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> object:
        try:
            array = self.pool.empty(shape, dtype)
        except ResourceExhaustedError as error:
            room = error.details["statistics"]["largest_free_block"]
            assert error.details["requested"] > room
            return multiple()
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert _address(array) % ALIGNMENT == 0
        self.count += 1
        self.served += 1
        array.reshape(-1).view(U1)[:] = self.count % 251
        self.live[self.count] = array
        self.sizes[self.count] = array.nbytes
        self.peak = max(self.peak, self._used())
        self.largest = max(self.largest, _rounded(array.nbytes))
        return self.count

    @rule(key=arrays, how=st.sampled_from(["slice", "reshape", "asarray", "view", "chain"]))
    def keep_a_view_only(self, key: int, how: str) -> None:
        array = self.live[key]
        views = {
            "slice": lambda: array[:1],
            "reshape": lambda: array.reshape(-1),
            "asarray": lambda: np.asarray(array),
            "view": lambda: array.view(array.dtype),
            "chain": lambda: np.asarray(memoryview(array.reshape(-1).view(U1)[:1])[:]),
        }
        self.live[key] = views[how]()

    @rule(key=consumes(arrays))
    def die(self, key: int) -> None:
        del self.live[key], self.sizes[key]

    @rule()
    def coalesce(self) -> None:
        self.pool.coalesce()

    @rule()
    def trim(self) -> None:
        self.pool.trim()

    @invariant()
    def nobody_wrote_into_another(self) -> None:
        for key, array in self.live.items():
            assert (array.reshape(-1).view(U1) == key % 251).all()

    @invariant()
    def statistics_are_right(self) -> None:
        self.pool.check_integrity()
        stats = self.pool.statistics()
        assert stats.bytes_in_use == self._used()
        assert stats.peak_bytes_in_use == self.peak
        assert stats.num_allocs == self.served
        assert stats.largest_alloc == self.largest
        assert stats.bytes_in_use <= stats.bytes_reserved <= LIMIT == stats.bytes_limit
        held = sorted(_rounded(size) for size in self.sizes.values())
        assert sorted(holder.nbytes for holder in self.pool.holders()) == held

    def teardown(self) -> None:
        reserved = self.pool.statistics().bytes_reserved
        self.live.clear()
        self.pool.coalesce()
        stats = self.pool.statistics()
        assert (stats.bytes_in_use, stats.largest_free_block) == (0, reserved)
        self.pool.trim()
        assert self.pool.statistics().bytes_reserved == 0


AllocatorMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAllocator = AllocatorMachine.TestCase


def test_views_of_views_keep_the_block() -> None:
    pool = CpuAllocator()
    array = pool.empty((4, 8), F4)
    array[...] = 7
    view = array[1:3].T.reshape(-1)[2:]
    deep = np.asarray(memoryview(array[2:][0][1:]))
    del array, view
    assert pool.statistics().bytes_in_use == 128
    other = pool.empty((4, 8), F4)
    other[...] = 9
    assert (deep == 7).all()
    del deep
    assert pool.statistics().bytes_in_use == 128
    del other
    assert pool.statistics().bytes_in_use == 0


def test_views_and_copies_of_the_block_itself_are_harmless() -> None:
    pool = CpuAllocator()
    array = pool.empty((32,), F4)
    block: Any = array.base
    parts = [block[:8], block.copy(), block.view(np.ndarray), block.base[:4]]
    del array, block
    assert pool.statistics().bytes_in_use == 128, "a view of the block keeps it"
    del parts
    assert pool.statistics().bytes_in_use == 0
    pool.check_integrity()


def test_a_freed_block_comes_back_for_the_same_size() -> None:
    pool = CpuAllocator()
    first = pool.empty((1000,), F4)
    address = _address(first)
    del first
    assert _address(pool.empty((500, 2), F4)) == address


def test_arrays_outlive_the_allocator() -> None:
    pool = CpuAllocator()
    array = pool.empty((1000,), F4)
    array[...] = 3
    del pool
    gc.collect()
    assert (array == 3).all()


def test_a_dropped_allocator_returns_its_memory() -> None:
    from weft_tensor import allocator as module

    pool = CpuAllocator()
    kept = [pool.empty((100,), F4) for _ in range(3)]
    kept.pop()
    del pool, kept
    gc.collect()
    assert not any(
        isinstance(found, module._Span) and found.size == 448 and found.use[1] is F4
        for found in gc.get_objects()
    )


def test_regions_grow_by_powers_of_two_and_huge_requests_have_their_own() -> None:
    pool = CpuAllocator()
    small = pool.empty((10,), F4)
    assert pool.statistics().bytes_reserved == 1 << 20
    more = pool.empty((1 << 20,), U1)
    assert pool.statistics().bytes_reserved == 2 << 20
    huge = pool.empty((40_000_001,), U1)
    page_rounded = pool.statistics().bytes_reserved - (2 << 20)
    assert 0 <= page_rounded - huge.nbytes < 1 << 16
    del huge
    assert pool.trim() >= page_rounded
    assert pool.statistics().bytes_reserved == 2 << 20
    del small, more
    pool.trim()
    peak = 64 + (1 << 20) + 40_000_064
    assert pool.statistics() == AllocatorStatistics(0, peak, 0, None, 0, 3, 40_000_064)


def test_growing_sizes_do_not_pile_up() -> None:
    pool = CpuAllocator()
    for megabytes in range(40, 80):
        pool.empty((megabytes << 20,), U1)
        assert pool.statistics().bytes_reserved <= 2 * (megabytes + 1) << 20


def test_trim_keeps_what_is_in_use() -> None:
    pool = CpuAllocator(16 << 20)
    low = pool.empty((4 << 20,), U1)
    array = pool.empty((1 << 20,), U1)
    array[...] = 5
    del low
    assert pool.trim() > 8 << 20
    assert (array == 5).all()
    again = pool.empty((4 << 20,), U1)
    again[...] = 6
    assert (array == 5).all()


def test_over_the_limit() -> None:
    pool = CpuAllocator(1 << 20, name="unit")
    kept = [pool.empty((100, 256), F4, f"layer{i}/MatMul") for i in range(3)]
    kept.append(pool.empty((200, 512), F4, "loss"))
    with pytest.raises(ResourceExhaustedError) as caught:
        pool.empty((300, 1000), F4)
    message = str(caught.value)
    for part in ("unit", "1.144 MiB", "float32[300,1000]", "limit is 1 MiB", "700 KiB in use"):
        assert part in message
    assert "400 KiB: float32[200,512] for loss" in message
    assert message.index("for loss") < message.index("for layer0/MatMul")
    details = caught.value.details
    assert details["requested"] == 1_200_000
    assert details["statistics"]["bytes_in_use"] == sum(a.nbytes for a in kept)
    assert details["holders"][0] == {
        "nbytes": 409600,
        "shape": [200, 512],
        "dtype": "float32",
        "label": "loss",
    }
    del kept
    assert pool.empty((100, 1000), F4).shape == (100, 1000), "it goes on working"


def test_the_limit_is_the_sum_and_not_the_pieces() -> None:
    pool = CpuAllocator(1000 * 64)
    kept = [pool.empty((64,), U1) for _ in range(1000)]
    with pytest.raises(ResourceExhaustedError):
        pool.empty((1,), U1)
    del kept[100:200]
    assert pool.empty((6400,), U1).nbytes == 6400


def test_cycles_are_collected_before_giving_up() -> None:
    pool = CpuAllocator(1 << 20)
    cycle: list[Any] = [pool.empty((1 << 20,), U1)]
    cycle.append(cycle)
    del cycle
    assert pool.empty((1 << 20,), U1).nbytes == 1 << 20


def test_the_system_refuses() -> None:
    pool = CpuAllocator()
    with pytest.raises(ResourceExhaustedError, match="system refuses more"):
        pool.empty((1 << 62,), U1)
    with pytest.raises(ResourceExhaustedError):
        pool.empty((1 << 40, 1 << 40), U1)
    assert pool.empty((3,), U1).shape == (3,)


def test_a_finaliser_may_allocate_while_the_pool_is_busy() -> None:
    pool = CpuAllocator()
    array = pool._run_exclusively(lambda: pool.empty((5, 5), F4))
    array[...] = 1
    assert _address(array) % ALIGNMENT == 0
    assert pool.statistics().num_allocs == 0, "it came from elsewhere"


@pytest.mark.parametrize("shape", [(-1,), (-2, -3), (0, -1)])
def test_negative_sizes(shape: tuple[int, ...]) -> None:
    pool = CpuAllocator()
    with pytest.raises(InvalidArgumentError, match="shape"):
        pool.empty(shape, F4)
    assert pool.statistics().bytes_in_use == 0


def test_bad_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 64"):
        CpuAllocator(10)
    pool: Any = CpuAllocator()
    with pytest.raises(InvalidArgumentError, match=r"\[2,\?\]"):
        pool.empty((2, None), F4)
    with pytest.raises(TypeError):
        pool.empty((2,), "no type")


def test_convenient_arguments() -> None:
    pool: Any = CpuAllocator()
    assert pool.empty(3, "float32").shape == (3,)
    assert pool.empty([2, 3], np.int8).dtype == np.int8
    assert pool.empty((), F4).shape == ()


def test_what_the_pool_has_no_part_in() -> None:
    pool = CpuAllocator()
    strings = pool.empty((2, 2), np.dtype(object))
    assert (strings == b"").all()
    assert pool.empty((0, 5), F4).shape == (0, 5)
    assert pool.statistics().num_allocs == 0


def test_peak_can_start_again() -> None:
    pool = CpuAllocator()
    pool.empty((1000,), U1)
    pool.reset_peak()
    assert pool.statistics().peak_bytes_in_use == 0
    assert "0 bytes in use, no limit" in repr(pool)


def test_buffers_come_from_the_pool() -> None:
    pool = CpuAllocator()
    buffer = pool.allocate(100, "state")
    assert (buffer.nbytes, buffer.address % ALIGNMENT) == (100, 0)
    assert pool.holders()[0].label == "state"
    del buffer
    assert pool.statistics().bytes_in_use == 0


def test_the_process_has_one() -> None:
    assert cpu_allocator() is cpu_allocator()
    assert cpu_allocator().statistics().bytes_limit is None


def test_threads_hammer_it() -> None:
    pool = CpuAllocator(8 << 20)
    failures: list[BaseException] = []
    counts = [0] * 8

    def work(number: int) -> None:
        rng = random.Random(number)
        kept: list[tuple[np.ndarray[Any, Any], int]] = []
        try:
            for step in range(800):
                array = pool.empty((rng.randrange(1, 3000),), U1)
                counts[number] += 1
                mark = (number * 31 + step) % 256
                array[...] = mark
                kept.append((array[:], mark))
                if len(kept) > 20:
                    view, mark = kept.pop(rng.randrange(len(kept)))
                    assert (view == mark).all()
                if step % 200 == 0:
                    pool.trim()
                    pool.check_integrity()
        except BaseException as error:  # because a thread's failure must reach the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    stats = pool.statistics()
    assert stats.num_allocs == sum(counts) == 8 * 800
    assert stats.bytes_in_use == 0
    pool.coalesce()
    assert pool.statistics().largest_free_block == pool.statistics().bytes_reserved


def test_arrays_die_in_other_threads() -> None:
    pool = CpuAllocator()
    box = [pool.empty((100,), F4) for _ in range(50)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert pool.statistics().bytes_in_use == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_its_own_memory_and_a_free_lock() -> None:
    pool = CpuAllocator()
    array = pool.empty((1000,), U1)
    array[...] = 1
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            pool.empty((500,), U1)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        child = os.fork()
        if child == 0:
            array[...] = 2
            pool.empty((1000,), U1)
            os._exit(0)
        assert _exit_status(child) == 0
    finally:
        stop.set()
        thread.join()
    assert (array == 1).all()


def _exit_status(child: int) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def _best(run: Any, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def test_reusing_16_megabytes_is_20_times_faster_than_fresh_memory() -> None:
    pool = CpuAllocator()
    shape = (2048, 2048)
    pool.empty(shape, F4).fill(0)
    reused = _best(lambda: pool.empty(shape, F4), 200)
    fresh = _best(lambda: np.empty(shape, F4).fill(0), 10)
    assert fresh > 20 * reused, f"fresh {fresh * 1e6:.1f} µs, reused {reused * 1e6:.1f} µs"
