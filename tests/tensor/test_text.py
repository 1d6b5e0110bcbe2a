"""Text and bytes."""

from __future__ import annotations

import numbers
from pathlib import PurePosixPath

import numpy as np
import pytest

from weft_tensor import errors, text


@pytest.mark.parametrize("value", ["é", "é".encode()])
def test_both_become_either(value: str | bytes) -> None:
    assert text.as_bytes(value) == "é".encode()
    assert text.as_text(value) == text.as_str(value) == text.as_str_any(value) == "é"


def test_other_encodings() -> None:
    assert text.as_bytes("é", "latin-1") == b"\xe9"
    assert text.as_text(b"\xe9", encoding="latin-1") == "é"
    assert text.as_bytes(bytearray(b"a")) == b"a"


def test_what_is_neither() -> None:
    with pytest.raises(errors.InvalidTypeError, match="expected text or bytes, got 3"):
        text.as_bytes(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        text.as_text(None)  # type: ignore[arg-type]
    assert text.as_str_any(3) == "3"


def test_paths() -> None:
    assert text.path_to_str(PurePosixPath("a/b")) == "a/b"
    assert text.path_to_str("a/b") == "a/b"
    assert text.path_to_str(None) is None


def test_classes_of_numbers() -> None:
    assert isinstance("a", text.bytes_or_text_types) and isinstance(b"a", text.bytes_or_text_types)
    assert isinstance(np.int8(1), text.integral_types) and isinstance(1, numbers.Integral)
    assert not isinstance(1.5, text.integral_types)
    assert isinstance(np.float16(1), text.real_types) and isinstance(1, text.real_types)
    assert not isinstance(1j, text.real_types)
    assert isinstance(np.complex64(1), text.complex_types) and isinstance(1j, text.complex_types)
