"""Text and bytes, and the Python and NumPy classes that count as numbers of a kind."""

from __future__ import annotations

import os
from numbers import Complex, Integral, Real
from typing import Any, Final

import numpy as np

from weft_tensor.errors import InvalidTypeError

bytes_or_text_types: Final = (bytes, str)
integral_types: Final = (Integral, np.integer)
real_types: Final = (Real, np.integer, np.floating)
complex_types: Final = (Complex, np.number)


def as_bytes(bytes_or_text: str | bytes | bytearray, encoding: str = "utf-8") -> bytes:
    """Return bytes unchanged, and text encoded.

    Args:
      bytes_or_text: bytes or text.
      encoding: encoding of the text.
    Raises: InvalidTypeError: it is neither.

    Examples:
      >>> wf.compat.as_bytes("weft")
      b'weft'
    """
    if isinstance(bytes_or_text, bytes | bytearray):
        return bytes(bytes_or_text)
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    raise _neither(bytes_or_text)


def as_text(bytes_or_text: str | bytes, encoding: str = "utf-8") -> str:
    """Return text unchanged and bytes decoded.

    Args:
      bytes_or_text: bytes or text.
      encoding: encoding of the bytes.
    Raises: InvalidTypeError: it is neither.

    Examples:
      >>> wf.compat.as_str(b"weft")
      'weft'
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    raise _neither(bytes_or_text)


as_str = as_text


def as_str_any(value: Any) -> str:
    """Return bytes decoded, and any other object converted by `str`.

    Args:
      value: any object; bytes are UTF-8.

    Examples:
      >>> wf.compat.as_str_any(b"text"), wf.compat.as_str_any(3)
      ('text', '3')
    """
    return as_text(value) if isinstance(value, bytes) else str(value)


def path_to_str(path: Any) -> Any:
    """Return the text of a path object; return other objects unchanged.

    Args:
      path: any object; objects with `__fspath__` count as paths.

    Examples:
      >>> import pathlib
      >>> wf.compat.path_to_str(pathlib.PurePosixPath("logs/run1"))
      'logs/run1'
    """
    return as_str_any(os.fspath(path)) if hasattr(path, "__fspath__") else path


def _neither(value: object) -> InvalidTypeError:
    return InvalidTypeError(f"expected text or bytes, got {value!r}")
