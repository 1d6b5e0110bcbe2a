"""Identities against NumPy."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import (
    ANY,
    FLOATS,
    UNTYPED,
    Array,
    Case,
    Raw,
    complex_normal,
    normal,
    texts,
    with_strings,
)

X = 3 * complex_normal(2, 3, 4)


def _same(x: Array) -> Array:
    return x


def _identity() -> list[Case]:
    cases: list[Case] = []
    for op in ("Identity", "Snapshot"):
        cases += with_strings(op, X, expected=_same)
    for op in ("StopGradient", "GuaranteeConst"):
        cases += with_strings(op, X, expected=_same, grad=False)
    cases += [
        Case("Identity", [np.array(2.5)], expected=_same, dtypes=ANY, label="scalar"),
        Case("PreventGradient", [X], expected=_same, dtypes=ANY, grad=False),
        Case("CheckNumerics", [X.real], {"message": "x"}, _same, dtypes=FLOATS),
        Case("EnsureShape", [X], {"shape": (None, 3, None)}, _same, dtypes=ANY),
        Case(
            "IdentityN",
            [[Raw(X), Raw(normal(3)), Raw(texts(2), "string")]],
            {},
            lambda xs: tuple(xs),
            dtypes=UNTYPED,
            grad=False,
        ),
        Case(
            "IdentityN",
            [[Raw(X.real)]],
            {},
            lambda xs: xs[0],
            dtypes=UNTYPED,
            grad=False,
            label="1",
        ),
    ]
    return cases


CASES = [*_identity()]
