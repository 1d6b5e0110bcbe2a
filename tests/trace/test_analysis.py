"""Stragglers, clock offsets, memory and breakdowns of traces whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import EVENT, Kind, Lane, LaneKind, Node, Process, Step, TraceError, Writer, load
from weft_trace.analysis.breakdown import break_down_tasks, op_of, sum_by
from weft_trace.analysis.categories import Category
from weft_trace.analysis.clocks import estimate_offsets, repair_clocks
from weft_trace.analysis.dependencies import resolve_dependencies
from weft_trace.analysis.memory import view_memory
from weft_trace.analysis.steps import StepIndex, representative_steps
from weft_trace.analysis.stragglers import compare_tasks, measure_variation

SEEDS = [pytest.param(s, marks=[] if s < 5 else [pytest.mark.long]) for s in range(100)]


@pytest.mark.parametrize("seed", SEEDS)
def test_straggler_is_found(tmp_path, seed):
    truth = write_cluster(tmp_path / "a", Cluster(random_settings(seed), seed), 3)
    speeds = compare_tasks(StepIndex(load(tmp_path / "a")))
    assert [s.process for s in speeds if s.is_straggler] == [truth.straggler]


def test_equal_tasks_have_no_straggler(tmp_path):
    settings = replace(random_settings(1), straggler=1.0)
    write_cluster(tmp_path / "a", Cluster(settings, 1), 3)
    assert not any(s.is_straggler for s in compare_tasks(StepIndex(load(tmp_path / "a"))))


@pytest.mark.parametrize("seed", SEEDS)
def test_clock_offsets_are_inside_of_their_intervals(tmp_path, seed):
    truth = write_cluster(tmp_path / "a", Cluster(random_settings(seed), seed), 3)
    trace = load(tmp_path / "a")
    for offset, true in zip(estimate_offsets(trace), truth.offsets, strict=True):
        assert offset.low <= true <= offset.high
        assert abs(offset.estimate - true) <= offset.error
        assert offset.error < 20_000_000
    repaired = repair_clocks(trace)
    events = repaired.events
    dependencies = resolve_dependencies(repaired)
    num_received = 0
    for i in np.flatnonzero(events["kind"] == Kind.RECEIVE):
        for transfer in dependencies.of(i):
            for send in dependencies.of(transfer):
                assert events["end"][send] <= events["end"][i]
                num_received += 1
    assert num_received > 10
    for process, true in zip(repaired.processes, truth.offsets, strict=True):
        assert abs(process.clock_offset - true) <= process.clock_error


def one_lane(path, kind=LaneKind.THREAD, nodes=(), rows=(), steps=0):
    with Writer(path) as writer:
        writer.lane(Lane(writer.process(Process("task", 1, "host")), kind, "lane"))
        for node in nodes:
            writer.node(node)
        for i in range(steps):
            writer.step(Step(0, "y", i))
        table = np.zeros(len(rows), EVENT)
        for row, (event_kind, node, start, end, size) in zip(table, rows, strict=True):
            row["kind"], row["node"], row["ready"], row["start"] = event_kind, node, start, start
            row["end"], row["output_bytes"] = end, size
        if not steps:
            table["step"] = 0xFFFFFFFF
        writer.events(table)
    return load(path)


def test_contradicting_messages_are_an_error(tmp_path):
    with Writer(tmp_path / "a") as writer:
        for i in range(2):
            writer.lane(Lane(writer.process(Process(f"{i}", 1, "h")), LaneKind.THREAD, "main"))
            writer.node(Node("s", "_Send"))
            writer.node(Node("r", "_Recv", inputs=(2 * i,)))
        writer.step(Step(0, "y", 0))
        rows = np.zeros(4, EVENT)
        rows["kind"] = [Kind.KERNEL, Kind.RECEIVE] * 2
        rows["node"], rows["lane"] = [0, 1, 2, 3], [0, 1, 1, 0]
        rows["ready"] = rows["start"] = [500, 100, 500, 100]
        rows["end"] = rows["start"] + 1
        writer.events(rows)
    with pytest.raises(TraceError, match="record a shorter one"):
        estimate_offsets(load(tmp_path / "a"))


def test_memory_at_the_peak(tmp_path):
    nodes = [Node("a", "MatMul", line="x.py:1"), Node("b", "Relu"), Node("c", "Sum")]
    rows = [
        (Kind.BUFFER, 0, 0, 10, 100),
        (Kind.BUFFER, 1, 5, 20, 50),
        (Kind.BUFFER, 0, 10, 30, 90),
        (Kind.BUFFER, 1, 12, 13, 70),
        (Kind.BUFFER, 2, 20, 25, 60),
    ]
    (view,) = view_memory(one_lane(tmp_path / "a", LaneKind.MEMORY, nodes, rows))
    assert (view.peak_time, view.peak_bytes) == (12, 210)
    assert view.holders == [(1, 2, 120), (0, 1, 90)]
    assert view.times.tolist() == [0, 5, 10, 12, 13, 20, 25, 30]
    assert view.bytes.tolist() == [100, 150, 140, 210, 140, 150, 90, 0]


def test_memory_view_agrees_with_counters(tmp_path):
    write_cluster(tmp_path / "a", Cluster(random_settings(2), 2), 2)
    trace = load(tmp_path / "a")
    for view in view_memory(trace):
        samples = trace.samples[trace.samples["lane"] == view.lane]
        assert view.peak_bytes == samples["value"].max()
        assert sum(holder.bytes for holder in view.holders) == view.peak_bytes


def test_time_of_tasks_is_that_of_the_step(tmp_path):
    settings = replace(random_settings(4), clock_offset=0)
    truth = write_cluster(tmp_path / "a", Cluster(settings, 4), 3)
    index = StepIndex(load(tmp_path / "a"))
    (span,) = representative_steps(index)
    tasks = break_down_tasks(index, span)
    assert len(tasks) == len(index.trace.processes)
    for totals in tasks.values():
        assert sum(totals.values()) == span.duration and min(totals.values()) >= 0
    busiest = max(tasks, key=lambda p: tasks[p][Category.COMPUTE])
    assert busiest == truth.straggler


def test_first_matching_category_counts(tmp_path):
    nodes = [Node("feed", "_Phase"), Node("compile", "_Phase"), Node("y", "MatMul")]
    rows = [
        (Kind.STEP, 0, 0, 100, -1),
        (Kind.PHASE, 0, 0, 10, -1),
        (Kind.PHASE, 1, 10, 40, -1),
        (Kind.KERNEL, 2, 30, 60, -1),
        (Kind.RECEIVE, 2, 50, 90, -1),
    ]
    index = StepIndex(one_lane(tmp_path / "a", nodes=nodes, rows=rows, steps=1))
    (span,) = index.spans()
    totals = {c: t for c, t in break_down_tasks(index, span)[0].items() if t}
    assert totals == {
        Category.PYTHON: 10,
        Category.COMPILE: 20,
        Category.COMPUTE: 30,
        Category.PEER: 30,
        Category.IDLE: 10,
    }


def test_kernels_are_summed_by_op_and_regions_by_their_kernels(tmp_path):
    nodes = [
        Node("r", "_Region", members=(1, 2)),
        Node("r/a", "MatMul", members=()),
        Node("r/b", "_Generated", members=(3, 4)),
        Node("x", "Add"),
        Node("y", "Relu"),
    ]
    rows = [
        (Kind.REGION, 0, 0, 100, -1),
        (Kind.GENERATED, 1, 0, 70, -1),
        (Kind.GENERATED, 2, 70, 90, -1),
        (Kind.KERNEL, 3, 100, 105, -1),
    ]
    trace = one_lane(tmp_path / "a", nodes=nodes, rows=rows, steps=1)
    totals = sum_by(trace, lambda node: op_of(node, trace.nodes))
    assert [(t.name, t.duration) for t in totals] == [("MatMul", 70), ("Add+Relu", 20), ("Add", 5)]


def test_variation_names_the_op_that_varies(tmp_path):
    rows = []
    for i in range(10):
        slow = 40 if i == 7 else 0
        rows.append((Kind.STEP, 0, 1000 * i, 1000 * i + 100 + slow, -1))
        rows.append((Kind.KERNEL, 1, 1000 * i, 1000 * i + 50, -1))
        rows.append((Kind.KERNEL, 2, 1000 * i + 50, 1000 * i + 90 + slow, -1))
    nodes = [Node("step", "_Step"), Node("a", "MatMul"), Node("b", "Relu")]
    path = tmp_path / "a"
    with Writer(path) as writer:
        writer.lane(Lane(writer.process(Process("task", 1, "host")), LaneKind.THREAD, "lane"))
        for node in nodes:
            writer.node(node)
        table = np.zeros(len(rows), EVENT)
        for i, (kind, node, start, end, _) in enumerate(rows):
            table[i]["kind"], table[i]["node"], table[i]["step"] = kind, node, i // 3
            table[i]["ready"] = table[i]["start"] = start
            table[i]["end"] = end
        for i in range(10):
            writer.step(Step(0, "y", i))
        writer.events(table)
    (variation,) = measure_variation(StepIndex(load(path)))
    assert (variation.median, variation.longest, variation.slowest.step) == (100, 140, 7)
    assert [name for name, _ in variation.causes] == ["Relu"]
