"""Damaged files: right records, or errors with file and place; never wrong ones, or much memory."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from weft_testing.waiting import rounds

from weft_io.records import streams
from weft_io.records.fixed import FixedLengthSource
from weft_io.records.python_io import tf_record_batches, tf_record_iterator
from weft_io.records.streams import PIECE
from weft_io.records.text_lines import LineSource
from weft_io.records.tfrecord import TFRecordSource, TFRecordWriter, frame, masked_crc
from weft_tensor import errors

SAMPLE, MANY = 400, 10_000


def drain(source: Any) -> Iterator[bytes | errors.OpError]:
    """Records, and the errors between them, to the end of the file."""
    for _ in rounds():
        try:
            records = source.read_chunk()
        except errors.OpError as error:
            yield error
            continue
        if not records:
            return
        yield from records


def damaged(data: bytes, rng: random.Random) -> tuple[bytes, int]:
    """The bytes with something wrong, and the first place where."""
    result = bytearray(data)
    at = rng.randrange(len(data))
    match rng.randrange(4):
        case 0:
            result[at] ^= 1 << rng.randrange(8)
        case 1:
            del result[at:]
        case 2:
            count = rng.randrange(1, 40)
            result[at : at + count] = rng.randbytes(len(result[at : at + count]))
        case _:
            del result[at : at + rng.randrange(1, 40)]
    return bytes(result), at


def records(rng: random.Random) -> list[bytes]:
    return [rng.randbytes(rng.choice([0, 1, 20, 300])) for _ in range(30)]


def offsets(values: list[bytes]) -> list[int]:
    found = [0]
    for value in values:
        found.append(found[-1] + len(value) + 16)
    return found


def check_tfrecord(path: Path, count: int, seed: int) -> dict[str, int]:
    """Damage a file repeatedly; every record that is read must have been written there."""
    rng = random.Random(seed)
    values = records(rng)
    with TFRecordWriter(path) as writer:
        for value in values:
            writer.write(value)
    good = path.read_bytes()
    places = offsets(values)
    seen = {"errors": 0, "all": 0}
    for _ in range(count):
        data, at = damaged(good, rng)
        path.write_bytes(data)
        got = list(drain(TFRecordSource(str(path))))
        whole = sum(place <= at for place in places) - 1
        assert got[:whole] == values[:whole]
        failures = [each for each in got if isinstance(each, errors.OpError)]
        for failure in failures:
            assert isinstance(failure, errors.DataLossError)
            assert str(path) in failure.message
            assert 0 <= failure.details["offset"] <= len(data)
        assert is_part([each for each in got if isinstance(each, bytes)], values)
        # Without an error the file is these records: whole ones may be missing, which nothing says.
        assert failures or data == b"".join(
            [before + v + after for v, (before, after) in framed(got)]
        )
        seen["errors" if failures else "all"] += 1
    return seen


def framed(values: Any) -> list[tuple[bytes, tuple[bytes, bytes]]]:
    return [(value, frame(value)) for value in values]


def is_part(found: list[bytes], whole: list[bytes]) -> bool:
    """Return True if `found` is a subsequence of `whole`."""
    rest = iter(whole)
    return all(any(each == other for other in rest) for each in found)


def test_damaged_records_are_never_handed_out(tmp_path: Path) -> None:
    assert check_tfrecord(tmp_path / "r", SAMPLE, 0)["errors"] > SAMPLE // 2


@pytest.mark.long
def test_damaged_records_are_never_handed_out_in_the_long_run(tmp_path: Path) -> None:
    check_tfrecord(tmp_path / "r", MANY, 1)


def check_compressed(path: Path, kind: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    values = records(rng)
    with TFRecordWriter(path, kind) as writer:
        for value in values:
            writer.write(value)
    good = path.read_bytes()
    for _ in range(count):
        data, _ = damaged(good, rng)
        path.write_bytes(data)
        got = list(drain(TFRecordSource(str(path), kind)))
        assert is_part([each for each in got if isinstance(each, bytes)], values)
        failures = [each for each in got if isinstance(each, errors.OpError)]
        assert all(str(path) in failure.message for failure in failures)
        assert len(failures) <= len(values)
        assert failures or got == values or not data


@pytest.mark.parametrize("kind", ["ZLIB", "GZIP"])
def test_damaged_compressed_files(tmp_path: Path, kind: str) -> None:
    check_compressed(tmp_path / "r", kind, SAMPLE, 2)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ZLIB", "GZIP"])
def test_damaged_compressed_files_in_the_long_run(tmp_path: Path, kind: str) -> None:
    check_compressed(tmp_path / "r", kind, MANY, 3)


# -------------------------------------------------------------------------- single faults


def test_reading_goes_on_behind_a_damaged_record(tmp_path: Path) -> None:
    values = [b"%03d" % i for i in range(100)]
    framed = [b"".join([frame(v)[0], v, frame(v)[1]]) for v in values]
    framed[7] = framed[7][:13] + b"!" + framed[7][14:]
    path = tmp_path / "r"
    path.write_bytes(b"".join(framed))
    got = list(drain(TFRecordSource(str(path))))
    assert [each for each in got if isinstance(each, bytes)] == values[:7] + values[8:]
    (error,) = [each for each in got if isinstance(each, errors.DataLossError)]
    assert error.message.startswith(
        f"corrupted record at {7 * 19} of {path}: the checksum of its 3"
    )
    assert error.details == {"file": str(path), "offset": 133}


@pytest.mark.parametrize("at", [12, 12 + PIECE, 11 + 3 * PIECE, 12 + 3 * PIECE])
def test_damage_to_a_record_larger_than_a_piece(tmp_path: Path, at: int) -> None:
    path = tmp_path / "r"
    with TFRecordWriter(path) as writer:
        writer.write(random.randbytes(3 * PIECE))
        writer.write(b"next")
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    error, following = list(drain(TFRecordSource(str(path))))
    assert isinstance(error, errors.DataLossError)
    assert error.message.startswith(f"corrupted record at 0 of {path}: the checksum of its")
    assert following == b"next"


def test_nothing_is_read_behind_a_damaged_length(tmp_path: Path) -> None:
    before, after = frame(b"abc")
    path = tmp_path / "r"
    path.write_bytes(before + b"abc" + after + b"\x04" + before[1:] + b"abc" + after)
    records_, error = list(drain(TFRecordSource(str(path))))
    assert records_ == b"abc"
    assert isinstance(error, errors.DataLossError)
    assert error.message.startswith(f"corrupted record at 19 of {path}: the checksum of the length")


@pytest.mark.parametrize("left", [1, 11, 12, 14, 18])
def test_a_file_that_ends_within_a_record(tmp_path: Path, left: int) -> None:
    before, after = frame(b"abc")
    whole = before + b"abc" + after
    path = tmp_path / "r"
    path.write_bytes(whole + whole[:left])
    first, error = list(drain(TFRecordSource(str(path))))
    assert first == b"abc"
    assert isinstance(error, errors.DataLossError)
    assert error.message.startswith(f"truncated record at 19 of {path}: the file ends within it")
    assert f"{left} bytes are left" in error.message


def test_batches_before_the_damage_come_first(tmp_path: Path) -> None:
    before, after = frame(b"abc")
    path = tmp_path / "r"
    path.write_bytes((before + b"abc" + after) * 5 + before)
    batches = tf_record_batches(path, 2)
    assert [next(batches) for _ in range(3)] == [[b"abc"] * 2, [b"abc"] * 2, [b"abc"]]
    with pytest.raises(errors.DataLossError, match="truncated record at 95"):
        next(batches)


def hostile(length: int) -> bytes:
    header = struct.pack("<Q", length)
    return header + struct.pack("<I", masked_crc(header))


@pytest.mark.parametrize("length", [100, 2**31, 2**40, 2**63, 2**64 - 1, 2**64 - 16])
@pytest.mark.parametrize("kind", ["", "GZIP"])
def test_lengths_that_lie_cost_no_memory(tmp_path: Path, length: int, kind: str) -> None:
    path = tmp_path / "r"
    content = hostile(length) + b"some data"
    if kind:
        import gzip

        path.write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)
    TFRecordSource(str(path), kind).close()
    tracemalloc.start()
    try:
        (error,) = list(drain(TFRecordSource(str(path), kind)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, errors.DataLossError)
    refused = bool(kind) and length > 2**31
    text = f"a record of {path} must have" if refused else f"truncated record at 0 of {path}"
    assert text in error.message
    assert peak < 4 * PIECE


def test_a_large_record_costs_twice_its_size_at_most(tmp_path: Path) -> None:
    path = tmp_path / "r"
    size = 40 * PIECE
    with TFRecordWriter(path) as writer:
        writer.write(bytes(size))
    tracemalloc.start()
    try:
        (record,) = tf_record_iterator(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(record) == size
    assert peak < 2.1 * size


def shrinking(source_of: Callable[[str], Any], path: Path, data: bytes) -> list[Any]:
    """Read a file that is truncated after its first piece was read."""
    path.write_bytes(data)
    source = source_of(str(path))
    first = source.read_chunk()
    os.truncate(path, len(data) // 2)
    return [*first, *drain(source)]


def test_a_record_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    record = random.randbytes(1000)
    before, after = frame(record)
    got = shrinking(TFRecordSource, tmp_path / "r", (before + record + after) * 2000)
    assert isinstance(got[-1], errors.DataLossError)
    assert "truncated record" in got[-1].message
    assert set(got[:-1]) == {record}


def test_a_large_record_in_a_file_that_shrinks(tmp_path: Path) -> None:
    small, large = b"x", bytes(8 * PIECE)
    data = b"".join([frame(small)[0], small, frame(small)[1], frame(large)[0], large])
    got = shrinking(TFRecordSource, tmp_path / "r", data + frame(large)[1])
    assert got[0] == small
    assert isinstance(got[1], errors.DataLossError)
    assert "truncated record at 17" in got[1].message
    assert len(got) == 2


def test_fixed_records_in_a_file_that_shrinks(tmp_path: Path) -> None:
    got = shrinking(lambda path: FixedLengthSource(path, 999), tmp_path / "r", bytes(999 * 2001))
    assert isinstance(got[-1], errors.DataLossError)
    assert "must consist of records of 999 bytes" in got[-1].message


def test_lines_of_damaged_compressed_files(tmp_path: Path) -> None:
    import gzip

    lines = [random.randbytes(40).hex().encode() for _ in range(30_000)]
    data = gzip.compress(b"\n".join(lines))
    path = tmp_path / "r"
    for at in (len(data) // 2, len(data) - 5):
        path.write_bytes(data[:at])
        got = list(drain(LineSource(str(path), "GZIP")))
        assert isinstance(got[-1], errors.DataLossError)
        assert f"{path} is not complete GZIP data at offset {at}" in got[-1].message
        assert got[:-1] == lines[: len(got) - 1]
    path.write_bytes(data[: len(data) // 2] + b"garbage" + data[len(data) // 2 :])
    got = list(drain(LineSource(str(path), "GZIP")))
    assert sum(isinstance(each, errors.DataLossError) for each in got) == 1


@pytest.mark.parametrize("kind", ["ZLIB", "GZIP"])
def test_a_record_without_an_end_in_sight_is_bounded(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 4 * PIECE
    monkeypatch.setattr(streams, "MAX_INFLATED", most)
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31 if kind == "GZIP" else 15)
    path = tmp_path / "f"
    text = b"a\n" + bytes(20 * PIECE) + b"\nb\n"
    path.write_bytes(deflate.compress(hostile(2 * most) + text) + deflate.flush())
    fixed = FixedLengthSource(str(path), most + 1, compression=kind)
    for source in (TFRecordSource(str(path), kind), LineSource(str(path), kind), fixed):
        tracemalloc.start()
        *_, error, end = [*drain(source), None]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert isinstance(error, errors.DataLossError) and end is None
        assert f"must have at most {most} bytes" in str(error)
        assert peak < 2 * most
