"""Sums, products, extremes and reductions of sparse tensors against dense ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import (
    NUMBERS,
    REALS,
    WIDE_FLOATS,
    Array,
    Case,
    Raw,
    complex_normal,
    normal,
)

SHAPE = np.array([3, 4], np.int64)
HUGE = np.array([2**40, 2**40], np.int64)
A = np.array([[0, 1], [1, 2], [2, 0], [2, 3]], np.int64)
B = np.array([[0, 1], [1, 1], [2, 3]], np.int64)
BOTH = np.array([[0, 1], [1, 1], [1, 2], [2, 0], [2, 3]], np.int64)
DEEP = np.array([[0, 0, 1], [0, 2, 0], [1, 1, 1], [1, 2, 0], [1, 2, 1]], np.int64)
DEEP_SHAPE = np.array([2, 3, 2], np.int64)


def dense(places: Array, values: Array, shape: Array) -> Array:
    """The dense tensor of a sparse one."""
    result = np.zeros(tuple(shape), values.dtype)
    np.add.at(result, tuple(places.T), values)
    return result


def _operands(shape: Array = SHAPE) -> list[Any]:
    return [Raw(A), complex_normal(4), Raw(shape), Raw(B), complex_normal(3, seed=1), Raw(shape)]


def _union(combine: Callable[[Array, Array], Array]) -> Callable[..., tuple[Array, ...]]:
    def expected(*inputs: Array) -> tuple[Array, ...]:
        a, b = [dense(inputs[i], inputs[i + 1], SHAPE) for i in (0, 3)]
        return BOTH, combine(a, b)[tuple(BOTH.T)], inputs[2]

    return expected


def _sums() -> list[Case]:
    zero, much = Raw(np.float32(0)), Raw(np.float32(100))
    return [
        *[
            Case(
                "SparseAdd",
                [*_operands(shape), zero],
                {},
                _union(np.add),
                dtypes=NUMBERS,
                static=False,
                label=label,
            )
            for shape, label in ((SHAPE, ""), (HUGE, "huge"))
        ],
        Case(
            "SparseAdd",
            [*_operands(), much],
            {},
            lambda *x: (
                BOTH[[1, 2, 3]],
                np.array([x[4][1], x[1][1], x[1][2]]),
                SHAPE,
            ),
            static=False,
            label="threshold",
        ),
        Case(
            "SparseAdd",
            [Raw(A[[0, 0, 1]]), normal(3), Raw(SHAPE), Raw(A[:1]), normal(1), Raw(SHAPE), zero],
            {},
            lambda *x: (A[[0, 0, 1]], x[1] + [x[4][0], 0, 0], SHAPE),
            static=False,
            label="repeated",
        ),
        Case(
            "SparseAddGrad",
            [complex_normal(5), Raw(A), Raw(B), Raw(BOTH[[4, 1, 0, 3, 2]])],
            {},
            lambda g, a, b, s: (g[[2, 4, 3, 0]], g[[2, 1, 0]]),
            dtypes=NUMBERS,
        ),
        Case(
            "SparseAddGrad",
            [complex_normal(2), Raw(A), Raw(B), Raw(B[1:].copy())],
            {},
            lambda g, a, b, s: (np.array([0, 0, 0, g[1]]), np.array([0, g[0], g[1]])),
            label="dropped",
        ),
    ]


def _with_dense() -> list[Case]:
    cases = [
        Case(
            "SparseTensorDenseAdd",
            [Raw(A[[0, 1, 1, 3]].astype(kind)), complex_normal(4), Raw(SHAPE.astype(kind)), b],
            {},
            lambda i, v, s, b: dense(i, v, s) + b,
            dtypes=NUMBERS,
            label=np.dtype(kind).name,
        )
        for kind, b in ((np.int32, complex_normal(3, 4)), (np.int64, complex_normal(3, 4)))
    ]
    functions = {"Add": np.add, "Mul": np.multiply, "Div": _quotient}
    shapes: dict[str, tuple[int, ...]] = {
        "whole": (3, 4),
        "row": (4,),
        "column": (3, 1),
        "one": (1, 1),
        "scalar": (),
    }
    for op, function in functions.items():
        for label, shape in shapes.items():
            far = complex_normal(*shape) + 4 * np.sign(normal(*shape))
            cases.append(
                Case(
                    f"SparseDenseCwise{op}",
                    [Raw(A), complex_normal(4), Raw(SHAPE), far],
                    {},
                    lambda i, v, s, d, f=function: f(v, np.broadcast_to(d, s)[tuple(i.T)]),
                    dtypes=NUMBERS,
                    label=label,
                )
            )
    return cases


def _quotient(x: Array, y: Array) -> Array:
    if x.dtype.kind in "iu":
        return np.trunc(x / y).astype(x.dtype)
    return x / y


def _reductions() -> list[Case]:
    some = (
        ([0], False),
        ([-1], True),
        ([0, 2], False),
        ([1, 1], True),
        ([0, 1, 2], False),
        ([], True),
    )
    return [
        _reduction(kind, axes, keep, end)
        for axes, keep in some
        for kind in ("Sum", "Max")
        for end in ("", "Sparse")
    ]


def _reduction(kind: str, axes: list[int], keep: bool, end: str) -> Case:
    gone = tuple(sorted({axis % 3 for axis in axes}))
    function = np.sum if kind == "Sum" else np.max

    def expected(i: Array, v: Array, s: Array, a: Array) -> Any:
        there = dense(i, np.ones(len(i), np.int64), s).any(gone, keepdims=keep)
        filled = np.full(tuple(s), 0 if kind == "Sum" else _lowest(v), v.dtype)
        filled[tuple(i.T)] = v
        total = np.where(there, function(filled, gone, keepdims=keep), 0).astype(v.dtype)
        if not end:
            return total
        places = np.argwhere(there)
        return (
            places,
            np.atleast_1d(np.asarray(total)[tuple(places.T)]),
            np.array(there.shape, np.int64),
        )

    return Case(
        f"SparseReduce{kind}{end}",
        [Raw(DEEP), complex_normal(5), Raw(DEEP_SHAPE), Raw(np.array(axes, np.int32))],
        {"keep_dims": keep},
        expected,
        dtypes=(NUMBERS if kind == "Sum" else REALS) if axes == [0] else WIDE_FLOATS,
        static=not end,
        label=f"{''.join(map(str, axes))}{'keep' if keep else ''}",
    )


def _lowest(values: Array) -> Any:
    return np.iinfo(values.dtype).min if values.dtype.kind in "iu" else -np.inf


def _softmax() -> list[Case]:
    def expected(i: Array, v: Array, s: Array) -> Array:
        powers = np.zeros(tuple(DEEP_SHAPE))
        powers[tuple(DEEP.T)] = np.exp(v)
        result: Array = (powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30))[tuple(DEEP.T)]
        return result

    types = ("float16", *WIDE_FLOATS)
    shapes = ((DEEP_SHAPE, ""),)
    return [
        Case("SparseSoftmax", [Raw(DEEP), normal(5), Raw(s)], {}, expected, dtypes=types, label=n)
        for s, n in shapes
    ]


def _extremes() -> list[Case]:
    return [
        Case(
            f"SparseSparse{op}",
            _operands(shape),
            {},
            lambda *x, f=function: _union(f)(*x)[:2],
            dtypes=REALS,
            static=False,
            label=label,
        )
        for op, function in (("Maximum", np.maximum), ("Minimum", np.minimum))
        for shape, label in ((SHAPE, ""), (HUGE, "huge"))
    ]


CASES = [*_sums(), *_with_dense(), *_reductions(), *_softmax(), *_extremes()]
