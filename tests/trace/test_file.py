"""Trace files: round trips, and recovery of the intact part of damaged files."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_trace import (
    EVENT,
    SAMPLE,
    Crossing,
    Iteration,
    Kind,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
    TraceError,
    Writer,
    load,
)

TIMES = st.integers(0, 1 << 62)


def event_rows(times):
    rows = np.zeros(len(times), EVENT)
    for row, (a, b, c) in zip(rows, map(sorted, times), strict=True):
        row["ready"], row["start"], row["end"] = a, b, c
    rows["kind"] = Kind.KERNEL
    rows["node"] = np.arange(len(times))
    rows["output_bytes"] = -1
    return rows


@given(st.lists(st.lists(st.tuples(TIMES, TIMES, TIMES), max_size=20), max_size=4))
def test_events_of_any_times_are_read_back_in_order(tmp_path_factory, batches):
    path = tmp_path_factory.mktemp("trace") / "run.weft-trace"
    with Writer(path) as writer:
        writer.lane(Lane(writer.process(Process("task", 7, "host")), LaneKind.THREAD, "main"))
        writer.step(Step(0, "loss", 0))
        for i in range(20):
            writer.node(Node(f"y{i}", "MatMul"))
        for times in batches:
            writer.events(event_rows(times))
            writer.flush()
    written = np.concatenate([np.zeros(0, EVENT), *map(event_rows, batches)])
    read = load(path)
    assert not read.warnings
    np.testing.assert_array_equal(np.sort(read.events), np.sort(written))
    assert (np.diff(read.events["start"]) >= 0).all()


def small_trace(path):
    with Writer(path) as writer:
        process = writer.process(Process("/job:localhost/task:0", 7, "host"))
        lane = writer.lane(Lane(process, LaneKind.THREAD, "MainThread"))
        merge = writer.node(Node("Merge", "Merge", crossing=Crossing.PREVIOUS))
        body = writer.node(
            Node("body", "AddV2", "CPU:0", "a.py:3", (merge,), ("x", "y"), members=(0,))
        )
        writer.inputs(merge, [body])
        assert writer.iteration(Iteration("while", 4)) == 1
        writer.step(Step(process, "loss", 0))
        for i in range(3):
            rows = event_rows([(10 * i, 10 * i + 1, 10 * i + 5)])
            rows["lane"], rows["node"] = lane, body
            writer.events(rows)
            writer.flush()
        samples = np.zeros(2, SAMPLE)
        samples["time"], samples["value"] = [5, 3], [50, -30]
        writer.samples(samples)
    return path


def test_records_are_read_back(tmp_path):
    read = load(small_trace(tmp_path / "run.weft-trace"))
    assert read.processes == [Process("/job:localhost/task:0", 7, "host")]
    assert read.lanes == [Lane(0, LaneKind.THREAD, "MainThread")]
    assert read.nodes[0] == Node("Merge", "Merge", inputs=(1,), crossing=Crossing.PREVIOUS)
    assert read.nodes[1].line == "a.py:3" and read.nodes[1].members == (0,)
    assert read.iterations == [Iteration("", 0), Iteration("while", 4)]
    assert read.steps == [Step(0, "loss", 0)]
    assert read.samples["value"].tolist() == [-30, 50]


def test_file_cut_at_any_byte_is_read_up_to_the_last_whole_chunk(tmp_path):
    path = small_trace(tmp_path / "run.weft-trace")
    data = path.read_bytes()
    counts = []
    for size in range(16, len(data)):
        path.write_bytes(data[:size])
        read = load(path)
        counts.append(len(read.events))
        if size > 16:
            assert read.warnings or size in boundaries(data)
    assert counts == sorted(counts) and set(counts) == {0, 1, 2, 3}


def boundaries(data):
    return [i for i in range(len(data)) if data[i : i + 4] == b"CHNK"]


def test_changed_byte_is_found(tmp_path):
    path = small_trace(tmp_path / "run.weft-trace")
    data = bytearray(path.read_bytes())
    for i in range(16, len(data)):
        data[i] ^= 0x20
        path.write_bytes(data)
        assert load(path).warnings, i
        data[i] ^= 0x20


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"")
    with pytest.raises(TraceError, match="not a trace"):
        load(path)
    path.write_bytes(b"WEFTTRC\n" + bytes([9, 0, 0, 0]) + bytes(4))
    with pytest.raises(TraceError, match=r"version 9.*install a newer one"):
        load(path)
    path.write_bytes(b"WEFTTRC\n" + bytes([1, 0, 0, 0]) + bytes(4))
    with pytest.raises(TraceError, match=r"never released.*record the trace again"):
        load(path)


def test_events_take_few_bytes(tmp_path):
    path = tmp_path / "run.weft-trace"
    rng = np.random.default_rng(0)
    rows = np.zeros(100_000, EVENT)
    rows["start"] = 1_700_000_000_000_000_000 + np.cumsum(rng.integers(200, 20_000, len(rows)))
    rows["ready"], rows["end"] = (
        rows["start"] - 50,
        rows["start"] + rng.integers(200, 9_000, len(rows)),
    )
    rows["node"] = np.arange(len(rows)) % 1000
    rows["output_bytes"] = rows["input_bytes"] = -1
    with Writer(path) as writer:
        writer.events(rows)
    assert path.stat().st_size / len(rows) <= 12


def flush_often(path, rows, samples, flushes):
    """Write rows in many parts, as a recording does."""
    with Writer(path) as writer:
        writer.lane(Lane(writer.process(Process("task", 7, "host")), LaneKind.THREAD, "main"))
        writer.step(Step(0, "loss", 0))
        for i in range(20):
            writer.node(Node(f"y{i}", "MatMul"))
        for part, counts in zip(
            np.array_split(rows, flushes), np.array_split(samples, flushes), strict=True
        ):
            writer.events(part)
            writer.samples(counts)
            writer.flush()


def test_a_recording_that_flushes_often_takes_few_bytes(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.zeros(5000, EVENT)
    rows["start"] = 1_700_000_000_000_000_000 + np.cumsum(rng.integers(200, 20_000, len(rows)))
    rows["ready"] = rows["start"] - rng.integers(0, 500, len(rows))
    rows["end"] = rows["start"] + rng.integers(200, 9_000, len(rows))
    rows["node"] = np.arange(len(rows)) % 20
    samples = np.zeros(1000, SAMPLE)
    samples["time"] = rows["start"][::5]
    samples["series"] = np.arange(1000) % 2
    samples["value"] = 10**12 + np.cumsum(rng.integers(0, 10**6, 1000))
    path = tmp_path / "run.weft-trace"
    flush_often(path, rows, samples, 100)
    assert path.stat().st_size / len(rows) <= 12
    assert [file.name for file in tmp_path.iterdir()] == ["run.weft-trace"]
    read = load(path)
    np.testing.assert_array_equal(read.events, rows)
    np.testing.assert_array_equal(read.samples, samples)
    assert len(read.nodes) == 20 and not read.warnings


def test_a_file_in_a_folder_that_cannot_be_written_stays_as_it_is(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no space left")

    monkeypatch.setattr("weft_trace.writer.os.replace", refuse)
    rows = event_rows([(i, i, i + 1) for i in range(20)])
    flush_often(tmp_path / "run", rows, np.zeros(20, SAMPLE), 20)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert len(load(tmp_path / "run").events) == 20
