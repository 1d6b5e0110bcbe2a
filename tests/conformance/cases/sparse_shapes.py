"""Sparse tensors joined, cut, reshaped and filled up, against dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    ANY,
    NUMBERS,
    STRING,
    UNTYPED,
    Array,
    Case,
    Raw,
    complex_normal,
    texts,
)

SHAPE = np.array([3, 4], np.int64)
A = np.array([[0, 1], [1, 2], [2, 0], [2, 3]], np.int64)
B = np.array([[0, 0], [2, 1]], np.int64)
UNORDERED = np.array([[4, 1], [1, 3], [4, 0], [1, 2]], np.int64)


def _numbers(places: Array, shape: Any) -> Array:
    """A dense tensor of the numbers of stored elements, -1 elsewhere."""
    result = np.full(tuple(shape), -1)
    result[tuple(places.T)] = np.arange(len(places))
    return result


def _found(numbers: Array, values: Array) -> tuple[Array, Array, Array]:
    """The sparse tensor of a dense one of numbers."""
    places = np.argwhere(numbers >= 0)
    return places, values[numbers[tuple(places.T)]], np.array(numbers.shape, np.int64)


def _of_both(op: str, inputs: Any, attrs: Any, expected: Any, **options: Any) -> list[Case]:
    """A case with numbers and bools, and one with strings instead of `inputs(values)`."""
    strings = dict(options, grad=False, label=f"{options.get('label', '')}strings")
    return [
        Case(op, inputs(complex_normal), attrs, expected, dtypes=ANY, static=False, **options),
        Case(op, inputs(texts), attrs, expected, dtypes=STRING, static=False, **strings),
    ]


def _joined() -> list[Case]:
    cases: list[Case] = []
    for axis, shape in ((1, [3, 2]), (-1, [3, 2]), (0, [5, 4])):

        def expected(*x: Array, axis: int = axis) -> Any:
            first, second = _numbers(x[0], x[4]), _numbers(x[1], x[5])
            second = np.where(second >= 0, second + len(x[2]), -1)
            return _found(np.concatenate((first, second), axis), np.concatenate((x[2], x[3])))

        def inputs(make: Any, shape: Any = shape) -> list[Any]:
            shapes = [Raw(SHAPE), Raw(np.array(shape))]
            return [[Raw(A), Raw(B)], [make(4), make(2)], shapes]

        def flat(*x: Any, expected: Any = expected) -> Any:
            return expected(*[each for group in x for each in group])

        attrs = {"concat_dim": axis}
        cases += _of_both("SparseConcat", inputs, attrs, flat, label=f"{axis}")
    return cases


def _reshaped() -> list[Case]:
    cases = []
    for new in ([4, 3], [2, -1], [-1], [12], [3, 4], [1, 3, 2, 2]):

        def expected(i: Array, s: Array, n: Array) -> Any:
            numbers = _numbers(i, s).reshape(n)
            order = np.argsort(numbers[numbers >= 0])
            return np.argwhere(numbers >= 0)[order], np.array(numbers.shape, np.int64)

        raw = Raw(np.array(new, np.int64))
        label = "".join(map(str, new))
        cases.append(
            Case(
                "SparseReshape",
                [Raw(A[::-1].copy()), Raw(SHAPE), raw],
                {},
                expected,
                dtypes=UNTYPED,
                label=label,
            )
        )
    return cases


def _cut() -> list[Case]:
    cases: list[Case] = []
    for start, size in (([1, 1], [2, 2]), ([0, 0], [9, 2**62]), ([2, 1], [1, 3]), ([3, 4], [1, 1])):

        def box(i: Array, v: Array, s: Array, b: Array, n: Array) -> Any:
            inside = tuple([slice(x, x + y) for x, y in zip(b.tolist(), n.tolist(), strict=True)])
            return _found(_numbers(i, s)[inside], v)

        def inputs(make: Any, start: Any = start, size: Any = size) -> list[Any]:
            bounds = [Raw(np.array(each, np.int64)) for each in (start, size)]
            return [Raw(A), make(4), Raw(SHAPE), *bounds]

        cases += _of_both("SparseSlice", inputs, {}, box, label=f"{start[0]}{start[1]}")
    cases.append(
        Case(
            "SparseSliceGrad",
            [complex_normal(2), Raw(A), Raw(np.array([1, 0])), Raw(A[1:3] - [1, 0])],
            {},
            lambda g, i, b, o: np.array([0, g[0], g[1], 0]),
            dtypes=NUMBERS,
        )
    )
    for axis, count in ((0, 2), (1, 3), (-1, 4), (1, 1)):

        def parts(d: Array, i: Array, v: Array, s: Array, n: int = count) -> Any:
            found = [_found(x, v) for x in np.array_split(_numbers(i, s), n, int(d))]
            return tuple([part for kind in zip(*found, strict=True) for part in kind])

        def split(make: Any, axis: int = axis) -> list[Any]:
            return [Raw(np.array(axis, np.int64)), Raw(A), make(4), Raw(SHAPE)]

        label = f"{axis}by{count}"
        cases += _of_both("SparseSplit", split, {"num_split": count}, parts, label=label)
    return cases


def _filled() -> list[Case]:
    rows = [0, 1, 1, 2, 3, 4, 4]
    columns = [0, 3, 2, 0, 0, 1, 0]

    def expected(i: Array, v: Array, s: Array, d: Array) -> Any:
        values = np.array([d[()], v[1], v[3], d[()], d[()], v[0], v[2]], v.dtype)
        empty = np.array([True, False, True, True, False])
        return np.stack([rows, columns], 1), values, empty, np.array([5, 1, 6, 2])

    def inputs(make: Any) -> list[Any]:
        return [Raw(UNORDERED), make(4), Raw(np.array([5, 4])), make(1)[0]]

    def nothing(make: Any) -> list[Any]:
        return [Raw(np.zeros((0, 2), np.int64)), make(4)[:0], Raw(np.array([0, 4])), make(1)[0]]

    def none(i: Array, v: Array, s: Array, d: Array) -> Any:
        return i, v, np.zeros(0, np.bool_), np.zeros(0, np.int64)

    return [
        *_of_both("SparseFillEmptyRows", inputs, {}, expected),
        *_of_both("SparseFillEmptyRows", nothing, {}, none, label="nothing"),
        Case(
            "SparseFillEmptyRowsGrad",
            [Raw(np.array([5, 1, 6, 2])), complex_normal(7)],
            {},
            lambda b, g: (g[b], g[0] + g[3] + g[4]),
            dtypes=NUMBERS,
        ),
    ]


CASES = [*_joined(), *_reshaped(), *_cut(), *_filled()]
