"""Ragged tensors against loops over Python lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import ANY, STRING, Array, Case, Raw

NUMBERS = ("bfloat16", "float32", "float64", "int32", "int64")
OUTER = Raw(np.array([0, 2, 2, 3], np.int64))
INNER = Raw(np.array([0, 1, 3, 6], np.int64))
SPLITS = Raw(np.array([0, 2, 2, 6], np.int64))
VALUES = np.arange(1.0, 7.0)
PAIRS = np.arange(1.0, 13.0).reshape(6, 2)


def _flat(reference: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that takes the members of list arguments one by one."""

    def expected(*parts: Any) -> Any:
        members = [part if isinstance(part, list) else [part] for part in parts]
        return reference(*itertools.chain.from_iterable(members))

    return expected


def _rows(splits: Array, values: Any) -> list[Any]:
    return [values[i:j] for i, j in itertools.pairwise(splits.tolist())]


def _split(rows: list[Any], like: Array) -> tuple[Array, Array]:
    splits = np.cumsum([0, *[len(row) for row in rows]])
    return splits, np.concatenate([like[:0], *[np.asarray(row, like.dtype) for row in rows]])


def _range(starts: Array, limits: Array, deltas: Array) -> Any:
    rows = [np.arange(*each) for each in np.broadcast(starts, limits, deltas)]
    return _split(rows, np.asarray(starts).reshape(-1))


def _gather(splits: Array, values: Array, indices: Array) -> Any:
    rows = _rows(splits, values)
    return _split([rows[i] for i in indices.tolist()], values)


def _gather_two(outer: Array, inner: Array, values: Array, indices: Array) -> Any:
    rows = _rows(outer, _rows(inner, values))
    chosen = [rows[i] for i in indices.tolist()]
    flat = [row for each in chosen for row in each]
    return np.cumsum([0, *[len(each) for each in chosen]]), *_split(flat, values)


def _gather_table(splits: Array, values: Array, indices: Array) -> Any:
    count, width = indices.shape
    return np.arange(count + 1) * width, *_gather(splits, values, indices.reshape(-1))


def _gather_row(splits: Array, values: Array, index: Array) -> Any:
    return _rows(splits, values)[int(index)]


def _to_tensor(shape: Array, values: Array, default: Array, splits: Array) -> Array:
    rows = _rows(splits, values)
    width = max(map(len, rows))
    sizes = [len(rows), width]
    if np.ndim(shape):
        sizes = [n if want < 0 else want for n, want in zip(sizes, shape.tolist(), strict=False)]
    result = np.empty((*sizes, *values.shape[1:]), values.dtype)
    result[...] = default
    for i, row in enumerate(rows[: sizes[0]]):
        kept = row[: sizes[1]]
        result[i, : len(kept)] = kept
    return result


def _to_tensor_two(
    shape: Array, values: Array, default: Array, outer: Array, inner: Array
) -> Array:
    rows = _rows(outer, _rows(inner, values))
    result = np.full((len(rows), max(map(len, rows)), max(np.diff(inner))), default, values.dtype)
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            result[i, j, : len(cell)] = cell
    return result


def _to_tensor_by_ids(
    shape: Array, values: Array, default: Array, count: Array, ids: Array
) -> Array:
    splits = np.searchsorted(ids, np.arange(int(count) + 1))
    return _to_tensor(shape, values, default, splits)


def _to_sparse(splits: Array, values: Array) -> Any:
    rows = _rows(splits, values)
    places = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    return np.array(places), values, np.array([len(rows), max(map(len, rows))])


def _bincount(splits: Array, values: Array, size: Array, weights: Array) -> Array:
    result = np.zeros((len(splits) - 1, int(size)), weights.dtype)
    given = weights if weights.size else np.ones(len(values))
    for i, (row, amount) in enumerate(
        zip(_rows(splits, values), _rows(splits, given), strict=True)
    ):
        for value, each in zip(row.tolist(), amount.tolist(), strict=True):
            if value < size:
                result[i, value] += each
    return result


def _fill(ids: Array, values: Array, nrows: Array, default: Array) -> Any:
    rows = [values[ids == row].tolist() for row in range(int(nrows))]
    empty = [not row for row in rows]
    filled = [row or [default.item()] for row in rows]
    new = [i for i, row in enumerate(filled) for _ in row]
    back = [i for i, row in enumerate(new) if not empty[row]]
    flat = np.empty(len(new), values.dtype)
    flat[:] = [value for row in filled for value in row]
    return np.array(new), flat, np.array(empty), np.array(back)


def _fill_grad(back: Array, grad: Array) -> Any:
    rest = np.delete(grad, back)
    return grad[back], rest.sum()


def _cross(*parts: Array) -> Any:
    first, second, splits, other, dense = parts
    columns = [_rows(splits, first), _rows(other, second), dense.tolist()]
    rows = [
        [
            b"_X_".join(str(c).encode() if isinstance(c, int) else c for c in each)
            for each in itertools.product(*[np.asarray(c, object).tolist() for c in row])
        ]
        for row in zip(*columns, strict=True)
    ]
    splits, flat = _split(rows, np.zeros(0, object))
    return flat, splits


def _strings(values: Any) -> Array:
    result = np.empty(len(values), object)
    result[:] = values
    return result


_TENSOR = {"row_partition_types": ["ROW_SPLITS"]}
_ONE = {"OUTPUT_RAGGED_RANK": 1}

CASES = [
    Case(
        "RaggedRange",
        [np.array([0, 5, 8]), np.array([8, 5, 3]), np.array([3, 1, -2])],
        expected=_range,
        dtypes=NUMBERS,
        static=False,
    ),
    Case(
        "RaggedRange",
        [np.array(1), np.array([3, 5]), np.array(2)],
        expected=_range,
        dtypes=NUMBERS,
        static=False,
        label="broadcast",
    ),
    Case(
        "RaggedGather",
        [[SPLITS], PAIRS, Raw(np.array([2, 0, 2]))],
        _ONE,
        _flat(_gather),
        dtypes=ANY,
        type_attr="Tvalues",
        static=False,
    ),
    Case(
        "RaggedGather",
        [[SPLITS], VALUES, Raw(np.array([[2, 0], [1, 2]]))],
        {"OUTPUT_RAGGED_RANK": 2},
        _flat(_gather_table),
        type_attr="Tvalues",
        static=False,
        label="table",
    ),
    Case(
        "RaggedGather",
        [[SPLITS], VALUES, Raw(np.array(2))],
        {"OUTPUT_RAGGED_RANK": 0},
        _flat(_gather_row),
        type_attr="Tvalues",
        static=False,
        label="row",
    ),
    Case(
        "RaggedGather",
        [[OUTER, INNER], VALUES, Raw(np.array([2, 0]))],
        {"OUTPUT_RAGGED_RANK": 2},
        _flat(_gather_two),
        type_attr="Tvalues",
        static=False,
        label="two levels",
    ),
    Case(
        "RaggedGather",
        [[SPLITS], _strings([b"a", b"b", b"c", b"d", b"e", b"f"]), Raw(np.array([0, 1]))],
        _ONE,
        _flat(_gather),
        dtypes=STRING,
        type_attr="Tvalues",
        static=False,
        label="strings",
    ),
    Case(
        "RaggedTensorToTensor",
        [Raw(np.array(-1)), VALUES, np.array(9.0), [SPLITS]],
        _TENSOR,
        _flat(_to_tensor),
        dtypes=ANY,
        static=False,
    ),
    Case(
        "RaggedTensorToTensor",
        [Raw(np.array([-1, 2, 2])), PAIRS, np.array([7.0, 8.0]), [SPLITS]],
        _TENSOR,
        _flat(_to_tensor),
        static=False,
        label="cut",
    ),
    Case(
        "RaggedTensorToTensor",
        [Raw(np.array(-1)), VALUES, np.array(0.5), [OUTER, INNER]],
        {"row_partition_types": ["ROW_SPLITS", "ROW_SPLITS"]},
        _flat(_to_tensor_two),
        static=False,
        label="two levels",
    ),
    Case(
        "RaggedTensorToTensor",
        [
            Raw(np.array(-1)),
            VALUES,
            np.array(0.5),
            [Raw(np.array(3, np.int64)), Raw(np.array([0, 0, 2, 2, 2, 2], np.int64))],
        ],
        {"row_partition_types": ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]},
        _flat(_to_tensor_by_ids),
        static=False,
        label="ids",
    ),
    Case(
        "RaggedTensorToSparse",
        [[SPLITS], VALUES],
        expected=_flat(_to_sparse),
        dtypes=ANY,
        static=False,
    ),
    Case(
        "RaggedBincount",
        [SPLITS, Raw(np.array([0, 1, 1, 1, 3, 9])), Raw(np.array(4)), np.zeros(0)],
        expected=_bincount,
        dtypes=("int32", "int64", "float32", "float64"),
        static=False,
    ),
    Case(
        "RaggedBincount",
        [SPLITS, Raw(np.array([0, 1, 1, 1, 3, 9])), Raw(np.array(4)), VALUES],
        expected=_bincount,
        dtypes=("float32", "float64"),
        static=False,
        label="weights",
    ),
    Case(
        "RaggedFillEmptyRows",
        [
            Raw(np.array([0, 0, 2, 2, 2, 4], np.int64)),
            VALUES,
            Raw(np.array(6, np.int64)),
            np.array(0.5),
        ],
        expected=_fill,
        static=False,
    ),
    Case(
        "RaggedFillEmptyRowsGrad",
        [Raw(np.array([0, 2, 3], np.int64)), np.arange(5.0)],
        expected=_fill_grad,
        static=False,
    ),
    Case(
        "RaggedCross",
        [
            [
                Raw(_strings([b"a", b"b", b"c", b"d", b"e", b"f"])),
                Raw(np.array([7, 8, 9], np.int64)),
            ],
            [SPLITS, Raw(np.array([0, 1, 2, 3], np.int64))],
            [],
            [],
            [],
            [Raw(np.array([[1], [2], [3]], np.int64))],
        ],
        {
            "Nsparse": 0,
            "input_order": "RRD",
            "hashed_output": False,
            "num_buckets": 0,
            "hash_key": 0,
            "out_values_type": "string",
            "out_row_splits_type": "int64",
        },
        _flat(_cross),
        dtypes=("",),
        static=False,
    ),
]
