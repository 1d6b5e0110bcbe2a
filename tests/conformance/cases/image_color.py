"""Colors against Python's colorsys, one pixel at a time."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import FLOATS, Array, Case, Raw, uniform

NARROW = ("float16", "float32")
LOOSE = {"float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2), "float32": (1e-5, 1e-5)}
IMAGES = uniform(0.05, 0.95, 2, 3, 4, 3)
EVEN = np.array([[[[0.5, 0.5, 0.5], [0, 0, 0], [1, 0, 0], [0.2, 0.2, 0.7], [0.7, 0.1, 0.7]]]])

Pixel = Callable[..., Any]


def _each(change: Pixel) -> Callable[..., Array]:
    def all_of(images: Array, *rest: Any) -> Array:
        result = np.empty(images.shape)
        for at in np.ndindex(images.shape[:-1]):
            result[at] = change(*images[at].tolist(), *rest)
        return result

    return all_of


def _turned(r: float, g: float, b: float, delta: float) -> tuple[float, float, float]:
    hue, saturation, value = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb((hue + delta) % 1, saturation, value)


def _saturated(r: float, g: float, b: float, scale: float) -> tuple[float, float, float]:
    hue, saturation, value = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb(hue, min(saturation * scale, 1), value)


def _contrast(images: Array, factor: float) -> Array:
    mean = images.mean((-3, -2), keepdims=True)
    return (images - mean) * factor + mean


def _change(number: float) -> Raw:
    return Raw(np.array(number, np.float32), constant=False)


def _color(op: str, x: Array, rest: list[Raw], expected: Any, label: str = "") -> Case:
    smooth, dtypes = x is IMAGES and not rest, NARROW if rest else FLOATS
    return Case(
        op, [x, *rest], {}, expected, dtypes=dtypes, tolerance=LOOSE, label=label,
        grad=None if smooth else False,
    )  # fmt: skip


CASES = [
    _color("RGBToHSV", IMAGES, [], _each(colorsys.rgb_to_hsv)),
    _color("RGBToHSV", EVEN, [], _each(colorsys.rgb_to_hsv), "even"),
    _color("HSVToRGB", IMAGES, [], _each(colorsys.hsv_to_rgb)),
    _color("HSVToRGB", EVEN, [], _each(colorsys.hsv_to_rgb), "even"),
    _color("AdjustHue", IMAGES, [_change(0.3)], _each(_turned)),
    _color("AdjustHue", EVEN, [_change(-0.8)], _each(_turned), "even"),
    _color("AdjustSaturation", IMAGES, [_change(1.7)], _each(_saturated)),
    _color("AdjustSaturation", EVEN, [_change(0.0)], _each(_saturated), "even"),
    _color("AdjustContrastv2", IMAGES, [_change(1.7)], _contrast),
]
