"""Sets against Python's, and distances between sequences against the textbook's recursion."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from weft_testing.cases import STRING, Array, Case, Raw, integers

TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16")
A = np.array([[[1, 2, 2], [5, 5, 5]], [[9, 3, 1], [0, 1, 2]]])
B = np.array([[[2, 3, 4, 2], [5, 5, 5, 5]], [[4, 5, 6, 7], [2, 1, 0, 0]]])
PLACES_A = np.array([[0, 0, 0], [0, 0, 2], [0, 1, 1], [1, 1, 0], [1, 1, 2]], np.int64)
PLACES_B = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 0, 3], [1, 1, 2]], np.int64)
OPERATIONS: dict[str, Callable[[set[Any], set[Any]], set[Any]]] = {
    "a-b": lambda a, b: a - b,
    "b-a": lambda a, b: b - a,
    "intersection": lambda a, b: a & b,
    "union": lambda a, b: a | b,
}


def _sets(places: Array, values: Array, lead: tuple[int, ...]) -> dict[Any, set[Any]]:
    found: dict[Any, set[Any]] = {place: set() for place in np.ndindex(*lead)}
    for place, value in zip(places.tolist(), values.tolist(), strict=True):
        found[tuple(place[:-1])].add(value)
    return found


def _of_dense(values: Array) -> tuple[Array, Array]:
    return np.argwhere(np.ones(values.shape)), values.reshape(-1)


def _combined(kind: str, a: tuple[Array, Array], b: tuple[Array, Array]) -> Any:
    first, second = _sets(*a, (2, 2)), _sets(*b, (2, 2))
    rows = {place: sorted(OPERATIONS[kind](first[place], second[place])) for place in first}
    places = [(*place, i) for place, row in rows.items() for i in range(len(row))]
    values = [value for row in rows.values() for value in row]
    flat = np.array(places, np.int64).reshape(-1, 3), np.array(values, a[1].dtype)
    return *flat, np.array([2, 2, max(map(len, rows.values()))], np.int64)


def _strings(values: Array) -> Array:
    result = np.empty(values.shape, object)
    result.reshape(-1)[:] = [b"%d" % n for n in values.reshape(-1).tolist()]
    return result


def _operations() -> list[Case]:
    cases: list[Case] = []
    shape = Raw(np.array([2, 2, 4]))
    for types, made in ((TYPES, np.asarray), (STRING, _strings)):
        sparse_a = [Raw(PLACES_A), made(A[tuple(PLACES_A.T)]), shape]
        sparse_b = [Raw(PLACES_B), made(B[tuple(PLACES_B.T)]), shape]
        for kind in OPERATIONS:

            def dense(a: Array, b: Array, kind: str = kind) -> Any:
                return _combined(kind, _of_dense(a), _of_dense(b))

            def mixed(a: Array, i: Array, v: Array, s: Array, kind: str = kind) -> Any:
                return _combined(kind, _of_dense(a), (i, v))

            def sparse(*x: Array, kind: str = kind) -> Any:
                return _combined(kind, (x[0], x[1]), (x[3], x[4]))

            options: dict[str, Any] = {
                "attrs": {"set_operation": kind},
                "dtypes": types,
                "static": False,
                "label": f"{kind}{'strings' if types is STRING else ''}",
            }
            cases += [
                Case("DenseToDenseSetOperation", [made(A), made(B)], expected=dense, **options),
                Case("DenseToSparseSetOperation", [made(A), *sparse_b], expected=mixed, **options),
                Case(
                    "SparseToSparseSetOperation", [*sparse_a, *sparse_b], expected=sparse, **options
                ),
            ]
        cases.append(
            Case(
                "SetSize",
                [Raw(PLACES_A), made(np.array([1, 1, 2, 7, 8])), shape],
                {},
                lambda i, v, s: np.array([[1, 1], [0, 2]]),
                dtypes=types,
                label="strings" if types is STRING else "",
            )
        )
    return cases


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    @cache
    def of(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        rest = of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(rest)

    return of(len(a), len(b))


def _distances() -> list[Case]:
    lengths = {"hypothesis": [0, 3, 6, 1, 7, 0], "truth": [0, 4, 2, 0, 7, 5]}
    inputs: list[Any] = []
    rows: list[list[tuple[int, ...]]] = []
    for seed, each in enumerate(lengths.values()):
        places = [(i // 3, i % 3, j) for i, n in enumerate(each) for j in range(n)]
        values = integers(0, 3, len(places), seed=seed)
        ends = np.cumsum(each)[:-1]
        rows.append([tuple(part.tolist()) for part in np.split(values, ends)])
        inputs += [Raw(np.array(places)), values, Raw(np.array([2 + seed, 3, 7]))]
    found = np.zeros((3, 3))
    found.reshape(-1)[:6] = [_distance(a, b) for a, b in zip(*rows, strict=True)]
    counts = np.array([1, 4, 2, 0, 7, 5, 1, 1, 1]).reshape(3, 3)
    with np.errstate(divide="ignore"):
        shares = found / counts
    return [
        Case(
            "EditDistance",
            inputs,
            {"normalize": normalize},
            lambda *_, result=result: result.astype(np.float32),
            dtypes=("int64", "float32"),
            grad=False,
            label="normalized" if normalize else "",
        )
        for normalize, result in ((True, shares), (False, found))
    ]


CASES = [*_operations(), *_distances()]
