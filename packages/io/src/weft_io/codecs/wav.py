"""WAV files: 16-bit integers, little-endian, uncompressed."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from weft_tensor import errors

Array = np.ndarray[Any, Any]

_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_MAX_BYTES: Final = (1 << 32) - 1


def encode_wav(samples: Array, rate: int) -> bytes:
    """Encode samples as a WAV file.

    Args:
      samples: float32 from -1 to 1, shape (frames, channels); values outside are clipped, NaN
        becomes silence.
      rate: frames per second.
    Raises: InvalidArgumentError: a number is zero, or does not fit into the fields of the format.
    """
    frames, channels = samples.shape
    data, frame = frames * channels * 2, channels * 2
    if not 0 < channels < 1 << 15:
        raise errors.InvalidArgumentError(f"channels must be from 1 to 32767, got {channels}")
    if not 0 < rate * frame <= _MAX_BYTES:
        raise errors.InvalidArgumentError(
            f"{channels} channels at a rate of {rate} do not fit into a WAV file"
        )
    if data + _HEADER.size - 8 > _MAX_BYTES:
        raise errors.InvalidArgumentError(
            f"{frames} frames of {channels} channels do not fit into a WAV file (4 GiB at most)"
        )
    header = _HEADER.pack(
        *(b"RIFF", data + _HEADER.size - 8, b"WAVE"),
        *(b"fmt ", 16, 1, channels, rate, rate * frame, frame, 16),
        *(b"data", data),
    )
    return header + _integers(samples).tobytes()


def decode_wav(data: bytes, channels: int = -1, frames: int = -1) -> tuple[Array, int]:
    """Decode a WAV file of 16-bit integers; return its samples and its rate.

    Args:
      channels, frames: requested numbers; negative for the file's. Missing channels repeat the last
        one, missing frames are silent.
    Returns: float32 from -1 to 1, shape (frames, channels); and frames per second.
    Raises: InvalidArgumentError: the bytes cannot be decoded.
    """
    samples, rate = _read(data)
    num_samples, num_channels = samples.shape
    count = num_samples if frames < 0 else frames
    width = num_channels if channels < 0 else channels
    result = np.zeros((count, width), np.float32)
    part = samples[:count, np.minimum(np.arange(width), num_channels - 1)]
    np.divide(part, np.float32(1 << 15), out=result[: len(part)], dtype=np.float32)
    return result, rate


def _read(data: bytes) -> tuple[Array, int]:
    """Return the integers, shape (frames, channels), and the rate."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _invalid_error(f"it starts with {data[:12]!r}")
    described: tuple[int, ...] | None = None
    index = 12
    while index + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, index)
        body = data[index + 8 : index + 8 + size]
        if kind == b"fmt ":
            if len(body) < 16:
                raise _invalid_error(f"its format has {len(body)} bytes")
            described = struct.unpack_from("<HHIIHH", body)
            _check_format(*described)
        elif kind == b"data":
            if described is None:
                raise _invalid_error("its samples come before their format")
            if len(body) < size:
                raise _invalid_error(
                    f"{size} bytes of samples are declared, but only {len(body)} are present"
                )
            frame = 2 * described[1]
            frames = body[: len(body) // frame * frame]
            return np.frombuffer(frames, "<i2").reshape(-1, described[1]), described[2]
        index += 8 + size + size % 2
    raise _invalid_error("it has no samples")


def _check_format(
    coding: int, channels: int, rate: int, byte_rate: int, frame: int, bits: int
) -> None:
    if coding not in (1, 0xFFFE) or bits != 16:
        raise _invalid_error(
            f"only 16-bit integers are supported, got coding {coding} of {bits} bits"
        )
    if not channels or not rate or frame != 2 * channels or byte_rate != rate * frame:
        raise _invalid_error(
            f"{channels} channels at {rate} do not fit {frame} bytes a frame, {byte_rate} a second"
        )


def _invalid_error(reason: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"not a WAV file that can be decoded: {reason}")


def _integers(samples: Array) -> Array:
    """Round to the nearest integer, halves away from zero; float64 makes the halves exact."""
    scaled = samples.astype(np.float64) * (1 << 15)
    scaled = np.trunc(scaled + np.copysign(0.5, scaled))
    scaled[np.isnan(scaled)] = 0
    integers: Array = np.clip(scaled, -(1 << 15), (1 << 15) - 1).astype("<i2")
    return integers
