"""Kernels of spectrograms and mel-frequency cepstral coefficients, computed in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

_FLOOR = 1e-12
"""The minimum energy of a band, so that its logarithm is finite."""


@kernel("AudioSpectrogram", heavy=True)
def _spectrogram(node: Node, device: Device) -> KernelFunction:
    window, stride = node.attrs["window_size"], node.attrs["stride"]
    squared, length = node.attrs["magnitude_squared"], 1 << (window - 1).bit_length()

    def run(samples: Array) -> Array:
        if samples.ndim != 2:
            raise errors.InvalidArgumentError(
                "AudioSpectrogram requires samples of shape [samples, channels], got "
                f"{format_dims(samples.shape)}"
            )
        if len(samples) < window:
            return np.zeros((samples.shape[1], 0, length // 2 + 1), np.float32)
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
        frames = np.lib.stride_tricks.sliding_window_view(samples.T, window, 1)[:, ::stride]
        spectra = np.fft.rfft(frames * hann, length)
        result = spectra.real**2 + spectra.imag**2
        return (result if squared else np.sqrt(result)).astype(np.float32)

    return run


def _mel(frequency: Any) -> Any:
    return 1127 * np.log1p(frequency / 700)


def _bands(bins: int, rate: float, low: float, high: float, count: int) -> Array:
    """Return the weight of each bin in each band, (bins, count): overlapping triangles."""
    middles = _mel(low) + (_mel(high) - _mel(low)) / (count + 1) * np.arange(count + 2)
    width = 0.5 * rate / (bins - 1)
    # The first bin has no frequency of its own.
    numbers = np.arange(int(1.5 + low / width), min(int(high / width), bins - 1) + 1)
    mels = _mel(numbers * width)
    band = np.clip(np.searchsorted(middles[1:], mels), 0, count)
    share = (middles[band + 1] - mels) / (middles[band + 1] - middles[band])
    result = np.zeros((bins, count + 2))  # with margins below the first band and above the last
    result[numbers, band] = share
    result[numbers, band + 1] = 1 - share
    return result[:, 1:-1]


@kernel("Mfcc", heavy=True)
def _mfcc(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    low, high = attrs["lower_frequency_limit"], attrs["upper_frequency_limit"]
    count, num_coefficients = attrs["filterbank_channel_count"], attrs["dct_coefficient_count"]
    cosines = np.cos(np.pi / count * np.outer(np.arange(count) + 0.5, np.arange(num_coefficients)))
    cosines *= np.sqrt(2 / count)

    def run(spectrogram: Array, rate: Array) -> Any:
        if spectrogram.ndim != 3 or spectrogram.shape[2] < 2 or np.shape(rate):
            raise errors.InvalidArgumentError(
                "Mfcc requires a spectrogram of shape [channels, frames, 2 bins or more] and one "
                f"sample_rate, got {format_dims(spectrogram.shape)} and "
                f"{format_dims(np.shape(rate))}"
            )
        if not (rate > 0 and 0 <= low < high):
            raise errors.InvalidArgumentError(
                "Mfcc requires a positive sample_rate and frequency limits with 0 <= lower < "
                f"upper, got {rate}, {low} and {high}"
            )
        bands = _bands(spectrogram.shape[2], float(rate), low, high, count)
        energies = np.sqrt(spectrogram.astype(np.float64)) @ bands
        return (np.log(np.maximum(energies, _FLOOR)) @ cosines).astype(np.float32)

    return run
