"""Windows along one axis, as shifted arrays that are as long as the whole input.

NumPy's inner loops are as long as the last axis, so with few channels, processing windows tap by
tap would take many short loops. Instead, positions that are a stride apart are first copied side by
side; each such copy is a phase. Tap t of all windows is then phase t % stride, shifted by t //
stride positions, and one call processes all windows. Rows are padded, so that shifts past their end
only affect unused results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

SHORT: Final = 32
"""Maximum length of a run for which this is faster than views of the input."""


class Phases:
    """Windows along the middle one of three axes.

    Args:
      size: size of the axis.
      taps: number of taps of a window.
      stride: the distance between windows.
      before: the number of positions of the first window that are before the input.
      count: the number of windows.

    Attributes:
      width: the number of windows of a row, including unused ones.
    """

    __slots__ = ("_leading", "_size", "_stride", "_taps", "width")

    def __init__(self, size: int, taps: int, stride: int, before: int, count: int) -> None:
        self._size, self._taps, self._stride, self._leading = size, taps, stride, before
        self.width = count + (taps - 1) // stride

    def split(self, x: Array, fill: Any) -> list[Array]:
        """Return the phases of `x`, shape (rows, size, run), flattened and padded with `fill`."""
        rows, _, run = x.shape
        return [self._phase(x, p, fill, rows, run) for p in range(min(self._stride, self._taps))]

    def _phase(self, x: Array, phase: int, fill: Any, rows: int, run: int) -> Array:
        """Return a phase, whose index j is position j * stride + phase - before."""
        shift = phase - self._leading
        low = max(0, -(shift // self._stride))
        high = max(low, min(self.width, (self._size - 1 - shift) // self._stride + 1))
        result = np.empty((rows, self.width, run), x.dtype)
        result[:, :low] = fill
        result[:, high:] = fill
        start = low * self._stride + shift
        result[:, low:high] = x[:, start : start + (high - low) * self._stride : self._stride]
        return result.reshape(-1)

    def iterate_taps(self, phases: list[Array], run: int) -> Iterator[Array]:
        """Yield for each tap an array with the inputs of all windows."""
        length = len(phases[0]) - (self._taps - 1) // self._stride * run
        for tap in range(self._taps):
            start = tap // self._stride * run
            yield phases[tap % self._stride][start : start + length]


def lowest_value(dtype: np.dtype[Any]) -> Any:
    """Return the lowest value of a type."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def fold(
    phases: Phases, x: Array, function: Callable[..., Any], fill: Any, block: int
) -> Iterator[tuple[slice, Array]]:
    """Apply `function` over each window, block by block.

    Args:
      x: shape (rows, size, run), in C order.
      fill: the neutral element of `function`.
      block: the number of bytes of `x` in a block.
    Yields: a slice of rows, and their results, shape (rows, width, run).
    """
    rows, _, run = x.shape
    step = max(1, block * rows // max(x.nbytes, 1))
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        first, *remaining = phases.iterate_taps(phases.split(x[part], fill), run)
        total = np.empty((part.stop - start) * phases.width * run, x.dtype)
        folded = total[: len(first)]
        if not remaining:
            folded[...] = first
        for index, window in enumerate(remaining):
            function(folded if index else first, window, out=folded)
        yield part, total.reshape(-1, phases.width, run)


def window_maxima(
    phases: Phases, x: Array, codes: Array | None, step: int, code: np.dtype[Any]
) -> tuple[Array, Array]:
    """Return the maximum of each window, and the code of its first position.

    Args:
      x: shape (rows, size, run), in C order, without NaNs.
      codes: the code of each element of `x`, below `step`; None if all are 0.
      step: the increment of the code for each tap.
      code: the element type of codes.
    Returns: the maxima and the codes, both of shape (rows, width, run).
    """
    rows, _, run = x.shape
    taps = phases.iterate_taps(phases.split(x, lowest_value(x.dtype)), run)
    marks = None if codes is None else phases.iterate_taps(phases.split(codes, 0), run)
    shape = (rows, phases.width, run)
    best, argmax = np.empty(prod(shape), x.dtype), np.zeros(prod(shape), code)
    better: Array = np.empty(0)
    for tap, values in enumerate(taps):
        top, result = best[: len(values)], argmax[: len(values)]
        mark = None if marks is None else next(marks)
        if not tap:
            np.copyto(top, values)
            if mark is not None:
                np.copyto(result, mark)
            better = np.empty(len(values), np.bool_)
            continue
        np.greater(values, top, out=better)
        np.maximum(values, top, out=top)
        # Codes of a later tap are larger than all earlier ones.
        candidate = code.type(tap * step) if mark is None else np.add(mark, code.type(tap * step))
        np.maximum(result, np.multiply(better.view(np.uint8), candidate, dtype=code), out=result)
    return best.reshape(shape), argmax.reshape(shape)
