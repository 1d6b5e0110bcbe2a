"""Writing rows into an array of a GPU, with equal indices accumulating; wrong ones are dropped.

Equal rows take their turns in the order of the updates, found by a stable sort; so results are the
same on every run, which those of atomic additions are not. Sums of many equal rows go by atomic
additions all the same, where CuPy has them: thousands of turns would be thousands of launches.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_tensor import errors
from weft_tensor.shape import format_dims

_ATOMIC: Final = ("float32", "float64", "int32", "uint32", "uint64")
_MANY: Final = 4096
"""Updates from which on sums are made by atomic additions."""


def rows_of_points(xp: Any, indices: Any, shape: tuple[int, ...]) -> tuple[Any, int]:
    """The numbers of the slices that points address, -1 for those outside, and how many there are.

    Raises: InvalidArgumentError: a point has more entries than `shape`.
    """
    if indices.ndim < 1 or indices.shape[-1] > len(shape):
        raise errors.InvalidArgumentError(
            f"indices must address at most {len(shape)} axes of shape {format_dims(shape)}, got "
            f"shape {format_dims(indices.shape)}"
        )
    rows = xp.zeros(indices.shape[:-1], np.int64)
    inside = xp.ones(indices.shape[:-1], np.bool_)
    count = 1
    for axis in range(indices.shape[-1]):
        column, size = indices[..., axis], shape[axis]
        inside &= (column >= 0) & (column < size)
        rows = rows * size + column
        count *= size
    return xp.where(inside, rows, -1), count


def _kept(xp: Any, array: Any, rows: Any, updates: Any) -> tuple[Any, Any]:
    """Rows that exist, and their updates, as one for each."""
    if updates.shape != (*rows.shape, *array.shape[1:]):
        updates = xp.broadcast_to(updates, (*rows.shape, *array.shape[1:]))
    inside = xp.nonzero((rows >= 0) & (rows < array.shape[0]))[0]
    return rows[inside], updates[inside]


def set_rows(xp: Any, array: Any, rows: Any, updates: Any) -> None:
    """Replace rows; of equal ones the last update counts."""
    rows, updates = _kept(xp, array, rows, updates)
    if not rows.size:
        return
    order = xp.argsort(rows, kind="stable")
    ordered = rows[order]
    last = xp.concatenate([ordered[1:] != ordered[:-1], xp.ones(1, np.bool_)])
    chosen = order[xp.nonzero(last)[0]]
    array[rows[chosen]] = updates[chosen]


def add_rows(xp: Any, array: Any, rows: Any, updates: Any) -> None:
    """Add updates to rows, those of equal rows too."""
    if array.dtype.name in _ATOMIC and rows.size > _MANY:
        rows, updates = _kept(xp, array, rows, updates)
        xp.add.at(array, rows, updates)
    else:
        combine_rows(xp, array, rows, updates, "add")


def combine_rows(xp: Any, array: Any, rows: Any, updates: Any, name: str) -> None:
    """`array[row] = f(array[row], update)` for each update in turn.

    Args:
      name: of the function `f` in the array module.
    """
    rows, updates = _kept(xp, array, rows, updates)
    if not rows.size:
        return
    function = getattr(xp, name)
    for which in turns(xp, rows):
        at = rows[which]
        found = function(_wide(array[at]), updates[which])
        array[at] = found.astype(array.dtype)


def _wide(values: Any) -> Any:
    return values.astype(np.float32) if values.dtype == np.float16 else values


def turns(xp: Any, rows: Any) -> list[Any]:
    """Positions in `rows` such that none of the lists has a row twice, in order."""
    order = xp.argsort(rows, kind="stable")
    ordered = rows[order]
    first = xp.concatenate([xp.ones(1, np.bool_), ordered[1:] != ordered[:-1]])
    starts = xp.nonzero(first)[0]
    if starts.size == rows.size:
        return [order]
    group = xp.cumsum(first.astype(np.int64)) - 1
    turn = xp.arange(rows.size) - starts[group]
    return [order[xp.nonzero(turn == i)[0]] for i in range(int(xp.max(turn)) + 1)]
