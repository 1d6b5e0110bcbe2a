"""Window functions, which taper frames at both ends.

They are computed in double precision and rounded once.
"""

from __future__ import annotations

__all__ = [
    "hamming_window",
    "hann_window",
    "kaiser_bessel_derived_window",
    "kaiser_window",
    "vorbis_window",
]

import math
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import bessel
from weft_graph.signal.sizes import Size, cast, check_size
from weft_tensor import dtypes, errors


def hann_window(
    window_length: Any,
    periodic: Any = True,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return the Hann window, 0.5 - 0.5 * cos(2 * pi * n / N).

    Args:
      window_length: integer of rank 0, at least 1.
      periodic: use N = length if the length is even, so that shifted windows sum to a constant.
        Otherwise, and for odd lengths, N = length - 1 and the window is symmetric.
      dtype: floating.
    Returns: shape (window_length,).
    Raises: InvalidArgumentError: the length is below 1; InvalidTypeError: `dtype` is not floating.

    Examples:
      >>> wf.Session().run(wf.signal.hann_window(4))
      array([0. , 0.5, 1. , 0.5], dtype=float32)
    """
    return _raised_cosine(window_length, periodic, dtype, 0.5, name or "hann_window")


def hamming_window(
    window_length: Any,
    periodic: Any = True,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return the Hamming window, 0.54 - 0.46 * cos(2 * pi * n / N).

    Args:
      window_length: integer of rank 0, at least 1.
      periodic: as in `hann_window`.
      dtype: floating.
    Returns: shape (window_length,).
    Raises: InvalidArgumentError: the length is below 1; InvalidTypeError: `dtype` is not floating.

    Examples:
      >>> wf.Session().run(wf.signal.hamming_window(4))
      array([0.08, 0.54, 1.  , 0.54], dtype=float32)
    """
    return _raised_cosine(window_length, periodic, dtype, 0.54, name or "hamming_window")


def _raised_cosine(length: Any, periodic: Any, dtype: Any, a: float, name: str) -> Output:
    with scope(name, name) as scope_name:
        size, element_type = _parameters(length, dtype)
        even = out("Sub", [1, out("FloorMod", [size, 2])])
        is_periodic_and_even = out("Mul", [cast(periodic, dtypes.int32), even])
        # A window of one element is 1, as 0 / 0 is not.
        steps = out("Sub", [out("AddV2", [size, is_periodic_and_even]), 1])
        angle = out("Mul", [_positions(size), out("RealDiv", [2 * math.pi, _double(steps)])])
        fade = out("Mul", [1 - a, out("Cos", [angle])])
        value = out("SelectV2", [out("Equal", [size, 1]), 1.0, out("Sub", [a, fade])])
        return cast(value, element_type, scope_name)


def _parameters(length: Any, dtype: Any) -> tuple[Size, dtypes.DType]:
    element_type = dtypes.as_dtype(dtype)
    if not element_type.is_floating:
        raise errors.InvalidTypeError(f"a window must be floating, got dtype {element_type.name}")
    return check_size(length, "window_length"), element_type


def _double(value: Any) -> Output:
    return cast(value, dtypes.float64)


def _positions(size: Size) -> Output:
    return _double(out("Range", [0, size, 1]))


def kaiser_window(
    window_length: Any,
    beta: Any = 12.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return the Kaiser window, i0(beta * sqrt(1 - x * x)) / i0(beta) for x from -1 to 1.

    Args:
      window_length: integer of rank 0, at least 1.
      beta: floating, rank 0: larger values taper faster.
      dtype: floating.
    Returns: shape (window_length,).
    Raises: InvalidArgumentError: the length is below 1; InvalidTypeError: `dtype` is not floating.

    Examples:
      >>> np.round(wf.Session().run(wf.signal.kaiser_window(3, beta=2.0)), 3)
      array([0.439, 1.   , 0.439], dtype=float32)
    """
    with scope(name, "kaiser_window") as scope_name:
        size, element_type = _parameters(window_length, dtype)
        return cast(_kaiser(size, beta), element_type, scope_name)


def _kaiser(size: Size, beta: Any) -> Output:
    factor = _double(beta)
    half = out("RealDiv", [_double(out("Sub", [size, 1])), 2.0])
    x = out("DivNoNan", [out("Sub", [_positions(size), half]), half])
    radicand = out("Maximum", [0.0, out("Sub", [1.0, out("Square", [x])])])
    argument = out("Mul", [factor, out("Sqrt", [radicand])])
    # The scaled functions, as i0 itself overflows.
    scale = out("Exp", [out("Sub", [out("Abs", [argument]), out("Abs", [factor])])])
    ratio = out("RealDiv", [bessel.bessel_i0e(argument), bessel.bessel_i0e(factor)])
    return out("Mul", [scale, ratio])


def kaiser_bessel_derived_window(
    window_length: Any,
    beta: Any = 12.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return the Kaiser-Bessel-derived window, for `mdct`.

    Args:
      window_length: even integer of rank 0, at least 2.
      beta: parameter of the Kaiser window.
      dtype: floating.
    Returns: shape (window_length,).
    Raises: InvalidArgumentError: the length is below 1; InvalidTypeError: `dtype` is not floating.

    Examples:
      >>> np.round(wf.Session().run(wf.signal.kaiser_bessel_derived_window(4, beta=2.0)), 3)
      array([0.483, 0.875, 0.875, 0.483], dtype=float32)
    """
    with scope(name, "kaiser_bessel_derived_window") as scope_name:
        size, element_type = _parameters(window_length, dtype)
        half = out("FloorDiv", [size, 2])
        sums = out("Cumsum", [_kaiser(out("AddV2", [half, 1]), beta), 0])
        rising = out("Sqrt", [out("RealDiv", [sums[:-1], sums[-1]])])
        window = out("ConcatV2", [[rising, out("ReverseV2", [rising, [0]])], 0])
        return cast(window, element_type, scope_name)


def vorbis_window(
    window_length: Any, dtype: Any = dtypes.float32, name: str | None = None
) -> Output:
    """Return the Vorbis window, sin(pi / 2 * sin(pi * (n + 0.5) / N) ** 2), for `mdct`.

    Args:
      window_length: integer of rank 0, at least 1.
      dtype: floating.
    Returns: shape (window_length,).
    Raises: InvalidArgumentError: the length is below 1; InvalidTypeError: `dtype` is not floating.

    Examples:
      >>> np.round(wf.Session().run(wf.signal.vorbis_window(4)), 3)
      array([0.228, 0.974, 0.974, 0.228], dtype=float32)
    """
    with scope(name, "vorbis_window") as scope_name:
        size, element_type = _parameters(window_length, dtype)
        middle = out("AddV2", [_positions(size), 0.5])
        sine = out("Sin", [out("Mul", [middle, out("RealDiv", [math.pi, _double(size)])])])
        value = out("Sin", [out("Mul", [math.pi / 2, out("Square", [sine])])])
        return cast(value, element_type, scope_name)


def window_of(function: Any, length: Size, dtype: dtypes.DType) -> Output | None:
    """Return the window of a caller's function, or None if there is no function."""
    return None if function is None else function(length, dtype=dtype)
