"""Finding elements, against NumPy and plain loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from weft_testing.cases import (
    BOOL,
    INTEGERS,
    NUMBERS,
    REALS,
    STRING,
    UNTYPED,
    Array,
    Case,
    Raw,
    integers,
    normal,
)


def text(values: list[bytes]) -> Array:
    result = np.empty(len(values), object)
    result[:] = values
    return result


WORDS = text([b"b", b"a", b"b", b"", b"a\0", b"a"])
NUMBERS_TWICE = np.array([3, 1, 3, 7, 1, 1, 0])


def _unique(x: Array) -> tuple[Array, Array, Array]:
    found: dict[Any, int] = {}
    counts: list[int] = []
    places = []
    for item in x.tolist():
        place = found.setdefault(item, len(found))
        places.append(place)
        counts[place:] = [counts[place] + 1 if place < len(counts) else 1]
    values = np.empty(len(found), x.dtype)
    values[:] = list(found)
    return values, np.array(places), np.array(counts)


def _difference(x: Array, y: Array) -> tuple[Array, Array]:
    places = [i for i, item in enumerate(x.tolist()) if item not in y.tolist()]
    return x[places], np.array(places, np.int64)


def _sets() -> list[Case]:
    cases: list[Case] = []
    for kind in ("int32", "int64"):
        attrs = {"out_idx": kind}
        for x, types, name in (
            (NUMBERS_TWICE, (*NUMBERS, *BOOL), ""),
            (WORDS, STRING, "strings"),
            (NUMBERS_TWICE[:0], ("float32", "int64"), "none"),
        ):
            options: dict[str, Any] = {"dtypes": types, "label": f"{kind}{name}", "static": False}
            cases += [
                Case("Unique", [x], attrs, lambda x: _unique(x)[:2], **options),
                Case("UniqueWithCounts", [x], attrs, _counted, **options),
                Case("ListDiff", [x, x[3:5]], attrs, _difference, **options),
            ]
    return cases


def _counted(x: Array) -> tuple[Array, Array, Array]:
    values, places, _ = _unique(x)
    return values, places, np.bincount(places.astype(np.int64), minlength=len(values))


def _top(x: Array, k: Any) -> tuple[Array, Array]:
    keys = -x.astype(np.float64)
    order = np.argsort(keys, axis=-1, kind="stable")[..., : int(k)]
    return np.take_along_axis(x, order, -1), order


def _nth(x: Array, n: Any, reverse: bool) -> Array:
    ordered = np.sort(x, -1)
    return np.asarray(ordered[..., -1 - int(n) if reverse else int(n)])


def _largest() -> list[Case]:
    cases: list[Case] = []
    spread = np.random.default_rng(1).permutation(60).reshape(2, 30).astype(np.float64)
    for x, k in ((spread, 3), (spread, 30), (spread, 0), (spread[0], 4), (spread[:0], 2)):
        label = f"{x.shape}{k}"
        cases += [
            Case("TopKV2", [x, Raw(k)], {}, _top, dtypes=REALS, label=label),
            Case("TopK", [x], {"k": k}, lambda x, k=k: _top(x, k), dtypes=REALS, label=label),
        ]
    cases += [
        Case(
            "NthElement",
            [x, Raw(n, constant=False)],
            {"reverse": reverse},
            partial(_nth, reverse=reverse),
            dtypes=REALS,
            label=f"{x.ndim}-{n}-{reverse}",
        )
        for x, n in ((spread, 3), (spread[0], 29), (spread[:0], 2))
        for reverse in (False, True)
    ]
    cases += [
        Case(
            "Bucketize",
            [x],
            {"boundaries": limits},
            lambda x, limits=limits: (x[..., None] >= np.array(limits)).sum(-1).astype(np.int32),
            dtypes=("int32", "int64", "float32", "float64"),
            label=f"{len(limits)}-{x.ndim}",
        )
        for x in (integers(-9, 30, 3, 5), integers(0, 3), integers(0, 3, 0))
        for limits in ([], [0.0, 3.0, 8.0, 8.0, 11.0])
    ]
    ties = integers(0, 4, 3, 50)
    cases.append(
        Case("TopKV2", [ties, Raw(5)], {}, _top, dtypes=INTEGERS, label="ties", grad=False)
    )
    low = np.array([[-128, 127, 0, 5], [3, 3, 3, 3]])
    cases.append(Case("TopKV2", [low, Raw(4)], {}, _top, dtypes=("int8", "int64"), label="ends"))
    predictions = Raw(normal(5, 4).astype(np.float32))
    bad = predictions.array.copy()
    bad[1, 2], bad[3, 0] = np.inf, np.nan
    for rows, label in ((predictions, ""), (Raw(bad), "not finite")):
        for kind in ("int32", "int64"):
            targets = Raw(np.array([0, 1, 3, 9, -1], kind))
            cases += [
                Case(
                    "InTopK",
                    [rows, targets],
                    {"k": 2},
                    lambda p, t: _in_top(p, t, 2),
                    dtypes=UNTYPED,
                    label=f"{label}{kind}",
                ),
                Case(
                    "InTopKV2",
                    [rows, targets, Raw(np.array(3, kind))],
                    {},
                    lambda p, t, k: _in_top(p, t, int(k)),
                    dtypes=UNTYPED,
                    label=f"{label}{kind}",
                ),
            ]
    return cases


def _in_top(predictions: Array, targets: Array, k: int) -> Array:
    result = []
    for row, target in zip(predictions, targets, strict=True):
        inside = 0 <= target < len(row) and bool(np.isfinite(row).all())
        result.append(inside and int((row > row[target]).sum()) < k)
    return np.array(result)


def _places() -> list[Case]:
    cases: list[Case] = []
    keys = np.sort(integers(0, 9, 2, 7), -1)
    values = integers(0, 10, 2, 5, seed=3)
    for op, side in (("LowerBound", "left"), ("UpperBound", "right")):
        for kind in ("int32", "int64"):
            cases.append(
                Case(
                    op,
                    [keys, values],
                    {"out_type": kind},
                    lambda k, v, side=side: np.stack(
                        [np.searchsorted(a, b, side) for a, b in zip(k, v, strict=True)]
                    ),
                    dtypes=REALS,
                    label=kind,
                )
            )
    for indices in ([22, 0, 7], 5, [[1, 2]]):
        cases.append(
            Case(
                "UnravelIndex",
                [np.array(indices), np.array([2, 3, 4])],
                {},
                lambda i, dims: np.array(np.unravel_index(i, tuple(dims))),
                dtypes=("int32", "int64"),
                type_attr="Tidx",
                label=str(indices),
            )
        )
    return cases


CASES = [*_sets(), *_largest(), *_places()]
