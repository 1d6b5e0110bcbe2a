"""Conversion of floating-point images to bytes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_tensor import errors

Array = np.ndarray[Any, Any]

_FLOAT32: Final = float(np.finfo(np.float32).max)
_DARK: Final = 1e-6
"""Images whose magnitudes are at most this value become 0, because scaling would amplify noise."""


def scale_to_bytes(image: Array, bad_color: Array) -> Array:
    """Convert a floating-point image to uint8.

    If no value is negative, the largest becomes 255. Otherwise 0 becomes 128, and the largest
    magnitude 1 or 255.

    Args:
      image: floating, shape (height, width, channels).
      bad_color: color of non-finite pixels: uint8, at least one value per channel.
    Returns: uint8, shape of `image`.
    """
    channels = image.shape[2]
    if len(bad_color) < channels:
        raise errors.InvalidArgumentError(
            f"bad_color must have a value for each of {channels} channels, got {len(bad_color)}"
        )
    wide = image.astype(np.float32) if image.itemsize < 4 else image
    finite = np.isfinite(wide).all(axis=2)
    finite_values = wide[finite]
    low, high = (finite_values.min(), finite_values.max()) if finite_values.size else (0.0, 0.0)
    if low < 0:
        largest, reach, offset = max(-low, high), 127.0, 128.0
    else:
        largest, reach, offset = high, 255.0, 0.0
    limit = np.float32(largest) if largest < _FLOAT32 else largest
    scale = wide.dtype.type(0 if largest < _DARK else reach / limit)
    result = np.empty(image.shape, np.uint8)
    result[finite] = finite_values * scale + wide.dtype.type(offset)
    result[~finite] = bad_color[:channels]
    return result
