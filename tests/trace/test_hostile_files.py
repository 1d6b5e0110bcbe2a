"""A file that is cut off, damaged or made to do harm costs no more than its size accounts for."""

import json
import os
import signal
import struct
import subprocess
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import (
    EVENT,
    Lane,
    LaneKind,
    Node,
    Process,
    TraceError,
    Writer,
    load,
)
from weft_trace.chunks import (
    FILE_END,
    FILE_HEADER,
    Chunk,
    ChunkType,
    encode_chunk,
    encode_records,
    pack_rows,
)

WRITE_FOREVER = """
import sys
import numpy as np
from weft_trace import EVENT, Lane, LaneKind, Node, Process, Step, Writer
writer = Writer(sys.argv[1])
writer.lane(Lane(writer.process(Process("task", 7, "host")), LaneKind.THREAD, "main"))
writer.node(Node("y", "MatMul"))
writer.step(Step(0, "loss", 0))
time = 0
while True:
    rows = np.zeros(20_000, EVENT)
    rows["ready"] = rows["start"] = rows["end"] = np.arange(time, time + len(rows))
    time += len(rows)
    writer.events(rows)
    print(time, flush=True)
"""


def test_killed_writer_loses_only_the_last_chunk(tmp_path):
    path = tmp_path / "run.weft-trace"
    command = [sys.executable, "-c", WRITE_FOREVER, path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        for _ in range(12):
            written = int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    trace = load(path)
    assert any(reason in trace.warnings[0] for reason in ("not closed", "ends inside"))
    events = trace.events
    assert len(events) >= written - 2 * 32_768
    np.testing.assert_array_equal(events["start"], np.arange(len(events)))


def file_of(path, *chunks):
    path.write_bytes(FILE_HEADER + b"".join([encode_chunk(chunk) for chunk in chunks]) + FILE_END)
    return path


def records(**tables):
    return Chunk(ChunkType.RECORDS, 1, 0, 0, encode_records(tables))


VALID = {
    "processes": [["task", 7, "host", 0, 0]],
    "lanes": [[0, 0, "main"]],
    "nodes": [["y", "MatMul", "", "", [], [], 0, [], -1]],
    "steps": [[0, "loss", 0]],
}


def events_chunk(count, **columns):
    rows = np.zeros(count, EVENT)
    for name, values in columns.items():
        rows[name] = values
    return Chunk(ChunkType.EVENTS, count, 0, 0, pack_rows(rows))


def test_columns_without_width_cannot_claim_memory(tmp_path):
    payload = pack_rows(np.zeros(1, EVENT))
    chunk = Chunk(ChunkType.EVENTS, 4_000_000_000, 0, 0, payload)
    read = load(file_of(tmp_path / "a", records(**VALID), chunk))
    assert not len(read.events) and "claims 4000000000 rows" in read.warnings[0]
    many = [Chunk(ChunkType.EVENTS, 65_536, 0, 0, payload)] * 400
    path = file_of(tmp_path / "b", records(**VALID), *many)
    tracemalloc.start()
    try:
        read = load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "claims" in read.warnings[0]
    assert peak < 3 * EVENT.itemsize * (1 << 20)


def test_compressed_payloads_cannot_claim_memory(tmp_path):
    bomb = records(nodes=[[" " * (1 << 25)]])
    path = file_of(tmp_path / "a", *[bomb] * 10)
    assert path.stat().st_size < 2_000_000
    assert "claim to decompress" in load(path).warnings[0]


@pytest.mark.parametrize(
    "tables",
    [
        {"processes": [["task", "7", "host", 0, 0]]},
        {"lanes": [[0, 9, "main"]]},
        {"lanes": [[5, 0, "main"]]},
        {"nodes": [["y", "MatMul", "", "", [-1], [], 0, [], -1]]},
        {"nodes": [["y", "MatMul", "", "", 3, [], 0, [], -1]]},
        {"nodes": [[["y"], "MatMul", "", "", [], [], 0, [], -1]]},
        {"nodes": [["y", "MatMul", "", "", [], [], 0, [], 1 << 63]]},
        {"inputs": [[-1, [0]]]},
        {"inputs": [[5, [0]]]},
        {"iterations": [["while", 0, 1]]},
        {"steps": [[4, "loss", 0]]},
        {"steps": [[]]},
    ],
)
def test_records_of_an_unknown_form_end_the_file(tmp_path, tables):
    read = load(file_of(tmp_path / "a", records(**VALID), records(**tables), events_chunk(1)))
    assert "unknown form" in read.warnings[0]
    assert len(read.nodes) == 1 and not len(read.events)


@pytest.mark.parametrize("name", ["lane", "node", "step", "iteration", "ready"])
def test_events_of_unknown_records_are_left_out(tmp_path, name):
    chunk = events_chunk(3, start=[0, 1, 2], end=5, **{name: [0, 9, 0]})
    read = load(file_of(tmp_path / "a", records(**VALID), chunk))
    assert read.events["start"].tolist() == [0, 2]
    assert "1 rows were left out" in read.warnings[0]


def test_ids_of_nodes_that_were_not_written_are_left_out(tmp_path):
    tables = {**VALID, "nodes": [["y", "MatMul", "", "", [0, 8], [], 0, [9], -1]]}
    node = load(file_of(tmp_path / "a", records(**tables))).nodes[0]
    assert node.inputs == (0,) and node.members == ()


def test_chunks_of_newer_types_are_skipped(tmp_path):
    chunk = Chunk(77, 3, 0, 0, b"anything")
    read = load(file_of(tmp_path / "a", records(**VALID), chunk, events_chunk(1)))
    assert not read.warnings and len(read.events) == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run.weft-trace"
    write_cluster(path, Cluster(random_settings(3), 3), steps=1)
    return path.read_bytes()


@given(data=st.data())
def test_any_damage_gives_a_trace_or_an_error(tmp_path_factory, whole, data):
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    read_anything(tmp_path_factory.mktemp("trace") / "a", bytes(changed))


@given(
    data=st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 4, 9]), st.integers(0, 70_000), st.binary(max_size=200))
    ),
    level=st.integers(0, 1),
)
def test_any_chunks_with_right_checksums_give_a_trace(tmp_path_factory, data, level):
    chunks = [encode_chunk(Chunk(kind, rows, 0, 0, payload), level) for kind, rows, payload in data]
    read_anything(tmp_path_factory.mktemp("trace") / "a", FILE_HEADER + b"".join(chunks))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=10),
    max_leaves=20,
)


@given(st.sampled_from(["processes", "lanes", "nodes", "inputs", "iterations", "steps"]), JSON)
def test_any_json_gives_a_trace(tmp_path_factory, table, value):
    payload = json.dumps({table: value}).encode()
    chunk = encode_chunk(Chunk(ChunkType.RECORDS, 1, 0, 0, payload))
    read_anything(tmp_path_factory.mktemp("trace") / "a", FILE_HEADER + chunk)


def read_anything(path, data):
    path.write_bytes(data)
    try:
        read = load(path)
    except TraceError:
        return
    for name, table in [
        ("node", read.nodes), ("lane", read.lanes), ("iteration", read.iterations),
    ]:  # fmt: skip
        assert (read.events[name] < len(table)).all()
    assert (read.events["ready"] <= read.events["end"]).all()


def test_header_that_claims_a_huge_payload_is_damage(tmp_path):
    body = struct.pack("<BBHIIIqq", 2, 1, 0, 10, 1 << 31, 1, 0, 0)
    chunk = b"CHNK" + struct.pack("<I", zlib.crc32(body + bytes(10))) + body + bytes(10)
    (tmp_path / "a").write_bytes(FILE_HEADER + chunk)
    assert "no chunk here" in load(tmp_path / "a").warnings[0]


def test_only_the_owner_can_read_a_trace(tmp_path):
    path = tmp_path / "a"
    with Writer(path) as writer:
        writer.lane(Lane(writer.process(Process("task", 7, "host")), LaneKind.THREAD, "\udc80"))
        writer.node(Node("y", "MatMul"))
    assert os.stat(path).st_mode & 0o077 == 0
    assert load(path).lanes[0].name == "?"
