"""Detection of image formats, and the decoder of each format."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_io.codecs import bmp, gif, jpeg, png, webp
from weft_tensor import errors

Array = np.ndarray[Any, Any]

_STARTS: Final = {
    jpeg.SIGNATURE: "JPEG",
    png.SIGNATURE: "PNG",
    gif.SIGNATURE: "GIF",
    bmp.SIGNATURE: "BMP",
}


def format_of(data: bytes) -> str:
    """Return the format of an image, recognized by its first bytes.

    Raises: InvalidArgumentError: the format is unknown.
    """
    for start, name in _STARTS.items():
        if data.startswith(start):
            return name
    if data[:4] == webp.SIGNATURE[0] and data[8:12] == webp.SIGNATURE[1]:
        return "WebP"
    raise errors.InvalidArgumentError(
        f"an image must be JPEG, PNG, GIF, BMP or WebP, got {len(data)} bytes that start with "
        f"{data[:8]!r}"
    )


def decode_frames(data: bytes, channels: int, bits: int, only_first: bool = False) -> Array:
    """Decode the pixels of an image of any format.

    Args:
      channels: number of channels; 0 for the file's.
      bits: 8 or 16, which only PNG has.
      only_first: decode only the first frame.
    Returns: uint8 or uint16, shape (height, width, channels); formats that may have several
      frames have one more axis in front.
    Raises: InvalidArgumentError: the bytes cannot be decoded, or not to that number of channels.
    """
    name = format_of(data)
    check_channels(name, channels)
    if name == "PNG":
        return png.decode_png(data, channels, bits)
    if name == "JPEG":
        return jpeg.decode_jpeg(data, channels)
    if name == "BMP":
        return bmp.decode_bmp(data, channels)
    if name == "GIF":
        return gif.decode_gif(data, only_first)
    return webp.decode_webp(data, channels, only_first)


_CHANNELS: Final = {"GIF": (0, 3), "JPEG": (0, 1, 3), "WebP": (0, 3, 4)}


def check_channels(name: str, channels: int) -> None:
    """Check that a format supports a number of channels.

    Raises: InvalidArgumentError: it does not.
    """
    allowed = _CHANNELS.get(name, (0, 1, 3, 4))
    if channels not in allowed:
        raise errors.InvalidArgumentError(
            f"channels must be one of {list(allowed)} for {name}, got {channels}"
        )
