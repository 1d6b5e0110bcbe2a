"""Reductions by segment against loops over NumPy."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from weft_testing.cases import (
    FLOATS,
    INEXACT,
    INTEGERS,
    SIGNED,
    WIDE_FLOATS,
    Array,
    Case,
    Raw,
    complex_normal,
    integers,
    normal,
)

from weft_tensor.dtypes import as_dtype, from_numpy

X = complex_normal(6, 3)
COUNTS = integers(1, 4, 6, 3)
SORTED = Raw(np.array([0, 0, 1, 1, 1, 4]), "int32", constant=False)
SORTED64 = Raw(np.array([0, 1, 1, 2, 2, 2]), "int64")
SCATTERED = Raw(np.array([1, 0, 1, -1, 2, 0]), "int32", constant=False)
INFINITE = np.array([np.inf, -np.inf, -np.inf, np.inf, np.inf, np.nan])
LOOSE = {"float16": (6e-3, 6e-3), "bfloat16": (5e-2, 5e-2)}


def _truncated_mean(x: Array) -> Array:
    return np.trunc(x.astype(int).sum(0) / len(x)) if x.dtype.kind in "iu" else x.mean(0)


_FUNCTIONS: dict[str, tuple[Any, float, bool]] = {
    "Sum": (lambda x: x.sum(0), 0, True),
    "Mean": (_truncated_mean, 0, True),
    "Prod": (lambda x: x.prod(0), 1, True),
    "Max": (lambda x: x.max(0), 0, False),
    "Min": (lambda x: x.min(0), 0, False),
}


def _by_id(function: Any, none: Any) -> Any:
    def reference(data: Array, ids: Array, count: Any = None) -> Array:
        size = int(ids.max(initial=-1)) + 1 if count is None else int(count)
        flat = ids.reshape(-1)
        rows = data.reshape(flat.size, *data.shape[ids.ndim :])
        fill = none(data.dtype) if callable(none) else none
        return np.array(
            [
                function(rows[flat == i]) if (flat == i).any() else np.full(rows.shape[1:], fill)
                for i in range(size)
            ]
        )

    return reference


def _sorted_rows() -> list[Case]:
    rows = []
    for kind, (function, none, complexes) in _FUNCTIONS.items():
        values = X if complexes else X.real
        types = INEXACT if complexes else FLOATS
        rows += [
            Case(
                f"Segment{kind}",
                [values, SORTED],
                {},
                _by_id(function, none),
                dtypes=types,
                tolerance=LOOSE,
                static=False,
            ),
            Case(
                f"Segment{kind}",
                [values[:, 0], SORTED64],
                {},
                _by_id(function, none),
                dtypes=types,
                tolerance=LOOSE,
                label="vector",
            ),
            Case(
                f"Segment{kind}",
                [COUNTS, SORTED],
                {},
                _by_id(function, none),
                dtypes=INTEGERS,
                static=False,
                label="int",
            ),
        ]
    return rows


def _unsorted_rows() -> list[Case]:
    rows = []
    for kind in ("Sum", "Prod", "Max", "Min"):
        function, none, complexes = _FUNCTIONS[kind]
        extreme = {"Max": attrgetter("min"), "Min": attrgetter("max")}.get(kind)
        fill = none if extreme is None else lambda dtype, of=extreme: of(from_numpy(dtype))
        values = X if complexes else X.real
        types = INEXACT if complexes else FLOATS
        op = f"UnsortedSegment{kind}"
        rows += [
            Case(
                op,
                [values, SCATTERED, Raw(3)],
                {},
                _by_id(function, fill),
                dtypes=types,
                tolerance=LOOSE,
            ),
            *(
                Case(
                    op,
                    [values.real, SCATTERED, Raw(4)],
                    {},
                    _by_id(function, none if extreme is None else extreme(as_dtype(name))),
                    dtypes=(name,),
                    tolerance=LOOSE,
                    grad=False,
                    label=f"missing-{name}",
                )
                for name in FLOATS
            ),
            Case(
                op,
                [COUNTS, SCATTERED, Raw(4)],
                {},
                _by_id(function, fill),
                dtypes=INTEGERS,
                label="int",
            ),
            Case(
                op,
                [values.reshape(2, 3, 3), Raw(np.array([[0, 1, 0], [2, -1, 1]])), Raw(3)],
                {},
                _by_id(function, fill),
                dtypes=types[2:],
                label="two-axes",
            ),
            Case(
                op,
                [np.zeros((0, 3)), Raw(np.zeros(0, np.int32)), Raw(2)],
                {},
                _by_id(function, fill),
                dtypes=("float64",),
                grad=False,
                label="empty",
            ),
            Case(
                op,
                [INFINITE, Raw(np.array([0, 1, 1, 2, 2, 3]), "int32", constant=False), Raw(4)],
                {},
                _by_id(function, fill),
                grad=False,
                label="infinite",
            ),
        ]
    return rows


ZERO = np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 4.0], [5.0, 0.0]])
TIES = np.array([1.0, 3.0, 3.0, 2.0, 2.0])
DATA = normal(5, 3)
CHOSEN = Raw(np.array([0, 3, 3, 1]), "int32", constant=False)
IDS = Raw(np.array([0, 0, 2, 2]), "int32", constant=False)


def _sparse(kind: str) -> Any:
    def reference(data: Array, indices: Array, ids: Array, count: Any = None) -> Array:
        rows = data[indices]
        scale = {"Sum": lambda n: 1, "Mean": lambda n: n, "SqrtN": np.sqrt}[kind]
        size = int(ids.max()) + 1 if count is None else int(count)
        return np.array(
            [rows[ids == i].sum(0) / scale(max((ids == i).sum(), 1)) for i in range(size)]
        )

    return reference


def _sparse_grad(kind: str) -> Any:
    def reference(grad: Array, indices: Array, ids: Array, count: Array) -> Array:
        result = np.zeros((int(count), *grad.shape[1:]))
        for row, segment in zip(indices, ids, strict=True):
            n = (ids == segment).sum()
            result[row] += grad[segment] / (n if kind == "Mean" else np.sqrt(n))
        return result

    return reference


def _sparse_rows() -> list[Case]:
    rows = []
    for kind in ("Sum", "Mean", "SqrtN"):
        rows += [
            Case(
                f"SparseSegment{kind}",
                [DATA, CHOSEN, IDS],
                {},
                _sparse(kind),
                tolerance=LOOSE,
                static=False,
            ),
            Case(
                f"SparseSegment{kind}WithNumSegments",
                [DATA, CHOSEN, IDS, Raw(5)],
                {},
                _sparse(kind),
                tolerance=LOOSE,
            ),
        ]
        if kind != "Sum":
            rows.append(
                Case(
                    f"SparseSegment{kind}Grad",
                    [normal(3, 2), CHOSEN, IDS, Raw(5)],
                    {},
                    _sparse_grad(kind),
                    tolerance=LOOSE,
                    dtypes=WIDE_FLOATS,
                )
            )
    return rows


CASES = [
    *_sorted_rows(),
    *_unsorted_rows(),
    *_sparse_rows(),
    Case(
        "SegmentMean",
        [-COUNTS, SORTED],
        {},
        _by_id(_truncated_mean, 0),
        dtypes=SIGNED,
        static=False,
        label="negative",
    ),
    Case(
        "SegmentProd",
        [ZERO, Raw(np.array([0, 0, 1, 1]))],
        {},
        _by_id(lambda x: x.prod(0), 1),
        order=1,
        label="zeros",
    ),
    Case(
        "UnsortedSegmentProd",
        [ZERO, Raw(np.array([1, 0, 1, 0])), Raw(2)],
        {},
        _by_id(lambda x: x.prod(0), 1),
        order=1,
        label="zeros",
    ),
    Case(
        "SegmentMax",
        [TIES, Raw(np.array([0, 0, 0, 1, 1]))],
        {},
        lambda x, i: np.array([3.0, 2]),
        grad=False,
        label="ties",
    ),
    Case(
        "SegmentSum",
        [np.zeros((0, 2)), Raw(np.zeros(0, np.int32))],
        {},
        lambda x, i: np.zeros((0, 2)),
        grad=False,
        label="empty",
    ),
]
