"""Readings of the clock in native code."""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Any
from weakref import ref

import numpy as np
import pytest

from weft_compiler.native.trace_clock import clock_reader
from weft_graph.ir.code_generators import ClockReader


@pytest.fixture
def reader() -> ClockReader:
    result = clock_reader()
    if result is None:
        pytest.skip("this system has no native readings")
    return result


def test_readings_bound_the_time_of_each_item(reader: ClockReader) -> None:
    for _ in range(50):  # others may use the processor in between
        expected = [time.perf_counter_ns()]
        readings = reader.begin([0, 1, 2])
        for item in readings:
            time.sleep(item * 1e-3)
            expected.append(time.perf_counter_ns())
        expected.append(time.perf_counter_ns())
        times = np.frombuffer(readings, np.int64)
        assert len(readings) == len(times) == 4
        assert (np.diff(times) >= [0, 1e6, 2e6]).all()
        if np.abs(times - expected[:4]).max() < 20_000:
            return
    pytest.fail(f"readings {times} differ from {expected}")


def test_a_list_that_is_cleared_ends_the_iteration(reader: ClockReader) -> None:
    items = [1, 2, 3]
    readings = reader.begin(items)
    assert next(readings) == 1
    items.clear()
    assert list(readings) == [] == list(readings)
    assert len(readings) == 2


def test_a_failure_adds_a_reading_and_a_mark(reader: ClockReader) -> None:
    readings = reader.begin(["only"])
    next(readings)
    reader.fail(readings)
    times = np.frombuffer(readings, np.int64)
    assert times[0] <= times[1] and list(times[2:]) == [-1]
    assert list(readings) == []


def test_readings_release_what_they_refer_to(reader: ClockReader) -> None:
    class Items(list[Any]):
        pass

    items = Items(range(100))
    name, released = object(), ref(items)
    items.append(name)
    before = sys.getrefcount(name)
    readings = reader.begin(items)
    assert list(readings)[-1] is name
    assert sys.getrefcount(name) == before
    view = memoryview(readings)
    del readings, items
    assert released() is not None and len(view) == 8 * 102  # a view keeps the readings
    del view
    gc.collect()
    assert released() is None


def test_threads_have_readings_of_their_own(reader: ClockReader) -> None:
    results: list[Any] = []

    def iterate() -> None:
        for _ in range(200):
            readings = reader.begin(list(range(50)))
            assert list(readings) == list(range(50))
            results.append(np.frombuffer(readings, np.int64))

    threads = [threading.Thread(target=iterate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 800
    assert all(len(times) == 51 and (np.diff(times) >= 0).all() for times in results)
