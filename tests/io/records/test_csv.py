"""CSV against Python's own reader, and the errors that name field and record."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_io.records.csv import CsvDecoder
from weft_tensor import dtypes, errors

fields = st.text(st.sampled_from('ab ,;"\n\r0.é'), max_size=6)


@given(st.lists(st.lists(fields, min_size=3, max_size=3), max_size=6), st.sampled_from(",;\t"))
def test_what_pythons_writer_writes(rows: list[list[str]], delimiter: str) -> None:
    records = []
    for row in rows:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="", quoting=csv.QUOTE_ALL).writerow(
            row
        )
        records.append(text.getvalue().encode())
    decoder = CsvDecoder([dtypes.string] * 3, delimiter.encode())
    columns = decoder.decode(records, [b"missing"] * 3)
    got = [[value.decode() for value in row] for row in zip(*columns, strict=True)]
    assert got == [[field or "missing" for field in row] for row in rows]


@given(st.lists(st.floats(width=32) | st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_numbers(values: list[float]) -> None:
    records = [repr(value).encode() for value in values]
    for dtype in (dtypes.float32, dtypes.float64):
        (got,) = CsvDecoder([dtype]).decode(records, [None])
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got, np.array(values, np.float64).astype(dtype.numpy))
    whole = [value for value in values if isinstance(value, int)]
    for dtype in (dtypes.int32, dtypes.int64):
        (got,) = CsvDecoder([dtype]).decode([b" %d " % value for value in whole], [None])
        assert got.tolist() == whole
        assert got.dtype == dtype.numpy


def decode(record: bytes, dtype: Any = dtypes.string, count: int = 3, **options: Any) -> list[Any]:
    return [
        column[0].item() if column.dtype.kind != "O" else column[0]
        for column in CsvDecoder([dtype] * count, **options).decode([record], [None] * count)
    ]


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (b"a,b,c", [b"a", b"b", b"c"]),
        (b'"a,b","c""d",e', [b"a,b", b'c"d', b"e"]),
        (b'"a\r\nb",c,d', [b"a\r\nb", b"c", b"d"]),
        (b'"a""",b,c', [b'a"', b"b", b"c"]),
        (b'\r\na,"b",c', [b"a", b"b", b"c"]),
        (b'a,b,"c"', [b"a", b"b", b"c"]),
    ],
)
def test_quotes(record: bytes, wanted: list[bytes]) -> None:
    assert decode(record) == wanted


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"a,b", "Expect 3 fields but have 2 in record 0"),
        (b"a,b,c,d", "Expect 3 fields but have 4 in record 0"),
        (b"", "Expect 3 fields but have 0 in record 0"),
        (b"\n", "Expect 3 fields but have 0 in record 0"),
        (b"a,b,c\n", "Unquoted fields cannot have quotes/CRLFs inside in record 0"),
        (b"a\rb,c,d", "Unquoted fields cannot have quotes/CRLFs inside in record 0"),
        (b'a"b,c,d', "Unquoted fields cannot have quotes/CRLFs inside in record 0"),
        (b' "a",c,d', "Unquoted fields cannot have quotes/CRLFs inside in record 0"),
        (b'"a,b,c', "Quoted field has to end with quote followed by delim or end in record 0"),
        (b'a,b,"', "Quoted field has to end with quote followed by delim or end in record 0"),
        (b'"a"x,b,c', "Quote inside a string has to be escaped by another quote in record 0"),
        (b'a,b,"c"\n', "Quote inside a string has to be escaped by another quote in record 0"),
        (b"a,,c", "Field 1 is required but missing in record 0"),
        (b'a,"",c', "Field 1 is required but missing in record 0"),
    ],
)
def test_records_that_are_refused(record: bytes, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        decode(record)
    assert caught.value.message == message


@pytest.mark.parametrize("text", [b"a", b"1.0", b"0x10", b"1_0", b"99999999999", b"--1", b"\xff"])
def test_integers_that_are_none(text: bytes) -> None:
    good = b"7"
    message = r"Field 0 is not a valid int32: .* in record 1"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        CsvDecoder([dtypes.int32]).decode([good, text], [None])


@pytest.mark.parametrize("text", [b"a", b"1e", b"1_0", b"1f", b"\xff", b"0xg", b"1 2"])
def test_floats_that_are_none(text: bytes) -> None:
    message = r"Field 0 is not a valid float32: .* in record 1"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        CsvDecoder([dtypes.float32]).decode([b"7", text], [None])


def test_forms_of_floats() -> None:
    texts = [b" 1.5 ", b".5", b"5.", b"-INF", b"infinity", b"0x1p3", b"1e400", b"+2"]
    (got,) = CsvDecoder([dtypes.float64]).decode(texts, [None])
    assert got.tolist() == [1.5, 0.5, 5.0, -np.inf, np.inf, 8.0, np.inf, 2.0]


def test_missing_fields() -> None:
    decoder = CsvDecoder([dtypes.int64, dtypes.string], na_value=b"NA")
    numbers, words = decoder.decode([b"NA,x", b'"NA",NA', b",", b"5,NAN"], [-1, b"?"])
    assert numbers.tolist() == [-1, -1, -1, 5]
    assert words.tolist() == [b"x", b"?", b"?", b"NAN"]


def test_chosen_columns() -> None:
    assert decode(b"a,b,c,d", count=2, select=(1, 3)) == [b"b", b"d"]
    # What follows the last chosen column is not looked into.
    assert decode(b'"a",b,"c', count=2, select=(0, 1)) == [b"a", b"b"]
    with pytest.raises(errors.InvalidArgumentError, match="Expect 2 fields but have 1"):
        decode(b"a,b", count=2, select=(1, 3))


def test_without_quotes() -> None:
    assert decode(b'"a,b",c', quotes=False) == [b'"a', b'b"', b"c"]


def test_nothing() -> None:
    numbers, words = CsvDecoder([dtypes.int32, dtypes.string]).decode([], [None, None])
    assert (numbers.shape, numbers.dtype, words.shape) == ((0,), np.int32, (0,))
