"""Slices against NumPy's basic indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import (
    ANY,
    NUMBERS,
    STRING,
    Array,
    Case,
    Raw,
    complex_normal,
    texts,
)

X = 3 * complex_normal(4, 3, 5)
S = slice

Key = tuple[Any, ...]


def described(key: Key, dtype: Any = np.int32) -> tuple[list[Raw], dict[str, int]]:
    """Begin, end, strides and masks of an index."""
    begin, end, strides = [], [], []
    masks = dict.fromkeys(
        ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0
    )
    for i, item in enumerate(key):
        first, last, step = 0, 0, 1
        if item is Ellipsis:
            masks["ellipsis_mask"] |= 1 << i
        elif item is None:
            masks["new_axis_mask"] |= 1 << i
        elif isinstance(item, int):
            masks["shrink_axis_mask"] |= 1 << i
            first, last = item, item + 1
        else:
            masks["begin_mask"] |= (item.start is None) << i
            masks["end_mask"] |= (item.stop is None) << i
            first, last = item.start or 0, item.stop or 0
            step = 1 if item.step is None else item.step
        begin.append(first)
        end.append(last)
        strides.append(step)
    return [Raw(np.array(column, dtype)) for column in (begin, end, strides)], masks


KEYS: list[tuple[str, Key]] = [
    ("single", (1,)),
    ("negative single", (-1, -2)),
    ("all single", (3, 2, 4)),
    ("range", (S(1, 3), S(0, 2))),
    ("steps", (S(None, None, 2), S(None, None, -1), S(4, 0, -2))),
    ("beyond", (S(-9, 9), S(2, 99), S(99, -99, -3))),
    ("empty", (S(3, 1), S(None), S(0, 5, -1))),
    ("ellipsis", (1, ..., S(0, 2))),
    ("ellipsis of nothing", (S(None), 1, ..., 2)),
    ("only ellipsis", (...,)),
    ("new axes", (None, S(1, 2), None, ..., 3, None)),
    ("nothing", ()),
]


def _strided(key: Key) -> Callable[..., Array]:
    return lambda x, begin, end, strides: x[(*key, ...) if ... not in key else key]


def _strided_cases() -> list[Case]:
    cases: list[Case] = []
    for label, key in KEYS:
        for dtype in (np.int32, np.int64):
            vectors, masks = described(key, dtype)
            name = f"{label} {np.dtype(dtype).name}"
            cases.append(
                Case("StridedSlice", [X, *vectors], masks, _strided(key), dtypes=ANY, label=name)
            )
        vectors, masks = described(key)
        cases.append(
            Case(
                "StridedSlice",
                [texts(4, 3, 5), *vectors],
                masks,
                _strided(key),
                dtypes=STRING,
                label=f"{label} strings",
            )
        )
        part = X[(*key, ...) if ... not in key else key]
        cases += [
            Case(
                "StridedSliceGrad",
                [Raw(np.array(X.shape, np.int32)), *vectors, part + 1],
                masks,
                lambda shape, b, e, s, dy, key=key: _filled(np.zeros(shape, dy.dtype), key, dy),
                dtypes=NUMBERS,
                label=label,
            ),
            Case(
                "TensorStridedSliceUpdate",
                [X, *vectors, part + 1],
                masks,
                lambda x, b, e, s, value, key=key: _filled(x.copy(), key, value),
                dtypes=ANY,
                label=label,
            ),
        ]
    vectors, masks = described((S(1, 3), 0))
    cases.append(
        Case(
            "TensorStridedSliceUpdate",
            [X, *vectors, X[0, 0]],
            masks,
            lambda x, b, e, s, value: _filled(x.copy(), (S(1, 3), 0), value),
            dtypes=ANY,
            label="broadcast",
        )
    )
    return cases


def _filled(target: Array, key: Key, value: Array) -> Array:
    target[key] = value
    return target


def _box_cases() -> list[Case]:
    cases: list[Case] = []
    for begin, size in (
        ([0, 0, 0], [4, 3, 5]),
        ([1, 2, 0], [2, 1, 3]),
        ([1, 0, 4], [-1, 2, -1]),
        ([4, 0, 0], [0, 3, -1]),
    ):
        for dtype in (np.int32, np.int64):
            vectors = [Raw(np.array(begin, dtype)), Raw(np.array(size, dtype))]
            label = f"{begin}{size}{np.dtype(dtype).name}"
            cases += [
                Case("Slice", [X, *vectors], {}, _box, dtypes=ANY, label=label),
                Case(
                    "Slice",
                    [texts(4, 3, 5), *vectors],
                    {},
                    _box,
                    dtypes=STRING,
                    label=f"{label} strings",
                ),
            ]
    empty = Raw(np.zeros(0, np.int32))
    cases.append(Case("Slice", [np.array(1.5), empty, empty], {}, _box, dtypes=ANY, label="scalar"))
    return cases


def _box(x: Array, begin: Array, size: Array) -> Array:
    pairs = zip(begin.tolist(), size.tolist(), strict=True)
    return x[(*[S(b, None if n == -1 else b + n) for b, n in pairs], ...)]


CASES = [*_strided_cases(), *_box_cases()]
