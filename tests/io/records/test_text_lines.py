"""Text, fixed-length and whole files against plain Python."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from weft_io.files import gfile
from weft_io.records.fixed import FixedLengthSource
from weft_io.records.streams import PIECE, open_stream
from weft_io.records.text_lines import LineSource
from weft_io.records.whole_files import read_file
from weft_tensor import errors

COMPRESS = {"": bytes, "ZLIB": zlib.compress, "GZIP": gzip.compress}


def drain(source: Any) -> list[bytes]:
    found: list[bytes] = []
    while chunk := source.read_chunk():
        found += chunk
    assert source.read_chunk() == []
    source.close()
    source.close()
    return found


# --------------------------------------------------------------------------------- lines

contents = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"line", b"\n\n", b"x" * PIECE, b"y" * 1000]),
    max_size=20,
).map(b"".join)


def lines_of(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    return [re.sub(rb"\r\Z", b"", line) for line in lines]


@settings(max_examples=40)
@given(contents, st.sampled_from(sorted(COMPRESS)))
def test_lines(tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: str) -> None:
    path = tmp_path_factory.mktemp("l") / "text"
    path.write_bytes(COMPRESS[kind](data))
    source = LineSource(str(path), kind)
    assert drain(source) == lines_of(data)
    assert source.offset == len(data)


@settings(max_examples=40)
@given(contents, st.data())
def test_lines_from_the_offset_of_any_chunk(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, draw: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("l") / "text"
    path.write_bytes(data)
    source = LineSource(str(path))
    places = [(0, 0)]
    count = 0
    while chunk := source.read_chunk():
        count += len(chunk)
        places.append((source.offset, count))
    offset, before = draw.draw(st.sampled_from(places))
    assert drain(LineSource(str(path), "", offset)) == lines_of(data)[before:]


def test_a_line_of_many_pieces_is_read_in_linear_time(tmp_path: Path) -> None:
    size = 100 * PIECE
    (tmp_path / "text").write_bytes(b"a" * size + b"\nb")
    first, second = drain(LineSource(str(tmp_path / "text")))
    assert (len(first), second) == (size, b"b")


# ---------------------------------------------------------------------------- fixed length


def fixed_by_hand(
    data: bytes, record: int, header: int, footer: int, hop: int
) -> tuple[list[bytes], bool]:
    """The records, and whether bytes are left that belong to none."""
    body = data[header : len(data) - footer] if footer else data[header:]
    found = [body[at : at + record] for at in range(0, len(body) - record + 1, hop or record)]
    left = len(data) < header + footer or (hop in (0, record) and len(body) % record != 0)
    return found, left


@given(
    st.binary(max_size=60),
    st.integers(1, 9),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 12),
    st.sampled_from(sorted(COMPRESS)),
)
def test_fixed_length(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    record: int,
    header: int,
    footer: int,
    hop: int,
    kind: str,
) -> None:
    path = tmp_path_factory.mktemp("f") / "fixed"
    path.write_bytes(COMPRESS[kind](data))
    wanted, left = fixed_by_hand(data, record, header, footer, hop)
    found: list[bytes] = []
    try:
        source = FixedLengthSource(str(path), record, header, footer, hop, kind)
        while chunk := source.read_chunk():
            found += chunk
    except errors.DataLossError as error:
        assert left
        assert str(path) in error.message
    else:
        assert not left or hop not in (0, record)
    assert found == (wanted if len(data) >= header + footer else [])


@pytest.mark.parametrize("hop", [0, PIECE // 2, 3 * PIECE])
@pytest.mark.parametrize("kind", ["", "GZIP"])
def test_fixed_records_larger_than_a_piece(tmp_path: Path, hop: int, kind: str) -> None:
    record = 2 * PIECE + 3
    data = b"".join([bytes([i]) * 1000 for i in range(256)]) * 10
    data = data[: len(data) // record * record]
    path = tmp_path / "fixed"
    path.write_bytes(COMPRESS[kind](data))
    wanted, _ = fixed_by_hand(data, record, 0, 0, hop)
    assert drain(FixedLengthSource(str(path), record, hop_bytes=hop, compression=kind)) == wanted


def test_fixed_records_from_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "fixed"
    path.write_bytes(b"HH" + b"abcdefghi" + b"F")
    for offset in (5, 8):
        source = FixedLengthSource(str(path), 3, 2, 1, offset=offset)
        assert drain(source) == [b"def", b"ghi"][(offset - 5) // 3 :]


# ------------------------------------------------------------------------- whole, streams


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, 3 * PIECE + 7])
def test_whole_files(tmp_path: Path, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "f").write_bytes(data[:size])
    assert read_file(str(tmp_path / "f")) == data[:size]
    with gfile.GFile("memory://lines/whole", "wb") as file:
        file.write(data[:size])
    assert read_file("memory://lines/whole") == data[:size]


def test_other_compressions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(errors.InvalidArgumentError, match="'ZLIB' or 'GZIP', got 'BZ2'"):
        open_stream(str(tmp_path / "f"), "BZ2")


@pytest.mark.parametrize("kind", sorted(COMPRESS))
def test_an_offset_behind_the_end(tmp_path: Path, kind: str) -> None:
    (tmp_path / "f").write_bytes(COMPRESS[kind](b"12345"))
    with pytest.raises(errors.DataLossError, match="ends at offset 5, before the position"):
        open_stream(str(tmp_path / "f"), kind, 6)
    assert open_stream(str(tmp_path / "f"), kind, 5).read(1) == b""


def test_much_from_little_comes_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(gzip.compress(bytes(50 * PIECE)))
    stream = open_stream(str(tmp_path / "f"), "GZIP")
    total = 0
    while data := stream.read(PIECE):
        assert len(data) <= PIECE
        total += len(data)
    assert total == 50 * PIECE


def test_all_output_comes_before_the_end_of_an_unfinished_file(tmp_path: Path) -> None:
    for cut in range(1, 9):
        data = zlib.compress(b"a" * 1000)[:-cut]
        wanted = len(zlib.decompressobj().decompress(data))
        (tmp_path / "f").write_bytes(data)
        stream = open_stream(str(tmp_path / "f"), "ZLIB")
        assert b"".join(stream.read(1) for _ in range(wanted)) == b"a" * wanted
        with pytest.raises(errors.DataLossError, match="ends before its compressed data"):
            stream.read(1)
        assert stream.read(1) == b""
