"""Readers as state machines: the records, the keys, the counters, and states written down."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings, strategies as st

from weft_io.records.reader import Reader
from weft_io.records.streams import PIECE
from weft_io.records.tfrecord import TFRecordWriter
from weft_tensor import errors

Records = list[tuple[bytes, bytes]]

SIZES = [0, 1, 50, 3000, PIECE // 3]


def tfrecord(path: Path, sizes: Sequence[int]) -> Records:
    offset, found = 0, []
    with TFRecordWriter(path) as writer:
        for i, size in enumerate(sizes):
            record = bytes([i % 256]) * size
            writer.write(record)
            found.append((b"%b:%d" % (bytes(path), offset), record))
            offset += size + 16
    return found


def text(path: Path, sizes: Sequence[int]) -> Records:
    lines = [bytes([65 + i % 26]) * size for i, size in enumerate(sizes)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return [(b"%b:%d" % (bytes(path), i), line) for i, line in enumerate(lines, 1)][2:]


def fixed(path: Path, sizes: Sequence[int]) -> Records:
    records = [b"%07d" % size for size in sizes]
    path.write_bytes(b"HEAD" + b"".join(records) + b"F")
    return [(b"%b:%d" % (bytes(path), i), record) for i, record in enumerate(records)]


def whole(path: Path, sizes: Sequence[int]) -> Records:
    data = bytes(sum(sizes))
    path.write_bytes(data)
    return [(bytes(path), data)]


def identity(path: Path, sizes: Sequence[int]) -> Records:
    return [(bytes(path), bytes(path))]


Maker = Callable[[Path, Sequence[int]], Records]
KINDS: dict[str, tuple[dict[str, Any], Maker]] = {
    "TFRecordReader": ({"compression_type": ""}, tfrecord),
    "TextLineReader": ({"skip_header_lines": 2}, text),
    "FixedLengthRecordReader": (
        {
            "record_bytes": 7,
            "header_bytes": 4,
            "footer_bytes": 1,
            "hop_bytes": 0,
            "encoding": "",
        },
        fixed,
    ),
    "WholeFileReader": ({}, whole),
    "IdentityReader": ({}, identity),
}

commands = st.lists(
    st.tuples(st.just("read"), st.sampled_from([1, 1, 2, 7, 1000]))
    | st.tuples(st.just("restart"), st.just(0)),
    max_size=30,
)


@settings(max_examples=80)
@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.lists(st.sampled_from(SIZES), max_size=12), min_size=1, max_size=4),
    commands,
)
def test_restarts_leave_no_trace(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    files: list[list[int]],
    steps: list[tuple[str, int]],
) -> None:
    """Any portions, with restarts in between, concatenate to the files in order."""
    folder = tmp_path_factory.mktemp("r")
    settings_, make = KINDS[kind]
    wanted: Records = []
    names = []
    for i, sizes in enumerate(files):
        names.append(bytes(folder / str(i)))
        wanted += make(folder / str(i), sizes)
    reader = Reader(kind, settings_)
    found: Records = []

    def read(limit: int) -> bool:
        while reader.needs_work:
            if not names:
                return False
            reader.start(names.pop(0))
        got = list(zip(*reader.read(limit), strict=True))
        assert len(got) <= limit
        found.extend(got)
        assert reader.records_produced == len(found)
        return True

    for what, limit in steps:
        if what == "read":
            read(limit)
        else:
            state = reader.serialize()
            reader.close()
            reader = Reader(kind, settings_)
            reader.restore(state)
            assert reader.serialize() == state
    while read(5):
        pass
    assert found == wanted
    assert reader.work_units_completed == len(files)


def test_one_read_stays_in_one_file(tmp_path: Path) -> None:
    reader = Reader("TextLineReader", {"skip_header_lines": 0})
    for name, content in ((b"a", b"1\n2\n"), (b"b", b""), (b"c", b"3")):
        (tmp_path / name.decode()).write_bytes(content)
        reader.start(bytes(tmp_path / name.decode()))
    counts = []
    while not reader.needs_work:
        counts.append((reader.read(10)[1], reader.work_units_completed))
    assert counts == [([b"1", b"2"], 1), ([], 2), ([b"3"], 3)]


def test_a_file_that_cannot_be_read_is_left(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"fine\n")
    reader = Reader("TextLineReader", {"skip_header_lines": 0})
    for name in ("none", "good"):
        reader.start(bytes(tmp_path / name))
    with pytest.raises(errors.NotFoundError, match="none"):
        reader.read(1)
    assert reader.read(1)[1] == [b"fine"]
    assert reader.work_units_completed == 0  # the good one is unknown to have ended


@pytest.mark.parametrize(
    ("kind", "settings", "bad"),
    [
        ("ParquetReader", {"columns": None}, "bad"),
        (
            "FixedLengthRecordReader",
            {
                "record_bytes": 2,
                "header_bytes": 5,
                "footer_bytes": 0,
                "hop_bytes": 0,
                "encoding": "",
            },
            "bad",
        ),
        ("TextLineReader", {"skip_header_lines": 0}, "a\0b"),
        ("WholeFileReader", {}, "a\0b"),
    ],
)
def test_a_file_that_cannot_be_opened_is_left(
    tmp_path: Path, kind: str, settings: dict[str, Any], bad: str
) -> None:
    """Nothing is known to be behind the damage, so trying again would never end."""
    pytest.importorskip("pyarrow")
    (tmp_path / "bad").write_bytes(b"no")
    reader = Reader(kind, settings)
    reader.start(bytes(tmp_path) + b"/" + bad.encode())
    with pytest.raises(errors.OpError):
        reader.read(1)
    assert reader.needs_work


def test_a_file_that_cannot_be_reached_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft_io.files import gfile, systems

    wanted = tfrecord(tmp_path / "r", [PIECE] * 5)
    gfile.copy(tmp_path / "r", "memory://away/r", overwrite=True)
    reader = Reader("TFRecordReader", {"compression_type": ""})
    reader.start(b"memory://away/r")
    found = [reader.read(1)[1][0], reader.read(1)[1][0]]
    opened = systems.FsspecFileSystem.open

    def away(self: Any, path: str, mode: str) -> Any:
        raise ConnectionError("no route")

    again = Reader("TFRecordReader", {"compression_type": ""})
    again.restore(reader.serialize())
    monkeypatch.setattr(systems.FsspecFileSystem, "open", away)
    for _ in range(3):
        with pytest.raises(errors.UnavailableError, match="memory://away/r"):
            again.read(1)
    monkeypatch.setattr(systems.FsspecFileSystem, "open", opened)
    while not again.needs_work:
        found += again.read(2)[1]
    assert found == [value for _, value in wanted]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_damaged_record_is_said_once_and_passed_over(tmp_path: Path, limit: int) -> None:
    wanted = tfrecord(tmp_path / "r", [20] * 100)
    data = bytearray((tmp_path / "r").read_bytes())
    data[36 * 40 + 15] ^= 1
    (tmp_path / "r").write_bytes(data)
    reader = Reader("TFRecordReader", {"compression_type": ""})
    reader.start(bytes(tmp_path / "r"))
    found: Records = []
    failures = []
    while not reader.needs_work:
        try:
            found += zip(*reader.read(limit), strict=True)
        except errors.DataLossError as error:
            failures.append((error, len(found)))
    assert found == wanted[:40] + wanted[41:]
    ((error, before),) = failures
    assert error.message.startswith(f"corrupted record at {36 * 40} of {tmp_path / 'r'}")
    assert before == 40


def test_a_restart_in_a_file_that_became_shorter(tmp_path: Path) -> None:
    tfrecord(tmp_path / "r", [3000] * 1000)
    reader = Reader("TFRecordReader", {"compression_type": ""})
    reader.start(bytes(tmp_path / "r"))
    for _ in range(900):
        reader.read(1)
    state = reader.serialize()
    for size, what in (
        (3016 * 500, "ends at offset"),
        (3016 * 895, "before the position to resume from"),
    ):
        (tmp_path / "r").write_bytes((tmp_path / "r").read_bytes()[:size])
        again = Reader("TFRecordReader", {"compression_type": ""})
        again.restore(state)
        with pytest.raises(errors.DataLossError, match=what):
            again.read(1)
        tfrecord(tmp_path / "r", [3000] * 1000)


def test_reset_forgets(tmp_path: Path) -> None:
    tfrecord(tmp_path / "r", [1, 2, 3])
    reader = Reader("TFRecordReader", {"compression_type": ""})
    fresh = reader.serialize()
    reader.start(bytes(tmp_path / "r"))
    reader.start(b"another")
    reader.read(2)
    reader.reset()
    assert reader.needs_work
    assert reader.serialize() == fresh


# --------------------------------------------------------------------------------- states


def state_of(fields: Any, magic: bytes = b"weftread", version: int = 1) -> bytes:
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    data = struct.pack("<8sII", magic, version, len(body)) + body
    return data + crc32c(data).to_bytes(4, "little")


HUGE = ["a", 0, 2**63, 0]
FIELDS: dict[str, Any] = {
    "reader": "IdentityReader",
    "settings": {},
    "records_produced": 3,
    "work_units_completed": 2,
    "current": ["name", 0, 1, 1],
    "waiting": ["x"],
}


def test_the_form_of_a_state() -> None:
    reader = Reader("IdentityReader", {})
    reader.restore(state_of(FIELDS))
    assert (reader.records_produced, reader.work_units_completed) == (3, 2)
    assert reader.serialize() == state_of(FIELDS)


def test_names_that_are_no_utf8_survive(tmp_path: Path) -> None:
    reader = Reader("IdentityReader", {})
    reader.start(b"\xff/\xc3\xa4")
    again = Reader("IdentityReader", {})
    again.restore(reader.serialize())
    assert again.read(1) == ([b"\xff/\xc3\xa4"], [b"\xff/\xc3\xa4"])


def test_several_states_are_finished_by_one_reader(tmp_path: Path) -> None:
    readers = [Reader("TextLineReader", {"skip_header_lines": 1}) for _ in range(3)]
    used: list[bytes] = []
    for i, reader in enumerate(readers):
        for part in "ab":
            path = tmp_path / f"{i}{part}"
            path.write_text("header\n" + "".join(f"{i}{part}{n}\n" for n in range(4)))
            reader.start(os.fsencode(path))
        for _ in range(2 * i):
            used += reader.read(1)[1]
    one = Reader("TextLineReader", {"skip_header_lines": 1})
    one.restore(*[reader.serialize() for reader in readers])
    again = Reader("TextLineReader", {"skip_header_lines": 1})
    again.restore(one.serialize())  # with files that wait in the middle
    assert again.serialize() == one.serialize()
    assert again.records_produced == len(used) == 6
    rest: list[bytes] = []
    while not again.needs_work:
        rest += again.read(3)[1]
    wanted = [b"%d%c%d" % (i, part, n) for i in range(3) for part in b"ab" for n in range(4)]
    assert sorted(used + rest) == wanted
    again.restore()
    assert again.needs_work and again.records_produced == 0


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"", errors.InvalidArgumentError, "must begin with"),
        (b"\x08\x02\x10\x01", errors.InvalidArgumentError, "must begin with"),
        (b"weftread", errors.DataLossError, "fewer than its head"),
        (state_of(FIELDS)[:-1], errors.DataLossError, "must have .* bytes, got"),
        (state_of(FIELDS) + b"x", errors.DataLossError, "must have .* bytes, got"),
        (state_of(FIELDS)[:30] + b"?" + state_of(FIELDS)[31:], errors.DataLossError, "checksum"),
        (state_of(FIELDS, version=2), errors.InvalidArgumentError, "version 1, got 2"),
        (state_of(b"["), errors.InvalidArgumentError, "required"),
        (state_of(b"[" * 100_000), errors.InvalidArgumentError, "required"),
        (state_of([]), errors.InvalidArgumentError, "required"),
        (state_of(FIELDS | {"records_produced": -1}), errors.InvalidArgumentError, "a count"),
        (state_of(FIELDS | {"records_produced": True}), errors.InvalidArgumentError, "a count"),
        (
            state_of(FIELDS | {"current": HUGE}),
            errors.InvalidArgumentError,
            "a count",
        ),
        (
            state_of(FIELDS | {"current": ["a", 0, 0]}),
            errors.InvalidArgumentError,
            "required",
        ),
        (state_of(FIELDS | {"current": [1, 0, 0, 0]}), errors.InvalidArgumentError, "must be str"),
        (state_of(FIELDS | {"waiting": "x"}), errors.InvalidArgumentError, "must be list"),
        (state_of(FIELDS | {"waiting": [1]}), errors.InvalidArgumentError, "must be str"),
        (
            state_of(FIELDS | {"waiting": [["a", 0]]}),
            errors.InvalidArgumentError,
            "required",
        ),
        (state_of(FIELDS | {"waiting": [[]]}), errors.InvalidArgumentError, "required"),
        (state_of(FIELDS | {"reader": "TextLineReader"}), errors.InvalidArgumentError, "required"),
        (state_of(FIELDS | {"settings": {"a": 1}}), errors.InvalidArgumentError, "required"),
    ],
)
def test_states_that_are_none_leave_the_reader_alone(
    data: bytes, kind: type[errors.OpError], message: str
) -> None:
    reader = Reader("IdentityReader", {})
    reader.start(b"a")
    before = reader.serialize()
    with pytest.raises(kind, match=message):
        reader.restore(data)
    assert reader.serialize() == before


@given(st.integers(0, 7), st.data())
def test_every_flipped_bit_of_a_state_is_noticed(bit: int, draw: st.DataObject) -> None:
    data = bytearray(state_of(FIELDS))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << bit
    with pytest.raises((errors.DataLossError, errors.InvalidArgumentError)):
        Reader("IdentityReader", {}).restore(bytes(data))
