"""Histograms with TensorFlow's buckets: 1e-12 to 1e20 in steps of 10 %, and negative."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from weft_graph import proto
from weft_tensor import errors

Array = np.ndarray[Any, Any]

_LARGEST: Final = float(np.finfo(np.float64).max)
_MAX_SEARCHED_VALUES: Final = 2048
"""Maximum number of values to search in the limits, instead of searching limits in the values."""


@cache
def bucket_limits() -> Array:
    """Return the ascending bucket limits, float64; a bucket has the values below its limit."""
    positive = []
    limit = 1e-12
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    positive.append(_LARGEST)
    limits = np.array([-limit for limit in reversed(positive)] + [0.0] + positive)
    limits.flags.writeable = False
    return limits


def histogram_of(values: Array, label: str) -> proto.HistogramProto:
    """Return the histogram of values.

    Args:
      values: real numbers, any shape.
      label: description of the values, for the error.
    Raises: InvalidArgumentError: a value is not finite.
    """
    flat = _comparable(np.asarray(values).reshape(-1))
    if not flat.size:
        return proto.HistogramProto(
            min=_LARGEST, max=-_LARGEST, bucket_limit=[_LARGEST], bucket=[0.0]
        )
    if flat.size <= _MAX_SEARCHED_VALUES:
        flat = flat.astype(np.float64)
        low, high = float(flat.min()), float(flat.max())
        _check_finite(low, high, label)
        counts = _count(flat)
    else:
        flat = np.sort(flat).astype(np.float64)
        low, high = float(flat[0]), float(flat[-1])
        _check_finite(low, high, label)
        counts = _count_sorted(flat)
    # Of a run of empty buckets only the last is written.
    written = counts > 0
    written[:-1] |= counts[1:] > 0
    written[-1] = True
    return proto.HistogramProto(
        min=low,
        max=high,
        num=flat.size,
        sum=flat.sum(),
        sum_squares=flat @ flat,
        bucket_limit=bucket_limits()[written].tolist(),
        bucket=counts[written].tolist(),
    )


def _comparable(flat: Array) -> Array:
    """Return the values in a type that NumPy sorts with vector instructions."""
    if flat.dtype.kind in "iu":
        return flat.astype(np.int32) if flat.itemsize < 4 else flat
    return flat.astype(np.float32) if flat.itemsize < 4 else flat


def _check_finite(low: float, high: float, label: str) -> None:
    if low != low or high != high:
        raise errors.InvalidArgumentError(f"NaN in the histogram of {label}")
    if low == -np.inf or high == np.inf:
        raise errors.InvalidArgumentError(f"infinity in the histogram of {label}")


def _count(flat: Array) -> Array:
    limits = bucket_limits()
    # The largest number of all is below no limit.
    buckets = np.minimum(np.searchsorted(limits, flat, "right"), limits.size - 1)
    return np.bincount(buckets, minlength=limits.size)


def _count_sorted(flat: Array) -> Array:
    counts_below = np.searchsorted(flat, bucket_limits(), "left")
    counts_below[-1] = flat.size
    return np.diff(counts_below, prepend=0)
