"""Reductions against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import (
    INEXACT,
    INTEGERS,
    REALS,
    UNTYPED,
    WIDE_FLOATS,
    Array,
    Case,
    Raw,
    complex_normal,
    integers,
    normal,
)

X = complex_normal(3, 4, 2)
COUNTS = integers(1, 4, 3, 4, 2)
LONG = {"float16": (5e-3, 3e-2), "bfloat16": (4e-2, 1e-1), "float32": (1e-4, 1e-5)}
AXES: list[tuple[str, Any]] = [
    ("all", [0, 1, 2]),
    ("last", -1),
    ("first", [0]),
    ("outer", [0, 2]),
    ("none", np.zeros(0, np.int32)),
]


def _mean(x: Array, axis: Any, keepdims: bool) -> Array:
    if x.dtype.kind not in "iu":
        return x.mean(axis, keepdims=keepdims)
    total = x.astype(np.int64).sum(axis, keepdims=keepdims)
    return np.trunc(total / (x.size / max(total.size, 1)))


def _norm(x: Array, axis: Any, keepdims: bool) -> Array:
    wide = np.abs(x.astype(np.complex128)) ** 2
    root = np.sqrt(wide.sum(axis, keepdims=keepdims))
    return np.trunc(root) if x.dtype.kind in "iu" else root


def _typed(function: Callable[..., Any]) -> Any:
    def reduce(x: Array, axis: Any, keepdims: bool) -> Array:
        return np.asarray(function(x, axis=axis, keepdims=keepdims, dtype=x.dtype))

    return reduce


def _plain(function: Callable[..., Any]) -> Any:
    return lambda x, axis, keepdims: np.asarray(function(x, axis=axis, keepdims=keepdims))


def _over(function: Any, keep: bool) -> Any:
    return lambda x, axes: function(x, tuple(np.reshape(axes, -1).tolist()), keep)


def _rows() -> list[Case]:
    rows = []
    for op, function, complexes in (
        ("Sum", _typed(np.sum), True),
        ("Mean", _mean, True),
        ("Prod", _typed(np.prod), True),
        ("Max", _plain(np.max), False),
        ("Min", _plain(np.min), False),
        ("EuclideanNorm", _norm, True),
    ):
        values = X if complexes else X.real
        for label, axes in AXES:
            for keep in (False, True):
                rows.append(
                    Case(
                        op,
                        [values, Raw(axes)],
                        {"keep_dims": keep},
                        _over(function, keep),
                        dtypes=INEXACT if complexes else INEXACT[:4],
                        tolerance=LONG,
                        label=f"{label}{'-keep' if keep else ''}",
                    )
                )
        rows += [
            Case(
                op, [COUNTS, Raw([0, 2])], {}, _over(function, False), dtypes=INTEGERS, label="int"
            ),
            Case(
                op,
                [np.array(0.7), Raw(np.zeros(0, np.int32))],
                {},
                _over(function, False),
                label="scalar",
            ),
            Case(
                op,
                [values[0], Raw(np.array([1]), "int64")],
                {},
                _over(function, False),
                dtypes=("float64",),
                label="int64",
            ),
        ]
    return rows


ZERO = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0], [1.0, 4.0, 6.0]])
TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]])
EMPTY = np.zeros((0, 3))
EXTREMES = np.array([[np.inf, -np.inf, np.nan, 1.0], [np.inf, -np.inf, 2.0, -np.inf]])
MORE = [
    Case("Prod", [ZERO, Raw([1])], {}, lambda x, a: x.prod(1), order=1, label="zeros"),
    Case("Sum", [EMPTY, Raw([0])], {}, lambda x, a: np.zeros(3), dtypes=INEXACT, label="empty"),
    Case("Prod", [EMPTY, Raw([0])], {}, lambda x, a: np.ones(3), grad=False, label="empty"),
    Case("Mean", [EMPTY, Raw([0])], {}, lambda x, a: np.full(3, np.nan), grad=False, label="empty"),
    Case("Max", [EMPTY, Raw([0])], {}, lambda x, a: np.full(3, -np.inf), grad=False, label="empty"),
    Case(
        "Min",
        [EMPTY, Raw([0])],
        {},
        lambda x, a: np.full(3, 127),
        dtypes=("int8",),
        label="empty-int",
    ),
    *(
        Case(
            op,
            [EXTREMES, Raw(axis)],
            {},
            _over(_plain(function), False),
            grad=False,
            label=f"inf-{axis}",
        )
        for op, function in (("Max", np.max), ("Min", np.min))
        for axis in (0, 1)
    ),
    Case(
        "Sum",
        [normal(60, 100), Raw([1])],
        {"keep_dims": True},
        lambda x, a: x.sum(1, keepdims=True),
        tolerance=LONG,
        grad=False,
        label="large-input",
    ),
    Case(
        "Sum",
        [np.ones((3, 2, 2000)), Raw([1])],
        {},
        lambda x, a: x.sum(1),
        grad=False,
        label="large",
    ),
    Case(
        "Mean",
        [normal(3, 2, 2000), Raw([1])],
        {},
        lambda x, a: x.mean(1),
        tolerance=LONG,
        grad=False,
        label="large",
    ),
    Case(
        "Sum",
        [np.full(3000, 0.1), Raw([0])],
        {},
        lambda x, a: x.sum(),
        grad=False,
        tolerance={"bfloat16": (5e-3, 0.0), "float16": (1e-3, 0.0)},
        dtypes=("float16", "bfloat16"),
        label="accumulates-wide",
    ),
    Case(
        "Sum",
        [np.full(200, 2), Raw([0])],
        {},
        lambda x, a: np.array(400).astype(x.dtype),
        dtypes=("int8", "uint8"),
        label="wraps",
    ),
    Case(
        "Mean",
        [np.full(200, 100), Raw([0])],
        {},
        lambda x, a: np.array(100),
        dtypes=INTEGERS,
        label="does-not-wrap",
    ),
    *(
        Case(
            op,
            [COUNTS > 1, Raw(axes)],
            {"keep_dims": keep},
            _over(_plain(function), keep),
            dtypes=UNTYPED,
            label=f"{label}{'-keep' if keep else ''}",
        )
        for op, function in (("All", np.all), ("Any", np.any))
        for label, axes in AXES
        for keep in (False, True)
    ),
]


def _position(function: Any, axis: int) -> Any:
    return lambda x, a: function(x, axis=axis)


POSITIONS = [
    *(
        Case(
            op,
            [values, Raw(axis)],
            {"output_type": kind},
            _position(function, axis),
            dtypes=(*REALS, "bool") if kind == "int64" else ("float32",),
            label=f"{label}-{axis}-{kind}",
        )
        for op, function in (("ArgMax", np.argmax), ("ArgMin", np.argmin))
        for label, values in (("plain", COUNTS), ("ties", TIES))
        for axis in (0, -1)
        for kind in ("int64", "int32")
    ),
    Case("ArgMax", [normal(7), Raw(0)], {}, _position(np.argmax, 0), label="vector"),
    *(
        Case(op, [EXTREMES, Raw(axis)], {}, _position(function, axis), label=f"inf-{axis}")
        for op, function in (("ArgMax", np.argmax), ("ArgMin", np.argmin))
        for axis in (0, 1)
    ),
]


def _scan(function: Any, axis: int, exclusive: bool, reverse: bool, first: int) -> Any:
    def reference(x: Array, a: Array) -> Array:
        y = np.flip(x, axis) if reverse else x
        if exclusive:
            head = np.full_like(np.take(y, [0], axis), first)
            y = np.concatenate([head, np.delete(y, -1, axis)], axis)
        y = function(y, axis=axis, dtype=y.dtype)
        return np.flip(y, axis) if reverse else y

    return reference


SCANS = [
    Case(
        op,
        [X if dtypes is INEXACT else COUNTS, Raw(axis)],
        {"exclusive": exclusive, "reverse": reverse},
        _scan(function, axis, exclusive, reverse, first),
        dtypes=dtypes,
        tolerance=LONG,
        label=f"{axis}{'-exclusive' if exclusive else ''}{'-reverse' if reverse else ''}"
        f"{'' if dtypes is INEXACT else '-int'}",
    )
    for op, function, first in (("Cumsum", np.cumsum, 0), ("Cumprod", np.cumprod, 1))
    for axis in (0, -2)
    for exclusive in (False, True)
    for reverse in (False, True)
    for dtypes in (INEXACT, INTEGERS)
]


def _log_sums(x: Array, axis: Array) -> Array:
    return np.log(np.cumsum(np.exp(x), int(axis)))


CASES = [
    *_rows(),
    *MORE,
    *POSITIONS,
    *SCANS,
    Case("CumulativeLogsumexp", [normal(3, 4, 2), Raw(1, "int32")], {}, _log_sums),
    Case(
        "CumulativeLogsumexp",
        [np.array([1e4, 1e4, -1e4]), Raw(-1, "int32")],
        {"exclusive": True, "reverse": True},
        lambda x, axis: np.array([1e4, -1e4, -np.inf]),
        dtypes=("float32", "float64"),
        grad=False,
        label="far",
    ),
    Case(
        "CumulativeLogsumexp",
        [normal(3, 4), Raw(0, "int32")],
        {"exclusive": True, "reverse": True},
        lambda x, axis: np.array([[-np.inf] * 4, *_log_sums(x[:0:-1], np.array(0))])[::-1],
        label="exclusive",
        dtypes=("float32", "float64"),
        grad=False,
    ),
    *[
        Case(
            op,
            [integers(-3, 4, 4200, 3, seed=7), Raw([1])],
            {"keep_dims": op == "Min"},
            lambda x, axes, f=function, k=op == "Min": np.asarray(f(x, 1, keepdims=k)).astype(
                x.dtype
            ),
            dtypes=INTEGERS + WIDE_FLOATS,
            grad=False,
            label="short-rows",
            knowledge=("static", "unknown"),
        )
        for op, function in (("Sum", np.sum), ("Prod", np.prod), ("Max", np.max), ("Min", np.min))
    ],
]
