"""Uncompressed BMP: gray values, or blue, green and red, optionally with alpha."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from weft_io.codecs.claims import check_size, convert_decoder_errors
from weft_tensor import errors

Array = np.ndarray[Any, Any]

SIGNATURE: Final = b"BM"


def decode_bmp(data: bytes, channels: int) -> Array:
    """Decode the pixels of a BMP file; 8-bit values are gray levels, and the palette is ignored.

    Args:
      channels: 1, 3, 4, or 0 for the file's number of channels.
    Returns: uint8, shape (height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or have another number of channels.
    """
    with convert_decoder_errors("BMP", len(data)):
        if data[:2] != SIGNATURE:
            raise ValueError("the signature is wrong")
        start, _, width, signed_height, _, bits = struct.unpack_from("<IIiiHH", data, 10)
        if bits not in (8, 24, 32):
            raise ValueError(f"pixels must have 8, 24 or 32 bits, got {bits}")
        height, depth = abs(signed_height), bits // 8
        row = (width * depth + 3) // 4 * 4
        check_size("BMP", width, height, depth, (len(data) - start) // depth)
        if start + row * (height - 1) + width * depth > len(data):
            raise ValueError(f"{height} rows of {row} bytes are incomplete")
    if channels not in (0, depth):
        raise errors.InvalidArgumentError(
            f"channels must be the number of the BMP image, {depth}, or 0, got {channels}"
        )
    body = data[start : start + row * height].ljust(row * height, b"\0")
    rows = np.frombuffer(body, np.uint8).reshape(height, row)[:, : width * depth]
    pixels = rows.reshape(height, width, depth)
    if signed_height > 0:
        pixels = pixels[::-1]
    if depth > 1:
        pixels = pixels[:, :, [2, 1, 0, 3][:depth]]
    return np.ascontiguousarray(pixels)
