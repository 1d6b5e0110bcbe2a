"""Gathering and scattering of rows on devices whose memory the host cannot read.

Indices out of range do not raise an error, because checking them would wait for the device. As on
TensorFlow's GPUs, gathered elements are then 0, and scattered ones are dropped. Updates of the same
row are applied in order, by a stable sort, so that results are reproducible. Sums with many updates
of one row use atomic additions instead, because thousands of rounds would need thousands of
launches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device

_FUNCTIONS: Final = {
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "true_divide",
    "Min": "minimum",
    "Max": "maximum",
}
_ATOMIC: Final = ("float32", "float64", "int32", "uint32", "uint64")
_MANY: Final = 4096
"""Minimum number of updates of one row for which sums use atomic additions."""


def take(params: Any, indices: Any, axis: int, device: Device) -> Any:
    """Return slices of `params` along an axis; zeros for indices out of range."""
    xp, size = device.xp, params.shape[axis]
    shape = (*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :])
    if not size or not indices.size:
        return xp.zeros(shape, params.dtype)
    is_inside = (indices >= 0) & (indices < size)
    result = xp.take(params, xp.where(is_inside, indices, indices.dtype.type(0)), axis=axis)
    broadcast_shape = (1,) * axis + indices.shape + (1,) * (params.ndim - axis - 1)
    return xp.where(is_inside.reshape(broadcast_shape), result, xp.zeros((), params.dtype))


def take_batched(params: Any, indices: Any, axis: int, batch: int, device: Device) -> Any:
    """Take slices along an axis within each batch; zeros for indices out of range."""
    if not batch:
        return take(params, indices, axis, device)
    xp = device.xp
    transposed = xp.moveaxis(params, axis, batch)
    lead = transposed.shape[:batch]
    count = int(np.prod(lead, dtype=np.int64))
    size, remaining = transposed.shape[batch], transposed.shape[batch + 1 :]
    base = (xp.arange(count) * size).reshape(*lead, *(1,) * (indices.ndim - batch))
    wide = indices.astype(np.int64)
    index = xp.where((wide >= 0) & (wide < size), wide + base, -1)
    selected = take(transposed.reshape(count * size, *remaining), index, 0, device)
    middle, inner = axis - batch, indices.ndim - batch
    order = [*range(batch), *range(batch + inner, batch + inner + middle)]
    order += [*range(batch, batch + inner), *range(batch + inner + middle, selected.ndim)]
    return xp.ascontiguousarray(selected.transpose(order)) if selected.ndim else selected


def take_points(params: Any, indices: Any, device: Device) -> Any:
    """Return the slices of `params` at some points; zeros for points out of range."""
    rows, count = rows_of_points(device.xp, indices, params.shape)
    depth = indices.shape[-1]
    return take(params.reshape(count, *params.shape[depth:]), rows, 0, device)


def rows_of_points(xp: Any, indices: Any, shape: tuple[int, ...]) -> tuple[Any, int]:
    """Return the numbers of the slices at points, -1 for points outside, and the number of slices.

    Raises: InvalidArgumentError: a point has more entries than `shape`.
    """
    if indices.ndim < 1 or indices.shape[-1] > len(shape):
        raise errors.InvalidArgumentError(
            f"indices must address at most {len(shape)} axes of shape {format_dims(shape)}, got "
            f"shape {format_dims(indices.shape)}"
        )
    rows = xp.zeros(indices.shape[:-1], np.int64)
    is_inside = xp.ones(indices.shape[:-1], np.bool_)
    count = 1
    for axis in range(indices.shape[-1]):
        column, size = indices[..., axis], shape[axis]
        is_inside &= (column >= 0) & (column < size)
        rows = rows * size + column
        count *= size
    return xp.where(is_inside, rows, -1), count


def _select_existing(xp: Any, array: Any, rows: Any, updates: Any) -> tuple[Any, Any]:
    """Return the rows that exist, and their updates, one for each row."""
    if updates.shape != (*rows.shape, *array.shape[1:]):
        updates = xp.broadcast_to(updates, (*rows.shape, *array.shape[1:]))
    valid_rows = xp.nonzero((rows >= 0) & (rows < array.shape[0]))[0]
    return rows[valid_rows], updates[valid_rows]


def set_rows(xp: Any, array: Any, rows: Any, updates: Any) -> None:
    """Replace rows; for duplicate rows the last update wins."""
    rows, updates = _select_existing(xp, array, rows, updates)
    if not rows.size:
        return
    order = xp.argsort(rows, kind="stable")
    ordered = rows[order]
    last = xp.concatenate([ordered[1:] != ordered[:-1], xp.ones(1, np.bool_)])
    selected = order[xp.nonzero(last)[0]]
    array[rows[selected]] = updates[selected]


def add_rows(xp: Any, array: Any, rows: Any, updates: Any) -> None:
    """Add updates to rows; updates of equal rows are all added."""
    if array.dtype.name in _ATOMIC and rows.size > _MANY:
        rows, updates = _select_existing(xp, array, rows, updates)
        xp.add.at(array, rows, updates)
    else:
        combine_rows(xp, array, rows, updates, "add")


def combine_rows(xp: Any, array: Any, rows: Any, updates: Any, name: str) -> None:
    """Apply `array[row] = f(array[row], update)` for each update in order.

    Args:
      name: name of the function `f` in the array module.
    """
    rows, updates = _select_existing(xp, array, rows, updates)
    if not rows.size:
        return
    function = getattr(xp, name)
    for selected in split_repeats(xp, rows):
        row = rows[selected]
        result = function(_wide(array[row]), updates[selected])
        array[row] = result.astype(array.dtype)


def _wide(values: Any) -> Any:
    return values.astype(np.float32) if values.dtype == np.float16 else values


def split_repeats(xp: Any, rows: Any) -> list[Any]:
    """Split positions in `rows` into lists without repeated rows, preserving their order."""
    order = xp.argsort(rows, kind="stable")
    ordered = rows[order]
    first = xp.concatenate([xp.ones(1, np.bool_), ordered[1:] != ordered[:-1]])
    starts = xp.nonzero(first)[0]
    if starts.size == rows.size:
        return [order]
    group = xp.cumsum(first.astype(np.int64)) - 1
    occurrence = xp.arange(rows.size) - starts[group]
    return [order[xp.nonzero(occurrence == i)[0]] for i in range(int(xp.max(occurrence)) + 1)]


def make_row_writer(xp: Any, combiner: str) -> Callable[[Any, Any, Any], None]:
    """Return a function that writes updates to rows of an array.

    Args:
      how: "Update", or the name of the operation on a row and its update, such as "Add".
    """
    if combiner == "Update":
        return partial(set_rows, xp)
    if combiner == "Add":
        return partial(add_rows, xp)
    name = _FUNCTIONS[combiner]
    return lambda array, rows, updates: combine_rows(xp, array, rows, updates, name)
