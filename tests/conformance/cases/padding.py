"""Padding against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    ANY,
    Array,
    Case,
    Raw,
    complex_normal,
    with_strings,
)

X = 3 * complex_normal(3, 4, 2)


def _ints(values: Any, dtype: Any = np.int32) -> Raw:
    return Raw(np.array(values, dtype))


def _zero(x: Array) -> Any:
    return b"" if x.dtype == object else 0


def _padding() -> list[Case]:
    cases: list[Case] = []
    margins = [[0, 2], [1, 0], [1, 1]]
    for dtype in (np.int32, np.int64):
        cases += with_strings(
            "Pad",
            X,
            [_ints(margins, dtype)],
            {},
            lambda x, p: np.pad(x, p, constant_values=_zero(x)),
            np.dtype(dtype).name,
        )
    cases += with_strings("Pad", X, [_ints([[0, 0]] * 3)], {}, lambda x, p: x, "nothing")
    cases += with_strings(
        "Pad", np.array(1.0), [_ints(np.zeros((0, 2)))], {}, lambda x, p: x, "scalar"
    )
    cases.append(
        Case(
            "PadV2",
            [X, _ints(margins), np.array(2.5)],
            {},
            lambda x, p, value: np.pad(x, p, constant_values=value),
            dtypes=ANY,
        )
    )
    for mode, margins in (
        ("REFLECT", [[2, 1], [0, 3], [1, 1]]),
        ("REFLECT", [[0, 0], [3, 3], [0, 1]]),
        ("SYMMETRIC", [[3, 1], [0, 4], [2, 2]]),
        ("SYMMETRIC", [[0, 0], [4, 4], [0, 2]]),
    ):
        numpy_mode: Any = mode.lower()
        cases += with_strings(
            "MirrorPad",
            X,
            [_ints(margins)],
            {"mode": mode},
            lambda x, p, m=numpy_mode: np.pad(x, p, m),
            f"{mode}{margins}",
        )
        grown = [n + sum(pair) for n, pair in zip(X.shape, margins, strict=True)]
        cases.append(
            Case(
                "MirrorPadGrad",
                [complex_normal(*grown), _ints(margins)],
                {"mode": mode},
                lambda x, p, m=numpy_mode: _mirror_transposed(x, p, m),
                dtypes=("float32", "float64", "complex64", "complex128", "int32", "int64"),
                label=f"{mode}{margins}",
            )
        )
    return cases


def _mirror_transposed(grad: Array, paddings: Array, mode: Any) -> Array:
    shape = [n - int(sum(pair)) for n, pair in zip(grad.shape, paddings, strict=True)]
    places = np.pad(np.arange(np.prod(shape)).reshape(shape), paddings, mode)
    total = np.zeros(int(np.prod(shape)), grad.dtype)
    np.add.at(total, places.reshape(-1), grad.reshape(-1))
    return total.reshape(shape)


CASES = [*_padding()]
