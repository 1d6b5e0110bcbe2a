"""Kernels of feature crosses and of counts of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_exec.kernels.common import Array, new_array
from weft_exec.kernels.hashing import fingerprint64
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.scatter import make_scatter
from weft_exec.kernels.sparse_parts import check_sparse
from weft_exec.kernels.string_rows import check_splits
from weft_tensor import dtypes, errors, memory
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_MULTIPLIER: Final = np.uint64(0xC6A4A7935BD1E995)
_MOST_HASH: Final = np.uint64(2**63 - 1)


class _Column(NamedTuple):
    """One input: its features row by row, and the start and the number of features of each row."""

    features: Array
    starts: Array
    counts: Array


def _columns(node: Node, inputs: Any) -> list[_Column]:
    """Return the inputs of a cross as columns, sparse ones first.

    Raises: InvalidArgumentError: they are not matrices, or have different numbers of rows.
    """
    count: int = node.attrs["N"]
    sparse = [inputs[i : 3 * count : count] for i in range(count)]
    dense = inputs[3 * count : 3 * count + len(node.attrs["dense_types"])]
    result = [_sparse_column(*parts, argument=f"input {i}: ") for i, parts in enumerate(sparse)]
    result += [_dense_column(values) for values in dense]
    rows = {len(column.counts) for column in result}
    if len(rows) > 1:
        raise errors.InvalidArgumentError(
            f"all inputs must have the same number of rows, got {sorted(rows)}"
        )
    return result


def _sparse_column(indices: Any, values: Any, shape: Any, *, argument: str) -> _Column:
    sparse = check_sparse(indices, values, shape, argument=argument)
    if len(sparse.sizes) != 2:
        raise errors.InvalidArgumentError(
            f"{argument}a matrix is required, got shape {format_dims(sparse.sizes)}"
        )
    row = sparse.places[:, 0]
    counts = _count_of_rows(row, sparse.sizes[0])
    order = np.argsort(row, kind="stable")
    return _Column(sparse.values[order], np.cumsum(counts) - counts, counts)


def _count_of_rows(rows: Array, size: int) -> Array:
    """Return how often each row occurs."""
    counts = memory.new_array((size,), np.dtype(np.int64))
    counts[...] = 0
    np.add.at(counts, rows, 1)
    return counts


def _dense_column(values: Any) -> _Column:
    if values.ndim != 2:
        raise errors.InvalidArgumentError(
            f"a dense input must be a matrix, got shape {format_dims(values.shape)}"
        )
    rows, width = values.shape
    return _Column(values.reshape(-1), np.arange(rows) * width, np.full(rows, width))


class _Choices(NamedTuple):
    """All combinations of features: their positions, the feature of each column, and the shape."""

    places: Array
    picks: list[Array]
    shape: Array


def _choices(columns: list[_Column], device: Device) -> _Choices:
    if not columns:
        raise errors.InvalidArgumentError("a cross requires at least one input, got none")
    counts = np.stack([column.counts for column in columns])
    sizes = counts.astype(np.float64).prod(0)
    total = int(sizes.sum())
    indices = new_array(device, (total, 2), np.dtype(np.int64))  # fails if memory is insufficient
    per_row = counts.prod(0)
    row = np.repeat(np.arange(len(per_row)), per_row)
    number = np.arange(total) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    indices[:, 0], indices[:, 1] = row, number
    picks: list[Array] = []
    for column in reversed(columns):  # the last one changes fastest
        number, pick = np.divmod(number, column.counts[row])
        picks.append(column.starts[row] + pick)
    widest = int(per_row.max()) if per_row.size else 0
    return _Choices(indices, picks[::-1], np.array([len(per_row), widest], np.int64))


def _texts(features: Array) -> list[bytes]:
    result: list[Any] = features.tolist()
    return result if features.dtype.kind == "O" else [b"%d" % number for number in result]


def _join_texts(columns: list[_Column], choices: _Choices, sep: bytes) -> Array:
    texts = [_texts(column.features) for column in columns]
    selected = [
        [text[i] for i in picks.tolist()] for text, picks in zip(texts, choices.picks, strict=True)
    ]
    result = np.empty(len(choices.places), object)
    result[:] = [sep.join(parts) for parts in zip(*selected, strict=True)]
    return result


@kernel("SparseCrossV2")
def _cross_v2(node: Node, device: Device) -> KernelFunction:
    def run(*inputs: Any) -> Any:
        if inputs[-1].size != 1:
            raise errors.InvalidArgumentError(
                f"sep must have rank 0, got shape {format_dims(inputs[-1].shape)}"
            )
        columns = _columns(node, inputs)
        choices = _choices(columns, device)
        return choices.places, _join_texts(columns, choices, inputs[-1].item()), choices.shape

    return run


@kernel("SparseCross")
def _cross(node: Node, device: Device) -> KernelFunction:
    hashed: bool = node.attrs["hashed_output"]
    if hashed != (node.outputs[1].dtype is dtypes.int64):
        raise errors.InvalidArgumentError(
            f"out_type must be {'int64' if hashed else 'string'} where hashed_output is {hashed}, "
            f"got {node.outputs[1].dtype.name}"
        )
    buckets, key = node.attrs["num_buckets"], node.attrs["hash_key"]

    def run(*inputs: Any) -> Any:
        columns = _columns(node, inputs)
        choices = _choices(columns, device)
        if not hashed:
            return choices.places, _join_texts(columns, choices, b"_X_"), choices.shape
        return choices.places, _hashed(columns, choices, buckets, key), choices.shape

    return run


@kernel("RaggedCross")
def _ragged_cross(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    hashed: bool = attrs["hashed_output"]
    if hashed != (attrs["out_values_type"] is dtypes.int64):
        raise errors.InvalidArgumentError(
            f"out_values_type must be {'int64' if hashed else 'string'} where hashed_output is "
            f"{hashed}, got {attrs['out_values_type'].name}"
        )
    order = attrs["input_order"]
    order = order.decode() if isinstance(order, bytes) else order
    buckets, key = attrs["num_buckets"], attrs["hash_key"]
    splits_type = attrs["out_row_splits_type"].numpy

    def run(*inputs: Any) -> Any:
        columns = _columns_in_order(node, inputs, order)
        choices = _choices(columns, device)
        counts = np.stack([column.counts for column in columns]).prod(0)
        splits = np.concatenate([[0], np.cumsum(counts)]).astype(splits_type)
        if not hashed:
            return _join_texts(columns, choices, b"_X_"), splits
        return _hashed(columns, choices, buckets, key), splits

    return run


def _columns_in_order(node: Node, inputs: Any, order: str) -> list[_Column]:
    """Return the inputs of a ragged cross in the order of the letters R, S and D.

    Raises: InvalidArgumentError: the order is invalid, or the numbers of rows differ.
    """
    ragged, sparse = len(node.attrs["ragged_values_types"]), node.attrs["Nsparse"]
    remaining = iter(inputs[2 * ragged + 3 * sparse :])
    kinds = {
        "R": iter([_ragged_column(inputs[i], inputs[ragged + i]) for i in range(ragged)]),
        "S": iter(
            [
                _sparse_column(
                    *inputs[2 * ragged + i : 2 * ragged + 3 * sparse : sparse], argument=""
                )
                for i in range(sparse)
            ]
        ),
        "D": iter([_dense_column(values) for values in remaining]),
    }
    result = [next(kinds.get(kind, iter(())), None) for kind in order]
    columns = [column for column in result if column is not None]
    if len(columns) != len(result) or any(next(kind, None) is not None for kind in kinds.values()):
        raise errors.InvalidArgumentError(
            f"input_order must name each input as R, S or D, got {order!r}"
        )
    rows = {len(column.counts) for column in columns}
    if len(rows) > 1:
        raise errors.InvalidArgumentError(
            f"all inputs must have the same number of rows, got {sorted(rows)}"
        )
    return columns


def _ragged_column(values: Any, splits: Any) -> _Column:
    check_splits(splits, len(values))
    return _Column(values, splits[:-1], np.diff(splits))


def _hashed(columns: list[_Column], choices: _Choices, buckets: int, key: int) -> Array:
    total = np.full(len(choices.places), key & (2**64 - 1), np.uint64)
    for column, picks in zip(columns, choices.picks, strict=True):
        total = _mix_hashes(total, _hashes(column.features)[picks])
    values = total % (np.uint64(buckets) if buckets else _MOST_HASH)
    return values.astype(np.int64)


def _hashes(features: Array) -> Array:
    if features.dtype.kind != "O":
        return features.view(np.uint64) if features.flags.c_contiguous else features.astype("u8")
    return np.array([fingerprint64(text) for text in features.tolist()], np.uint64)


def _mix_hashes(total: Array, hashes: Array) -> Array:
    """Combine two hashes in the manner of MurmurHash64A."""
    result = total ^ _MULTIPLIER ^ (_shift_mix(hashes * _MULTIPLIER) * _MULTIPLIER)
    return _shift_mix(_shift_mix(result * _MULTIPLIER) * _MULTIPLIER)


def _shift_mix(values: Array) -> Array:
    mixed: Array = values ^ (values >> np.uint64(47))
    return mixed


# --------------------------------------------------------------------------------- counts


@kernel("DenseCountSparseOutput")
def _dense_count(node: Node, device: Device) -> KernelFunction:
    def run(values: Any, weights: Any) -> Any:
        if values.ndim not in (1, 2):
            raise errors.InvalidArgumentError(
                f"values must have rank 1 or 2, got shape {format_dims(values.shape)}"
            )
        _check_weights(weights, values.shape)
        rows = None
        if values.ndim == 2:
            rows = np.repeat(np.arange(len(values)), values.shape[1])
        return _count_values(node, rows, values.reshape(-1), weights.reshape(-1), values.shape[:-1])

    return run


@kernel("SparseCountSparseOutput")
def _sparse_count(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any, weights: Any) -> Any:
        sparse = check_sparse(indices, values, shape)
        if len(sparse.sizes) not in (1, 2):
            raise errors.InvalidArgumentError(
                f"dense_shape must have rank 1 or 2, got shape {format_dims(sparse.sizes)}"
            )
        _check_weights(weights, values.shape)
        rows = indices[:, 0] if len(sparse.sizes) == 2 else None
        return _count_values(node, rows, sparse.values, weights, sparse.sizes[:-1])

    return run


def _check_weights(weights: Any, shape: tuple[int, ...]) -> None:
    if weights.size and weights.shape != shape:
        raise errors.InvalidArgumentError(
            f"weights must have the shape of values, {format_dims(shape)}, got "
            f"{format_dims(weights.shape)}"
        )


def _count_values(
    node: Node, rows: Array | None, values: Array, weights: Array, lead: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """Return positions, counts and shape; counted for each row, or over all values."""
    minimum, limit = node.attrs["minlength"], node.attrs["maxlength"]
    dtype = node.attrs["output_type"].numpy
    if values.size and values.min() < 0:
        raise errors.InvalidArgumentError(
            f"counted values must be at least 0, got {int(values.min())}"
        )
    weighted = bool(weights.size)
    size = max(int(values.max()) + 1 if values.size else 1, minimum)  # 1 without values
    if limit >= 0:
        size = limit
        mask = values < limit
        values, rows = values[mask], None if rows is None else rows[mask]
        weights = weights[mask] if weighted else weights
    columns = [values.astype(np.int64)] if rows is None else [rows, values.astype(np.int64)]
    indices, inverse = np.unique(np.stack(columns, 1), axis=0, return_inverse=True)
    totals = np.zeros(len(indices), dtype)
    if node.attrs["binary_output"]:
        totals[...] = 1
    else:
        item = weights if weighted else np.ones(len(values), dtype)
        make_scatter(np.add)(totals, inverse.reshape(-1), item)
    return indices, totals, np.array([*lead, size], np.int64)
