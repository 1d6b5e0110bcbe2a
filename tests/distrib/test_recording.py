"""Traces of whole clusters: all tasks in one file, on one clock."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import jobs, servers
from weft_testing.waiting import wait_until

import weft as wf
from weft_distrib.client import recording, target as target_module
from weft_distrib.client.recording import record_trace
from weft_distrib.commands.record import add
from weft_distrib.master.recording import (
    Clock,
    TaskRecords,
    _drop_unrecorded_steps,
    repair_clocks,
)
from weft_distrib.worker.tracing import Transfer
from weft_exec.tracing.remote_tasks import WholeStep, clock_offset, matching_steps
from weft_tensor import errors
from weft_trace import EVENT, SAMPLE, Kind, Step
from weft_trace.trace import Trace

PS, W0 = "/job:ps/task:0", "/job:worker/task:0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Any]]:
    with servers(jobs(ps=1, worker=1)) as tasks:
        yield tasks


def loop_over_two_tasks() -> tuple[Any, Any]:
    with wf.device(PS):
        w = wf.get_variable("w", [16, 16])
    with wf.device(W0):
        x = wf.placeholder(wf.float32, [4, 16], name="x")

        def body(i: Any, state: Any) -> Any:
            with wf.device(PS):
                product = wf.matmul(state, w, name="product")
            with wf.device(W0):
                return i + 1, wf.tanh(product)

        _, state = wf.while_loop(lambda i, _: i < 5, body, [0, x])
        return x, wf.reduce_sum(state, name="total")


def recorded(target: str, session_target: str, path: Path, steps: int) -> Trace:
    """Record steps of a session that runs until the recording has ended."""
    with wf.Graph().as_default():
        x, total = loop_over_two_tasks()
        with wf.Session(session_target) as session:
            session.run(wf.global_variables_initializer())
            session.run(total, {x: np.ones((4, 16))})
            thread = threading.Thread(target=record_trace, args=(target, steps, path))
            thread.start()
            while thread.is_alive():
                session.run(total, {x: np.ones((4, 16))})
            thread.join()
    return wf.trace.load(path)


def test_all_tasks_are_recorded_on_one_clock(cluster: Any, tmp_path: Path) -> None:
    worker = cluster[1]
    trace = recorded(worker.target, worker.target, tmp_path / "t", 3)
    assert {process.name for process in trace.processes} == {
        "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0",
    }  # fmt: skip
    assert trace.processes[0].clock_error == 0 < trace.processes[1].clock_error < 10**8
    events = trace.events
    whole = events[events["kind"] == Kind.STEP]
    assert len(whole) >= 2  # the first one may have begun before
    assert {trace.steps[step].label for step in whole["step"]} == {"total fed x"}
    links = {trace.lanes[lane].name for lane in events["lane"][events["kind"] == Kind.TRANSFER]}
    assert any("/job:ps" in name.split("→")[0] for name in links)
    products = [
        row for row in events[events["kind"] == Kind.KERNEL]
        if trace.nodes[row["node"]].name == "while/product"
    ]  # fmt: skip
    numbers = sorted(
        trace.iterations[row["iteration"]].number
        for row in products
        if row["step"] == products[0]["step"]
    )
    assert numbers == [0, 1, 2, 3, 4]


def test_no_receive_ends_before_its_send(cluster: Any, tmp_path: Path) -> None:
    worker = cluster[1]
    trace = recorded(worker.target, worker.target, tmp_path / "t", 2)
    rows = trace.events
    sends = {
        (row["step"], row["iteration"], row["node"]): row["end"]
        for row in rows
        if trace.nodes[row["node"]].op == "_Send"
    }
    checked = 0
    for row in rows[rows["kind"] == Kind.RECEIVE]:
        for transfer in trace.nodes[row["node"]].inputs:
            for send in trace.nodes[transfer].inputs:
                end = sends.get((row["step"], row["iteration"], send))
                if end is not None:
                    checked += 1
                    assert end <= row["end"]
    assert checked >= 10


def test_one_recording_at_a_time_and_bounds(cluster: Any, tmp_path: Path) -> None:
    target = cluster[1].target
    for steps, seconds in ((0, 1.0), (10**6, 1.0), (1, 0.0), (1, 10**4)):
        with pytest.raises(errors.InvalidArgumentError):
            record_trace(target, steps, tmp_path / "t", seconds)
    thread = threading.Thread(target=record_trace, args=(target, 1, tmp_path / "t", 2.0))
    thread.start()
    wait_until(lambda: cluster[1]._worker.recording is not None)
    with pytest.raises(errors.FailedPreconditionError, match="already"):
        record_trace(target, 1, tmp_path / "u", 1.0)
    thread.join()
    assert not wf.trace.load(tmp_path / "t").warnings
    assert all(server._worker.recording is None for server in cluster)


def test_the_command_records_a_file(cluster: Any, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add(parser)
    path = str(tmp_path / "t")
    arguments = parser.parse_args([cluster[0].target, path, "--seconds", "0.1"])
    assert arguments.run(arguments) == 0
    assert len(wf.trace.load(path).processes) == 2


@pytest.mark.parametrize("link", ["local", "remote"])
def test_a_trace_in_a_client_has_all_tasks(
    cluster: Any, tmp_path: Path, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if link == "remote":  # as if the servers were in other processes
        monkeypatch.setattr(target_module, "find_server", lambda target: None)
    path = tmp_path / "t"
    with wf.Graph().as_default():
        x, total = loop_over_two_tasks()
        with wf.trace(path), wf.Session(cluster[1].target) as session:
            session.run(wf.global_variables_initializer())
            for _ in range(3):
                session.run(total, {x: np.ones((4, 16))})
        assert all(server._worker.recording is None for server in cluster)
    trace = wf.trace.load(path)
    assert not trace.warnings
    assert [process.name for process in trace.processes] == [
        "/job:localhost/task:0", "/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0",
    ]  # fmt: skip
    events = trace.events
    steps = events[events["kind"] == Kind.STEP]
    labels = [trace.steps[step].label for step in steps["step"]]
    assert labels[1:] == ["total fed x"] * 3 and len(labels) == 4
    for step in steps[1:]:
        inside = events[events["step"] == step["step"]]
        products = [row for row in inside if trace.nodes[row["node"]].name == "while/product"]
        assert len(products) == 5
        assert len(inside[inside["kind"] == Kind.TRANSFER]) >= 5
        assert all(step["start"] <= row["start"] <= row["end"] <= step["end"] for row in products)


def test_a_client_notes_that_another_trace_is_recorded(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    thread = threading.Thread(
        target=record_trace, args=(cluster[1].target, 20, tmp_path / "u", 200.0)
    )
    thread.start()
    wait_until(lambda: cluster[1]._worker.recording is not None)
    with wf.Graph().as_default():
        y = wf.random_uniform([2])
        with wf.trace(tmp_path / "t"), wf.Session(cluster[1].target) as session:
            for _ in range(20):
                session.run(y)
    thread.join()
    assert "lacks the tasks of a session" in caplog.text
    assert len(wf.trace.load(tmp_path / "t").processes) == 1


def test_a_recording_that_fails_leaves_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_CONNECT_SECONDS", 0.2)  # the cluster runs, so it is short
    old = tmp_path / "old"
    old.write_bytes(b"a trace")
    for path in (old, tmp_path / "new"):
        with pytest.raises(errors.UnavailableError, match=r"localhost:1 within 0\.2 s"):
            record_trace("grpc://localhost:1", 10, path)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_bytes() == b"a trace"


def test_steps_that_no_task_recorded_are_left_out() -> None:
    trace = Trace([], [], [], [], [Step(0, "b", 0)], np.zeros(0, EVENT), np.zeros(0, SAMPLE), [])
    steps = [("a", "y", 1, 2, False), ("b", "y", 3, 4, False)]
    tasks = [
        TaskRecords(Clock(0, 0), trace._replace(steps=[]), [], steps),
        TaskRecords(Clock(0, 0), trace, [], []),
    ]
    assert [task.steps for task in _drop_unrecorded_steps(tasks)] == [steps[1:], []]


def test_steps_bound_the_offset_of_clocks() -> None:
    def steps(*times: tuple[int, int], label: str = "y") -> list[WholeStep]:
        return [WholeStep(i, label, *both) for i, both in enumerate(times)]

    here = steps((100, 200), (300, 400), (500, 600))
    there = steps((1110, 1190), (1304, 1390), (1520, 1597))
    pairs = matching_steps(here, there)
    offset, error = clock_offset(pairs)
    assert (offset, error) == (1000, 4)  # from 597 - 600 + 1000 to 304 - 300 + 1000
    assert matching_steps(here, there[:2]) == list(zip(here, there[:2], strict=False))
    assert matching_steps(here[:2], there) == []
    assert matching_steps(here, steps((1110, 1190), label="z")) == []


def test_nodes_of_all_tasks_lead_back_to_the_graph_of_the_user(
    cluster: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [3], name="x")
        with wf.device(PS):
            first, second = wf.square(x, name="first"), wf.square(x, name="second")
            y = wf.add(first, wf.multiply(second, 2.0), name="y")
        with wf.Session(cluster[1].target) as session:
            session.run(y, {x: np.ones(3)})
            thread = threading.Thread(target=record_trace, args=(cluster[0].target, 2, path))
            thread.start()
            while thread.is_alive():
                session.run(y, {x: np.ones(3)})
            thread.join()
    trace = wf.trace.load(path)
    rows = trace.events[trace.events["kind"] == Kind.KERNEL]
    squares = {node for node in rows["node"] if trace.nodes[node].op == "Square"}
    (square,) = [trace.nodes[node] for node in squares]
    assert set(square.origins) == {"first", "second"}
    assert square.line.rpartition(":")[0] == __file__


def test_offsets_move_until_no_value_arrives_before_it_left() -> None:
    def records(offset: int, *transfers: Transfer) -> TaskRecords:
        trace = Trace([], [], [], [], [], np.zeros(0), np.zeros(0), [])
        return TaskRecords(Clock(offset, 50), trace, [("s", item) for item in transfers], [])

    tasks = [
        records(0, Transfer("a;b;x", 1000), Transfer("b;a;y", 1300, 1, "socket")),
        records(100, Transfer("a;b;x", 1060, 1, "socket"), Transfer("b;a;y", 1200)),
    ]
    first, second = repair_clocks(tasks)
    assert first == Clock(0, 0)
    assert 1060 - second.offset >= 1000 and second.offset >= 1200 - 1300
    assert abs(second.offset - 100) <= second.error


def test_an_unwritable_file_is_an_error_before_the_recording(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        record_trace("grpc://127.0.0.1:1", 2, tmp_path / "missing" / "a.weft-trace")
