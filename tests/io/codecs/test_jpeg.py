"""JPEG files decode to the pixels of libjpeg-turbo, whichever library has decoded them."""

from __future__ import annotations

import base64
import io
import zlib
from itertools import product

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

import weft as wf
from weft_io.codecs.jpeg import decode_jpeg, jpeg_shape
from weft_tensor import errors

COLORS = {"L": 1, "RGB": 3}
SMALL = (
    b"/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNy"
    b"wtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09P"
    b"T09PT09PT09PT09PT09PT09PT09PT0//wAARCAAMABQDASIAAhEBAxEB/8QAGAAAAwEBAAAAAAAAAAAAAAAAAAIDBA"
    b"X/xAAgEAABBAIBBQAAAAAAAAAAAAABAAIRIQMSQQQxYXHB/8QAFgEBAQEAAAAAAAAAAAAAAAAABQQG/8QAHREAAgIC"
    b"AwEAAAAAAAAAAAAAAQMAAhIxBREUIv/aAAwDAQACEQMRAD8A6mXIGjUCbpYHncyLPvum6gk7N4HwqeADJbhyaU7D6n"
    b"hWqiE8WgAAx2uc0VU+UKT8z2kRFiUJnBVPnHU1lUd1E//Z"
)


def _picture(height: int, width: int, mode: str = "RGB") -> Image.Image:
    rng = np.random.default_rng(height * 1000 + width)
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([x * 2 + y, 255 - x - y, 128 + 60 * np.sin(x / 5)], 2)
    pixels = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def _file(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def _by_pillow(data: bytes, mode: str, ratio: int) -> np.ndarray:
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(data))
    if mode == "L" and image.mode == "RGB":
        image.draft("L", None)
    if ratio > 1:
        sizes = [-(-size // ratio) for size in image.size]
        (name, _, offset, args), *_ = image.tile
        image._size = tuple(sizes)
        image.tile = [type(image.tile[0])(name, (0, 0, *sizes), offset, args)]
        image.decoderconfig = (ratio, 0)
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    return np.repeat(pixels, 3, 2) if mode == "RGB" and pixels.shape[2] == 1 else pixels


@pytest.mark.parametrize("progressive", [False, True])
def test_pixels_are_those_of_pillow(progressive: bool) -> None:
    sizes, sampling = [(1, 1), (9, 15), (16, 17), (61, 47)], [0, 1, 2]
    for (height, width), subsampling, quality in product(sizes, sampling, [40, 95]):
        for stored, mode, ratio in product(COLORS, COLORS, [1, 2, 4, 8]):
            options = {"quality": quality, "subsampling": subsampling, "progressive": progressive}
            data = _file(_picture(height, width, stored), **options)
            wanted = _by_pillow(data, mode, ratio)
            found = decode_jpeg(data, COLORS[mode], ratio, fast_dct=False)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("fast_dct", "fancy_upscaling", "checksum"),
    [
        (True, True, 2031722937),
        (True, False, 2951459364),
        (False, True, 2090939617),
        (False, False, 1504740699),
    ],
)
def test_pixels_are_those_of_tensorflow(
    fast_dct: bool, fancy_upscaling: bool, checksum: int
) -> None:
    """The checksums are those of the images decoded by TensorFlow 2.21."""
    data = base64.b64decode(SMALL)
    pixels = decode_jpeg(data, 3, fast_dct=fast_dct, fancy_upscaling=fancy_upscaling)
    assert pixels.shape == (12, 20, 3)
    assert zlib.crc32(pixels.tobytes()) == checksum


@pytest.mark.parametrize("method", ["", "INTEGER_FAST", "INTEGER_ACCURATE"])
@pytest.mark.parametrize("smooth", [True, False])
def test_ops_decode_by_their_attributes(method: str, smooth: bool) -> None:
    data = base64.b64decode(SMALL)
    options = {"dct_method": method, "fancy_upscaling": smooth}
    whole = wf.image.decode_jpeg(data, **options)
    part = wf.image.decode_and_crop_jpeg(data, [0, 0, 12, 20], **options)
    with wf.Session() as session:
        found, crop = session.run([whole, part])
    is_fast = method != "INTEGER_ACCURATE"
    wanted = decode_jpeg(data, 3, fast_dct=is_fast, fancy_upscaling=smooth)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(crop, wanted)


def test_pixels_go_into_the_array_that_is_allocated() -> None:
    data = _file(_picture(40, 30))
    made: list[np.ndarray] = []

    def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        made.append(np.empty(shape, dtype))
        return made[-1]

    pixels = decode_jpeg(data, 3, fast_dct=False, empty=empty)
    assert pixels is made[0]
    np.testing.assert_array_equal(pixels, _by_pillow(data, "RGB", 1))


def test_four_inks_decode() -> None:
    image = Image.new("CMYK", (20, 18), (255, 0, 0, 0))
    data = _file(image, quality=100, subsampling=0)
    assert jpeg_shape(data) == (18, 20, 4)
    assert np.abs(decode_jpeg(data, 0).astype(int) - [0, 255, 255]).max() <= 2


def test_stray_bytes_between_segments_are_skipped() -> None:
    """libjpeg only warns of them; TensorFlow decodes such files too."""
    data = _file(_picture(33, 20))
    stray = data[:2] + b"\x00\x00\x00" + data[2:]
    damaged = data[:-2] + b"\x00\x00\x00" + data[-2:]
    with pytest.raises(errors.InvalidArgumentError, match="JPEG"):
        decode_jpeg(stray, 3)
    np.testing.assert_array_equal(decode_jpeg(damaged, 3), decode_jpeg(data, 3, fast_dct=False))


def test_a_file_that_ends_early_is_refused() -> None:
    data = _file(_picture(64, 64))
    with pytest.raises(errors.InvalidArgumentError, match="JPEG image that can be decoded"):
        decode_jpeg(data[:-60], 3)
    assert decode_jpeg(data[:-60], 3, recover=True).shape == (64, 64, 3)


def test_shape_comes_from_the_header() -> None:
    data = _file(_picture(40, 30, "L"))
    assert jpeg_shape(data) == (40, 30, 1)
    with pytest.raises(errors.InvalidArgumentError, match="JPEG"):
        jpeg_shape(b"\xff\xd8\xff nothing")
