"""Inputs are looked up in the right iteration of the same step."""

from dataclasses import replace

import numpy as np
import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import (
    EVENT,
    Crossing,
    Iteration,
    Kind,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
    Writer,
    load,
)
from weft_trace.analysis.dependencies import resolve_dependencies

LOOP = [
    Node("x", "Const"),
    Node("Enter", "Enter", inputs=(0,)),
    Node("w", "Enter", inputs=(0,)),
    Node("Merge", "Merge", inputs=(1, 6), crossing=Crossing.PREVIOUS),
    Node("Switch", "Switch", inputs=(3,)),
    Node("body", "MatMul", inputs=(4, 2)),
    Node("Next", "NextIteration", inputs=(5,)),
    Node("Exit", "Exit", inputs=(4,), crossing=Crossing.INNER),
    Node("y", "Neg", inputs=(7,)),
]


def trace_of(path, nodes, executions, iterations=(), steps=1):
    """A trace of executions (iteration, node) in order, in each of the steps."""
    with Writer(path) as writer:
        writer.lane(Lane(writer.process(Process("task", 1, "host")), LaneKind.THREAD, "main"))
        for node in nodes:
            writer.node(node)
        for iteration in iterations:
            writer.iteration(iteration)
        rows = np.zeros(len(executions) * steps, EVENT)
        for s in range(steps):
            writer.step(Step(0, "y", s))
        rows["kind"] = Kind.KERNEL
        rows["step"] = np.repeat(np.arange(steps), len(executions))
        rows["iteration"] = np.tile([i for i, _ in executions], steps)
        rows["node"] = np.tile([n for _, n in executions], steps)
        rows["ready"] = rows["start"] = np.arange(len(rows)) * 10
        rows["end"] = rows["start"] + 5
        writer.events(rows)
    return load(path)


def edges(trace):
    """The edges as pairs of (iteration, node), per step."""
    dependencies = resolve_dependencies(trace)
    result = set()
    for i, event in enumerate(trace.events):
        for p in dependencies.of(i):
            producer = trace.events[p]
            assert producer["step"] == event["step"]
            result.add((
                (int(producer["iteration"]), int(producer["node"])),
                (int(event["iteration"]), int(event["node"])),
            ))  # fmt: skip
    return result


@pytest.mark.parametrize("enter", [0, 1], ids=["enter-outside", "enter-in-iteration-0"])
def test_loop(tmp_path, enter):
    body = [(i, n) for i in (1, 2) for n in (3, 4, 5, 6)]
    executions = [(0, 0), (enter, 1), (enter, 2), *body, (3, 3), (3, 4), (0, 7), (0, 8)]
    iterations = [Iteration("while", k) for k in range(3)]
    trace = trace_of(tmp_path / "a", LOOP, executions, iterations, steps=3)
    expected = {
        ((0, 0), (enter, 1)),
        ((0, 0), (enter, 2)),
        ((enter, 1), (1, 3)),
        ((1, 6), (2, 3)),
        ((2, 6), (3, 3)),
        ((3, 4), (0, 7)),
        ((0, 7), (0, 8)),
    }
    for i in (1, 2, 3):
        expected.add(((i, 3), (i, 4)))
    for i in (1, 2):
        expected |= {((i, 4), (i, 5)), ((enter, 2), (i, 5)), ((i, 5), (i, 6))}
    if enter:  # the edge of an Enter that is recorded inside of the loop cannot be told from others
        expected.add(((1, 1), (2, 3)))
    assert edges(trace) == expected


def test_nodes_without_events_stand_for_their_inputs(tmp_path):
    """Enter, Merge, Switch, NextIteration and Exit need no kernel."""
    executions = [(0, 0), (1, 5), (2, 5), (3, 5), (0, 8)]
    iterations = [Iteration("while", k) for k in range(4)]
    assert edges(trace_of(tmp_path / "a", LOOP, executions, iterations, steps=2)) == {
        ((0, 0), (1, 5)),
        ((0, 0), (2, 5)),  # the loop invariant
        ((0, 0), (3, 5)),
        ((1, 5), (2, 5)),
        ((2, 5), (3, 5)),
        ((3, 5), (0, 8)),
        ((0, 0), (0, 8)),  # the result if the loop has no iteration
    }


def test_members_run_instead_of_their_region(tmp_path):
    """The first step runs a region's members by kernels, the second one compiled code."""
    nodes = [
        Node("x", "Const"),
        Node("region", "_Region", inputs=(0,), members=(2, 3, 4)),
        Node("a", "MatMul", inputs=(0,)),
        Node("b", "Tanh", inputs=(2,)),
        Node("c", "Neg", inputs=(2,)),
        Node("send", "_Send", inputs=(1,)),
    ]
    kernels = {(0, 0), (0, 2), (0, 3), (0, 4), (0, 5)}
    by_kernels = edges(trace_of(tmp_path / "a", nodes, sorted(kernels)))
    assert by_kernels == {
        ((0, 0), (0, 2)),
        ((0, 2), (0, 3)),
        ((0, 2), (0, 4)),
        ((0, 3), (0, 5)),
        ((0, 4), (0, 5)),
        ((0, 0), (0, 5)),  # of a region without events
    }
    compiled = edges(trace_of(tmp_path / "b", nodes, [(0, 0), (0, 1), (0, 5)]))
    assert compiled == {((0, 0), (0, 1)), ((0, 1), (0, 5))}


def test_trip_counts_differ_between_steps(tmp_path):
    path = tmp_path / "a"
    nodes = LOOP
    with Writer(path) as writer:
        writer.lane(Lane(writer.process(Process("task", 1, "host")), LaneKind.THREAD, "main"))
        for node in nodes:
            writer.node(node)
        for k in range(4):
            writer.iteration(Iteration("while", k))
        time = 0
        for step, trips in enumerate((3, 1)):
            writer.step(Step(0, "y", step))
            executions = [(i, 4) for i in range(1, trips + 1)] + [(0, 7)]
            rows = np.zeros(len(executions), EVENT)
            rows["kind"], rows["step"] = Kind.KERNEL, step
            rows["iteration"], rows["node"] = np.array(executions).T
            rows["ready"] = rows["start"] = rows["end"] = np.arange(time, time + len(rows))
            time += len(rows)
            writer.events(rows)
    trace = load(path)
    dependencies = resolve_dependencies(trace)
    exits = np.flatnonzero(trace.events["node"] == 7)
    lasts = [trace.events[dependencies.of(i)]["iteration"].tolist() for i in exits]
    assert lasts == [[3], [1]]


@pytest.mark.parametrize("seed", range(5))
def test_edges_of_clusters_point_forwards_in_time(tmp_path, seed):
    path = tmp_path / "a"
    settings = replace(random_settings(seed), clock_offset=0)
    write_cluster(path, Cluster(settings, seed), 3)
    trace = load(path)
    events = trace.events
    dependencies = resolve_dependencies(trace)
    consumers = np.repeat(np.arange(len(events)), np.diff(dependencies.offsets))
    starts = np.where(
        events["kind"] == Kind.RECEIVE, events["end"], events["start"]
    )  # a Receive waits after its start
    assert (events["end"][dependencies.producers] <= starts[consumers]).all()
    # All inputs that ran in a step are found, but Enters and NextIterations are alternatives.
    kernels = np.isin(events["kind"], [Kind.KERNEL, Kind.REGION, Kind.TRANSFER, Kind.RECEIVE])
    expected = np.array([len(trace.nodes[n].inputs) for n in events["node"]])
    is_merge = np.array([trace.nodes[n].op == "Merge" for n in events["node"]])
    expected[is_merge] = 1
    is_chosen = np.array([trace.nodes[n].name.endswith("Tanh") for n in events["node"]])
    counts = np.diff(dependencies.offsets)
    checked = kernels & ~is_chosen
    np.testing.assert_array_equal(counts[checked], expected[checked])


def test_subset_of_steps(tmp_path):
    trace = trace_of(tmp_path / "a", LOOP[:2], [(0, 0), (0, 1)], steps=3)
    some = np.flatnonzero(trace.events["step"] == 1)
    dependencies = resolve_dependencies(trace, some)
    assert dependencies.producers.tolist() == [2]
    assert dependencies.of(3).tolist() == [2] and not len(dependencies.of(1))
