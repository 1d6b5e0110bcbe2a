"""Sound as WAV files: 16-bit integers, little-endian, uncompressed."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from weft_tensor import errors

_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_MOST: Final = (1 << 32) - 1


def encode_wav(samples: np.ndarray[Any, Any], rate: int) -> bytes:
    """A WAV file.

    Args:
      samples: float32 from -1 to 1, shape (frames, channels); more is clipped, NaN is silence.
      rate: frames per second.
    Raises: InvalidArgumentError: a number is zero, or does not fit into the fields of the format.
    """
    frames, channels = samples.shape
    data, frame = frames * channels * 2, channels * 2
    if not 0 < channels < 1 << 15:
        raise errors.InvalidArgumentError(f"channels must be from 1 to 32767, got {channels}")
    if not 0 < rate * frame <= _MOST:
        raise errors.InvalidArgumentError(
            f"{channels} channels at a rate of {rate} do not fit into a WAV file"
        )
    if data + _HEADER.size - 8 > _MOST:
        raise errors.InvalidArgumentError(
            f"{frames} frames of {channels} channels do not fit into a WAV file (4 GiB at most)"
        )
    header = _HEADER.pack(
        *(b"RIFF", data + _HEADER.size - 8, b"WAVE"),
        *(b"fmt ", 16, 1, channels, rate, rate * frame, frame, 16),
        *(b"data", data),
    )
    return header + _integers(samples).tobytes()


def _integers(samples: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounded to the nearest, halves away from zero; exact, as float64 holds the half."""
    scaled = samples.astype(np.float64) * (1 << 15)
    scaled = np.trunc(scaled + np.copysign(0.5, scaled))
    scaled[np.isnan(scaled)] = 0
    integers: np.ndarray[Any, Any] = np.clip(scaled, -(1 << 15), (1 << 15) - 1).astype("<i2")
    return integers
