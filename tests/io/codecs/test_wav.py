"""WAV files, as the standard library reads them."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

from weft_io.codecs.wav import encode_wav
from weft_tensor import errors


def samples_of(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as file:
        shape = (file.getnframes(), file.getnchannels())
        return np.frombuffer(file.readframes(shape[0]), "<i2").reshape(shape)


def test_what_is_in_the_header() -> None:
    with wave.open(io.BytesIO(encode_wav(np.zeros((7, 2), np.float32), 22050))) as file:
        assert file.getparams()[:4] == (2, 2, 22050, 7)


def test_samples_are_rounded_away_from_zero_and_clipped() -> None:
    below_half = np.nextafter(np.float32(0.5), np.float32(0))
    units = np.array([0, 0.5, -0.5, 1.5, below_half, 100.4, 32768, -40000], np.float32)
    encoded = samples_of(encode_wav(units[:, np.newaxis] / 32768, 8000))
    assert encoded[:, 0].tolist() == [0, 1, -1, 2, 0, 100, 32767, -32768]


def test_what_is_not_finite() -> None:
    bad = np.array([[np.nan], [np.inf], [-np.inf]], np.float32)
    assert samples_of(encode_wav(bad, 1)).tolist() == [[0], [32767], [-32768]]


def test_no_frames() -> None:
    assert samples_of(encode_wav(np.zeros((0, 3), np.float32), 1)).shape == (0, 3)


@pytest.mark.parametrize(
    ("shape", "rate", "message"),
    [
        ((1, 0), 1, "channels must be"),
        ((0, 1 << 15), 1, "channels must be"),
        ((0, 2), 0, "rate of 0"),
        ((0, 2), 1 << 30, "rate of 1073741824"),
    ],
)
def test_what_the_format_cannot_say(shape: tuple[int, int], rate: int, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        encode_wav(np.zeros(shape, np.float32), rate)


def test_sounds_that_are_too_long() -> None:
    long = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1 << 31, 1), (0, 0))
    with pytest.raises(errors.InvalidArgumentError, match="4 GiB"):
        encode_wav(long, 1)
