"""Statistics of a tensor's values, and differences of two tensors.

Large tensors are processed in pieces, to avoid a converted copy of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from weft_io.checkpoint.encoding import Array
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_PIECE: Final = 1 << 18


class Statistics(NamedTuple):
    """Statistics of numbers, of the magnitudes of complex numbers, or of string lengths.

    Attributes:
      least, most, mean, deviation: statistics of the finite values; None if there are none.
      zeros: number of zeros, or of empty strings.
      not_finite: number of infinities and NaNs.
    """

    least: Any
    most: Any
    mean: float | None
    deviation: float | None
    zeros: int
    not_finite: int


class Difference(NamedTuple):
    """The size of the differences between two tensors of the same type and shape.

    Attributes:
      elements: the number of elements that differ.
      absolute: the largest |a - b|; None for strings, infinite if one is NaN.
      relative: the largest |a - b| / max(|a|, |b|); as `absolute`.
    """

    elements: int
    absolute: Any
    relative: float | None


def _flat(value: Any) -> Array:
    if isinstance(value, bytes):
        result: Array = np.empty(1, object)
        result[0] = value
        return result
    result = np.ascontiguousarray(value).reshape(-1)
    return result


def _numbers(value: Array, dtype: DType) -> Array:
    """Convert values to comparable numbers: lengths of strings, magnitudes, or 0 and 1."""
    if dtype is dtypes.string:
        return np.array([len(item) for item in value.tolist()], np.int64)
    if dtype.is_complex:
        return np.abs(value)
    if dtype.is_bool:
        return value.astype(np.int8)
    return value.astype(np.float32) if value.dtype.itemsize < 4 and dtype.is_floating else value


def statistics(value: Any, dtype: DType) -> Statistics:
    """Return the statistics of a tensor."""
    total = zeros = not_finite = 0
    minimum: Any = None
    limit: Any = None
    mean = squares = 0.0
    flat = _flat(value)
    for start in range(0, flat.size, _PIECE):
        piece = _numbers(flat[start : start + _PIECE], dtype)
        finite = piece[np.isfinite(piece)] if piece.dtype.kind == "f" else piece
        not_finite += piece.size - finite.size
        zeros += int(np.count_nonzero(piece == 0))
        if not finite.size:
            continue
        low, high = finite.min().item(), finite.max().item()
        minimum = low if minimum is None else min(minimum, low)
        limit = high if limit is None else max(limit, high)
        with np.errstate(over="ignore", invalid="ignore"):  # squares of the largest float64
            wide = finite.astype(np.float64)
            piece_mean = float(wide.mean())
            shift, combined_count = piece_mean - mean, total + finite.size
            squares += (
                float(((wide - piece_mean) ** 2).sum())
                + shift * shift * total * finite.size / combined_count
            )
            mean += shift * finite.size / combined_count
        total = combined_count
    if not total:
        return Statistics(None, None, None, None, zeros, not_finite)
    return Statistics(minimum, limit, mean, float(np.sqrt(squares / total)), zeros, not_finite)


def difference(a: Any, b: Any, dtype: DType) -> Difference | None:
    """Compute the differences between two tensors; None if every byte is equal.

    Args:
      a, b: arrays of the same shape and of type `dtype`.
    """
    elements = 0
    absolute: Any = None if dtype is dtypes.string else 0
    relative = None if dtype is dtypes.string else 0.0
    for a_piece, b_piece in _pieces(a, b):
        unequal = _unequal(a_piece, b_piece)
        if not unequal.any():
            continue
        elements += int(np.count_nonzero(unequal))
        if dtype is not dtypes.string:
            distance, part = _distance(a_piece[unequal], b_piece[unequal], dtype)
            absolute, relative = max(absolute, distance), max(relative or 0.0, part)
    return Difference(elements, absolute, relative) if elements else None


def _pieces(a: Any, b: Any) -> Iterator[tuple[Array, Array]]:
    flat_a, flat_b = _flat(a), _flat(b)
    for start in range(0, flat_a.size, _PIECE):
        yield flat_a[start : start + _PIECE], flat_b[start : start + _PIECE]


def _unequal(a: Array, b: Array) -> Array:
    """Return the mask of elements whose bits differ: a NaN equals itself, and -0 is not 0."""
    if a.dtype.hasobject:
        result: Array = np.array(
            [x != y for x, y in zip(a.tolist(), b.tolist(), strict=True)], bool
        )
        return result
    rows = (a.size, a.dtype.itemsize)
    bits, other_bits = a.view(np.uint8).reshape(rows), b.view(np.uint8).reshape(rows)
    result = (bits != other_bits).any(axis=1)
    return result


def _distance(a: Array, b: Array, dtype: DType) -> tuple[Any, float]:
    """Return the largest absolute and relative difference of the elements that differ."""
    if dtype.is_integer or dtype.is_quantized:
        high, low = np.maximum(a, b), np.minimum(a, b)
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        distance = np.subtract(high.view(unsigned), low.view(unsigned))  # exact, as it wraps around
        size = np.maximum(np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64)))
        return distance.max().item(), float((distance / np.maximum(size, 1)).max())
    wide = np.complex128 if dtype.is_complex else np.float64
    with np.errstate(all="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        gap = np.abs(x - y)
        gap[np.isnan(gap)] = np.inf
        scale = np.maximum(np.abs(x), np.abs(y))
        share = np.where(gap == 0, 0.0, np.where(np.isfinite(gap), gap / scale, np.inf))
    return float(gap.max()), float(share.max())
