"""Dilation and its gradients against loops over the pixels."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
from weft_testing.cases import REALS, Array, Case, integers, normal

X, TAPS = normal(2, 5, 6, 2), normal(3, 2, 2, seed=1)
SAME = {"strides": [1, 2, 1, 1], "rates": [1, 1, 1, 1], "padding": "SAME"}
VALID = {"strides": [1, 1, 2, 1], "rates": [1, 2, 1, 1], "padding": "VALID"}


def _dilate(
    x: Array, taps: Array, grad: Array | None = None, *,
    strides: Any, rates: Any, padding: str,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The dilated image, and the gradients by the image and the filter."""
    count, low = [], []
    for axis in (0, 1):
        size, stride = x.shape[axis + 1], strides[axis + 1]
        extent = (taps.shape[axis] - 1) * rates[axis + 1] + 1
        n = -(-size // stride) if padding == "SAME" else (size - extent) // stride + 1
        count.append(n)
        low.append(max((n - 1) * stride + extent - size, 0) // 2 if padding == "SAME" else 0)
    y = np.zeros((x.shape[0], *count, x.shape[3]), x.dtype)
    by_x, by_taps = np.zeros_like(x), np.zeros_like(taps)
    for n, r, c, d in np.ndindex(*y.shape):
        found: list[Any] = []
        for i, j in product(range(taps.shape[0]), range(taps.shape[1])):
            row, column = r * strides[1] + i * rates[1] - low[0], c * strides[2] + j * rates[2]
            column -= low[1]
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                found.append((x[n, row, column, d] + taps[i, j, d], row, column, i, j))
        best, row, column, i, j = max(found, key=lambda item: item[0])
        y[n, r, c, d] = best
        if grad is not None:
            by_x[n, row, column, d] += grad[n, r, c, d]
            by_taps[i, j, d] += grad[n, r, c, d]
    return y, by_x, by_taps


def _part(which: int, *arrays: Array, **attrs: Any) -> Array:
    return _dilate(*arrays, **attrs)[which]


CASES = [
    case
    for label, attrs, shape in (("same", SAME, (2, 3, 6, 2)), ("valid", VALID, (2, 1, 3, 2)))
    for case in (
        Case("Dilation2D", [X, TAPS], attrs, partial(_part, 0, **attrs), label=label),
        Case(
            "Dilation2DBackpropInput",
            [X, TAPS, normal(*shape, seed=4)],
            attrs,
            partial(_part, 1, **attrs),
            grad=[2],
            label=label,
        ),
        Case(
            "Dilation2DBackpropFilter",
            [X, TAPS, normal(*shape, seed=4)],
            attrs,
            partial(_part, 2, **attrs),
            grad=[2],
            label=label,
            tolerance={"bfloat16": (3e-2, 5e-2)},
        ),
    )
]
CASES.append(
    Case(
        "Dilation2D",
        [integers(0, 50, 1, 4, 4, 1), integers(0, 50, 2, 2, 1)],
        SAME,
        partial(_part, 0, **SAME),
        dtypes=[dtype for dtype in REALS if "int" in dtype],
        label="integers",
    )
)
