"""Features of spectra on the mel scale, on which equal distances sound equal."""

from __future__ import annotations

__all__ = ["linear_to_mel_weight_matrix", "mfccs_from_log_mel_spectrograms"]

import math
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope, static_number
from weft_graph.ops import shape_rules
from weft_graph.ops.sequence import linspace
from weft_graph.signal.cosine import dct
from weft_graph.signal.sizes import cast, check_size, size_of
from weft_tensor import dtypes, errors

_BREAK_HERTZ = 700.0
_HIGH_Q = 1127.0
"""O'Shaughnessy's scale: mel = 1127 * log(1 + hertz / 700)."""


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: Any = 129,
    sample_rate: Any = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return the matrix that maps linear spectra to mel bands by a matrix product.

    Bands are triangles of height 1 on the mel scale, each from the center of the previous one to
    the center of the next one. Frequency 0 is not in any band.

    Args:
      num_mel_bins: the number of bands.
      num_spectrogram_bins: integer of rank 0: number of frequencies of a spectrum, from 0 to half
        the sample rate.
      sample_rate: number of rank 0, in hertz.
      lower_edge_hertz, upper_edge_hertz: start of the lowest band and end of the highest one.
      dtype: floating.
    Returns: shape (num_spectrogram_bins, num_mel_bins).
    Raises: InvalidArgumentError: a number is not positive, or the edges are not in order and below
      half the sample rate.

    Examples:
      >>> matrix = wf.signal.linear_to_mel_weight_matrix(2, 5, 8000, 0.0, 4000.0)
      >>> np.round(wf.Session().run(matrix), 3)
      array([[0.   , 0.   ],
             [0.602, 0.398],
             [0.   , 0.873],
             [0.   , 0.377],
             [0.   , 0.   ]], dtype=float32)
    """
    element_type = _check_arguments(
        num_mel_bins, sample_rate, lower_edge_hertz, upper_edge_hertz, dtype
    )
    with scope(name, "linear_to_mel_weight_matrix") as scope_name:
        bins = check_size(num_spectrogram_bins, "num_spectrogram_bins")
        nyquist = cast(sample_rate, dtypes.float64) / 2.0
        hertz = linspace(cast(0, dtypes.float64), nyquist, bins)[1:]
        frequencies = out("ExpandDims", [_mel(hertz), 1])
        edges = np.linspace(
            _static_mel(lower_edge_hertz), _static_mel(upper_edge_hertz), num_mel_bins + 2
        )
        lower, middle, upper = edges[:-2], edges[1:-1], edges[2:]
        rising = (frequencies - lower) / (middle - lower)
        falling = (upper - frequencies) / (upper - middle)
        weights = out("Maximum", [0.0, out("Minimum", [rising, falling])])
        return cast(out("Pad", [weights, [[1, 0], [0, 0]]]), element_type, scope_name)


def _check_arguments(bands: int, rate: Any, lower: float, upper: float, dtype: Any) -> dtypes.DType:
    element_type = dtypes.as_dtype(dtype)
    if not element_type.is_floating:
        raise errors.InvalidTypeError(
            f"the weights must be floating, got dtype {element_type.name}"
        )
    static_rate = static_number(rate)
    top = math.inf if static_rate is None else static_rate / 2
    if bands < 1 or top <= 0 or not 0.0 <= lower < upper <= top:
        raise errors.InvalidArgumentError(
            "requires at least one band, a positive sample rate, and 0 <= lower_edge_hertz < "
            f"upper_edge_hertz <= sample_rate / 2, got {bands} bands, a rate of {rate}, {lower} "
            f"and {upper}"
        )
    return element_type


def _mel(hertz: Output) -> Output:
    return _HIGH_Q * out("Log1p", [hertz / _BREAK_HERTZ])


def _static_mel(hertz: float) -> float:
    return _HIGH_Q * math.log1p(hertz / _BREAK_HERTZ)


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> Output:
    """Return mel-frequency cepstral coefficients: the cosine transform of log mel spectra.

    All coefficients are returned; usually the first 12 or 13 are used. The transform is
    orthonormal, except that the first coefficient is sqrt(2) times as large.

    Args:
      log_mel_spectrograms: float32 or float64, shape (..., M) with M bands.
    Returns: shape (..., M).
    Raises: InvalidArgumentError: there are no bands.

    Examples:
      >>> coefficients = wf.signal.mfccs_from_log_mel_spectrograms([[1.0, 1.0]])
      >>> np.round(wf.Session().run(coefficients), 3)
      array([[2., 0.]], dtype=float32)
    """
    with scope(name, "mfccs_from_log_mel_spectrograms") as scope_name:
        value = convert_to_tensor(log_mel_spectrograms, preferred_dtype=dtypes.float32)
        shape_rules.with_rank_at_least(value.dims, 1, "log_mel_spectrograms")
        bands = size_of(value, -1)
        if bands is not None and isinstance(bands, int) and bands < 1:
            raise errors.InvalidArgumentError(f"requires at least one band, got {value!r}")
        scale = out("Rsqrt", [cast(bands * 2, value.dtype.base_dtype)])
        return out("Mul", [dct(value, 2), scale], name=scope_name)
