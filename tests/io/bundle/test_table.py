"""Tables: round trips, and detection of damage at every position."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, strategies as st
from weft_testing.recorded import BUNDLES

from weft_io.bundle.checksum import crc32c, mask_crc
from weft_io.bundle.key_encoding import put_varint
from weft_io.bundle.table import FOOTER, TABLE_MAGIC, TableReader, is_table, table_bytes
from weft_tensor import errors

FILE = "/some/model.index"
KEYS = st.lists(st.binary(max_size=12), max_size=60, unique=True).map(sorted)


def read(data: bytes) -> list[tuple[bytes, bytes]]:
    return list(TableReader(data, FILE).items())


def block(content: bytes, kind: int = 0) -> bytes:
    """A block behind its trailer; `content` ends in its restart points."""
    body = content + bytes([kind])
    return body + struct.pack("<I", mask_crc(crc32c(body)))


def entry(shared: int, key: bytes, value: bytes) -> bytes:
    return b"".join(map(put_varint, (shared, len(key), len(value)))) + key + value


RESTARTS = struct.pack("<II", 0, 1)


def table(
    entries: bytes, kind: int = 0, limit: bytes = b"\xff", size: int = 0, restarts: bytes = RESTARTS
) -> bytes:
    """A table of one block with these entries."""
    data = block(entries + restarts, kind)
    meta = block(RESTARTS)
    place = put_varint(0) + put_varint(size or len(data) - 5)
    index = block(entry(0, limit, place) + RESTARTS)
    places = put_varint(len(data)) + put_varint(len(meta) - 5)
    places += put_varint(len(data) + len(meta)) + put_varint(len(index) - 5)
    return data + meta + index + places.ljust(FOOTER - 8, b"\0") + TABLE_MAGIC


def test_checksums() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert crc32c(b"") == 0
    assert mask_crc(0xE3069283) == 0xC78AB0E5


@given(KEYS, st.integers(1, 200))
def test_entries_come_back(keys: list[bytes], block_size: int) -> None:
    items = [(key, key[::-1] * 3) for key in keys]
    data = table_bytes(items, block_size)
    assert is_table(data) and read(data) == items


def test_many_blocks() -> None:
    items = [(b"scope/%05d/weights" % i, b"v" * (i % 7)) for i in range(3000)]
    assert len(table_bytes(items, 1000)) > len(table_bytes(items)) > 20_000
    assert read(table_bytes(items, 1000)) == items


def test_a_file_of_tensorflow() -> None:
    data = (BUNDLES / "types.index").read_bytes()
    items = read(data)
    assert items[0][0] == b"" and len(items) == 28
    assert table_bytes(items) == data


@pytest.mark.parametrize("block_size", [50, 1 << 18])
def test_every_bit_is_checked(block_size: int) -> None:
    items = [(b"name/%d" % i, b"value" * (i % 3)) for i in range(8)]
    data = table_bytes(items, block_size)
    for position in range(len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[position] ^= 1 << bit
            with pytest.raises(errors.DataLossError, match=rf"^{FILE} is damaged at byte \d+"):
                read(bytes(bad))


def test_every_cut_and_every_gap() -> None:
    data = table_bytes([(b"name/%d" % i, b"value") for i in range(8)], 40)
    for position in range(len(data)):
        for bad in (
            data[:position],
            data[position + 1 :],
            data[:position] + b"\0" + data[position:],
        ):
            with pytest.raises(errors.DataLossError, match=FILE):
                read(bad)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (entry(1, b"a", b""), r"1 \+ 1 and 0 bytes does not fit"),
        (entry(0, b"b", b"") + entry(0, b"a", b""), "b'a' comes after b'b'"),
        (entry(0, b"a", b"") + entry(0, b"a", b""), "b'a' comes after b'a'"),
        (entry(0, b"a", b"12345")[:-3], "does not fit"),
        (b"\xff" * 11, "truncated, too large"),
        (b"\x00\x80", "truncated"),
    ],
)
def test_entries_that_cannot_be(entries: bytes, text: str) -> None:
    with pytest.raises(errors.DataLossError, match=text):
        read(table(entries))


def test_places_that_cannot_be() -> None:
    good = table(entry(0, b"a", b"1"))
    assert read(good) == [(b"a", b"1")]
    with pytest.raises(errors.DataLossError, match=r"no key is above b'Z'"):
        read(table(entry(0, b"a", b"1"), limit=b"Z"))
    with pytest.raises(errors.DataLossError, match="the rest of the footer"):
        read(good[:-9] + b"\1" + good[-8:])
    for size in (3, 10**6):
        with pytest.raises(errors.DataLossError, match=f"a block of {size} bytes does not fit"):
            read(table(entry(0, b"a", b"1"), size=size))
    with pytest.raises(errors.DataLossError, match="9 restart points do not fit"):
        read(table(b"", restarts=struct.pack("<II", 0, 9)))


def test_compressed_blocks_are_refused_by_name() -> None:
    with pytest.raises(errors.UnimplementedError, match=r"compressed block \(snappy\) at byte 0"):
        read(table(entry(0, b"a", b"1"), kind=1))


def test_keys_take_no_more_room_than_the_file_allows() -> None:
    first = entry(0, b"k" * 100_000, b"")
    more = b"".join(entry(100_000 + i, b"k", b"") for i in range(2000))
    data = table(first + more, limit=b"\xff")
    with pytest.raises(errors.ResourceExhaustedError, match="8 times as much memory"):
        read(data)


def test_text_that_is_no_table() -> None:
    wrong: Any = b'{"format":"weft-checkpoint"}' * 4
    with pytest.raises(errors.DataLossError, match="a table ends in 57fb808b247547db"):
        read(wrong)
