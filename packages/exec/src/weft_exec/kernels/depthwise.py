"""Depthwise convolutions on the host, with all taps of a window in one pass.

`einsum` multiplies and adds in one inner loop over the last axis. To make it longer, adjacent
pixels of a row are merged with the channels, and the weights of a tap are repeated for each pixel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from weft_exec.kernels.window_functions import as_strided

Array = np.ndarray[Any, Any]
Sizes = tuple[int, ...]

_LONG: Final = 1024
"""Length of an inner loop above which longer loops are not faster."""


class SinglePassConvolution:
    """A convolution over all taps in one pass.

    Args:
      strides, dilations: strides and dilations of both axes.

    Attributes:
      fits: True if one pass is possible: the taps of a row must be adjacent once pixels are grouped
        by the phase of the stride.
    """

    __slots__ = ("_dilations", "_last", "_strides", "fits")

    def __init__(self, strides: Sizes, dilations: Sizes) -> None:
        self._strides, self._dilations = strides, dilations
        self._last: tuple[Array, int, list[Array]] | None = None
        self.fits: bool = strides[1] == 1 or dilations[1] == 1

    def convolve_into(self, result: Array, x: Array, filters: Array) -> None:
        """Store the convolution of padded images in `result`.

        Args:
          result: shape (N, H', W', C, M), in C order.
          x: shape (N, H, W, C), in C order.
          filters: shape (K, L, C, M).
        """
        batch, high, width, channels, multiplier = result.shape
        pixels = next((n for n in _divisors(width) if n * channels >= _LONG), width)
        shape = (batch, high, width // pixels, pixels * channels)
        weights = self._weights(filters, pixels)
        windows = [
            _windows(x, phase, shape, taps.shape[1:], self._strides, self._dilations)
            for phase, taps in enumerate(weights)
        ]
        direct = multiplier == 1
        for m in range(multiplier):
            total = result.reshape(shape) if direct else np.empty(shape, result.dtype)
            for phase, taps in enumerate(weights):
                if phase:
                    total += np.einsum("nhwkli,kli->nhwi", windows[phase], taps[m])
                else:
                    np.einsum("nhwkli,kli->nhwi", windows[phase], taps[m], out=total)
            if not direct:
                result[..., m] = total.reshape(result.shape[:-1])

    def _weights(self, filters: Array, pixels: int) -> list[Array]:
        """Return the weights for each phase, (M, K, taps, pixels * C); cached for constants."""
        last = self._last
        if last is not None and last[0] is filters and last[1] == pixels:
            return last[2]
        high, width, channels, multiplier = filters.shape
        result = []
        for phase in range(min(self._strides[1], width)):
            taps = filters[:, phase :: self._strides[1]].transpose(3, 0, 1, 2)
            weights = np.empty((multiplier, high, taps.shape[2], pixels, channels), filters.dtype)
            weights[...] = taps[..., None, :]
            result.append(weights.reshape(*taps.shape[:3], pixels * channels))
        if not filters.flags.writeable:
            self._last = (filters, pixels, result)
        return result


def _divisors(n: int) -> Iterator[int]:
    return (k for k in range(1, n + 1) if n % k == 0)


def _windows(
    x: Array, phase: int, shape: Sizes, taps: Sizes, strides: Sizes, dilations: Sizes
) -> Array:
    """Return the inputs of each tap, for groups of pixels: (N, H', blocks, K, L, elements)."""
    if strides[1] > 1:
        x = np.ascontiguousarray(x[:, :, phase :: strides[1]])
    # The strides of axes of one element are arbitrary.
    item = x.itemsize
    pixel = item * x.shape[3]
    row = pixel * x.shape[2]
    image = row * x.shape[1]
    block = shape[3] // x.shape[3] * pixel
    steps = (image, row * strides[0], block, row * dilations[0], pixel * dilations[1], item)
    result: Array = as_strided(np, x, (*shape[:3], *taps[:2], shape[3]), steps)
    return result
