"""Transposition, reversal and rolling against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    NUMBERS,
    Array,
    Case,
    Raw,
    complex_normal,
    with_strings,
)

X = 3 * complex_normal(3, 4, 2)


def _ints(values: Any, dtype: Any = np.int32) -> Raw:
    return Raw(np.array(values, dtype))


def _orders() -> list[Case]:
    cases: list[Case] = []
    for perm in ([0, 1, 2], [2, 0, 1], [2, 1, 0], [1, 0, 2]):
        for dtype in (np.int32, np.int64):
            label = f"{perm}{np.dtype(dtype).name}"
            cases += with_strings("Transpose", X, [_ints(perm, dtype)], {}, np.transpose, label)
            cases.append(
                Case(
                    "ConjugateTranspose",
                    [X, _ints(perm, dtype)],
                    {},
                    lambda x, perm: np.conj(np.transpose(x, perm)),
                    dtypes=NUMBERS,
                    label=label,
                )
            )
    cases += with_strings(
        "Transpose", np.array(2.0), [_ints(np.zeros(0))], {}, lambda x, p: x, "scalar"
    )
    cases.append(
        Case(
            "InvertPermutation",
            [np.array([2, 0, 3, 1])],
            {},
            np.argsort,
            dtypes=("int32", "int64"),
        )
    )
    for flags in ([True, False, True], [False] * 3):
        cases += with_strings(
            "Reverse",
            X,
            [Raw(np.array(flags))],
            {},
            lambda x, flags: np.flip(x, tuple(np.flatnonzero(flags))),
            str(flags),
        )
    for axes in ([0], [-1, 0], [1, 2, 0], []):
        cases += with_strings(
            "ReverseV2", X, [_ints(axes)], {}, lambda x, axes: np.flip(x, tuple(axes)), str(axes)
        )
    for along, batch in ((1, 0), (0, 1), (2, 0), (1, 2)):
        lengths = [n % (X.shape[along] + 1) for n in range(1, X.shape[batch] + 1)]
        cases += with_strings(
            "ReverseSequence",
            X,
            [_ints(lengths, np.int64)],
            {"seq_dim": along, "batch_dim": batch},
            lambda x, lengths, a=along, b=batch: _reversed(x, lengths, a, b),
            f"{along}by{batch}",
        )
    for shift, axis in ((1, 0), (-3, 1), (99, -1), ([1, 2], [0, 1]), ([1, 1], [2, 2])):
        cases += with_strings(
            "Roll",
            X,
            [_ints(shift), _ints(axis)],
            {},
            lambda x, shift, axis: (
                np.roll(x, shift, tuple(np.atleast_1d(axis)))
                if axis.ndim
                else np.roll(x, int(shift), int(axis))
            ),
            f"{shift}at{axis}",
        )
    return cases


def _reversed(x: Array, lengths: Array, along: int, batch: int) -> Array:
    result = np.moveaxis(x, (batch, along), (0, 1)).copy()
    for row, n in zip(result, lengths, strict=True):
        row[:n] = row[:n][::-1].copy()
    return np.moveaxis(result, (0, 1), (batch, along))


CASES = [*_orders()]
