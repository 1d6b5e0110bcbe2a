"""Joining, splitting and tiling against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    ANY,
    STRING,
    UNTYPED,
    Array,
    Case,
    Raw,
    complex_normal,
    texts,
    with_strings,
)

X = 3 * complex_normal(2, 3, 4)
V = 3 * complex_normal(4)
INTS = np.zeros(0, np.int32)


def _placed(values: Any) -> Any:
    return Raw(np.array(values, np.int32))


def _joined() -> list[Case]:
    cases: list[Case] = []
    for axis in (0, 1, 2, -1):
        y = np.concatenate([X, X[:, :1]], 1) if axis == 1 else X
        cases += with_strings(
            "ConcatV2",
            [X, y],
            [Raw(axis)],
            {},
            lambda xs, axis: np.concatenate(xs, int(axis)),
            label=str(axis),
        )
    cases += with_strings(
        "ConcatV2", [X], [Raw(np.int64(-2))], {}, lambda xs, axis: xs[0], label="one"
    )
    big = 2 * complex_normal(30, 40)
    cases += with_strings(
        "ConcatV2", [big, big], [Raw(0)], {}, lambda xs, axis: np.concatenate(xs), label="big"
    )
    cases += [
        Case(
            "Concat",
            [Raw(1), [X, X[:, :2]]],
            {},
            lambda axis, xs: np.concatenate(xs, int(axis)),
            dtypes=ANY,
        ),
        Case(
            "ConcatOffset",
            [Raw(1), [_placed([2, 3, 4]), _placed([2, 5, 4]), _placed([2, 0, 4])]],
            {},
            lambda axis, shapes: tuple(np.array([0, n, 0]) for n in (0, 3, 8)),
            dtypes=UNTYPED,
        ),
    ]
    for axis in (0, 1, 3, -1):
        cases += with_strings(
            "Pack",
            [X, X + 1, X * 2],
            (),
            {"axis": axis},
            lambda xs, axis=axis: np.stack(xs, axis),
            label=str(axis),
        )
    cases += with_strings("Pack", [V[0], V[1]], (), {}, np.stack, label="scalars")
    cases += with_strings("Pack", [X], (), {}, np.stack, label="one")
    for axis in (0, 2, -1):
        cases += with_strings(
            "Unpack",
            X,
            (),
            {"num": X.shape[axis], "axis": axis},
            lambda x, axis=axis: tuple(np.moveaxis(x, axis, 0)),
            label=str(axis),
        )
    cases += with_strings(
        "Unpack", V, (), {"num": 4}, lambda x: tuple(x[i, ...] for i in range(4)), label="scalars"
    )
    cases += with_strings("Unpack", V[:1], (), {"num": 1}, lambda x: x[0], label="one")
    return cases


def _cut() -> list[Case]:
    cases: list[Case] = []
    for axis, count in ((0, 2), (1, 3), (-1, 2), (2, 1)):
        cases += [
            Case(
                "Split",
                [Raw(axis), X],
                {"num_split": count},
                lambda axis, x, count=count: tuple(np.split(x, count, int(axis))),
                dtypes=ANY,
                label=f"{axis}into{count}",
            )
        ]
    cases.append(
        Case(
            "Split",
            [Raw(1), texts(2, 4)],
            {"num_split": 2},
            lambda axis, x: tuple(np.split(x, 2, int(axis))),
            dtypes=STRING,
            label="strings",
        )
    )
    for sizes, axis in (([1, 3], 2), ([2, -1], -1), ([0, 2], 0), ([3], 1)):
        cases += with_strings(
            "SplitV",
            X,
            [Raw(np.array(sizes, np.int64)), Raw(axis)],
            {"num_split": len(sizes)},
            lambda x, sizes, axis: _split_v(x, sizes, int(axis)),
            label=f"{sizes}at{axis}",
        )
    for counts in ([1, 2, 3], [2, 0, 1], [1, 1, 1]):
        cases += with_strings(
            "Tile",
            X,
            [_placed(counts)],
            {},
            np.tile,
            label=str(counts),
        )
    cases += with_strings("Tile", np.array(2.0), [Raw(INTS)], {}, lambda x, m: x, label="scalar")
    return cases


def _split_v(x: Array, sizes: Array, axis: int) -> tuple[Array, ...]:
    counts = [int(n) for n in sizes]
    if -1 in counts:
        counts[counts.index(-1)] = x.shape[axis] - sum(counts) - 1
    return tuple(np.split(x, np.cumsum(counts)[:-1], axis))


CASES = [*_joined(), *_cut()]
