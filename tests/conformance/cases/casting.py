"""Changes of element type against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    COMPLEXES,
    INEXACT,
    INTEGERS,
    NUMBERS,
    Array,
    Case,
    complex_normal,
    integers,
)

from weft_tensor import dtypes

X, Y = complex_normal(3, 4), complex_normal(3, 4, seed=1)
SMALL = integers(0, 100, 3, 4)
INTO = (*NUMBERS, "bool")
QUANTIZED = ("qint8", "quint8", "qint16", "quint16", "qint32")
EXACT = (*INTEGERS, "bool", "float64", "complex128")  # differences survive the cast


def _cast(target: str) -> Any:
    element = dtypes.as_dtype(target)

    def reference(x: Array) -> Array:
        if element.is_bool:
            return x != 0
        real = x.real if x.dtype.kind == "c" and not element.is_complex else x
        rounded: Array = real.astype(element.numpy)
        if element.is_integer:
            return rounded
        return rounded.astype(np.complex128 if element.is_complex else np.float64)

    return reference


CASES = [
    *(
        Case(
            "Cast",
            [SMALL],
            {"DstT": target},
            _cast(target),
            dtypes=INTO,
            type_attr="SrcT",
            label=target,
            grad=None if target in EXACT else False,
        )
        for target in INTO
    ),
    *(
        Case(
            "Cast",
            [SMALL],
            {"DstT": target},
            lambda x: x,
            dtypes=("float32", "int32"),
            type_attr="SrcT",
            grad=False,
            label=target,
        )
        for target in QUANTIZED
    ),
    Case(
        "Cast",
        [X],
        {"DstT": "float64"},
        lambda x: x.real,
        dtypes=INEXACT,
        type_attr="SrcT",
        label="fractions",
    ),
    Case(
        "Cast",
        [X * 3],
        {"DstT": "int32"},
        lambda x: np.trunc(x.real),
        dtypes=("float16", "float32", "float64"),
        type_attr="SrcT",
        label="truncates",
    ),
    Case(
        "Cast",
        [complex_normal(40, 50)],
        {"DstT": "float32"},
        lambda x: x.real,
        dtypes=INEXACT,
        type_attr="SrcT",
        grad=False,
        label="large",
        tolerance={"float32": (1e-6, 1e-6)},
    ),
    Case(
        "Cast",
        [np.array(3.0)],
        {"DstT": "int64"},
        lambda x: x,
        type_attr="SrcT",
        dtypes=("float32",),
        label="scalar",
    ),
    Case(
        "Bitcast",
        [SMALL],
        {"type": "int32"},
        lambda x: x.view(np.int32),
        dtypes=("uint32", "int32"),
        label="equal",
    ),
    Case(
        "Bitcast",
        [SMALL],
        {"type": "uint8"},
        lambda x: x.view(np.uint8).reshape(*x.shape, -1),
        dtypes=("int16", "int64"),
        label="narrower",
    ),
    Case(
        "Bitcast",
        [SMALL],
        {"type": "int32"},
        lambda x: x.reshape(-1).view(np.int32).reshape(3),
        dtypes=("int8",),
        label="wider",
    ),
    Case(
        "Bitcast",
        [np.array(7)],
        {"type": "uint8"},
        lambda x: x.reshape(1).view(np.uint8),
        dtypes=("int32",),
        label="scalar",
    ),
    *(
        row
        for dtype, target in (("float32", "complex64"), ("float64", "complex128"))
        for row in (
            Case(
                "Complex",
                [X.real, Y.real],
                {"Tout": target},
                lambda x, y: x + 1j * y,
                dtypes=(dtype,),
                label=target,
            ),
            Case(
                "Complex",
                [X.real, Y.real[0]],
                {"Tout": target},
                lambda x, y: x + 1j * y,
                dtypes=(dtype,),
                label=f"{target}-row",
            ),
            Case(
                "Complex",
                [np.array(1.0), np.array(2.0)],
                {"Tout": target},
                lambda x, y: x + 1j * y,
                dtypes=(dtype,),
                label=f"{target}-scalars",
            ),
        )
    ),
    *(
        Case(op, [value], {"Tout": target}, function, dtypes=(dtype,), label=f"{dtype}-{label}")
        for op, function in (
            ("Real", np.real),
            ("Imag", np.imag),
            ("Angle", np.angle),
            ("ComplexAbs", np.abs),
        )
        for dtype, target in (("complex64", "float32"), ("complex128", "float64"))
        for label, value in (("array", X + 3), ("scalar", np.array(1 + 2j)))
    ),
    Case("Conj", [X], expected=np.conj, dtypes=COMPLEXES),
    Case("Conj", [np.array(1 + 2j)], expected=np.conj, dtypes=COMPLEXES, label="scalar"),
]
