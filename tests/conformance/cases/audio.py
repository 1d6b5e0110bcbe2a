"""Spectrograms and coefficients of mel bands, frame by frame and band by band."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw, normal, uniform


def _spectrogram(samples: Array, window: int, stride: int, squared: bool) -> Array:
    length = 2 ** int(np.ceil(np.log2(window)))
    hann = np.sin(np.pi * np.arange(window) / window) ** 2
    times = range(0, len(samples) - window + 1, stride)
    found = np.zeros((samples.shape[1], len(times), length // 2 + 1))
    for frame, at in enumerate(times):
        spectra = np.fft.fft(samples[at : at + window] * hann[:, None], length, axis=0)
        found[:, frame] = abs(spectra[: length // 2 + 1].T) ** (2 if squared else 1)
    return found


def _mfcc(
    spectrogram: Array, rate: Array, low: float = 20.0, high: float = 4000.0, bands: int = 40,
    kept: int = 13,
) -> Array:  # fmt: skip
    bins = spectrogram.shape[2]
    ends = np.linspace(np.log1p(low / 700), np.log1p(high / 700), bands + 2)
    width = float(rate) / 2 / (bins - 1)
    energies = np.zeros((*spectrogram.shape[:2], bands))
    for number in range(int(1.5 + low / width), min(int(high / width), bins - 1) + 1):
        at = np.log1p(number * width / 700)
        for band, (left, top, right) in enumerate(zip(ends, ends[1:], ends[2:], strict=False)):
            weight = min((at - left) / (top - left), (right - at) / (right - top))
            energies[..., band] += np.sqrt(spectrogram[..., number]) * max(weight, 0)
    logs = np.log(np.maximum(energies, 1e-12))
    angles = [[np.pi / bands * k * (j + 0.5) for j in range(bands)] for k in range(kept)]
    return np.asarray(np.sqrt(2 / bands) * logs @ np.cos(angles).T)


def _sound(window: int, stride: int, squared: bool) -> Case:
    return Case(
        "AudioSpectrogram",
        [normal(90, 2)],
        {"window_size": window, "stride": stride, "magnitude_squared": squared},
        partial(_spectrogram, window=window, stride=stride, squared=squared),
        dtypes=("float32",),
        type_attr="",
        label=f"{window}-{stride}-{squared}",
    )


def _bands(rate: int, label: str, options: dict[str, Any], attrs: dict[str, Any]) -> Case:
    return Case(
        "Mfcc",
        [uniform(0, 4, 2, 3, 33), Raw(np.int32(rate), constant=False)],
        attrs,
        partial(_mfcc, **options),
        dtypes=("float32",),
        type_attr="",
        tolerance={"float32": (1e-4, 1e-4)},
        label=label,
    )


CASES = [
    _sound(32, 16, True),
    _sound(20, 7, False),
    _sound(91, 1, True),
    _bands(16000, "speech", {}, {}),
    _bands(
        44100,
        "few",
        {"low": 200.0, "high": 6000.0, "bands": 6, "kept": 4},
        {
            "lower_frequency_limit": 200.0,
            "upper_frequency_limit": 6000.0,
            "filterbank_channel_count": 6,
            "dct_coefficient_count": 4,
        },
    ),
    _bands(4000, "beyond", {}, {}),
]
