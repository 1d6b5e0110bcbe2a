"""In-place scatter of rows to an array, where updates with equal indices accumulate."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft_exec.kernels.common import NARROW, widen_value
from weft_exec.kernels.rows import rows_of_points
from weft_tensor import errors
from weft_tensor.shape import format_dims

Array = np.ndarray[Any, Any]
Scatter = Callable[[Array, Array, Any], None]


def check_rows(indices: Any, count: int) -> Array:
    """Return `indices` as a vector of row numbers.

    Raises: InvalidArgumentError: an index is not in [0, count); the message names its position.
    """
    flat: Array = indices.reshape(-1)
    if flat.size and (int(flat.min()) < 0 or int(flat.max()) >= count):
        raise _index_error(np.asarray(indices), count)
    return flat


def _index_error(indices: Array, count: int) -> errors.InvalidArgumentError:
    position = np.argwhere((indices < 0) | (indices >= count))[0]
    index_text = ",".join(map(str, position.tolist()))
    name = f"indices[{index_text}]" if index_text else "indices"
    return errors.InvalidArgumentError(
        f"{name} = {indices[tuple(position)]} is not in [0, {count})"
    )


def row_updates(xp: Any, array: Array, indices: Any, updates: Any) -> tuple[Array, Any]:
    """Return the row numbers, and the updates as one row for each number or as a scalar.

    Raises: InvalidArgumentError: an index is out of range, or the shapes do not match.
    """
    if array.ndim == 0:
        raise errors.InvalidArgumentError("a scatter needs a variable of rank at least 1, got []")
    rows = check_rows(indices, array.shape[0]) if xp is np else indices.reshape(-1)
    if updates.shape == ():
        return rows, updates
    expected = (*indices.shape, *array.shape[1:])
    if updates.shape != expected:
        raise errors.InvalidArgumentError(
            f"updates must have shape indices.shape + ref.shape[1:] = {format_dims(expected)}, got "
            f"{format_dims(updates.shape)}"
        )
    return rows, updates.reshape(rows.shape + array.shape[1:])


def slice_updates(xp: Any, array: Array, indices: Any, updates: Any) -> tuple[Array, Array, Array]:
    """Convert an N-dimensional scatter to a scatter of rows.

    Returns: a view of `array` whose rows are the slices, the row numbers, and an update for each
      number.
    Raises: InvalidArgumentError: an index is out of range, or the shapes do not match.
    """
    depth = indices.shape[-1]
    if depth > array.ndim:
        raise errors.InvalidArgumentError(
            f"the last size of indices, {depth}, must not exceed the variable's rank, {array.ndim}"
        )
    outer, inner = array.shape[:depth], array.shape[depth:]
    expected = indices.shape[:-1] + inner
    if updates.shape != expected:
        raise errors.InvalidArgumentError(
            f"updates must have shape indices.shape[:-1] + ref.shape[{depth}:] = "
            f"{format_dims(expected)}, got {format_dims(updates.shape)}"
        )
    if xp is np:
        rows, count = _rows_of_slices(indices.reshape(-1, depth), outer)
    else:
        rows, count = rows_of_points(xp, indices, array.shape)
        rows = rows.reshape(-1)
    return array.reshape(count, *inner), rows, updates.reshape(len(rows), *inner)


def _rows_of_slices(points: Array, outer: tuple[int, ...]) -> tuple[Array, int]:
    if points.size and ((points < 0) | (points >= outer)).any():
        bad = points[((points < 0) | (points >= outer)).any(1)][0]
        raise errors.InvalidArgumentError(
            f"indices {bad.tolist()} are out of range for shape {format_dims(outer)}"
        )
    count = int(np.prod(outer, dtype=np.int64))
    rows = np.zeros(len(points), np.int64)
    for axis, size in enumerate(outer):
        rows *= size
        rows += points[:, axis]
    return rows, count


def stable_order(rows: Array, count: int) -> Array:
    """Return the stable sorting order of row numbers below `count`, by a radix sort.

    NumPy sorts 16-bit integers by a radix sort, ten times as fast as wider ones.
    """
    order = rows.astype(np.uint16).argsort(kind="stable")
    for shift in range(16, count.bit_length(), 16):
        digits = (rows >> shift).astype(np.uint16)
        order = order[digits[order].argsort(kind="stable")]
    return order


def set_rows(array: Array, rows: Array, updates: Any) -> None:
    """Replace rows; of several updates of one row, the last one is used."""
    array[rows] = updates


def make_scatter(combine: np.ufunc) -> Scatter:
    """Return a scatter that applies `array[row] = combine(array[row], update)` in order."""

    def scatter(array: Array, rows: Array, updates: Any) -> None:
        if array.dtype in _WIDENED:
            _combine_by_rows(array, rows, updates, combine)
        elif array.ndim == 1:
            combine.at(array, rows, updates)
        elif updates.shape and prod(array.shape[1:]) <= _SHORT:
            _combine_in_order(array, rows, updates, combine)
        else:
            _combine_by_rows(array, rows, updates, combine)

    return scatter


_WIDENED = [dtype.numpy for dtype in NARROW]
_SHORT = 64
"""Maximum number of elements of a row for which `ufunc.at` is faster than grouping equal rows."""
_TURNS = 8
"""Maximum number of updates of one row for which rounds over whole rows are faster."""
_BLOCK = 1 << 15
"""Number of elements whose positions are stored together."""


def _combine_in_order(array: Array, rows: Array, updates: Array, combine: np.ufunc) -> None:
    """Combine element by element: `ufunc.at` is fast only for a single index array."""
    if not array.flags.c_contiguous or not array.size:
        combine.at(array, rows, updates)
        return
    width = prod(array.shape[1:])
    flat, columns = array.reshape(-1), np.arange(width)
    step = max(_BLOCK // width, 1)
    for start in range(0, len(rows), step):
        part = rows[start : start + step].astype(np.intp)[:, None] * width + columns
        combine.at(flat, part.reshape(-1), updates[start : start + step].reshape(-1))


def _combine_by_rows(array: Array, rows: Array, updates: Any, combine: np.ufunc) -> None:
    if len(rows) < 2:
        array[rows] = combine(array[rows], updates)
        return
    order = stable_order(rows, len(array))
    ordered = rows[order]
    first = np.empty(len(rows), np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    if first.all():
        array[rows] = combine(array[rows], updates)
        return
    starts = first.nonzero()[0]
    counts = np.diff(starts, append=len(rows))
    if not updates.shape:
        updates = np.broadcast_to(updates, rows.shape + array.shape[1:])
    targets = ordered[starts]
    result = widen_value(array[targets])
    num_rounds = int(counts.max())
    if num_rounds > _TURNS:
        positions = np.empty(len(rows), np.intp)
        positions[order] = np.cumsum(first) - 1
        _combine_in_order(result, positions, widen_value(updates), combine)
    else:
        result = combine(result, updates.take(order[starts], 0))
        for i in range(1, num_rounds):
            remaining_rows = (counts > i).nonzero()[0]
            result[remaining_rows] = combine(
                result[remaining_rows], updates.take(order[starts[remaining_rows] + i], 0)
            )
    array[targets] = result
