"""Crops, glimpses and drawings, one position at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw, uniform

PIXELS = (
    "uint8", "uint16", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
IMAGES = uniform(0, 99, 2, 5, 6, 2)
BOXES = np.array(
    [[0, 0, 1, 1], [0.1, 0.88, 0.8, 0.23], [-0.31, 0.217, 0.74, 1.363], [0.33, 0.41, 0.35, 0.44]],
    np.float32,
)
INDEX = np.array([1, 0, 0, 1], np.int32)
SIZES = ((3, 4), (1, 5))
CLOSE = {"float16": (2e-3, 2e-2), "float32": (1e-4, 2e-4), "float64": (1e-4, 2e-4)}


def _places(start: float, end: float, size: int, count: int) -> list[float]:
    reach = size - 1
    if count == 1:
        return [(start + end) / 2 * reach]
    return [(start + (end - start) * i / (count - 1)) * reach for i in range(count)]


def _weights(image: Array, y: float, x: float, nearest: bool) -> list[tuple[int, int, float]]:
    """The pixels that make a position, with their weights; none beyond the image."""
    if not (0 <= y <= image.shape[0] - 1 and 0 <= x <= image.shape[1] - 1):
        return []
    if nearest:
        return [(math.floor(y + 0.5), math.floor(x + 0.5), 1.0)]
    top, left = math.floor(y), math.floor(x)
    found = []
    for i, wy in ((top, 1 - (y - top)), (min(top + 1, image.shape[0] - 1), y - top)):
        for j, wx in ((left, 1 - (x - left)), (min(left + 1, image.shape[1] - 1), x - left)):
            found.append((i, j, wy * wx))
    return found


def _crops(images: Array, boxes: Array, size: Any, nearest: bool) -> Any:
    """Each position of each crop: its index, the number of its image, its pixels."""
    for n, (y1, x1, y2, x2) in enumerate(boxes.astype(np.float64)):
        for i, y in enumerate(_places(y1, y2, images.shape[1], size[0])):
            for j, x in enumerate(_places(x1, x2, images.shape[2], size[1])):
                yield (n, i, j), INDEX[n], _weights(images[INDEX[n]], y, x, nearest)


def _crop(nearest: bool, beyond: float) -> Any:
    def crop(images: Array, boxes: Array, index: Array, size: Array) -> Array:
        result = np.full((len(boxes), *size, images.shape[3]), beyond)
        for at, n, weights in _crops(images, boxes, size, nearest):
            if weights:
                result[at] = sum(w * images[n, i, j] for i, j, w in weights)
        return result

    return crop


def _crop_grad(nearest: bool) -> Any:
    def spread(grads: Array, boxes: Array, index: Array, size: Array) -> Array:
        result = np.zeros(tuple(size))
        for at, n, weights in _crops(result, boxes, grads.shape[1:3], nearest):
            for i, j, w in weights:
                result[n, i, j] += w * grads[at]
        return result

    return spread


def _box_grad(grads: Array, images: Array, boxes: Array, index: Array) -> Array:
    """By differences: crops are linear in the boxes but where a position meets a pixel."""
    crop, step = _crop(False, 0.0), 1e-5
    result = np.zeros(boxes.shape)
    for side in range(4):
        moved = np.zeros(4)
        moved[side] = step
        ends = [
            crop(images, boxes.astype(np.float64) + sign * moved, index, grads.shape[1:3])
            for sign in (1, -1)
        ]
        result[:, side] = ((ends[0] - ends[1]) * grads).sum((1, 2, 3)) / (2 * step)
    return result


def _cropping() -> list[Case]:
    cases = []
    boxes, index = Raw(BOXES, constant=False), Raw(INDEX, constant=False)
    for size in SIZES:
        grads = uniform(-1, 1, 4, *size, 2).astype(np.float32)
        for method in ("bilinear", "nearest"):
            nearest = method == "nearest"
            label = f"{method}{size}"
            full = size == SIZES[0]
            cases += [
                Case(
                    "CropAndResize",
                    [IMAGES, boxes, index, Raw(np.array(size, np.int32))],
                    {"method": method, "extrapolation_value": 7.0},
                    _crop(nearest, 7.0),
                    dtypes=PIXELS if full else ("float32",),
                    tolerance=CLOSE,
                    label=label,
                    grad=False,
                ),
                Case(
                    "CropAndResizeGradImage",
                    [Raw(grads, constant=False), boxes, index, Raw(np.array(IMAGES.shape, "i4"))],
                    {"method": method},
                    _crop_grad(nearest),
                    dtypes=("float16", "float32", "float64") if full else ("float32",),
                    tolerance=CLOSE,
                    label=label,
                    grad=False,
                ),
            ]
        inner = Raw(np.clip(BOXES, 0.04, 0.97), constant=False)
        cases.append(
            Case(
                "CropAndResizeGradBoxes",
                [Raw(grads, constant=False), IMAGES, inner, index],
                {},
                _box_grad,
                dtypes=PIXELS if size == SIZES[0] else ("float32",),
                tolerance={"float32": (1e-3, 5e-2)},
                label=f"{size}",
                grad=False,
            )
        )
    return cases


def _glimpse(images: Array, size: Array, offsets: Array) -> Array:
    result = np.zeros((len(images), *size, images.shape[3]))
    for n, (y, x) in enumerate(offsets):
        height, width = images.shape[1:3]
        top = int(y * height / 2 + height / 2 - size[0] / 2)
        left = int(x * width / 2 + width / 2 - size[1] / 2)
        for i in range(size[0]):
            for j in range(size[1]):
                if 0 <= top + i < height and 0 <= left + j < width:
                    result[n, i, j] = images[n, top + i, left + j]
    return result


def _glimpses() -> list[Case]:
    images = Raw(IMAGES.astype(np.float32), constant=False)
    return [
        Case(
            op,
            [
                images,
                Raw(np.array([4, 3], np.int32)),
                Raw(np.array([[0.1, -0.3], [0.7, 0.9]], np.float32), constant=False),
            ],
            {"uniform_noise": False, "noise": "zero"},
            _glimpse,
            dtypes=("",),
        )
        for op in ("ExtractGlimpse", "ExtractGlimpseV2")
    ]


def _drawn(images: Array, boxes: Array, colors: Array | None = None) -> Array:
    result = images.copy()
    height, width = images.shape[1:3]
    for n, some in enumerate(boxes):
        for k, box in enumerate(some):
            color = 1.0 if colors is None else colors[k % len(colors)]
            reach = np.float32([height - 1, width - 1] * 2)
            top, left, bottom, right = [int(v) for v in np.float32(box) * reach]
            for i in range(max(top, 0), min(bottom, height - 1) + 1):
                for j in range(max(left, 0), min(right, width - 1) + 1):
                    if i in (top, bottom) or j in (left, right):
                        result[n, i, j] = color
    return result


def _drawing() -> list[Case]:
    boxes = np.add(uniform(-0.3, 0.4, 2, 3, 4), [0, 0, 0.6, 0.9])
    fed = Raw(boxes.astype(np.float32), constant=False)
    colors = Raw(uniform(0, 1, 2, 3).astype(np.float32), constant=False)
    gray, color = uniform(0, 1, 2, 6, 7, 1), uniform(0, 1, 2, 6, 7, 3)
    narrow = ("float16", "float32")
    loose = {"float16": (2e-3, 2e-3)}
    return [
        Case("DrawBoundingBoxes", [gray, fed], {}, _drawn, dtypes=narrow, tolerance=loose),
        Case(
            "DrawBoundingBoxesV2", [color, fed, colors], {}, _drawn, dtypes=narrow, tolerance=loose
        ),
    ]


def _sampling() -> list[Case]:
    """The sampled part is random, unless objects that must be complete require the whole image."""
    size, boxes = Raw(np.array([20, 30, 3], np.int32)), np.array([[[0, 0, 1, 1]]], np.float32)

    def whole(*_: Any) -> Any:
        return np.array([0, 0, 0]), np.array([20, 30, -1]), boxes

    attrs = {"area_range": [0.1, 0.5], "seed": 1}
    return [
        Case(
            "SampleDistortedBoundingBox",
            [size, Raw(boxes, constant=False)],
            attrs | {"min_object_covered": 0.9},
            whole,
            dtypes=("",),
        ),
        Case(
            "SampleDistortedBoundingBoxV2",
            [size, Raw(boxes, constant=False), Raw(np.array(0.9, np.float32))],
            attrs,
            whole,
            dtypes=("",),
        ),
    ]


CASES = [*_cropping(), *_glimpses(), *_drawing(), *_sampling()]
