"""Constants, placeholders and tensors of one value against NumPy."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import (
    ANY,
    STRING,
    UNTYPED,
    Array,
    Case,
    Raw,
    complex_normal,
    normal,
    texts,
)

X = 3 * complex_normal(2, 3, 4)


def _same(x: Array) -> Array:
    return x


def _given() -> list[Case]:
    return [
        Case(
            "PlaceholderWithDefault",
            [X],
            {"shape": (None, 3, None)},
            _same,
            dtypes=ANY,
            type_attr="dtype",
            static=False,
        ),
        Case(
            "Const",
            [],
            {"value": X, "dtype": "complex128"},
            lambda: X,
            dtypes=UNTYPED,
            grad=False,
        ),
    ]


def _filled() -> list[Case]:
    cases: list[Case] = []
    for shape in ([2, 3], [0, 2], [], [40, 50]):
        cases += [
            Case(
                "Fill",
                [Raw(np.array(shape, np.int32)), np.array(2.5 + 1j)],
                {},
                lambda dims, value: np.full(dims, value),
                dtypes=ANY,
                label=str(shape),
            ),
            Case(
                "Fill",
                [Raw(np.array(shape, np.int64)), texts(1)[0]],
                {},
                lambda dims, value: np.full(dims, value, object),
                dtypes=STRING,
                label=f"{shape}strings",
            ),
        ]
    for x in (X, np.array(1.5), normal(50, 60)):
        label = str(x.shape)
        cases.append(Case("ZerosLike", [x], {}, np.zeros_like, dtypes=ANY, label=label))
        cases.append(Case("OnesLike", [x], {}, np.ones_like, dtypes=ANY, label=label))
    cases.append(
        Case(
            "ZerosLike",
            [texts(2, 3)],
            {},
            lambda x: np.full(x.shape, b"", object),
            dtypes=STRING,
            label="strings",
        )
    )
    return cases


CASES = [*_given(), *_filled()]
