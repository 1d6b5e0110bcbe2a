"""Traces of compiled regions: the times of generated kernels, and shares where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph import proto
from weft_trace import Flag, Kind
from weft_trace.trace import Trace


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("weft_compiler")
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        yield


def names(trace: Trace, nodes: Any) -> list[str]:
    return [trace.nodes[node].name for node in nodes]


def rows(trace: Trace, kind: Kind) -> Any:
    return trace.events[trace.events["kind"] == kind]


def two_layers() -> tuple[Any, Any]:
    x = wf.placeholder(wf.float32, [None, 16], name="x")
    w = wf.constant(np.eye(16, dtype=np.float32))
    hidden = wf.nn.relu(wf.matmul(x, w, name="first"), name="hidden")
    return x, wf.matmul(hidden, w, name="second")


def recorded(path: Path, fetches: Any, feeds: Any) -> Trace:
    with wf.Session() as session:
        session.run(fetches, feeds)  # compiles
        with wf.trace(path):
            for _ in range(2):
                session.run(fetches, feeds)
    return wf.trace.load(path)


def test_generated_kernels_are_measured_and_name_their_nodes(tmp_path: Path) -> None:
    x, y = two_layers()
    trace = recorded(tmp_path / "t", y, {x: np.ones((4, 16))})
    regions, kernels = rows(trace, Kind.REGION), rows(trace, Kind.GENERATED)
    assert len(regions) == 2 and len(kernels) >= 4
    assert set(names(trace, trace.nodes[regions[0]["node"]].members)) == {
        "first", "hidden", "second",
    }  # fmt: skip
    assert set(trace.nodes[regions[0]["node"]].origins) == {"first", "hidden", "second"}
    for region in regions:
        inside = kernels[kernels["step"] == region["step"]]
        assert region["start"] <= inside["start"][0] and inside["end"][-1] <= region["end"]
        assert (inside["start"][1:] == inside["end"][:-1]).all()
        members = [set(names(trace, trace.nodes[node].members)) for node in inside["node"]]
        assert members[0] >= {"first"} and members[-1] >= {"second"}
        assert set.union(*members) == {"first", "hidden", "second"}
        assert not (inside["flags"] & Flag.ESTIMATED).any()
    assert all(trace.nodes[node].line.startswith(__file__) for node in kernels["node"])


def test_concurrent_calls_have_readings_of_their_own(tmp_path: Path) -> None:
    x, y = two_layers()
    with wf.Session() as session:
        call = session.make_callable(y, [x])
        call(np.ones((4, 16)))
        with wf.trace(tmp_path / "t"), ThreadPoolExecutor(4) as pool:
            list(pool.map(call, [np.ones((4, 16))] * 40))
    trace = wf.trace.load(tmp_path / "t")
    regions, kernels = rows(trace, Kind.REGION), rows(trace, Kind.GENERATED)
    assert len(regions) == 40
    for region in regions:
        inside = kernels[kernels["step"] == region["step"]]
        assert (inside["start"] >= region["start"]).all() and (inside["end"] <= region["end"]).all()


def test_members_of_a_region_with_one_kernel_have_estimated_shares(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [None], name="x")
    y = wf.tanh(wf.square(x, name="square"), name="tanh")
    trace = recorded(tmp_path / "t", y, {x: np.ones(1000)})
    (region, _), members = rows(trace, Kind.REGION), rows(trace, Kind.KERNEL)
    inside = members[members["step"] == region["step"]]
    assert names(trace, inside["node"]) == ["square", "tanh"]
    assert (inside["flags"] & Flag.ESTIMATED).all()
    assert inside["end"][-1] == region["end"]


def test_statistics_of_a_step_share_the_times_of_kernels() -> None:
    x, y = two_layers()
    metadata = wf.RunMetadata()
    options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
    with wf.Session() as session:
        session.run(y, {x: np.ones((4, 16))}, options=options, run_metadata=metadata)
    (device,) = metadata.step_stats.dev_stats
    labels = {stats.node_name: stats.timeline_label for stats in device.node_stats}
    assert labels.keys() == {"first", "hidden", "second"}
    assert all("estimated" in label for label in labels.values())


def test_compiling_is_a_phase_of_the_step_that_waits_for_it(tmp_path: Path) -> None:
    x, y = two_layers()
    with wf.Session() as session, wf.trace(tmp_path / "t"):
        session.run(y, {x: np.ones((4, 16))})
    trace = wf.trace.load(tmp_path / "t")
    (step,) = rows(trace, Kind.STEP)
    phases = rows(trace, Kind.PHASE)
    compiling = phases[[name == "compile" for name in names(trace, phases["node"])]]
    assert len(compiling) and set(compiling["step"]) == {step["step"]}


def test_a_compiled_loop_is_one_event(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [8], name="x")
    _, y = wf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.5), [0, x])
    trace = recorded(tmp_path / "t", y, {x: np.ones(8)})
    loops = [row for row in rows(trace, Kind.REGION) if trace.nodes[row["node"]].op == "_Loop"]
    assert len(loops) == 2 and trace.nodes[loops[0]["node"]].name == "while/while_context"
