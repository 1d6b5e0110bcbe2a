"""TFRecord files: round trips in every compression, at every size, from any position."""

from __future__ import annotations

import array
import gzip
import os
import random
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from weft_io.files import gfile
from weft_io.records.options import TFRecordCompressionType
from weft_io.records.python_io import TFRecordOptions, tf_record_batches, tf_record_iterator
from weft_io.records.streams import PIECE
from weft_io.records.tfrecord import TFRecordSource, TFRecordWriter, masked_crc
from weft_tensor import errors

KINDS = ("", "ZLIB", "GZIP")

GOLDEN = bytes.fromhex("0300000000000000b099490e6162636e57f121")
"""The record b"abc" as TensorFlow 2.21 writes it."""


def write(path: Path, records: list[bytes], kind: str = "") -> None:
    with TFRecordWriter(path, kind) as writer:
        for record in records:
            writer.write(record)


def read(source: TFRecordSource) -> Iterator[bytes]:
    while records := source.read_chunk():
        yield from records


def test_masked_crc_of_rfc_3720() -> None:
    # CRC-32C of 32 bytes of zeros is 8a9136aa (RFC 3720, B.4), then masked.
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def test_bytes_are_tensorflows(tmp_path: Path) -> None:
    write(tmp_path / "r", [b"abc"])
    assert (tmp_path / "r").read_bytes() == GOLDEN


sizes = st.sampled_from([0, 1, 11, 12, 13, 100, 5000, PIECE - 28, PIECE - 16, PIECE, 3 * PIECE])


@settings(max_examples=25)
@given(st.lists(sizes, max_size=6), st.sampled_from(KINDS))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], kind: str) -> None:
    path = tmp_path_factory.mktemp("r") / "records"
    records = [random.randbytes(size) for size in sizes]
    write(path, records, kind)
    source = TFRecordSource(str(path), kind)
    assert list(read(source)) == records
    assert source.read_chunk() == []
    assert source.offset == sum(sizes) + 16 * len(sizes)
    assert list(tf_record_iterator(path, TFRecordOptions(kind))) == records


@settings(max_examples=25)
@given(st.lists(sizes, min_size=1, max_size=6), st.data())
def test_reading_starts_at_any_record(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("r") / "records"
    records = [bytes([i]) * size for i, size in enumerate(sizes)]
    kind = data.draw(st.sampled_from(KINDS))
    write(path, records, kind)
    first = data.draw(st.integers(0, len(records)))
    offset = sum(sizes[:first]) + 16 * first
    assert list(read(TFRecordSource(str(path), kind, offset))) == records[first:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches(tmp_path: Path, kind: str, size: int) -> None:
    records = [b"%d" % i for i in range(250)]
    write(tmp_path / "r", records, kind)
    batches = list(tf_record_batches(tmp_path / "r", size, kind))
    assert [record for batch in batches for record in batch] == records
    assert all(len(batch) == size for batch in batches[:-1])
    assert 0 < len(batches[-1]) <= size


def test_other_libraries_read_the_compressed_files(tmp_path: Path) -> None:
    for kind, expand in (("ZLIB", zlib.decompress), ("GZIP", gzip.decompress)):
        write(tmp_path / kind, [b"abc"], kind)
        assert expand((tmp_path / kind).read_bytes()) == GOLDEN


def test_parts_that_were_compressed_one_by_one_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(gzip.compress(GOLDEN) + gzip.compress(b"") + gzip.compress(GOLDEN))
    assert list(tf_record_iterator(tmp_path / "r", "GZIP")) == [b"abc", b"abc"]


def test_options_reach_the_compressor(tmp_path: Path) -> None:
    record = bytes(range(256)) * 100
    found = {}
    for level in (0, 9):
        path = tmp_path / str(level)
        with TFRecordWriter(path, TFRecordOptions("ZLIB", compression_level=level)) as writer:
            writer.write(record)
        found[level] = path.stat().st_size
        assert list(tf_record_iterator(path, "ZLIB")) == [record]
    assert found[9] < len(record) < found[0]
    path = tmp_path / "small"
    options = TFRecordOptions("GZIP", window_bits=9, mem_level=1, compression_strategy=2)
    with TFRecordWriter(path, options) as writer:
        writer.write(record)
    assert list(tf_record_iterator(path, "GZIP")) == [record]


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        (None, ""),
        ("", ""),
        ("GZIP", "GZIP"),
        (TFRecordCompressionType.ZLIB, "ZLIB"),
        (TFRecordCompressionType.NONE, ""),
        (TFRecordOptions("GZIP"), "GZIP"),
        (TFRecordOptions(TFRecordOptions(2)), "GZIP"),
    ],
)
def test_names_of_compressions(given_: Any, wanted: str) -> None:
    assert TFRecordOptions.get_compression_type_string(given_) == wanted


@pytest.mark.parametrize(
    "arguments",
    [
        {"compression_type": "ZSTD"},
        {"compression_type": 3},
        {"compression_type": []},
        {"compression_level": 10},
        {"window_bits": 8},
        {"mem_level": 0},
        {"compression_method": 7},
        {"flush_mode": 4},
    ],
)
def test_options_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be"):
        TFRecordOptions(**arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_flushed_is_read_while_the_writer_goes_on(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "r"
    writer = TFRecordWriter(path, kind)
    writer.write(b"first")
    writer.flush()
    source = TFRecordSource(str(path), kind)
    assert source.read_chunk() == [b"first"]
    writer.write("zweiter")
    writer.close()
    writer.close()
    assert list(tf_record_iterator(path, kind)) == [b"first", b"zweiter"]
    with pytest.raises(errors.FailedPreconditionError, match="is closed"):
        writer.write(b"third")


def test_buffers_are_records(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "r") as writer:
        writer.write(bytearray(b"ab"))
        writer.write(memoryview(b"cd"))
    assert list(tf_record_iterator(tmp_path / "r")) == [b"ab", b"cd"]


def test_urls() -> None:
    with TFRecordWriter("memory://tfrecord/a/r", "GZIP") as writer:
        for i in range(1000):
            writer.write(b"%d" % i)
    assert gfile.exists("memory://tfrecord/a/r")
    assert list(tf_record_iterator("memory://tfrecord/a/r", "GZIP")) == [
        b"%d" % i for i in range(1000)
    ]
    with pytest.raises(errors.NotFoundError, match="memory://tfrecord/none"):
        list(tf_record_iterator("memory://tfrecord/none"))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="none"):
        list(tf_record_iterator(tmp_path / "none"))
    with pytest.raises(errors.FailedPreconditionError, match="directory"):
        list(tf_record_iterator(tmp_path))
    with pytest.raises(errors.NotFoundError, match="no/where"):
        TFRecordWriter(tmp_path / "no" / "where")
    write(tmp_path / "empty", [])
    assert list(tf_record_iterator(tmp_path / "empty")) == []
    assert list(tf_record_batches(tmp_path / "empty", 3)) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_read(tmp_path: Path) -> None:
    import threading

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(GOLDEN * 3))
    writer.start()
    assert list(tf_record_iterator(tmp_path / "pipe")) == [b"abc"] * 3
    writer.join()


def test_memory_stays_that_of_a_piece(tmp_path: Path) -> None:
    record = bytes(1000)
    path = tmp_path / "r"
    with TFRecordWriter(path) as writer:
        for _ in range(20_000):
            writer.write(record)
    next(tf_record_iterator(path))
    tracemalloc.start()
    try:
        count = sum(1 for _ in tf_record_iterator(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 8 * PIECE


@pytest.mark.parametrize(
    ("record", "error", "text"),
    [
        (3, errors.InvalidTypeError, "must be bytes, bytearray, memoryview or str, got 3"),
        ([1, 2], errors.InvalidTypeError, r"or str, got \[1, 2\]"),
        (None, errors.InvalidTypeError, "or str, got None"),
        (array.array("i", [1]), errors.InvalidTypeError, "or str, got array"),
        ("\udc80", errors.InvalidArgumentError, "must be encodable as UTF-8"),
    ],
)
def test_records_that_are_none(tmp_path: Path, record: Any, error: Any, text: str) -> None:
    path = tmp_path / "r"
    with TFRecordWriter(path) as writer, pytest.raises(error, match=text):
        writer.write(record)
    assert path.read_bytes() == b""


def test_records_of_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with TFRecordWriter(path) as writer:
        for record in (b"abc", bytearray(b"abc"), memoryview(b"a-b-c")[::2], "abc"):
            writer.write(record)
    assert path.read_bytes() == 4 * GOLDEN
