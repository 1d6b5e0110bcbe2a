"""The format of an iterator's state: round trips, and rejection of hostile data."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google_crc32c import value as crc32c
from hypothesis import given, strategies as st

from weft_io.streams.state import decode, encode
from weft_tensor import errors

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
VALUES = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=4), max_leaves=20)


def sealed(body: bytes) -> bytes:
    data = b"weftiter" + struct.pack("<IQ", 1, len(body)) + body
    return data + crc32c(data).to_bytes(4, "little")


@given(VALUES)
def test_plain_values_come_back(value: Any) -> None:
    found = decode(encode(value))
    assert found == value and repr(found) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.zeros((0, 4), np.float64),
        np.array([[b"", b"ab"], [b"c", b"\0"]], object),
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
)
def test_arrays_come_back(array: np.ndarray) -> None:
    (found,) = decode(encode([array]))
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tolist() == array.tolist()
    found[...] = found  # may be written to


def test_scalars_come_back_as_scalars() -> None:
    (found,) = decode(encode([np.float32(1.5)]))
    assert type(found) is np.float32 and found == 1.5


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(errors.UnimplementedError, match="object"):
        encode([object()])


@given(st.data())
def test_every_flipped_byte_is_noticed(data: Any) -> None:
    whole = bytearray(encode([1, b"abc", np.arange(3)]))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((errors.InvalidArgumentError, errors.DataLossError)):
        decode(bytes(whole))


@given(st.binary(max_size=60))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    try:
        decode(sealed(body))
    except errors.DataLossError as error:
        assert "damaged" in error.message


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"b" + struct.pack("<Q", 1 << 60), "says"),
        (b"l" + struct.pack("<Q", 1 << 60), "says"),
        (b"a\x05int64\x02" + struct.pack("<QQ", 1 << 40, 1 << 40), "shape"),
        (b"a\x05int64\x02" + struct.pack("<QQ", 1 << 63, 0), "shape"),
        (b"a\x03abc\x00", "element type"),
        (b"a\x05int64\xff", "rank"),
        (b"".join([b"l" + struct.pack("<Q", 1)] * 300) + b"N", "lists within"),
        (b"NN", "too many"),
        (b"x", "no value"),
        (b"", "needs"),
    ],
)
def test_hostile_bodies_are_refused_before_memory_is_spent(body: bytes, what: str) -> None:
    with pytest.raises(errors.DataLossError, match=what):
        decode(sealed(body))


def test_other_versions_and_other_data_are_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="weftiter"):
        decode(b"something else")
    whole = bytearray(encode(None))
    whole[8] = 9
    with pytest.raises(errors.InvalidArgumentError, match="version 1, got 9"):
        decode(bytes(whole))
    with pytest.raises(errors.DataLossError, match="fewer"):
        decode(b"weftiter")
