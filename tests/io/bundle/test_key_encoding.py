"""Varints, and keys whose bytes sort like their values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_io.bundle.key_encoding import (
    MalformedError,
    get_varint,
    get_varints,
    put_varint,
    slice_key,
)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_number_comes_back(value: int, behind: bytes) -> None:
    data = put_varint(value)
    assert get_varint(data + behind, 0, len(data) + len(behind)) == (value, len(data))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\x80\x00", b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x81\x80\x00"],
    ids=["empty", "cut", "long zero", "2**64", "eleven bytes", "longer than necessary"],
)
def test_what_is_no_number(data: bytes) -> None:
    with pytest.raises(MalformedError) as caught:
        get_varint(b"x" + data, 1, 1 + len(data))
    assert caught.value.position == 1


@given(st.lists(st.integers(0, 2**63 - 1), max_size=40), st.binary(max_size=5))
def test_many_numbers(values: list[int], behind: bytes) -> None:
    data = b"".join(map(put_varint, values))
    array = np.frombuffer(data + behind, np.uint8)
    found, length = get_varints(array, len(values))
    assert (found.tolist(), length) == (values, len(data))


def test_too_few_numbers_and_too_large_ones() -> None:
    with pytest.raises(MalformedError, match="3 lengths"):
        get_varints(np.frombuffer(b"\x01\x02\x80", np.uint8), 3)
    with pytest.raises(MalformedError, match="too large"):
        get_varints(np.frombuffer(b"\xff" * 9 + b"\x01", np.uint8), 1)


SIGNED = {
    0: "80",
    1: "81",
    63: "bf",
    64: "c040",
    -1: "7f",
    -64: "40",
    -65: "3fbf",
    8191: "dfff",
    8192: "e02000",
    2**61: "ffa0" + "00" * 7,
    2**62: "ffc0" + "40" + "00" * 7,
    2**63 - 1: "ffc07fffffffffffffff",
    -(2**63): "003f8000000000000000",
}


@pytest.mark.parametrize("value", SIGNED, ids=str)
def test_signed_numbers_in_keys(value: int) -> None:
    key = slice_key(b"", [(value, -1)])
    assert key.hex() == "00" + "0001" + "0101" + SIGNED[value] + "7f"


def test_names_in_keys() -> None:
    assert (
        slice_key(b"a\x00\xffb", []).hex() == "00" + "61" + "00ff" + "ff00" + "62" + "0001" + "00"
    )


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(-1, 2**62)), min_size=1, max_size=3))
def test_keys_sort_as_what_they_stand_for(extents: list[tuple[int, int]]) -> None:
    start, length = extents[0]
    later = [(start + 1, length), *extents[1:]]
    assert slice_key(b"v", extents) < slice_key(b"v", later)
    assert slice_key(b"v", extents) < slice_key(b"v" + b"\x00", extents)
