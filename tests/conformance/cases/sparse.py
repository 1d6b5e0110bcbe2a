"""Sparse tensors against dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    BOOL,
    INEXACT,
    NUMBERS,
    STRING,
    Array,
    Case,
    Raw,
    complex_normal,
)

ANY = (*NUMBERS, *BOOL)
PLACES = [[0, 1], [2, 0], [2, 3]]


def _dense(indices: Array, shape: Array, values: Array, default: Array) -> Array:
    result = np.full(tuple(shape), default)
    table = indices.reshape(-1, len(shape))
    for i, place in enumerate(table):
        result[tuple(place)] = values if values.ndim == 0 else values[i]
    return result


def _to_dense() -> list[Case]:
    cases: list[Case] = []
    default = np.array(2.5)
    for kind in (np.int32, np.int64):
        shape = Raw(np.array([3, 4], kind))
        table = Raw(np.array(PLACES, kind))
        name = np.dtype(kind).name
        for values, label in ((complex_normal(3), ""), (np.array(1.5), "scalar")):
            cases.append(
                Case(
                    "SparseToDense",
                    [table, shape, values, default],
                    {},
                    _dense,
                    dtypes=ANY,
                    label=f"{name}{label}",
                )
            )
    vector = [Raw(np.array([1, 4], np.int32)), Raw(np.array([5], np.int32))]
    one = [Raw(np.array(3, np.int32)), Raw(np.array([5], np.int32))]
    cases += [
        Case("SparseToDense", [*vector, complex_normal(2), default], {}, _dense, label="vector"),
        Case("SparseToDense", [*one, np.array(1.5), default], {}, _dense, label="one"),
        Case(
            "SparseToDense",
            [Raw(np.array([[2], [0], [2]])), Raw(np.array([3])), complex_normal(3), default],
            {"validate_indices": False},
            _dense,
            label="unordered",
            grad=False,
        ),
        Case(
            "SparseToDense",
            [
                *vector,
                np.array([b"a", b"b"], object),
                np.array(b"-", object),
            ],
            {},
            lambda i, s, v, d: np.array([b"-", b"a", b"-", b"-", b"b"], object),
            dtypes=STRING,
            label="strings",
        ),
    ]
    return cases


def _products() -> list[Case]:
    cases: list[Case] = []
    table = Raw(np.array([[2, 0], [0, 1], [2, 3], [0, 1]], np.int64))
    shape = Raw(np.array([3, 4], np.int64))
    for adjoint_a in (False, True):
        for adjoint_b in (False, True):
            inner = 3 if adjoint_a else 4
            b = complex_normal(5, inner) if adjoint_b else complex_normal(inner, 5)
            cases.append(
                Case(
                    "SparseTensorDenseMatMul",
                    [table, complex_normal(4), shape, b],
                    {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b},
                    lambda i, v, s, b, left=adjoint_a, right=adjoint_b: _product(
                        i, v, s, b, left, right
                    ),
                    dtypes=INEXACT,
                    label=f"{adjoint_a}{adjoint_b}",
                )
            )
    return cases


def _product(i: Array, v: Array, s: Array, b: Array, left: bool, right: bool) -> Any:
    dense = np.zeros(tuple(s), v.dtype)
    np.add.at(dense, tuple(i.T), v)
    return (dense.conj().T if left else dense) @ (b.conj().T if right else b)


def _reordered() -> list[Case]:
    table = [[2, 0], [0, 1], [2, 3], [0, 1], [0, 0]]
    order = [4, 1, 3, 0, 2]
    shape = Raw(np.array([3, 4], np.int64))

    def expected(i: Array, v: Array, s: Array) -> tuple[Array, Array]:
        return i[order], v[order]

    return [
        Case(
            "SparseReorder",
            [Raw(np.array(table, np.int64)), complex_normal(5), shape],
            {},
            expected,
            dtypes=ANY,
        ),
        Case(
            "SparseReorder",
            [Raw(np.zeros((2, 0), np.int64)), complex_normal(2), Raw(np.zeros(0, np.int64))],
            {},
            lambda i, v, s: (i, v),
            label="scalar",
        ),
    ]


CASES = [*_to_dense(), *_products(), *_reordered()]
