"""WebP, by Pillow's library."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np

from weft_io.codecs.claims import check_size, convert_decoder_errors

Array = np.ndarray[Any, Any]

SIGNATURE: Final = (b"RIFF", b"WEBP")
"""Signature at offset 0, and at offset 8."""


def decode_webp(data: bytes, channels: int, only_first: bool = False) -> Array:
    """Decode the frames of a WebP file.

    Args:
      channels: 3, 4, or 0 for the file's number of channels.
      only_first: decode only the first frame.
    Returns: uint8, shape (frames, height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded.
    """
    with convert_decoder_errors("WebP", len(data)):
        from PIL import WebPImagePlugin

        image = WebPImagePlugin.WebPImageFile(io.BytesIO(data))
        expected = channels or len(image.getbands())
        frames = 1 if only_first else image.n_frames
        check_size("WebP", *image.size, 4 * frames, None)
        mode = "RGB" if expected == 3 else "RGBA"
        result = []
        for i in range(frames):
            image.seek(i)
            result.append(np.asarray(image.convert(mode)))
        return np.stack(result)
