"""Broadcasting against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    Array,
    Case,
    Raw,
    complex_normal,
    with_strings,
)

X = 3 * complex_normal(2, 3, 4)
V = 3 * complex_normal(4)


def _placed(values: Any) -> Any:
    return Raw(np.array(values, np.int32))


def _broadcast() -> list[Case]:
    cases: list[Case] = []
    for x, shape in ((V, [3, 4]), (X[:, :1], [5, 2, 3, 4]), (X, [2, 3, 4]), (V[0], [2, 2])):
        cases += with_strings(
            "BroadcastTo",
            np.asarray(x),
            [_placed(shape)],
            {},
            lambda x, shape: np.broadcast_to(x, shape),
            label=f"{np.shape(x)}to{shape}",
        )
    for a, b in (([2, 1, 3], [4, 1]), ([], [2]), ([1], [1])):
        pair = [np.array(a, np.int32), np.array(b, np.int32)]
        cases.append(
            Case(
                "BroadcastArgs",
                pair,
                {},
                lambda a, b: np.array(np.broadcast_shapes(tuple(a), tuple(b))),
                dtypes=("int32", "int64"),
                label=f"{a}{b}",
            )
        )
        cases.append(
            Case(
                "BroadcastGradientArgs",
                pair,
                {},
                lambda a, b: (_summed(a, b), _summed(b, a)),
                dtypes=("int32", "int64"),
                label=f"{a}{b}",
                static=False,
            )
        )
    return cases


def _summed(a: Array, b: Array) -> Array:
    whole = np.broadcast_shapes(tuple(a), tuple(b))
    shape = (None,) * (len(whole) - len(a)) + tuple(a)
    return np.array([i for i, n in enumerate(shape) if n is None or (n == 1 and whole[i] != 1)])


CASES = [*_broadcast()]
