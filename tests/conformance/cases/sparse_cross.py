"""Crosses of features against loops over rows, and counts of integers against NumPy's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from weft_testing.cases import UNTYPED, WIDE_FLOATS, Array, Case, Raw, normal

INTEGERS = ("int32", "int64")
PLACES = np.array([[0, 0], [2, 0], [2, 1]], np.int64)
SHAPE = np.array([3, 2], np.int64)
NUMBERS = np.array([7, 2**40, -1], np.int64)
WORDS = Raw([b"a", b"c" * 40, b""], "string")
DENSE = np.array([[1, 2], [3, 4], [5, 6]], np.int64)


KNOWN_WHOLE = [
    8686173035209913807, 1847282144309578076, 7526023055283193824, 8258990919492628688,
    5469452638339099582, 3477256248066629367, 3381592410765851142, 1747848676618285143,
    3884292945136686503, 3862913198803328321,
]  # fmt: skip
KNOWN_BUCKETS = [6, 28, 40, 23, 39, 31, 7, 42, 43, 33]


def _rows(first: Array, second: Array) -> list[list[Any]]:
    """The choices of each row: of two sparse inputs at the same places, and a dense one."""
    inside = [[0], [], [1, 2]]
    return [
        [(first[i], second[j], d) for i, j, d in product(rows, rows, DENSE[n].tolist())]
        for n, rows in enumerate(inside)
    ]


def _as_sparse(rows: list[list[Any]], dtype: Any) -> tuple[Array, Array, Array]:
    flat = [value for row in rows for value in row]
    values = np.empty(len(flat), dtype)
    values[:] = flat
    places = [(n, i) for n, row in enumerate(rows) for i in range(len(row))]
    return np.array(places, np.int64), values, np.array([3, max(map(len, rows))], np.int64)


def _texts(*inputs: Any) -> tuple[Array, Array, Array]:
    sep = b"_X_" if isinstance(inputs[-1], list) else inputs[-1].item()

    def text(value: Any) -> bytes:
        return value if isinstance(value, bytes) else b"%d" % value

    rows = [[sep.join(map(text, each)) for each in row] for row in _rows(NUMBERS, WORDS.array)]
    return _as_sparse(rows, object)


def _crossed() -> list[Case]:
    parts = [[Raw(PLACES)] * 2, [Raw(NUMBERS), WORDS], [Raw(SHAPE)] * 2, [Raw(DENSE)]]
    attrs: dict[str, Any] = {"hashed_output": False, "num_buckets": 0, "hash_key": 0}
    texts = {**attrs, "out_type": "string", "internal_type": "string"}
    hashes = {**attrs, "hashed_output": True, "out_type": "int64", "internal_type": "int64"}
    options: dict[str, Any] = {"dtypes": UNTYPED, "static": False}
    known = [KNOWN_WHOLE, KNOWN_BUCKETS]  # what TensorFlow gives
    return [
        Case("SparseCrossV2", [*parts, Raw(b"-", "string")], {}, _texts, **options),
        Case("SparseCross", parts, texts, _texts, **options),
        *[
            Case(
                "SparseCross",
                parts,
                {**hashes, **more},
                lambda *_, values=values: (_texts([])[0], np.array(values), np.array([3, 8])),
                label=f"hashed{more['num_buckets']}",
                **options,
            )
            for more, values in zip(
                ({"num_buckets": 0, "hash_key": 956888297470}, {"num_buckets": 50}),
                known,
                strict=True,
            )
        ],
    ]


def _counts() -> list[Case]:
    values = np.array([[3, 1, 3], [0, 1, 5]])
    rows = np.repeat([0, 0, 1], 2)
    cases: list[Case] = []
    for attrs in ({}, {"minlength": 9}, {"maxlength": 4}, {"binary_output": True}):
        whole: dict[str, Any] = {"binary_output": False, **attrs}
        label = "".join(attrs)
        for weighted in (False, True) if label != "binary_output" else (False,):
            name = f"{label}{'weighted' if weighted else ''}"
            weights = normal(2, 3) if weighted else np.zeros(0)

            def dense(v: Array, w: Array, a: Any = whole) -> Any:
                rows = np.repeat([0, 1], 3)
                return _counted(rows, v.reshape(-1), w.reshape(-1), a, (2,))

            def sparse(i: Array, v: Array, s: Array, w: Array, a: Any = whole) -> Any:
                return _counted(i[:, 0], v, w, a, (3,))

            def vector(v: Array, w: Array, a: Any = whole) -> Any:
                places, counts, shape = _counted(np.zeros(6, int), v, w, a, ())
                return places[:, 1:], counts, shape

            options: dict[str, Any] = {
                "dtypes": WIDE_FLOATS if weighted else (*INTEGERS, *WIDE_FLOATS),
                "type_attr": "output_type",
                "static": False,
                "label": name,
            }
            flat = weights.reshape(-1)
            places = [Raw(np.stack([rows, np.arange(6)], 1)), Raw(values.reshape(-1))]
            cases += [
                Case("DenseCountSparseOutput", [Raw(values), weights], whole, dense, **options),
                Case(
                    "DenseCountSparseOutput",
                    [Raw(values.reshape(-1)), flat],
                    whole,
                    vector,
                    **{**options, "label": f"{name}vector"},
                ),
                Case(
                    "SparseCountSparseOutput",
                    [*places, Raw(np.array([3, 6])), flat],
                    whole,
                    sparse,
                    **options,
                ),
            ]
    return cases


def _counted(
    rows: Array, values: Array, weights: Array, attrs: Any, lead: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    size = attrs.get("maxlength", max(values.max() + 1, attrs.get("minlength", 0)))
    table = np.zeros((max(rows.max() + 1, 1), max(size, values.max() + 1)), weights.dtype)
    np.add.at(table, (rows, values), weights if weights.size else 1)
    seen = np.zeros(table.shape, np.bool_)
    seen[rows, values] = True
    places = np.argwhere(seen[:, :size])
    counts = np.ones(len(places)) if attrs["binary_output"] else table[tuple(places.T)]
    return places, counts, np.array([*lead, size])


CASES = [*_crossed(), *_counts()]
