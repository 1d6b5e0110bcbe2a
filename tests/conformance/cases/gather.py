"""Gathering, scattering, partitions and one-hot rows against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    ANY,
    FLOATS,
    INEXACT,
    INTEGERS,
    Array,
    Case,
    Raw,
    complex_normal,
    integers,
    with_strings,
)

X = 3 * complex_normal(4, 3, 5)
INFINITIES = np.array([-np.inf, np.inf, -np.inf, np.inf])
TABLE = complex_normal(40, 30)
SUMS = {
    "float16": (2e-2, 2e-2),
    "bfloat16": (6e-2, 6e-2),
}


def _at(values: Any, dtype: Any = np.int32) -> Raw:
    return Raw(np.array(values, dtype))


def _keep(x: Any) -> Any:
    """A string that NumPy handed out bare, as an array of rank 0."""
    if not isinstance(x, bytes):
        return x
    result = np.empty((), object)
    result[()] = x
    return result


def _gathering() -> list[Case]:
    cases: list[Case] = []
    typed = {"type_attr": "Tparams"}
    for indices in ([0, 3, 3, 1], [[1, 2], [0, 0]], 2, [], [[[3]]]):
        for kind in (np.int32, np.int64):
            label = f"{indices}{np.dtype(kind).name}"
            cases += with_strings(
                "Gather", X, [_at(indices, kind)], {}, lambda x, i: x[i], label, **typed
            )
            for axis in (0, 1, -1):
                which = _at(np.array(indices, kind) % X.shape[axis], kind)
                cases += with_strings(
                    "GatherV2",
                    X,
                    [which, _at(axis)],
                    {},
                    lambda x, i, axis: np.take(x, i, int(axis)),
                    f"{label}at{axis}",
                    **typed,
                )
    which = _at(integers(0, 40, 50))
    cases += with_strings(
        "GatherV2", TABLE, [which, _at(0)], {}, lambda x, i, axis: x[i], "large", **typed
    )
    cases += with_strings(
        "GatherV2", X[:, 0, 0], [_at(1), _at(0)], {}, lambda x, i, a: _keep(x[i]), "one", **typed
    )
    for batch, axis, shape in (
        (1, 1, (4,)),
        (1, 2, (4, 2)),
        (2, 2, (4, 3, 6)),
        (-1, 1, (4, 2)),
        (1, -1, (4, 2, 3)),
        (0, 1, (2, 2)),
    ):
        which = _at(integers(0, 3, *shape))
        cases += with_strings(
            "GatherV2",
            X,
            [which, _at(axis)],
            {"batch_dims": batch},
            lambda x, i, axis, b=batch: _batched(x, i, int(axis), b),
            f"batch{batch}at{axis}",
            **typed,
        )
    cases += with_strings(
        "GatherV2",
        X,
        [_at(integers(0, 3, 4, 2), np.int64), _at(1)],
        {"batch_dims": 1},
        lambda x, i, axis: _batched(x, i, int(axis), 1),
        "batch1int64",
        **typed,
    )
    for indices in ([[0], [3]], [[1, 2], [0, 0]], [[[3, 2, 4]], [[0, 0, 0]]], [2, 1], [[], []]):
        cases += with_strings(
            "GatherNd",
            X,
            [_at(np.array(indices, np.int32))],
            {},
            lambda x, i: (
                x[(*np.moveaxis(i, -1, 0), ...)]
                if i.shape[-1]
                else np.broadcast_to(x, (*i.shape[:-1], *x.shape))
            ),
            str(indices),
            **typed,
        )
    return cases


def _batched(x: Array, indices: Array, axis: int, batch: int) -> Array:
    axis = axis % x.ndim
    batch = batch % indices.ndim if batch < 0 else batch
    if not batch:
        return np.take(x, indices, axis)
    rows = [
        _batched(part, which, axis - 1, batch - 1) for part, which in zip(x, indices, strict=True)
    ]
    return np.stack(rows)


def _scattering() -> list[Case]:
    cases: list[Case] = []
    shape = (4, 3, 5)
    for indices in ([[0], [3], [0]], [[1, 2], [0, 0], [1, 2]], [[3, 2, 4], [3, 2, 4]]):
        depth = len(indices[0])
        updates = complex_normal(len(indices), *shape[depth:])
        for kind in (np.int32, np.int64):
            label = f"{indices}{np.dtype(kind).name}"
            cases.append(
                Case(
                    "ScatterNd",
                    [_at(indices, kind), updates, _at(shape, kind)],
                    {},
                    lambda i, u, s: _added(np.zeros(s, u.dtype), i, u, 1),
                    dtypes=(*INEXACT, *INTEGERS),
                    tolerance=SUMS,
                    label=label,
                )
            )
        for op, sign in (
            ("TensorScatterAdd", 1),
            ("TensorScatterSub", -1),
            ("ScatterNdNonAliasingAdd", 1),
        ):
            cases.append(
                Case(
                    op,
                    [X, _at(indices), updates],
                    {},
                    lambda x, i, u, sign=sign: _added(x.copy(), i, u, sign),
                    dtypes=(*INEXACT, *INTEGERS),
                    tolerance=SUMS,
                    label=str(indices),
                )
            )
        for op, extreme in (("TensorScatterMax", np.maximum), ("TensorScatterMin", np.minimum)):
            cases.append(
                Case(
                    op,
                    [X.real, _at(indices), updates.real],
                    {},
                    lambda x, i, u, extreme=extreme: _extremes(x.copy(), i, u, extreme),
                    dtypes=(*FLOATS, *INTEGERS),
                    label=str(indices),
                )
            )
    for op, extreme in (("TensorScatterMax", np.maximum), ("TensorScatterMin", np.minimum)):
        cases.append(
            Case(
                op,
                [np.array([-np.inf, np.inf, 1.0]), _at([[0], [1], [2], [2]]), INFINITIES],
                {},
                lambda x, i, u, extreme=extreme: _extremes(x.copy(), i, u, extreme),
                grad=False,
                label="infinite",
            )
        )
    for indices in ([[0], [3]], [[1, 2], [0, 0]]):
        depth = len(indices[0])
        cases.append(
            Case(
                "TensorScatterUpdate",
                [X, _at(indices), complex_normal(2, *shape[depth:])],
                {},
                lambda x, i, u: _put(x.copy(), i, u),
                dtypes=ANY,
                label=str(indices),
            )
        )
    return cases


def _added(target: Array, indices: Array, updates: Array, sign: int) -> Array:
    for i, update in zip(indices, updates, strict=True):
        target[tuple(i)] += update if sign > 0 else -update
    return target


def _extremes(target: Array, indices: Array, updates: Array, extreme: np.ufunc) -> Array:
    for i, update in zip(indices, updates, strict=True):
        target[tuple(i)] = extreme(target[tuple(i)], update)
    return target


def _put(target: Array, indices: Array, updates: Array) -> Array:
    for i, update in zip(indices, updates, strict=True):
        target[tuple(i)] = update
    return target


def _sorting() -> list[Case]:
    cases: list[Case] = []
    for partitions in ([0, 2, 0, 1], [3, 3, 3, 3], [[0, 1, 0], [2, 2, 1], [0, 0, 0], [1, 1, 1]]):
        cases += with_strings(
            "DynamicPartition",
            X,
            [_at(partitions)],
            {"num_partitions": 4},
            lambda x, p: tuple(x[p == i] for i in range(4)),
            str(partitions),
            static=False,
        )
    cases += with_strings(
        "DynamicPartition",
        X,
        [_at([0] * 4)],
        {"num_partitions": 1},
        lambda x, p: x,
        "one",
        static=False,
    )
    for op in ("DynamicStitch", "ParallelDynamicStitch"):
        cases.append(
            Case(
                op,
                [[_at([4, 1]), _at(0), _at([[3], [2]])], [X[:2], X[2], X[:2, None]]],
                {},
                lambda indices, data: np.stack(
                    [data[1], data[0][1], data[2][1, 0], data[2][0, 0], data[0][0]]
                ),
                dtypes=ANY,
            )
        )
    for axis in (-1, 0, 1):
        for kind in ("int32", "int64", "uint8"):
            cases.append(
                Case(
                    "OneHot",
                    [
                        Raw(np.array([[0, 2, 3], [1, 7, 0]], kind)),
                        Raw(4),
                        np.array(2.5),
                        np.array(-1.0),
                    ],
                    {"axis": axis},
                    lambda i, depth, on, off, axis=axis: _one_hot(i, int(depth), on, off, axis),
                    dtypes=ANY,
                    label=f"{axis}{kind}",
                )
            )
    cases.append(
        Case(
            "OneHot",
            [Raw(np.array(-1, np.int32)), Raw(3), np.array(2.0), np.array(1.0)],
            {},
            lambda i, depth, on, off: np.full(3, off),
            dtypes=("float32", "float64"),
            label="none",
        )
    )
    for x in (X.real > 0, np.zeros((2, 0)), np.array(True)):
        cases.append(
            Case("Where", [x], {}, np.argwhere, dtypes=(*ANY,), label=str(x.shape), static=False)
        )
    return cases


def _one_hot(indices: Array, depth: int, on: Array, off: Array, axis: int) -> Array:
    rows = np.where(indices[..., None] == np.arange(depth), on, off)
    return np.moveaxis(rows, -1, axis)


CASES = [*_gathering(), *_scattering(), *_sorting()]
