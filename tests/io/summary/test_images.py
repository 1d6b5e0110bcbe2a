"""Image summaries: decoded pixels, and conversion of floats to bytes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from weft_io.codecs.png import encode_png
from weft_io.summary.images import scale_to_bytes
from weft_tensor import errors

RED = np.array([255, 0, 0, 255], np.uint8)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_png_is_lossless(channels: int, mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    for image in (pixels, pixels[::-1, ::2]):
        decoded = Image.open(io.BytesIO(encode_png(image)))
        assert (decoded.format, decoded.mode) == ("PNG", mode)
        assert np.array_equal(np.asarray(decoded).reshape(image.shape), image)


def scaled(values: list[float], dtype: str = "float32") -> list[int]:
    image = np.array(values, dtype).reshape(1, -1, 1)
    return scale_to_bytes(image, RED).reshape(-1).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_scaling(dtype: str) -> None:
    assert scaled([0, 2, 4], dtype) == [0, 127, 255]
    assert scaled([-2, 0, 1], dtype) == [1, 128, 191]
    assert scaled([-1, 0, 2], dtype) == [64, 128, 255]
    assert scaled([-4, -2], dtype) == [1, 64]
    assert scaled([0, 0], dtype) == [0, 0]
    assert scaled([0, 1e-7], dtype) == [0, 0]
    assert scaled([-1e-7, 0], dtype) == [128, 128]


def test_large_values() -> None:
    assert scaled([0, 6e4], "float16") == [0, 255]
    assert scaled([0, 1e300], "float64") == [0, 255]
    assert scaled([0, 3e38], "float32") == [0, 255]


def test_pixels_that_are_not_finite_are_red_and_do_not_count() -> None:
    image = np.zeros((1, 4, 3), np.float32)
    image[0, 0], image[0, 1, 2], image[0, 2, 0] = 8, np.nan, np.inf
    image[0, 1, 0] = 1000
    assert scale_to_bytes(image, RED)[0].tolist() == [[255] * 3, [255, 0, 0], [255, 0, 0], [0] * 3]
    image[...] = np.nan
    assert scale_to_bytes(image, RED)[0].tolist() == [[255, 0, 0]] * 4


def test_a_color_needs_a_value_per_channel() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="each of 3 channels, got 2"):
        scale_to_bytes(np.zeros((1, 1, 3), np.float32), RED[:2])


finite = st.floats(-1e6, 1e6, width=32)


@given(arrays.arrays(np.float32, (2, 3, 3), elements=finite))
def test_order_is_kept_and_the_range_is_used(image: np.ndarray) -> None:
    flat, levels = image.reshape(-1), scale_to_bytes(image, RED).reshape(-1).astype(int)
    order = np.argsort(flat)
    assert (np.diff(levels[order]) >= 0).all()
    if np.abs(flat).max() >= 1e-6:
        reached = levels[np.abs(flat).argmax()]
        assert reached in (0, 1, 254, 255)
