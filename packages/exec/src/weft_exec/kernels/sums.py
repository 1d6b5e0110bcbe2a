"""Floating-point sums on the host, as products with a vector of ones.

BLAS adds two to ten times as fast as NumPy's reductions, especially in short rows. A product adds
at most `LONG` numbers of a row, which uses lanes, or `BLOCK` numbers of a column, one after
another. Rounding errors are therefore as small as those of pairwise sums.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

LONG: Final = 1024
"""Maximum number of elements of a row that one product adds."""
BLOCK: Final = 128
"""Number of elements of a column that are added one after another."""
NARROW: Final = 4
"""Maximum number of columns for which blocks are four times as long."""
FEW: Final = 64
"""Number of elements below which a call of BLAS does not pay off; also a row length for which NumPy
is as fast.
"""

PRODUCTS: Final = "fd"
"""Type codes of the types that BLAS adds."""
_ONES: Final = {code: np.ones(LONG, code) for code in PRODUCTS}


def sum_axes(x: Any, start: int, stop: int, into: Array | None = None) -> Any:
    """Return the sums over the axes from `start` up to, but not including, `stop`.

    Args:
      x: an array of any type and strides; float32 and float64 in C order are fast.
      into: an array in C order that receives the sums; by default a new one.
    Returns: an array with the shape of `x` without these axes, or a NumPy scalar if no axes are
      left.
    """
    unit_vector = _ONES.get(x.dtype.char)
    if x.size < FEW or unit_vector is None or not x.flags.c_contiguous:
        return _reduce_blocks(x, start, stop, into)
    shape = x.shape
    num_leading, count, num_trailing = (
        prod(shape[:start]),
        prod(shape[start:stop]),
        prod(shape[stop:]),
    )
    if num_leading > 1 and num_trailing > 1 and (count * num_trailing < FEW or num_trailing >= FEW):
        return _reduce_blocks(x, start, stop, into)
    if count > LONG and num_trailing == 1:
        return _reduce_blocks(x, start, stop, into)
    if count > BLOCK and num_trailing > 1:
        parts = _sum_blocks(x.reshape(num_leading, count, num_trailing), unit_vector)
        return sum_axes(parts.reshape(*shape[:start], -1, *shape[stop:]), start, start + 1, into)
    unit_vector = unit_vector[:count]
    out = into if into is None else into.reshape(_flat_shape(num_leading, num_trailing))
    if num_leading == num_trailing == 1 and into is None:
        result = x.reshape(-1).dot(unit_vector)
    elif num_trailing == 1:
        result = x.reshape(num_leading, count).dot(unit_vector, out)
    elif num_leading == 1:
        result = unit_vector.dot(x.reshape(count, num_trailing), out)
    else:
        result = np.matmul(unit_vector, x.reshape(num_leading, count, num_trailing), out=out)
    result_shape = shape[:start] + shape[stop:]
    return result.reshape(result_shape) if result_shape and result.shape != result_shape else result


def _reduce_blocks(x: Any, start: int, stop: int, out: Array | None) -> Any:
    """Return the sums by NumPy, in blocks of `BLOCK` where NumPy does not use pairwise summation.

    NumPy uses it only along the last axis of dense arrays. The sums of blocks are summed in the
    same way.
    """
    axes = tuple(range(start, stop))
    in_pairs = x.dtype.kind not in "fc" or (stop == x.ndim and x.flags.c_contiguous)
    if in_pairs or prod(x.shape[start:stop]) <= BLOCK:
        return np.add.reduce(x, axis=axes, dtype=x.dtype, out=out)
    if stop - start > 1:
        return _reduce_blocks(_reduce_blocks(x, stop - 1, stop, None), start, stop - 1, out)
    firsts = range(0, x.shape[start], BLOCK)
    parts = np.empty((len(firsts), *x.shape[:start], *x.shape[stop:]), x.dtype)
    lead = (slice(None),) * start
    for block, first in enumerate(firsts):
        rows = x[(*lead, slice(first, first + BLOCK))]
        np.add.reduce(rows, axis=start, dtype=x.dtype, out=parts[block, ...])
    return _reduce_blocks(parts, 0, 1, out)


def _flat_shape(num_leading: int, num_trailing: int) -> tuple[int, ...]:
    if num_leading == 1 or num_trailing == 1:
        return (num_leading * num_trailing,)
    return num_leading, num_trailing


def _sum_blocks(x: Array, array: Array) -> Array:
    """Return sums over blocks of the middle axis, and the sum over the remaining elements."""
    num_leading, count, num_trailing = x.shape
    size = BLOCK if num_trailing > NARROW else 4 * BLOCK  # a call takes as long as some narrow rows
    num_full, remaining = divmod(count, size)
    parts = np.empty((num_leading, num_full + bool(remaining), num_trailing), x.dtype)
    head = x[:, : num_full * size].reshape(num_leading, num_full, size, num_trailing)
    np.matmul(array[:size], head, out=parts[:, :num_full])
    if remaining:
        np.matmul(array[:remaining], x[:, num_full * size :], out=parts[:, num_full])
    return parts
