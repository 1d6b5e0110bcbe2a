"""Differences of arrays, and how large rounding alone makes them."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from weft_io.porting.parameter_files import Array
from weft_tensor import dtypes

_SAFETY: Final = 16.0
"""Factor above the expected rounding error: systems add in other orders and approximate functions
to a few units in the last place."""


class Difference(NamedTuple):
    """The difference of two arrays.

    Attributes:
      absolute: the largest absolute difference; infinite if one is NaN or infinite where the other
        is not, or if the shapes differ.
      relative: `absolute` over the largest magnitude of the reference.
      position: index of the largest difference.
      ours, theirs: the values there.
    """

    absolute: float
    relative: float
    position: tuple[int, ...]
    ours: Any
    theirs: Any


def compare_arrays(ours: Array, theirs: Array) -> Difference:
    """Return the difference of two arrays of equal shape; `theirs` is the reference."""
    a, b = np.asarray(ours), np.asarray(theirs)
    if not a.size:
        return Difference(0.0, 0.0, (), None, None)
    if a.dtype.kind in "OSU":
        b, distance = np.ones(1), (a != b).astype(np.float64)
    else:
        a, b = _to_float64(a), _to_float64(b)
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(a - b)
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, distance)
        distance = np.where(np.isnan(distance), np.inf, distance)
    index = np.unravel_index(int(np.argmax(distance)), distance.shape)
    largest = float(distance[index])
    finite = np.abs(b)[np.isfinite(b)]
    scale = float(np.max(finite, initial=0.0))
    relative = largest / scale if scale else (np.inf if largest else 0.0)
    position = tuple(int(i) for i in index)
    our_value, their_value = np.asarray(ours)[index], np.asarray(theirs)[index]
    return Difference(largest, relative, position, our_value, their_value)


def rounding_tolerance(dtype: Any, num_terms: float = 1.0) -> float:
    """Return the relative difference that rounding explains.

    Args:
      dtype: NumPy type of the values. Integers, booleans and strings must be equal: 0.
      num_terms: number of terms that are added for one element; the error of a sum grows with its
        square root.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        dtype = np.empty(0, dtype).real.dtype
    if not dtypes.as_dtype(dtype).is_floating:
        return 0.0
    unit, double = dtype.type(1), dtype.type(2)
    epsilon = float(np.nextafter(unit, double)) - 1.0
    return _SAFETY * epsilon * math.sqrt(max(1.0, num_terms))


def _to_float64(value: Array) -> Array:
    return value if value.dtype.kind == "c" else value.astype(np.float64)
