"""Gradients of image ops whose results are float32: transposes of linear maps, and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(0.05, 0.95, (2, 6, 5, 3)).astype(np.float32)
BOXES = np.array([[0.1, 0.88, 0.83, 0.23], [-0.31, 0.217, 0.74, 1.363]], np.float32)

LINEAR: dict[str, Callable[[Any], Any]] = {
    "bilinear": lambda x: wf.image.resize_bilinear(x, [4, 9]),
    "bilinear, half pixels": lambda x: wf.image.resize_bilinear(
        x, [13, 3], half_pixel_centers=True
    ),
    "bicubic": lambda x: wf.image.resize_bicubic(x, [4, 9]),
    "bicubic, corners": lambda x: wf.image.resize_bicubic(x, [13, 3], align_corners=True),
    "nearest": lambda x: wf.image.resize_nearest_neighbor(x, [13, 3]),
    "translated": lambda x: wf.raw_ops.ScaleAndTranslate(
        images=x, size=[4, 9], scale=[0.7, 1.9], translation=[0.3, -1.2]
    ),
    "crops": lambda x: wf.image.crop_and_resize(x, BOXES, [1, 0], [4, 3]),
    "nearest crops": lambda x: wf.image.crop_and_resize(x, BOXES, [1, 0], [4, 3], "nearest"),
}


def test_gradients_of_linear_maps_are_their_transposes() -> None:
    """For linear f and its gradient g: <f(x), y> = <x, g(y)>, and the gradient of g is f."""
    with Parts() as parts:
        for name, function in LINEAR.items():
            for dtype in (wf.float32, wf.float16, wf.float64):
                if dtype != wf.float32 and "crops" in name and "nearest" in name:
                    continue
                with parts.part(f"{name}, {dtype.name}"), wf.Graph().as_default():
                    _check_transpose(function, dtype)


def _check_transpose(function: Callable[[Any], Any], dtype: Any) -> None:
    x = wf.constant(IMAGES.astype(dtype.as_numpy_dtype))
    result = function(x)
    with wf.Session() as session:
        shape = session.run(wf.shape(result))
        y = wf.constant(RNG.normal(size=shape), result.dtype)
        (back,) = wf.gradients(result, x, y)
        (again,) = wf.gradients(back, y, x)
        found, made, seeds, forth = session.run([back, result, y, again])
    assert found.dtype == dtype.as_numpy_dtype
    given = np.asarray(IMAGES, dtype.as_numpy_dtype).astype(np.float64)
    left, right = (made * seeds).astype(np.float64).sum(), (given * found).sum()
    scale = np.abs(given * found).sum()
    assert abs(left - right) < (2e-2 if dtype == wf.float16 else 1e-5) * scale
    np.testing.assert_allclose(forth, made, atol=2e-2 if dtype == wf.float16 else 1e-4)


COLORS: dict[str, Callable[[Any, Any], Any]] = {
    "contrast": lambda x, change: wf.image.adjust_contrast(x, change),
    "hue": lambda x, change: wf.image.adjust_hue(x, change),
    "saturation": lambda x, change: wf.image.adjust_saturation(x, change),
}


@pytest.mark.parametrize("name", COLORS)
def test_gradients_of_colors_against_differences(name: str) -> None:
    function, step = COLORS[name], 2e-4
    direction = RNG.normal(size=IMAGES.shape).astype(np.float32)
    with wf.Graph().as_default(), wf.Session() as session:
        x, change = wf.placeholder(wf.float32, IMAGES.shape), wf.placeholder(wf.float32, [])
        result = function(x, change)
        seeds = RNG.normal(size=IMAGES.shape).astype(np.float32)
        by_x, by_change = wf.gradients(result, [x, change], wf.constant(seeds))

        def total(at: Any, amount: float) -> float:
            made = session.run(result, {x: at, change: amount})
            return float((made.astype(np.float64) * seeds).sum())

        got = session.run([by_x, by_change], {x: IMAGES, change: 0.31})
        ends = [total(IMAGES + sign * step * direction, 0.31) for sign in (1, -1)]
        wanted = (ends[0] - ends[1]) / (2 * step)
        assert abs((got[0] * direction).sum() - wanted) < 2e-2 * max(1, abs(wanted))
        ends = [total(IMAGES, 0.31 + sign * step) for sign in (1, -1)]
        wanted = (ends[0] - ends[1]) / (2 * step)
        assert abs(got[1] - wanted) < 2e-2 * max(1, abs(wanted))


def test_gradients_by_boxes() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        boxes = wf.constant(BOXES)
        crops = wf.image.crop_and_resize(IMAGES, boxes, [1, 0], [4, 3])
        (found,) = wf.gradients(crops, boxes)
        assert session.run(found).shape == (2, 4)
        (none,) = wf.gradients(
            wf.image.crop_and_resize(IMAGES, boxes, [1, 0], [4, 3], "nearest"), boxes
        )
        assert none is None
