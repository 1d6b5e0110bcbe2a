"""Decoding of image files in any format, and simulation of JPEG artifacts."""

from __future__ import annotations

__all__ = ["adjust_jpeg_quality", "decode_image", "random_jpeg_quality"]

from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops.random import random_uniform
from weft_io.image.color import convert_image_dtype
from weft_io.image.shapes import convert_at_least_3d
from weft_io.ops.image_codecs import decode_jpeg
from weft_tensor import dtypes, errors


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = dtypes.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> Output:
    """Decode a JPEG, PNG, GIF, BMP or WebP file.

    Args:
      contents: string, shape (): the bytes of the file.
      channels: as for the function of the format; None and 0 for the file's number.
      dtype: uint8, uint16, float32 from 0 to 1, or another type that `convert_image_dtype`
        supports.
      expand_animations: for formats that support several frames, return a first axis of frames;
        otherwise only the first frame is decoded, and the static rank is 3.
    Returns: shape (height, width, channels) or (frames, height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or claim 512 MB of pixels or more.

    Examples:
      >>> data = wf.image.encode_png(wf.constant([[[0, 255, 51]]], wf.uint8))
      >>> wf.Session().run(wf.image.decode_image(data, dtype=wf.float32))
      array([[[0. , 1. , 0.2]]], dtype=float32)
    """
    expected = dtypes.as_dtype(dtype)
    direct = expected in (dtypes.uint8, dtypes.uint16, dtypes.float32)
    attrs = {
        "channels": channels or 0,
        "dtype": expected if direct else dtypes.uint16,
        "expand_animations": expand_animations,
    }
    with name_scope(name, "decode_image", [contents]) as scope:
        if direct:
            return out("DecodeImage", [contents], attrs, scope)
        return convert_image_dtype(out("DecodeImage", [contents], attrs), expected, name=scope)


def adjust_jpeg_quality(
    image: Any, jpeg_quality: Any, dct_method: str = "", name: str | None = None
) -> Output:
    """Return an image after JPEG compression and decompression.

    Args:
      image: real numbers, shape (height, width, 1 or 3), floats from 0 to 1.
      jpeg_quality: from 0 to 100, shape ().
      dct_method: as for `decode_jpeg`.
    Returns: dtype and shape of `image`.
    Raises: InvalidArgumentError: the quality or the shape is invalid.

    Examples:
      >>> wf.image.adjust_jpeg_quality(wf.zeros([8, 8, 3]), 50).shape.as_list()
      [None, None, 3]
    """
    with name_scope(name, "adjust_jpeg_quality", [image]) as scope:
        value = convert_at_least_3d(image)
        channels = value.dims[-1] if value.dims is not None else None
        pixels = convert_image_dtype(value, dtypes.uint8, saturate=True)
        data = out("EncodeJpegVariableQuality", [pixels, jpeg_quality])
        jpeg = decode_jpeg(data, channels=channels or 0, dct_method=dct_method)
        return convert_image_dtype(jpeg, value.dtype.base_dtype, saturate=True, name=scope)


def random_jpeg_quality(
    image: Any, min_jpeg_quality: int, max_jpeg_quality: int, seed: int | None = None
) -> Output:
    """Apply `adjust_jpeg_quality` with a random quality in [min_jpeg_quality, max_jpeg_quality).

    Args:
      image: as for `adjust_jpeg_quality`.
      min_jpeg_quality, max_jpeg_quality: from 0 to 100.
      seed: seed of the random number.
    Raises: InvalidArgumentError: a quality is out of range, or they are not in order.

    Examples:
      >>> wf.image.random_jpeg_quality(wf.zeros([8, 8, 3]), 50, 90, seed=1).shape.as_list()
      [None, None, 3]
    """
    if not 0 <= min_jpeg_quality < max_jpeg_quality <= 100:
        raise errors.InvalidArgumentError(
            "min_jpeg_quality must be at least 0 and below max_jpeg_quality, which is at most 100, "
            f"got {min_jpeg_quality} and {max_jpeg_quality}"
        )
    quality = random_uniform([], min_jpeg_quality, max_jpeg_quality, dtype=dtypes.int32, seed=seed)
    return adjust_jpeg_quality(image, quality)
