"""Conversion of errors of other packages for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft_lite.errors import BY_CODE, LiteError
from weft_tensor.errors import OpError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Convert errors of other weft packages to those of this package."""
    try:
        yield
    except OpError as error:
        raise BY_CODE.get(error.code, LiteError)(error.message) from error
    except ImportError as error:  # onnx, which only some need
        raise LiteError(str(error)) from error
