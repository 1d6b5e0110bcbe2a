"""Ranges and counts in bins against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import INTEGERS, REALS, Case, Raw

WIDE = ("float32", "float64")


def _bounds(*values: float) -> list[Any]:
    return [np.array(value) for value in values]


def _range(*bounds: float) -> Any:
    return lambda a, b, c: np.arange(*bounds)


COUNTED = Raw(np.array([1, 3, 3, 0, 7, 1]), "int32", constant=False)
WEIGHTS = np.array([1.0, 2, 3, 4, 5, 6])
VALUES = np.array([-1.0, 0.0, 1.4, 2.0, 2.2, 5.0, 15.0])

CASES = [
    Case(
        "Range",
        _bounds(0, 5, 1),
        expected=_range(0, 5, 1),
        dtypes=REALS,
        type_attr="Tidx",
        static=False,
    ),
    Case(
        "Range",
        _bounds(3, 12, 4),
        expected=_range(3, 12, 4),
        dtypes=REALS,
        type_attr="Tidx",
        static=False,
        label="step",
    ),
    Case(
        "Range",
        _bounds(5, -3, -2),
        expected=_range(5, -3, -2),
        dtypes=INTEGERS[:4],
        type_attr="Tidx",
        static=False,
        label="down",
    ),
    Case(
        "Range",
        _bounds(0.5, 2.0, 0.25),
        expected=_range(0.5, 2.0, 0.25),
        dtypes=WIDE,
        type_attr="Tidx",
        static=False,
        label="fractions",
    ),
    Case(
        "Range",
        _bounds(2, 2, 1),
        expected=_range(2, 2, 1),
        dtypes=INTEGERS,
        type_attr="Tidx",
        static=False,
        label="empty",
    ),
    Case(
        "Range",
        [Raw(0), Raw(4), Raw(1)],
        {},
        lambda a, b, c: np.arange(4),
        dtypes=("int32",),
        type_attr="Tidx",
        label="constant",
    ),
    Case(
        "LinSpace", [*_bounds(-1, 2), Raw(7)], {}, lambda a, b, n: np.linspace(-1, 2, 7), grad=False
    ),
    Case(
        "LinSpace",
        [*_bounds(3, 2), Raw(1)],
        {},
        lambda a, b, n: np.array([3.0]),
        grad=False,
        label="one",
    ),
    Case(
        "Bincount",
        [COUNTED, Raw(8), np.zeros(0)],
        {},
        lambda a, n, w: np.bincount(a, minlength=8),
        dtypes=("int32", "int64", "float32", "float64"),
        grad=False,
    ),
    Case(
        "Bincount",
        [COUNTED, Raw(4), np.zeros(0)],
        {},
        lambda a, n, w: np.array([1, 2, 0, 2]),
        dtypes=("int32", "float32"),
        grad=False,
        label="short",
    ),
    Case(
        "Bincount",
        [COUNTED, Raw(7), np.zeros(0)],
        {},
        lambda a, n, w: np.bincount(a)[:7],
        dtypes=("int32", "float32"),
        grad=False,
        label="one too large",
    ),
    Case(
        "Bincount",
        [COUNTED, Raw(8), WEIGHTS],
        {},
        lambda a, n, w: np.bincount(a, w, 8),
        dtypes=("int32", "int64", "float32", "float64"),
        grad=False,
        label="weights",
    ),
    *(
        Case(
            "HistogramFixedWidth",
            [VALUES, np.array([0.0, 5.0]), Raw(5)],
            {"dtype": kind},
            lambda v, r, n: np.array([2, 1, 2, 0, 2]),
            dtypes=("int32", "int64", "float32", "float64"),
            label=kind,
        )
        for kind in ("int32", "int64")
    ),
]
