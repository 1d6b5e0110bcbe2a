"""Shapes, and changing them, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    Case,
    Raw,
    complex_normal,
    with_strings,
)

X = 3 * complex_normal(2, 3, 4)
V = 3 * complex_normal(4)
INTS = np.zeros(0, np.int32)


def _placed(values: Any) -> Any:
    return Raw(np.array(values, np.int32))


def _shapes() -> list[Case]:
    cases: list[Case] = []
    for kind in ("int32", "int64"):
        attrs = {"out_type": kind}
        cases += with_strings(
            "Shape", X, (), attrs, lambda x: np.array(x.shape), label=kind, static=True
        )
        cases += with_strings("Size", X, (), attrs, lambda x: np.array(x.size), label=kind)
        cases += with_strings(
            "ShapeN",
            [X, V],
            (),
            attrs,
            lambda xs: tuple(np.array(x.shape) for x in xs),
            label=kind,
        )
    cases += with_strings("ShapeN", [X], (), {}, lambda xs: np.array(xs[0].shape), label="one")
    cases += with_strings("Shape", np.array(1.0), (), {}, lambda x: INTS, label="scalar")
    cases += with_strings("Rank", X, expected=lambda x: np.array(x.ndim))
    for shape in ([4, 6], [2, -1], [-1], [1, 24, 1], [0, 1]):
        x = X if 0 not in shape else X[:0]
        cases += with_strings(
            "Reshape",
            x,
            [_placed(shape)],
            {},
            lambda x, shape: x.reshape(shape),
            label=str(shape),
        )
    cases += with_strings(
        "Reshape", X[:1, :1, :1], [Raw(INTS)], {}, lambda x, s: x.reshape(()), label="scalar"
    )
    for axis in (0, 1, 3, -1, -4):
        cases += with_strings(
            "ExpandDims",
            X,
            [Raw(axis)],
            {},
            lambda x, axis: np.expand_dims(x, int(axis)),
            label=str(axis),
        )
    cases += with_strings(
        "ExpandDims", np.array(1.5), [Raw(0)], {}, lambda x, a: x.reshape(1), label="0-d"
    )
    ones = X.reshape(2, 1, 12, 1)
    for axes in ((), (1,), (-1,), (1, 3), (-1, 1)):
        cases += with_strings(
            "Squeeze",
            ones,
            (),
            {"squeeze_dims": axes},
            lambda x, axes=axes: np.squeeze(x, axes or None),
            label=str(axes),
        )
    return cases


CASES = [*_shapes()]
