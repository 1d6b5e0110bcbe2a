"""Comparisons, logic, bits and choices against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    ANY,
    INEXACT,
    INTEGERS,
    NUMBERS,
    REALS,
    STRING,
    UNTYPED,
    Array,
    Case,
    Raw,
    complex_normal,
    integers,
    normal,
)

X, Y = integers(0, 4, 3, 4), integers(0, 4, 3, 4, seed=1)
FLAGS, OTHERS = X > 1, Y > 1
WORDS, MORE = np.array([b"a", b"b", b""], object), np.array([b"a", b"c", b""], object)
BITS, PLACES = integers(0, 100, 3, 4), integers(0, 12, 3, 4, seed=1)
BIG = integers(0, 4, 90, 100)
T, E = complex_normal(3, 4), complex_normal(3, 4, seed=1)
CHOICE = Raw(FLAGS, constant=False)


def _shift(function: Any) -> Any:
    def reference(x: Array, y: Array) -> Array:
        shifted: Array = function(x, np.clip(y, 0, x.dtype.itemsize * 8 - 1))
        return shifted

    return reference


def _count(x: Array) -> Array:
    flat = [bin(int(v) & (1 << x.dtype.itemsize * 8) - 1).count("1") for v in x.reshape(-1)]
    return np.array(flat).reshape(x.shape)


def _rows(c: Array, t: Array, e: Array) -> Array:
    return np.where(c[:, None], t, e)


MANY = [normal(70, 61, seed=seed) * 9 for seed in (5, 6)]
MANY_FLAGS = Raw(normal(70, 61, seed=7) > 0, constant=False)

CASES = [
    *(
        row
        for op, function, types in (
            ("Equal", np.equal, (*NUMBERS, "bool")),
            ("NotEqual", np.not_equal, (*NUMBERS, "bool")),
            ("Less", np.less, REALS),
            ("LessEqual", np.less_equal, REALS),
            ("Greater", np.greater, REALS),
            ("GreaterEqual", np.greater_equal, REALS),
        )
        for row in (
            Case(op, [X, Y], expected=function, dtypes=types),
            Case(op, [X, Y[0]], expected=function, dtypes=types[:4], label="row"),
            Case(op, [np.array(1), np.array(2)], expected=function, dtypes=types, label="scalars"),
            Case(op, [BIG, np.array(2)], expected=function, dtypes=types[:4], label="large"),
        )
    ),
    *(
        row
        for op, function in (("Equal", np.equal), ("NotEqual", np.not_equal))
        for row in (
            Case(op, [WORDS, MORE], expected=function, dtypes=STRING, label="string"),
            Case(op, [WORDS[0], WORDS[0]], expected=function, dtypes=STRING, label="strings"),
        )
    ),
    Case(
        "ApproximateEqual",
        [np.array([1.0, 1.2, 3.0]), np.array([1.0, 1.0, 2.9999])],
        {"tolerance": 0.1},
        lambda x, y: np.abs(x - y) < 0.1,
        dtypes=INEXACT,
    ),
    Case(
        "ApproximateEqual",
        [X, Y],
        {"tolerance": 2.0},
        lambda x, y: np.abs(x.astype(int) - y.astype(int)) < 2,
        dtypes=INTEGERS,
        label="int",
    ),
    *(
        row
        for op, function in (("LogicalAnd", np.logical_and), ("LogicalOr", np.logical_or))
        for row in (
            Case(op, [FLAGS, OTHERS], expected=function, dtypes=UNTYPED),
            Case(op, [FLAGS, OTHERS[0]], expected=function, dtypes=UNTYPED, label="row"),
            Case(
                op,
                [np.array(True), np.array(False)],
                expected=function,
                dtypes=UNTYPED,
                label="scalars",
            ),
        )
    ),
    Case("LogicalNot", [FLAGS], expected=np.logical_not, dtypes=UNTYPED),
    Case("LogicalNot", [np.array(True)], expected=np.logical_not, dtypes=UNTYPED, label="scalar"),
    *(
        Case(op, [BITS, PLACES], expected=function, dtypes=INTEGERS)
        for op, function in (
            ("BitwiseAnd", np.bitwise_and),
            ("BitwiseOr", np.bitwise_or),
            ("BitwiseXor", np.bitwise_xor),
            ("LeftShift", _shift(np.left_shift)),
            ("RightShift", _shift(np.right_shift)),
        )
    ),
    Case(
        "RightShift",
        [-BITS, PLACES],
        expected=_shift(np.right_shift),
        dtypes=INTEGERS[:4],
        label="negative",
    ),
    Case(
        "LeftShift",
        [np.array(3), np.array(2)],
        expected=_shift(np.left_shift),
        dtypes=INTEGERS,
        label="scalars",
    ),
    Case("Invert", [BITS], expected=np.invert, dtypes=INTEGERS),
    Case("Invert", [np.array(5)], expected=np.invert, dtypes=INTEGERS, label="scalar"),
    Case("PopulationCount", [BITS], expected=_count, dtypes=INTEGERS),
    Case("PopulationCount", [-BITS], expected=_count, dtypes=INTEGERS[:4], label="negative"),
    Case("Select", [CHOICE, T, E], expected=np.where, dtypes=(*NUMBERS, "bool")),
    Case(
        "Select",
        [Raw(FLAGS[:, 0], constant=False), T, E],
        expected=_rows,
        dtypes=INEXACT,
        label="rows",
    ),
    Case(
        "Select",
        [Raw(np.array(False), constant=False), T, E],
        expected=np.where,
        dtypes=INEXACT,
        label="scalar",
    ),
    Case(
        "Select",
        [Raw(FLAGS[0, :3], constant=False), WORDS, MORE],
        expected=np.where,
        dtypes=STRING,
        label="string",
    ),
    Case(
        "Select",
        [Raw(BIG > 1, constant=False), normal(90, 100), normal(90, 100, seed=1)],
        expected=np.where,
        grad=False,
        label="large",
    ),
    Case("SelectV2", [CHOICE, T, E], expected=np.where, dtypes=(*NUMBERS, "bool")),
    Case(
        "SelectV2",
        [Raw(FLAGS[0], constant=False), T, E[:, :1]],
        expected=np.where,
        dtypes=INEXACT,
        label="broadcast",
    ),
    Case("SelectV2", [CHOICE, np.array(1.5), E[0]], expected=np.where, label="scalar-value"),
    Case(
        "SelectV2", [Raw(np.array(True), constant=False), T, E], expected=np.where, label="scalar"
    ),
    *[
        Case(
            "SelectV2",
            [Raw(np.full((1,) * rank, choice), constant=False), T, E],
            expected=np.where,
            label=f"one-of-rank-{rank}-{choice}",
        )
        for rank, choice in ((1, True), (2, False), (3, True))
    ],
    Case(
        "SelectV2",
        [Raw(FLAGS[0, :3], constant=False), WORDS, MORE],
        expected=np.where,
        dtypes=STRING,
        label="string",
    ),
    *[
        Case(op, [MANY_FLAGS, *MANY], expected=np.where, dtypes=ANY, grad=False, label="many")
        for op in ("Select", "SelectV2")
    ],
    Case(
        "SelectV2",
        [MANY_FLAGS, MANY[0], np.array(-0.0)],
        expected=np.where,
        grad=False,
        label="many-scalar",
    ),
]
