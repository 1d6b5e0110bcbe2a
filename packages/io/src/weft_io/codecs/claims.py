"""Checks of image headers against the data, and translation of decoder errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft_tensor import errors

MAX_BYTES: Final = 1 << 29
"""The upper limit of the decoded size of an image, in bytes."""


def check_size(kind: str, width: int, height: int, depth: int, available: int | None) -> None:
    """Check a claimed image size before decoding.

    Args:
      kind: the name of the format.
      depth: bytes per pixel, over all frames.
      available: the largest number of pixels that the data can decode to; None if unknown.
    Raises: InvalidArgumentError: the image has no pixels, or more than the limit or `available`.
    """
    if width < 1 or height < 1:
        raise errors.InvalidArgumentError(
            f"a {kind} image must have pixels, the header claims {height} by {width}"
        )
    if width * height * depth >= MAX_BYTES:
        raise errors.InvalidArgumentError(
            f"a {kind} image must take less than {MAX_BYTES} bytes, the header claims {height} by "
            f"{width} pixels of {depth}"
        )
    if available is not None and width * height > available:
        raise errors.InvalidArgumentError(
            f"the {kind} image is not complete: the header claims {height} by {width} pixels, "
            "more than its bytes can hold"
        )


@contextmanager
def convert_decoder_errors(kind: str, size: int) -> Iterator[None]:
    """Convert any exception of a decoder inside the block to InvalidArgumentError."""
    try:
        yield
    except (errors.OpError, MemoryError):
        raise
    except Exception as cause:  # because decoders raise what they like for bytes of any kind
        raise errors.InvalidArgumentError(
            f"{size} bytes are not a {kind} image that can be decoded: {cause}"
        ) from cause
