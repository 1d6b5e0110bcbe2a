"""Traces of the threads of input pipelines."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_exec.tracing import consumers
from weft_io.streams import prefetching
from weft_trace import Kind


def test_threads_of_a_pipeline_have_lanes_with_their_elements(tmp_path: Path) -> None:
    def slow(value: Any) -> Any:
        time.sleep(0.002)
        return value

    def slowly(number: Any) -> Any:
        return wf.py_func(slow, [number], wf.int64)

    dataset = wf.data.Dataset.range(6).map(slowly, num_parallel_calls=2).prefetch(1)
    element = dataset.make_one_shot_iterator().get_next()
    with wf.trace(tmp_path / "t"), wf.Session() as session:
        assert [session.run(element) for _ in range(6)] == list(range(6))
    trace = wf.trace.load(tmp_path / "t")
    rows = trace.events

    def named(kind: Kind, name: str, op: str) -> Any:
        nodes = [i for i, node in enumerate(trace.nodes) if (node.name, node.op) == (name, op)]
        return rows[(rows["kind"] == kind) & np.isin(rows["node"], nodes)]

    calls = named(Kind.KERNEL, "call for an element", "_ParallelMap")
    elements = named(Kind.KERNEL, "element of ParallelMap", "_Prefetch")
    assert len(calls) == 6
    assert (calls["end"] - calls["start"] >= 2_000_000).all()
    assert 6 <= len(elements) <= 7  # the last request may come after the trace
    (lane,) = set(elements["lane"])
    assert trace.lanes[lane].name == "weft: prefetch"
    assert {trace.lanes[other].name for other in set(calls["lane"]) - {lane}}  # of the pool


def test_a_full_buffer_is_a_wait_of_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Semaphore(0)

    def announced(kind: int, name: str, op: str) -> Any:
        if name == "full buffer":
            waits.release()
        return consumers.record_block(kind, name, op)

    monkeypatch.setattr(prefetching, "record_block", announced)
    element = wf.data.Dataset.range(5).prefetch(1).make_one_shot_iterator().get_next()
    with wf.Session() as session, wf.trace(tmp_path / "t"):
        for _ in range(3):
            session.run(element)
            assert waits.acquire(timeout=60)
    trace = wf.trace.load(tmp_path / "t")
    rows = trace.events[trace.events["kind"] == Kind.WAIT]
    full = [row for row in rows if trace.nodes[row["node"]].name == "full buffer"]
    assert len(full) >= 2
    assert {trace.lanes[row["lane"]].name for row in full} == {"weft: prefetch"}
