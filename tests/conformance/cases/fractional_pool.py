"""Gradients of fractional pools, and the pools themselves where the regions are certain."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from weft_testing.cases import WIDE_FLOATS, Array, Case, Raw, normal

IMAGE = normal(2, 5, 7, 2)
ROWS, COLUMNS = np.array([0, 2, 3, 5]), np.array([0, 1, 3, 5, 7])
EVEN = {"pooling_ratio": [1.0, 2.0, 3.0, 1.0]}
UNEVEN = {"pooling_ratio": [1.0, 1.4, 1.7, 1.0], "deterministic": True, "seed": 3}


def _regions(rows: Array, columns: Array, overlapping: bool) -> Any:
    for i in range(len(rows) - 1):
        for j in range(len(columns) - 1):
            down = slice(rows[i], min(rows[i + 1] + overlapping, rows[-1]))
            yield i, j, (down, slice(columns[j], min(columns[j + 1] + overlapping, columns[-1])))


def _pool(x: Array, rows: Array, columns: Array, overlapping: bool, mean: bool) -> Array:
    y = np.zeros((x.shape[0], len(rows) - 1, len(columns) - 1, x.shape[3]))
    for i, j, (down, right) in _regions(rows, columns, overlapping):
        block = x[:, down, right]
        y[:, i, j] = block.mean((1, 2)) if mean else block.max((1, 2))
    return y


def _max_gradient(
    x: Array, y: Array, g: Array, rows: Array, columns: Array, overlapping: bool
) -> Array:
    result = np.zeros_like(x)
    for i, j, (down, right) in _regions(rows, columns, overlapping):
        best = x[:, down, right] == y[:, i, j][:, None, None]
        result[:, down, right] += best * g[:, i, j][:, None, None]
    return result


def _avg_gradient(shape: Array, g: Array, rows: Array, columns: Array, overlapping: bool) -> Array:
    result = np.zeros(shape)
    for i, j, (down, right) in _regions(rows, columns, overlapping):
        block = result[:, down, right]
        block += g[:, i, j][:, None, None] / (block.shape[1] * block.shape[2])
    return result


def _even(x: Array, mean: bool) -> tuple[Array, Array, Array]:
    rows, columns = np.arange(0, x.shape[1] + 1, 2), np.arange(0, x.shape[2] + 1, 3)
    return _pool(x, rows, columns, False, mean), rows, columns


G = normal(2, 3, 4, 2, seed=5)
RUNS = [Raw(ROWS, constant=False), Raw(COLUMNS, constant=False)]
CASES = [
    case
    for overlapping in (False, True)
    for attrs in [{"overlapping": overlapping}]
    for case in (
        Case(
            "FractionalMaxPoolGrad",
            [IMAGE, _pool(IMAGE, ROWS, COLUMNS, overlapping, False), G, *RUNS],
            attrs,
            partial(_max_gradient, overlapping=overlapping),
            dtypes=WIDE_FLOATS,
            grad=[2],
            label=str(overlapping),
        ),
        Case(
            "FractionalAvgPoolGrad",
            [Raw(np.array(IMAGE.shape)), G, *RUNS],
            attrs,
            partial(_avg_gradient, overlapping=overlapping),
            dtypes=WIDE_FLOATS,
            grad=[1],
            label=str(overlapping),
        ),
        *[
            Case(
                op,
                [IMAGE],
                UNEVEN | attrs | {"pseudo_random": overlapping},
                dtypes=WIDE_FLOATS,
                label=f"drawn-{overlapping}",
            )
            for op in ("FractionalMaxPool", "FractionalAvgPool")
        ],
    )
]
CASES += [
    Case(
        f"Fractional{kind}Pool",
        [normal(2, 4, 6, 2)],
        EVEN,
        partial(_even, mean=kind == "Avg"),
        dtypes=WIDE_FLOATS,
        grad=False,
        label="even",
    )
    for kind in ("Avg", "Max")
]
