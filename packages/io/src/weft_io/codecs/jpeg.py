"""JPEG, by libjpeg-turbo through simplejpeg; by Pillow for damaged or unusual files."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_io.codecs.claims import check_size, convert_decoder_errors
from weft_tensor import errors

Array = np.ndarray[Any, Any]
Empty = Callable[[tuple[int, ...], Any], Array]

SIGNATURE: Final = b"\xff\xd8\xff"
_END: Final = b"\xff\xd9"
_XMP: Final = b"http://ns.adobe.com/xap/1.0/\0"
_INFLATED: Final = 1 << 13
"""Upper bound of pixels per compressed byte."""
_DEPTHS: Final = {"Gray": 1, "YCbCr": 3, "RGB": 3}
_MIN_SCALED_SIZE: Final = 16
"""Smallest image size that is different at all scales of libjpeg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JpegOptions:
    """Options for writing JPEG files; the attributes of `EncodeJpeg`."""

    quality: int = 95
    progressive: bool = False
    optimize_size: bool = False
    chroma_downsampling: bool = True
    density_unit: str = "in"
    x_density: int = 300
    y_density: int = 300
    xmp_metadata: bytes = b""


def decode_jpeg(
    data: bytes,
    channels: int,
    ratio: int = 1,
    recover: bool = False,
    *,
    fast_dct: bool = True,
    fancy_upscaling: bool = True,
    empty: Empty = np.empty,
) -> Array:
    """Decode the pixels of a JPEG file.

    Args:
      channels: 1, 3, or 0 for the file's number; CMYK becomes RGB.
      ratio: 1, 2, 4 or 8: divisor of both sizes, rounded up.
      recover: fill in missing data at the end.
      fast_dct: use the fast integer transform, whose values differ by a few of 255; Pillow, which
        decodes damaged and unusual files, uses the accurate one.
      fancy_upscaling: interpolate colors of half the resolution; Pillow always does.
      empty: allocates the array.
    Returns: uint8, shape (height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded.
    """
    with convert_decoder_errors("JPEG", len(data)):
        flags = {
            "fastdct": fast_dct,
            "fastupsample": not fancy_upscaling,
            "strict": not recover,
        }
        pixels = _decode_usual(data, channels, ratio, flags, empty)
        return _decode_any(data, channels, ratio, recover) if pixels is None else pixels


def _decode_usual(
    data: bytes, channels: int, ratio: int, flags: Mapping[str, bool], empty: Empty
) -> Array | None:
    """Decode straight into an array, without the interpreter lock.

    Returns: None for files that are left to Pillow: damaged, CMYK, or of unusual sampling.
    """
    import simplejpeg

    header = _read_header(data)
    if header is None:
        return None
    height, width, depth = header
    available = len(data) * _INFLATED if flags["strict"] else None
    check_size("JPEG", width, height, depth, available)
    if ratio > 1 and min(height, width) < _MIN_SCALED_SIZE:
        return None
    expected = channels or depth
    shape = -(-height // ratio), -(-width // ratio), expected
    pixels = empty(shape, np.dtype(np.uint8))
    try:
        jpeg = simplejpeg.decode_jpeg(
            data,
            "GRAY" if expected == 1 else "RGB",
            min_height=shape[0] if ratio > 1 else 0,
            min_width=shape[1] if ratio > 1 else 0,
            buffer=pixels,
            **flags,
        )
    except ValueError:  # a warning of libjpeg, such as bytes that are missing or too many
        return None
    return pixels if jpeg.shape == shape else None


def _read_header(data: bytes) -> tuple[int, int, int] | None:
    """Return height, width and channels of an image that simplejpeg can decode, else None."""
    import simplejpeg

    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    depth = _DEPTHS.get(colors)
    return None if depth is None else (height, width, depth)


def _decode_any(data: bytes, channels: int, ratio: int, recover: bool) -> Array:
    if recover:
        data += _END * 2  # or the decoder waits for more bytes
    image = _open_image(data, None if recover else len(data) * _INFLATED)
    expected = channels or (1 if image.mode == "L" else 3)
    if expected == 1 and image.mode == "RGB":
        image.draft("L", None)
    if ratio > 1:
        _scale(image, ratio)
    return _convert_channels(np.asarray(image), expected)


def _open_image(data: bytes, available: int | None) -> Any:
    from PIL import JpegImagePlugin

    image = JpegImagePlugin.JpegImageFile(io.BytesIO(data))
    check_size("JPEG", *image.size, len(image.getbands()), available)
    return image


def _scale(image: Any, ratio: int) -> None:
    """Scale while decoding by leaving out frequencies, at exactly this ratio."""
    (name, _, offset, args), *_ = image.tile
    width, height = image.size
    size = -(-width // ratio), -(-height // ratio)
    image._size = size
    image.tile = [type(image.tile[0])(name, (0, 0, *size), offset, args)]
    image.decoderconfig = (ratio, 0)


def _convert_channels(pixels: Array, channels: int) -> Array:
    if pixels.ndim == 2:
        grey = pixels[:, :, np.newaxis]
        return np.repeat(grey, 3, axis=2) if channels == 3 else grey
    if pixels.shape[2] == 4:
        if channels == 1:
            raise errors.InvalidArgumentError(
                "a CMYK JPEG image cannot be decoded with channels=1; use channels=3"
            )
        # Pillow returns inks (CMYK); light is their complement.
        light = 255 - pixels.astype(np.int32)
        return (light[:, :, :3] * light[:, :, 3:] // 255).astype(np.uint8)
    return pixels


def jpeg_shape(data: bytes) -> tuple[int, int, int]:
    """Return the height, width and number of channels in the header of a JPEG file.

    Raises: InvalidArgumentError: the bytes are not a JPEG file.
    """
    header = _read_header(data)
    if header is not None:
        return header
    with convert_decoder_errors("JPEG", len(data)):
        from PIL import JpegImagePlugin

        image = JpegImagePlugin.JpegImageFile(io.BytesIO(data))
        return image.size[1], image.size[0], len(image.getbands())


def encode_jpeg(image: Array, options: JpegOptions) -> bytes:
    """Encode an image as a JPEG file.

    Args:
      image: uint8, shape (height, width, 1 or 3), not empty.
    Raises: InvalidArgumentError: the image is too large for the format.
    """
    from PIL import Image

    height, width, channels = image.shape
    if max(height, width) > 65500:
        raise errors.InvalidArgumentError(
            f"a JPEG image must have at most 65500 pixels along a side, got {height} by {width}"
        )
    fromarray = Image.fromarray(image[:, :, 0] if channels == 1 else image)
    file = io.BytesIO()
    fromarray.save(
        file,
        "JPEG",
        quality=options.quality,
        progressive=options.progressive,
        optimize=options.optimize_size,
        subsampling=2 if options.chroma_downsampling else 0,
        dpi=(options.x_density, options.y_density),
    )
    return _read_density(file.getvalue(), options)


def _read_density(data: bytes, options: JpegOptions) -> bytes:
    """Return the density in the file's own unit, and the metadata; Pillow supports only inches."""
    end = 20  # of the start marker and the JFIF segment
    density = struct.pack(
        ">BHH", 1 if options.density_unit == "in" else 2, options.x_density, options.y_density
    )
    parts = [data[:13], density, data[18:end]]
    if options.xmp_metadata:
        body = _XMP + options.xmp_metadata
        if len(body) + 2 > 0xFFFF:
            raise errors.InvalidArgumentError(
                f"xmp_metadata must have at most {0xFFFF - 2 - len(_XMP)} bytes, got "
                f"{len(options.xmp_metadata)}"
            )
        parts.append(struct.pack(">HH", 0xFFE1, len(body) + 2) + body)
    return b"".join([*parts, data[end:]])
