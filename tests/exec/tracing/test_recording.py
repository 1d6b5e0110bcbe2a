"""Recordings of `wf.trace` about the steps of local sessions."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from weft_testing.traces import record_training

import weft as wf
from weft_exec.resources.resources import VariableState, Waiters
from weft_exec.tracing import clock_readings, consumers
from weft_graph import proto
from weft_graph.functions.defun import Defun
from weft_graph.ir.code_generators import generators
from weft_tensor import dtypes
from weft_trace import SERIES, Flag, Kind
from weft_trace.trace import Trace
from weft_trace.writer import Writer


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as graph:
        yield graph


def events(trace: Trace, kind: Kind, name: str | None = None) -> Any:
    """Return the events of a kind, and of a node."""
    rows = trace.events[trace.events["kind"] == kind]
    if name is None:
        return rows
    return rows[[trace.nodes[node].name == name for node in rows["node"]]]


def recorded(path: Path, fetches: Any, feeds: Any = None, config: Any = None) -> Trace:
    """Return the trace of one step of a new session."""
    with wf.trace(path), wf.Session(config=config) as session:
        session.run(fetches, feeds)
    return wf.trace.load(path)


def in_order() -> Any:
    """Return the config of a session that runs nodes one after the other."""
    return wf.ConfigProto(inter_op_parallelism_threads=1)


def test_a_step_has_phases_and_kernels_with_lines_and_sizes(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [None, 3], name="x")
    y = wf.matmul(x, wf.ones([3, 4]), name="y")
    trace = recorded(tmp_path / "t", wf.negative(y, name="z"), {x: np.ones((5, 3))}, in_order())
    (step,) = events(trace, Kind.STEP)
    assert trace.steps[step["step"]].label == "z fed x"
    phases = {trace.nodes[row["node"]].name for row in events(trace, Kind.PHASE)}
    assert phases == {"plan", "feed", "fetch"}
    (product,) = events(trace, Kind.KERNEL, "y")
    (negative,) = events(trace, Kind.KERNEL, "z")
    node = trace.nodes[product["node"]]
    assert node.op == "MatMul" and node.device.endswith("CPU:0")
    assert node.line.rpartition(":")[0] == __file__
    assert product["output_bytes"] == 5 * 4 * 4 and negative["input_bytes"] == 5 * 4 * 4
    assert product["end"] <= negative["ready"] == product["end"] <= negative["start"]
    assert product["node"] in trace.nodes[negative["node"]].inputs
    inside = trace.events[trace.events["step"] == step["step"]]
    assert (inside["start"] >= step["start"]).all() and (inside["end"] <= step["end"]).all()
    assert (trace.events["ready"] <= trace.events["start"]).all()
    assert (trace.events["start"] <= trace.events["end"]).all()


@pytest.mark.parametrize("overlap", ["line", "queue"])
def test_iterations_of_a_loop_are_exact(tmp_path: Path, overlap: str) -> None:
    results = wf.while_loop(
        lambda i, a: i < 5,
        lambda i, a: (i + 1, wf.tanh(wf.matmul(a, a, name="product"), name="tanh")),
        [0, wf.ones([8, 8])],
    )
    config = in_order() if overlap == "line" else wf.ConfigProto()
    if overlap == "queue":
        config.experimental.executor_type = "READY_QUEUE"
    trace = recorded(tmp_path / "t", results, None, config)
    ends = {}
    for name in ("while/product", "while/tanh"):
        rows = events(trace, Kind.KERNEL, name)
        iterations = [trace.iterations[row["iteration"]] for row in rows]
        assert [iteration.number for iteration in iterations] == [0, 1, 2, 3, 4]
        assert {iteration.frame for iteration in iterations} == {"while/while_context"}
        ends[name] = dict(zip([n.number for n in iterations], rows, strict=True))
    for number, row in ends["while/tanh"].items():
        assert ends["while/product"][number]["end"] <= row["ready"] <= row["start"]
        if number:
            before = ends["while/tanh"][number - 1]["end"]
            assert before <= ends["while/product"][number]["start"]


def test_calls_of_a_function_are_told_apart(tmp_path: Path) -> None:
    @Defun(wf.float32, func_name="square", _noinline=True)
    def square(x: Any) -> Any:
        return wf.square(x)

    y = square(wf.random_uniform([2])) + square(wf.random_uniform([2]))
    trace = recorded(tmp_path / "t", y, None, in_order())
    rows = [row for row in events(trace, Kind.KERNEL) if trace.nodes[row["node"]].op == "Square"]
    keys = {(row["step"], row["iteration"], row["node"]) for row in rows}
    assert len(keys) == len(rows) == 2


def test_nodes_lead_back_to_those_that_passes_merged(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    first, second = wf.square(x, name="first"), wf.square(x, name="second")
    y = wf.add(first, wf.multiply(second, 2.0), name="y")
    trace = recorded(tmp_path / "t", y, {x: np.ones(3)}, in_order())
    (row,) = [row for row in events(trace, Kind.KERNEL) if trace.nodes[row["node"]].op == "Square"]
    assert set(trace.nodes[row["node"]].origins) == {"first", "second"}


def test_a_wait_for_a_queue_is_recorded(tmp_path: Path) -> None:
    queue = wf.queue.FIFOQueue(1, [wf.float32], shapes=[[]])
    taken, put = wf.negative(queue.dequeue(name="taken")), queue.enqueue([1.0])
    with wf.Session() as session, wf.trace(tmp_path / "t"):
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(session.run(taken)))
        thread.start()
        session.run(put)
        thread.join()
    trace = wf.trace.load(tmp_path / "t")
    waits = {trace.nodes[row["node"]].name for row in events(trace, Kind.WAIT)}
    assert waits >= {"taken"} and results == [-1.0]


def test_a_transfer_connects_a_receive_with_its_send(tmp_path: Path) -> None:
    config = wf.ConfigProto(device_count={"CPU": 2})
    with wf.device("/cpu:1"):
        a = wf.random_uniform([8, 8], name="a")
    with wf.device("/cpu:0"):
        b = wf.negative(a, name="b")
    trace = recorded(tmp_path / "t", b, None, config)
    (receive,), (transfer,) = events(trace, Kind.RECEIVE), events(trace, Kind.TRANSFER)
    assert transfer["node"] in trace.nodes[receive["node"]].inputs
    (send,) = trace.nodes[transfer["node"]].inputs
    (sent,) = [row for row in events(trace, Kind.KERNEL) if row["node"] == send]
    assert sent["end"] <= receive["end"] and transfer["end"] == receive["end"]
    assert transfer["output_bytes"] == 8 * 8 * 4
    assert "→" in trace.lanes[transfer["lane"]].name


def test_sessions_take_the_fast_path_without_a_trace(tmp_path: Path) -> None:
    y = wf.random_uniform([3])
    with wf.Session() as session:
        session.run(y)
        assert session._plain
        with wf.trace(tmp_path / "t"):
            assert not session._plain
        assert session._plain


def test_a_failed_kernel_is_marked_and_the_file_is_whole(tmp_path: Path) -> None:
    x = wf.placeholder(wf.int32, [])
    y = wf.floordiv(1, x, name="quotient")
    with wf.trace(tmp_path / "t"), wf.Session(config=in_order()) as session:
        session.run(y, {x: 1})
        with pytest.raises(wf.errors.InvalidArgumentError):
            session.run(y, {x: 0})
    trace = wf.trace.load(tmp_path / "t")
    assert not trace.warnings
    flags = [bool(row["flags"] & Flag.FAILED) for row in events(trace, Kind.KERNEL, "quotient")]
    assert flags == [False, True]
    assert [bool(row["flags"] & Flag.FAILED) for row in events(trace, Kind.STEP)] == [False, True]


@pytest.fixture(params=["native", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the clock with and without native code."""
    native = None
    if request.param == "native":
        names = generators.keys()
        native = generators.lookup(names[0]).clock_reader() if names else None
        if native is None:
            pytest.skip("there is no native code that reads the clock")
    monkeypatch.setattr(clock_readings, "_native", native)
    monkeypatch.setattr(clock_readings, "_is_native_known", True)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("size", [(), (None,)])
def test_times_are_those_of_each_kernel(tmp_path: Path, size: tuple[None, ...]) -> None:
    def slow(value: Any) -> Any:
        time.sleep(0.01)
        return value

    x = wf.placeholder(wf.float32, size)
    a = wf.negative(x, name="a")
    (b,) = wf.py_func(slow, [a], [wf.float32], name="slow")
    c = wf.negative(b, name="c")
    trace = recorded(tmp_path / "t", c, {x: np.ones([7] * len(size), np.float32)}, in_order())
    (first,) = events(trace, Kind.KERNEL, "a")
    (second,) = events(trace, Kind.KERNEL, "slow")
    (third,) = events(trace, Kind.KERNEL, "c")
    assert first["end"] <= second["start"] and second["end"] == third["start"]
    assert second["end"] - second["start"] >= 10_000_000
    assert first["end"] - first["start"] < 5_000_000 > third["end"] - third["start"]
    (step,) = events(trace, Kind.STEP)
    assert step["start"] <= first["start"] and third["end"] <= step["end"]
    assert third["output_bytes"] == 4 * 7 ** len(size)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("position", range(4))
def test_only_the_node_that_fails_is_marked(tmp_path: Path, position: int) -> None:
    def fail(value: Any) -> Any:
        raise ValueError("on request")

    y = wf.placeholder(wf.float32, [])
    x = y
    for i, op in enumerate((wf.tanh, wf.exp, wf.negative, wf.square)):
        if i == position:
            (y,) = wf.py_func(fail, [y], [wf.float32], name=f"n{i}")
            y.set_shape([])
        else:
            y = op(y, name=f"n{i}")
    with wf.trace(tmp_path / "t"), wf.Session(config=in_order()) as session:
        session.run(x, {x: 1.0})
        with pytest.raises(wf.errors.OpError, match="on request"):
            session.run(y, {x: 1.0})
    trace = wf.trace.load(tmp_path / "t")
    rows = events(trace, Kind.KERNEL)
    names = [trace.nodes[node].name for node in rows["node"]]
    assert names == [f"n{i}" for i in range(position + 1)]
    assert list(rows["flags"] & Flag.FAILED != 0) == [False] * position + [True]
    assert (rows["end"] >= rows["start"]).all()


def test_records_of_steps_are_released_without_a_collection(tmp_path: Path) -> None:
    class Watcher(consumers.Consumer):
        traces: ClassVar[list[Any]] = []

        def step_ended(self, trace: Any) -> None:
            self.traces.append(weakref.ref(trace))

        def step_spilled(self, *_: Any) -> None:
            pass

        def outside_steps(self, *_: Any) -> None:
            pass

    watcher = Watcher()
    x = wf.placeholder(wf.float32, [])
    with wf.Session() as session:
        consumers.add_consumer(watcher)
        gc.disable()
        try:
            session.run(x + x, {x: 1.0})
            assert [trace() for trace in watcher.traces] == [None]
        finally:
            gc.enable()
            consumers.remove_consumer(watcher)


def test_nested_blocks_and_threads_are_recorded_in_each_file(tmp_path: Path) -> None:
    y = wf.random_uniform([3], name="y")
    with wf.Session() as session, wf.trace(tmp_path / "outer"):
        session.run(y)
        with wf.trace(tmp_path / "inner"):
            thread = threading.Thread(target=lambda: session.run(y), name="other")
            thread.start()
            thread.join()
    assert not consumers.is_active()
    outer, inner = wf.trace.load(tmp_path / "outer"), wf.trace.load(tmp_path / "inner")
    assert len(events(outer, Kind.STEP)) == 2 and len(events(inner, Kind.STEP)) == 1
    assert "other" in {lane.name for lane in inner.lanes}


def test_a_measured_step_within_a_recording_has_both(tmp_path: Path) -> None:
    y = wf.negative(wf.random_uniform([3]), name="y")
    metadata = wf.RunMetadata()
    with wf.trace(tmp_path / "t"), wf.Session() as session:
        options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
        session.run(y, options=options, run_metadata=metadata)
    names = {node.node_name for dev in metadata.step_stats.dev_stats for node in dev.node_stats}
    assert "y" in names
    assert len(events(wf.trace.load(tmp_path / "t"), Kind.KERNEL, "y")) == 1


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), wf.trace(tmp_path / "missing" / "t"):
        pass
    assert not consumers.is_active()


def test_time_between_steps_and_buffers_are_recorded(tmp_path: Path) -> None:
    record_training(tmp_path / "t.weft-trace", steps=3)
    trace = wf.trace.load(tmp_path / "t.weft-trace")
    assert len(events(trace, Kind.STEP)) == 4
    between = events(trace, Kind.PYTHON)
    steps = events(trace, Kind.STEP)
    assert (between["start"] == steps["end"][:-1]).all()
    (save,) = events(trace, Kind.CHECKPOINT)
    assert save["start"] <= steps["start"][-1] and steps["end"][-1] <= save["end"]
    series = {SERIES[sample["series"]] for sample in trace.samples}
    assert {"bytes in use", "bytes cached"} <= series
    buffers = events(trace, Kind.BUFFER)
    assert len(buffers) and (buffers["output_bytes"] >= 4096).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_value_is_in_memory_until_its_last_user_has_ended(tmp_path: Path, threads: int) -> None:
    """With several threads, nodes that take long are scheduled one by one."""
    x = wf.random_uniform([300, 300], name="x")
    first = wf.matmul(x, x, name="first")
    second = wf.matmul(first, first, name="second")
    third = wf.matmul(second, x, name="third")
    last = wf.matmul(third, first, name="last")
    config = wf.ConfigProto(inter_op_parallelism_threads=threads)
    config.graph_options.optimizer_options.global_jit_level = wf.OptimizerOptions.OFF
    trace = recorded(tmp_path / "t", wf.reduce_sum(last, name="total"), config=config)

    def time(kind: Kind, name: str, column: str) -> int:
        (row,) = events(trace, kind, name)
        return int(row[column])

    assert time(Kind.BUFFER, "first", "start") == time(Kind.KERNEL, "first", "end")
    assert time(Kind.BUFFER, "first", "end") >= time(Kind.KERNEL, "last", "end")
    until = time(Kind.BUFFER, "second", "end")
    assert time(Kind.KERNEL, "third", "end") <= until <= time(Kind.KERNEL, "last", "end")


def test_the_name_is_also_the_trace_of_a_matrix() -> None:
    with wf.Session() as session:
        assert session.run(wf.trace([[1.0, 2.0], [3.0, 4.0]])) == 5.0


def test_waits_for_locks_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_waiting = threading.Event()

    def announced(*arguments: Any) -> Any:
        is_waiting.set()
        return recorded_block(*arguments)

    recorded_block = consumers.record_block
    monkeypatch.setattr(consumers, "record_block", announced)
    state = VariableState("v", dtypes.float32, (2,))
    state.assign(np.ones(2, np.float32))
    queue = Waiters()

    with wf.trace(tmp_path / "t"):
        for lock, use in (
            (state._lock, lambda: state.update(np.square)),
            (state._lock, lambda: state.assign(np.ones(2, np.float32))),
            (queue.lock, queue.wake),
        ):
            is_waiting.clear()
            other = threading.Thread(target=use)
            with lock:
                other.start()
                assert is_waiting.wait(60)
            other.join()
        queue.wake()  # the lock is free
        state.update(np.square)
    trace = wf.trace.load(tmp_path / "t")
    waits = [trace.nodes[row["node"]] for row in events(trace, Kind.WAIT)]
    assert [node.name for node in waits] == ["lock of v", "lock of v", "lock of a queue"]
    assert {node.op for node in waits} == {"_Lock"}


def test_two_recordings_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.weft-trace"
    with (
        wf.trace(path),
        pytest.raises(wf.errors.AlreadyExistsError, match="choose another file"),
        wf.trace(f"{tmp_path}/../{tmp_path.name}/a.weft-trace"),
    ):
        pass
    with wf.trace(path):
        pass
    with pytest.raises(TypeError, match="path of a file"):
        wf.trace(None)


def test_an_error_of_the_block_is_raised_although_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Writer) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "flush", fail)
    with pytest.raises(KeyError), wf.trace(tmp_path / "a.weft-trace"):
        raise KeyError
    with (
        pytest.raises(OSError, match=r"No space .*a\.weft-trace"),
        wf.trace(tmp_path / "a.weft-trace"),
    ):
        pass
