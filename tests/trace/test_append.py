"""Adding a trace to a file that is being written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weft_trace.append import append_trace
from weft_trace.reader import load
from weft_trace.schema import (
    EVENT,
    NO_STEP,
    SAMPLE,
    Iteration,
    Kind,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
)
from weft_trace.writer import Writer


def write(path: Path, process: str, start: int) -> None:
    """Write a trace of a step with a kernel in a loop, and an event outside of steps."""
    with Writer(path) as writer:
        task = writer.process(Process(process, 1, "host", 5, 1))
        lane = writer.lane(Lane(task, LaneKind.THREAD, f"thread of {process}"))
        step = writer.step(Step(task, "y", 0))
        nodes = [writer.node(Node(f"{process}/{i}", "Op", inputs=(1 - i,))) for i in range(2)]
        iteration = writer.iteration(Iteration("while", 3))
        rows: list[Any] = [
            (Kind.STEP, 0, lane, nodes[0], step, 0, start, start, start + 50, -1, -1),
            (Kind.KERNEL, 0, lane, nodes[1], step, iteration, start, start + 10, start + 20, 4, 8),
            (
                Kind.PYTHON,
                0,
                lane,
                nodes[0],
                NO_STEP,
                0,
                start + 60,
                start + 60,
                start + 70,
                -1,
                -1,
            ),
        ]
        writer.events(np.array(rows, EVENT))
        writer.samples(np.array([(lane, 0, start + 5, 7)], SAMPLE))


def test_records_get_new_ids_and_times_move(tmp_path: Path) -> None:
    write(tmp_path / "other", "other", 1100)
    path = tmp_path / "t"
    with Writer(path) as writer:
        task = writer.process(Process("own", 2, "host"))
        writer.lane(Lane(task, LaneKind.THREAD, "own thread"))
        writer.node(Node("own", "Op"))
        writer.iteration(Iteration("other loop", 0))
        own = writer.step(Step(task, "own", 0))
        append_trace(writer, load(tmp_path / "other"), offset=1000, error=3)
        append_trace(writer, load(tmp_path / "other"), offset=0, steps={0: own})
    trace = load(path)
    assert not trace.warnings
    assert [(p.clock_offset, p.clock_error) for p in trace.processes[1:]] == [(1005, 4), (5, 1)]
    moved = trace.events[trace.events["start"] < 1000]
    assert [int(row["start"]) for row in moved] == [100, 110, 160]
    for row in trace.events:
        lane, node = trace.lanes[row["lane"]], trace.nodes[row["node"]]
        assert lane.name == "thread of other" and node.name.startswith("other/")
        (source,) = node.inputs
        assert {node.name, trace.nodes[source].name} == {"other/0", "other/1"}
    kernels = trace.events[trace.events["kind"] == Kind.KERNEL]
    assert {trace.iterations[row["iteration"]].frame for row in kernels} == {"while"}
    assert [trace.steps[row["step"]].label for row in kernels] == ["y", "own"]
    assert (trace.events["kind"] == Kind.STEP).sum() == 1  # the other one is the writer's own
    assert list(trace.samples["time"]) == [105, 1105]
    assert {trace.lanes[row["lane"]].process for row in trace.samples} == {1, 2}
