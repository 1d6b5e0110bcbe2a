"""Resized images against sums over pixels, one output position at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw, normal

PIXELS = (
    "int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64",
    "bfloat16",
)  # fmt: skip
CORNERS, HALVES = (True, False), (False, True)
SIZES = (
    ((5, 7), (3, 11), ((False, False), CORNERS, HALVES)),
    ((1, 6), (4, 6), (CORNERS,)),
    ((70, 9), (3, 50), (HALVES,)),
)
CLOSE = {"float32": (2e-5, 2e-4), "float64": (2e-5, 2e-4), "float16": (2e-3, 2e-2)}

Weights = Callable[[int, int], Array]
"""From the sizes of an axis before and after to a matrix of float64."""


def _scale(size: int, count: int, align: bool) -> float:
    return (size - 1) / (count - 1) if align and count > 1 else size / count


def _center(at: int, scale: float, half: bool) -> float:
    return float(np.float32((at + 0.5) * scale - 0.5 if half else at * scale))


def _bilinear(align: bool, half: bool) -> Weights:
    def weights(size: int, count: int) -> Array:
        matrix = np.zeros((count, size))
        for at in range(count):
            center = _center(at, _scale(size, count, align), half)
            low = math.floor(center)
            for place, weight in ((low, 1 - (center - low)), (low + 1, center - low)):
                matrix[at, min(max(place, 0), size - 1)] += weight
        return matrix

    return weights


def _keys(a: float, x: float) -> float:
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def _bicubic(align: bool, half: bool) -> Weights:
    def weights(size: int, count: int) -> Array:
        matrix = np.zeros((count, size))
        for at in range(count):
            center = _center(at, _scale(size, count, align), half)
            low = math.floor(center)
            part = round((center - low) * 1024) / 1024
            for place in range(low - 1, low + 3):
                weight = _keys(-0.5 if half else -0.75, place - low - part)
                if 0 <= place < size or not half:
                    matrix[at, min(max(place, 0), size - 1)] += weight
        return matrix / matrix.sum(1, keepdims=True)

    return weights


def _nearest(align: bool, half: bool) -> Weights:
    def weights(size: int, count: int) -> Array:
        matrix = np.zeros((count, size))
        for at in range(count):
            place = np.float32((at + 0.5 * half) * _scale(size, count, align))
            place = math.floor(place + 0.5) if align else math.floor(place)
            matrix[at, min(place, size - 1)] = 1
        return matrix

    return weights


def _area(align: bool) -> Weights:
    def weights(size: int, count: int) -> Array:
        matrix = np.zeros((count, size))
        scale = _scale(size, count, align)
        if not scale:
            return np.ones((count, 1))
        for at in range(count):
            for place in range(math.ceil((at + 1) * scale - 1e-6)):
                covered = min(place + 1, (at + 1) * scale) - max(place, at * scale)
                matrix[at, min(place, size - 1)] += max(covered, 0) / scale
        return matrix

    return weights


def _filter(kind: str, antialias: bool, axis: int) -> Weights:
    scale, shift = SCALE[axis], SHIFT[axis]
    shapes: dict[str, tuple[float, Callable[[float], float]]] = {
        "triangle": (1, lambda x: max(1 - x, 0)),
        "box": (0.5, lambda x: 1.0 if x < 0.5 else 0.5 * (x == 0.5)),
        "lanczos3": (3, lambda x: float(np.sinc(x) * np.sinc(x / 3)) if x < 3 else 0.0),
        "mitchellcubic": (2, _mitchell),
    }
    radius, weigh = shapes[kind]

    def weights(size: int, count: int) -> Array:
        matrix = np.zeros((count, size))
        spread = max(1 / scale, 1) if antialias else 1
        for at in range(count):
            center = (at + 0.5) / scale - shift / scale
            if 0 <= center <= size:
                for place in range(size):
                    if abs(place + 0.5 - center) <= radius * spread:
                        matrix[at, place] = weigh(abs(place + 0.5 - center) / spread)
                if total := matrix[at].sum():
                    matrix[at] /= total
        return matrix

    return weights


def _mitchell(x: float) -> float:
    if x < 1:
        return 7 / 6 * x**3 - 2 * x**2 + 8 / 9
    return -7 / 18 * x**3 + 2 * x**2 - 10 / 3 * x + 16 / 9 if x < 2 else 0.0


SCALE, SHIFT = (0.61, 1.7), (0.37, -1.23)
KINDS = ("lanczos3", "box", "triangle", "mitchellcubic")


def _forward(rows: Weights, columns: Weights) -> Callable[..., Array]:
    def resize(x: Array, size: Array, *rest: Any) -> Array:
        up, across = rows(x.shape[1], size[0]), columns(x.shape[2], size[1])
        return np.einsum("oh,bhwc,pw->bopc", up, x, across, optimize=True)

    return resize


def _backward(rows: Weights, columns: Weights) -> Callable[..., Array]:
    def resize(grads: Array, original: Array, *rest: Any) -> Array:
        up = rows(original.shape[1], grads.shape[1])
        across = columns(original.shape[2], grads.shape[2])
        return np.einsum("oh,bopc,pw->bhwc", up, grads, across, optimize=True)

    return resize


def _as_float32(resize: Callable[..., Array]) -> Callable[..., Array]:
    """Return `resize` with float32 results for all input types."""
    return lambda *arrays: resize(*arrays).astype(np.float32)


def _sized() -> list[Case]:
    cases = []
    for before, after, conventions in SIZES:
        x, grads = 9 * normal(2, *before, 3), normal(2, *after, 3, seed=1)
        dtypes = PIXELS if before == SIZES[0][0] else ("float32",)
        fed = Raw(grads.astype(np.float32), "float32", constant=False)
        for align, half in conventions:
            label = f"{before}{after}" + " align" * align + " half" * half
            attrs = {"align_corners": align, "half_pixel_centers": half}
            for op, make, floats in (
                ("ResizeBilinear", _bilinear, ("float16", "bfloat16", "float32", "float64")),
                ("ResizeBicubic", _bicubic, ("float32", "float64")),
            ):
                w = make(align, half)
                size = Raw(np.array(after, np.int32))
                rest: dict[str, Any] = {"tolerance": CLOSE, "label": label, "grad": False}
                cases.append(Case(op, [x, size], attrs, _forward(w, w), dtypes=dtypes, **rest))
                if conventions is not SIZES[0][2]:
                    continue
                cases.append(
                    Case(f"{op}Grad", [fed, x], attrs, _backward(w, w), dtypes=floats, **rest)
                )
            cases += _nearest_cases(x, grads, before, after, attrs, dtypes, label)
        for align in {align for align, _ in conventions}:
            cases.append(
                Case(
                    "ResizeArea",
                    [x, Raw(np.array(after, np.int32))],
                    {"align_corners": align},
                    _forward(_area(align), _area(align)),
                    dtypes=dtypes,
                    tolerance=CLOSE,
                    label=f"{before}{after}" + " align" * align,
                )
            )
    return cases


def _nearest_cases(
    x: Array, grads: Array, before: Any, after: Any, attrs: Any, dtypes: Any, label: str
) -> list[Case]:
    w = _nearest(*attrs.values())
    back = _backward(w, w)
    floats = ("float16", "bfloat16", "float32", "float64") if len(dtypes) > 1 else dtypes
    whole = np.round(grads * 9)
    return [
        Case(
            "ResizeNearestNeighbor",
            [x, Raw(np.array(after, np.int32))],
            attrs,
            _forward(w, w),
            dtypes=dtypes,
            label=label,
            grad=None if "float64" in dtypes else False,
        ),
        Case(
            "ResizeNearestNeighborGrad",
            [whole, Raw(np.array(before, np.int32))],
            attrs,
            lambda grads, size: back(grads, np.empty((1, *size, 1))),
            dtypes=(*floats, "int32") if len(dtypes) > 1 else dtypes,
            label=label,
            grad=[0] if "float64" in floats else False,
        ),
    ]


def _translated() -> list[Case]:
    cases = []
    x, grads = normal(2, 9, 7, 3), normal(2, 5, 12, 3, seed=1)
    for kind in KINDS:
        for antialias in (False, True) if kind == "triangle" else (True,):
            attrs = {"kernel_type": kind, "antialias": antialias}
            rows, columns = _filter(kind, antialias, 0), _filter(kind, antialias, 1)
            label = kind + " antialias" * antialias
            moved = [Raw(np.array(SCALE, np.float32)), Raw(np.array(SHIFT, np.float32))]
            wide = {"float32": (1e-4, 1e-4)}
            cases.append(
                Case(
                    "ScaleAndTranslate",
                    [x, Raw(np.array([5, 12], np.int32)), *moved],
                    attrs,
                    _as_float32(_forward(rows, columns)),
                    dtypes=("float32", "uint8", "int16") if kind == "triangle" else ("float32",),
                    tolerance=wide,
                    label=label,
                    grad=False,
                )
            )
            if kind != "lanczos3":
                continue
            cases.append(
                Case(
                    "ScaleAndTranslateGrad",
                    [grads, x, *moved],
                    attrs,
                    _backward(rows, columns),
                    dtypes=("float32",),
                    tolerance=wide,
                    label=label,
                    grad=False,
                )
            )
    return cases


CASES = [*_sized(), *_translated()]
