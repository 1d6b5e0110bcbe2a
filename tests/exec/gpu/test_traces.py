"""Traces of kernels on a GPU, whose times are those of its clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_exec.gpu.gpu_measurement import GpuMarks
from weft_exec.tracing.step_trace import EPOCH, clock
from weft_trace import Kind, LaneKind


@pytest.fixture(autouse=True)
def new_graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def config() -> wf.ConfigProto:
    proto = wf.ConfigProto()
    proto.gpu_options.allow_growth = True
    return proto


def record(path: Path, fetch: Any, steps: int = 3) -> wf.trace.Trace:
    with wf.Session(config=config()) as session:
        session.run(fetch)
        with wf.trace(path):
            for _ in range(steps):
                session.run(fetch)
    return wf.trace.load(path)


def kernels(trace: wf.trace.Trace, *names: str) -> Any:
    """Return the executions of nodes on the GPU, in the lane of the device."""
    numbers = [i for i, node in enumerate(trace.nodes) if node.name in names]
    rows = trace.events[np.isin(trace.events["node"], numbers)]
    rows = rows[rows["kind"] == Kind.KERNEL]
    lanes = {trace.lanes[lane] for lane in rows["lane"]}
    assert {lane.kind for lane in lanes} == {LaneKind.DEVICE}
    assert all(lane.name.endswith("GPU:0") for lane in lanes)
    return rows


def two_products() -> Any:
    with wf.device("/gpu:0"):
        x = wf.random_uniform([64, 64], name="x")
        first = wf.matmul(x, x, name="first")
        return wf.matmul(first, x, name="second")


def test_kernels_have_the_lane_of_their_gpu_and_follow_each_other(
    somewhere: str, tmp_path: Path
) -> None:
    trace = record(tmp_path / "t", two_products())
    assert not trace.warnings
    rows = kernels(trace, "first", "second")
    assert len(rows) == 6
    steps = trace.events[trace.events["kind"] == Kind.STEP]
    for step in range(3):
        first, second = rows[rows["step"] == steps["step"][step]]
        assert steps["start"][step] <= first["ready"] <= first["start"] <= first["end"]
        assert first["end"] <= second["start"] <= second["end"]
    assert (rows["output_bytes"] == 64 * 64 * 4).all()


def test_times_are_those_of_the_marks(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a GPU that takes a second for each kernel, long after the launch."""
    calls: list[int] = []

    def in_seconds(self: GpuMarks) -> list[int]:
        calls.append(clock())
        return [calls[-1] + i * 1_000_000_000 for i in range(len(self._events))]

    monkeypatch.setattr(GpuMarks, "times", in_seconds)
    trace = record(tmp_path / "t", two_products(), steps=1)
    rows = kernels(trace, "first", "second")
    np.testing.assert_array_equal(rows["end"] - rows["start"], [1_000_000_000] * 2)
    assert rows["start"][1] == rows["end"][0]
    assert min(calls) + EPOCH <= rows["start"][0]
    assert (rows["ready"] < rows["start"]).all()


def test_a_step_that_fails_has_the_times_of_the_host(machine: Any, tmp_path: Path) -> None:
    p = wf.placeholder(wf.float32, [None, 4])
    with wf.device("/gpu:0"):
        x = wf.random_uniform([4, 4], name="x")
        y = wf.matmul(wf.matmul(x, x, name="first"), p)
    with (
        wf.Session(config=config()) as session,
        wf.trace(tmp_path / "t"),
        pytest.raises(errors.InvalidArgumentError, match="MatMul"),
    ):
        session.run(y, {p: np.ones((5, 4))})
    (row,) = kernels(wf.trace.load(tmp_path / "t"), "first")
    assert row["start"] <= row["end"]
