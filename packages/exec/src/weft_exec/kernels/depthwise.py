"""Convolutions of each channel by itself on the host, all taps of a window in one pass.

`einsum` multiplies and adds in one loop, which is as long as the last axis. So pixels side by side
are taken together, with the weights of a tap once for each of them: a step of one pixel along a
row is a step of as many elements as there are channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from weft_exec.kernels.sliding import strided

Array = np.ndarray[Any, Any]
Sizes = tuple[int, ...]

_LONG: Final = 1024
"""Elements of an inner loop, from which on longer ones are no quicker."""


def fits(strides: Sizes, dilations: Sizes) -> bool:
    """Whether the taps of a row are side by side once pixels are sorted by the stride."""
    return strides[1] == 1 or dilations[1] == 1


def into(result: Array, x: Array, filters: Array, strides: Sizes, dilations: Sizes) -> None:
    """The convolution of images with all margins.

    Args:
      result: shape (N, H', W', C, M), in C order.
      x: shape (N, H, W, C), in C order.
      filters: shape (K, L, C, M).
      strides, dilations: along both axes, which fit.
    """
    batch, high, width, channels, multiplier = result.shape
    pixels = next((n for n in _divisors(width) if n * channels >= _LONG), width)
    shape = (batch, high, width // pixels, pixels * channels)
    for m in range(multiplier):
        direct = multiplier == 1
        total = result.reshape(shape) if direct else np.empty(shape, result.dtype)
        for phase in range(min(strides[1], filters.shape[1])):
            taps = filters[:, phase :: strides[1], :, m]
            weights = np.empty((*taps.shape[:2], pixels, channels), result.dtype)
            weights[...] = taps[:, :, None]
            seen = _windows(x, phase, shape, taps.shape, strides, dilations)
            flat = weights.reshape(*taps.shape[:2], -1)
            if phase:
                total += np.einsum("nhwkli,kli->nhwi", seen, flat)
            else:
                np.einsum("nhwkli,kli->nhwi", seen, flat, out=total)
        if not direct:
            result[..., m] = total.reshape(result.shape[:-1])


def _divisors(n: int) -> Iterator[int]:
    return (k for k in range(1, n + 1) if n % k == 0)


def _windows(
    x: Array, phase: int, shape: Sizes, taps: Sizes, strides: Sizes, dilations: Sizes
) -> Array:
    """What each tap sees, of every so many pixels: (N, H', blocks, K, L, elements)."""
    if strides[1] > 1:
        x = np.ascontiguousarray(x[:, :, phase :: strides[1]])
    # The strides of axes of one element may be anything.
    item = x.itemsize
    pixel = item * x.shape[3]
    row = pixel * x.shape[2]
    image = row * x.shape[1]
    block = shape[3] // x.shape[3] * pixel
    steps = (image, row * strides[0], block, row * dilations[0], pixel * dilations[1], item)
    seen: Array = strided(np, x, (*shape[:3], *taps[:2], shape[3]), steps)
    return seen
