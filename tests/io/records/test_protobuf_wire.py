"""Varints in bulk against protobuf's, and the place of a fault."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_graph import proto
from weft_io.records.feature_scanner import EXAMPLE
from weft_io.records.protobuf_wire import (
    LEADING_PADDING,
    TRAILING_PADDING,
    MalformedVarintsError,
    decode_varints,
    find_fault,
)


def packed(values: list[int]) -> bytes:
    data: bytes = proto.Int64List(value=values).SerializeToString()
    if not data:
        return b""
    return data[1 + next(i for i, byte in enumerate(data[1:], 1) if byte < 0x80) :]


numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**20) | st.integers(0, 127)


@given(st.lists(st.lists(numbers, max_size=12), max_size=8))
def test_rows_of_varints(rows: list[list[int]]) -> None:
    fields = [packed(row) for row in rows]
    ends = np.cumsum([len(field) for field in fields], dtype=np.int64)
    count = sum(map(len, rows))
    for expected in (-1, count):
        values, stops = decode_varints(
            b"".join([LEADING_PADDING, *fields, TRAILING_PADDING]), ends, expected
        )
        assert values.tolist() == [value for row in rows for value in row]
        assert np.diff(stops, prepend=0).tolist() == [len(row) for row in rows]


def test_fields_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "empty_like", lambda array: np.full_like(array, 77))
    for fields in ([b"", b"", b""], [b"", b"\x01", b"", b""]):
        ends = np.cumsum([len(each) for each in fields], dtype=np.int64)
        _, stops = decode_varints(b"".join([LEADING_PADDING, *fields, TRAILING_PADDING]), ends)
        assert stops.tolist() == ends.tolist()
    monkeypatch.undo()


@given(st.lists(st.lists(numbers, max_size=5), min_size=1, max_size=5), st.integers(0, 30))
def test_another_number_than_expected(rows: list[list[int]], expected: int) -> None:
    fields = [packed(row) for row in rows]
    ends = np.cumsum([len(field) for field in fields], dtype=np.int64)
    _, stops = decode_varints(
        b"".join([LEADING_PADDING, *fields, TRAILING_PADDING]), ends, expected
    )
    assert np.diff(stops, prepend=0).tolist() == [len(row) for row in rows]


@pytest.mark.parametrize(
    ("bad", "fine"),
    [
        (b"\x80", False),
        (b"\x01\xff\xff", False),
        (b"\x80" * 10 + b"\x01", False),
        (b"\x80" * 9 + b"\x02", False),
        (b"\xff" * 9 + b"\x01", True),
        (b"\x80" * 9 + b"\x00", True),
        (b"\x80" * 100_000, False),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 70_000])
def test_malformed_rows_are_named(bad: bytes, fine: bool, before: int) -> None:
    rows = [b"\x01" * before, b"", bad, b"\x02", b"\x81\x01"]
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    data = b"".join([LEADING_PADDING, *rows, TRAILING_PADDING])
    if fine:
        assert decode_varints(data, ends)[0].tolist()[before + 1 :] == [2, 129]
        return
    with pytest.raises(MalformedVarintsError) as caught:
        decode_varints(data, ends)
    assert caught.value.rows == [2]


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"\x00", 0, "invalid start of a field"),
        (b"\x0a\x05abc", 0, "field 1 says it has 5 bytes, 3 are left"),
        (b"\x0a\x02\x0f\x00", 2, "field 1 has wire type 7"),
        (b"\x10\x80", 0, "field 2 is an unterminated varint"),
        (b"\x15\x00\x00", 0, "field 2 has fixed size, 3 bytes are left"),
        (b"\x0a\x05\x0a\x03\x0a\x01\xff", 6, "a name must be UTF-8"),
        (
            b"\x0a\x0b\x0a\x09\x12\x07\x12\x05\x0a\x03abc",
            10,
            "packed floats must be multiples",
        ),
        (b"\x0a\x0a\x0a\x08\x12\x06\x1a\x04\x0a\x02\x01\x80", 11, "an integer does not end"),
    ],
)
def test_the_place_of_a_fault(data: bytes, offset: int, reason: str) -> None:
    found, why = find_fault(data, EXAMPLE)
    assert (found, why[: len(reason)]) == (offset, reason)
