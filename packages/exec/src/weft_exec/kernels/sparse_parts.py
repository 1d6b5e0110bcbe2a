"""Functions that sparse kernels share: validation, order and equality of positions."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.kernels.common import Array
from weft_tensor import errors
from weft_tensor.shape import format_dims

_MOST: Final = 2**63 - 1


class Sparse(NamedTuple):
    """A checked sparse tensor: positions (n, rank), values (n,), and sizes."""

    places: Array
    values: Array
    sizes: tuple[int, ...]


def check_sparse(indices: Any, values: Any, shape: Any, *, argument: str = "") -> Sparse:
    """Return a sparse tensor of the three given parts, after checking them.

    Raises: InvalidArgumentError: the parts do not match, or an index is out of range.
    """
    if indices.ndim != 2 or np.ndim(values) != 1 or shape.ndim != 1:
        raise _mismatch_error(indices, values, shape, argument)
    if indices.shape != (len(values), len(shape)):
        raise _mismatch_error(indices, values, shape, argument)
    return Sparse(indices, values, check_indices(indices, shape, argument))


def check_indices(indices: Any, shape: Any, label: str = "") -> tuple[int, ...]:
    """Check the indices of a sparse tensor, and return its sizes as integers.

    Raises: InvalidArgumentError: an index is out of range, or a size is negative.
    """
    sizes = tuple(shape.tolist())
    if any(size < 0 for size in sizes):
        raise errors.InvalidArgumentError(
            f"{label}shape must have sizes of at least 0, got {list(sizes)}"
        )
    bad = (indices < 0) | (indices >= shape)
    if bad.any():
        row, axis = [int(i) for i in np.argwhere(bad)[0]]
        raise errors.InvalidArgumentError(
            f"{label}indices[{row}] = {indices[row].tolist()} is outside the shape "
            f"{format_dims(sizes)}: index {int(indices[row, axis])} of axis {axis} is not in "
            f"[0, {sizes[axis]})",
            details={"index": int(indices[row, axis]), "size": sizes[axis]},
        )
    return sizes


def _mismatch_error(
    indices: Any, values: Any, shape: Any, label: str
) -> errors.InvalidArgumentError:
    actual = ", ".join([format_dims(np.shape(part)) for part in (indices, values, shape)])
    return errors.InvalidArgumentError(
        f"a sparse tensor requires {label}indices [n,rank], values [n] and shape [rank], got "
        f"{actual}"
    )


def make_keys(sizes: tuple[int, ...], *tables: Array) -> list[Array]:
    """Return a function from tables of positions to keys with the same order and equality."""
    if math.prod(sizes) <= _MOST:
        return [flatten_positions(table, sizes) for table in tables]
    return rank_rows(*tables)


def flatten_positions(table: Array, sizes: tuple[int, ...]) -> Array:
    """Convert positions to flat row-major ones; the product of the sizes must be below 2**63."""
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    result = np.zeros(len(table), np.int64)
    for column, step in zip(table.T, steps, strict=True):
        result += column * step
    return result


def rank_rows(*tables: Array) -> list[Array]:
    """Rank the rows of tables together; ranks are keys as in `make_keys`, for any sizes."""
    rows = np.concatenate(tables)
    if not rows.shape[1]:
        return [np.zeros(len(table), np.int64) for table in tables]
    order = np.lexsort(rows.T[::-1])
    row = rows[order]
    new = np.concatenate(([False], (row[1:] != row[:-1]).any(1)))[: len(rows)]
    result = np.empty(len(rows), np.int64)
    result[order] = np.cumsum(new)
    return np.split(result, np.cumsum([len(table) for table in tables])[:-1])


def row_order(table: Array) -> Array:
    """Return the stable order that sorts the rows of a table."""
    return np.lexsort(table.T[::-1]) if table.shape[1] else np.arange(len(table))


class Union(NamedTuple):
    """The union of the positions of two sparse tensors, in order.

    Attributes:
      rows: for each position of the union, its index in the concatenated positions of `a` and `b`.
      at_a, at_b: for each position of `a` and of `b`, its index in the union.
    """

    rows: Array
    at_a: Array
    at_b: Array

    def __len__(self) -> int:
        return len(self.rows)


def union_positions(a: Array, b: Array) -> Union:
    """Return the union of positions, given as keys; repeated positions are matched in order."""
    a, b = _number_occurrences(a, b)
    _, first, inverse = np.unique(np.concatenate((a, b)), return_index=True, return_inverse=True)
    return Union(first, inverse[: len(a)], inverse[len(a) :])


def _number_occurrences(a: Array, b: Array) -> tuple[Array, Array]:
    """Return keys that also distinguish first, second and later occurrences."""
    times = [_occurrence_numbers(key) for key in (a, b)]
    if times[0] is None and times[1] is None:
        return a, b
    pairs = [
        np.stack([key, np.zeros_like(key) if count is None else count], 1)
        for key, count in zip((a, b), times, strict=True)
    ]
    first, second = rank_rows(*pairs)
    return first, second


def _occurrence_numbers(key: Array) -> Array | None:
    """Return the number of earlier occurrences of each key; None if all keys differ."""
    if (key[1:] > key[:-1]).all():
        return None
    order = np.argsort(key, kind="stable")
    matches = key[order]
    starts = np.concatenate(([True], matches[1:] != matches[:-1]))
    if starts.all():
        return None
    positions = np.arange(len(key))
    result = np.empty(len(key), np.int64)
    result[order] = positions - np.maximum.accumulate(np.where(starts, positions, 0))
    return result


def lookup(array: Array, table: Array) -> tuple[Array, Array]:
    """Look up keys in a table; repeated keys are matched in order.

    Returns: the position of each key, and a mask of the keys that were found; positions of missing
      keys are arbitrary.
    """
    if not len(table):
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    array, table = _number_occurrences(array, table)
    order = np.argsort(table, kind="stable")
    index = np.minimum(np.searchsorted(table, array, sorter=order), len(table) - 1)
    positions = order[index]
    return positions, table[positions] == array
