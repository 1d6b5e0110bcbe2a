"""A segment tree for range additions and range maxima."""

from __future__ import annotations

import math
from collections.abc import Sequence


class MaxTree:
    """A sequence of numbers with range additions and range maxima in logarithmic time."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._size = 1 << max(0, len(numbers) - 1).bit_length()
        self._maxima = [0] * (2 * self._size)
        self._pending_additions = [0] * (2 * self._size)
        self._maxima[self._size : self._size + len(numbers)] = numbers
        for i in range(self._size - 1, 0, -1):
            self._maxima[i] = max(self._maxima[2 * i], self._maxima[2 * i + 1])

    def add(self, begin: int, end: int, number: int) -> None:
        """Add a number to all elements at [begin, end)."""
        self._add(1, 0, self._size, begin, end, number)

    def _add(self, i: int, low: int, high: int, begin: int, end: int, number: int) -> None:
        if end <= low or high <= begin:
            return
        if begin <= low and high <= end:
            self._maxima[i] += number
            self._pending_additions[i] += number
            return
        middle = (low + high) // 2
        self._add(2 * i, low, middle, begin, end, number)
        self._add(2 * i + 1, middle, high, begin, end, number)
        self._maxima[i] = self._pending_additions[i] + max(
            self._maxima[2 * i], self._maxima[2 * i + 1]
        )

    def largest(self, begin: int, end: int) -> int:
        """Return the largest element at [begin, end), but at least 0; 0 for an empty range."""
        return int(max(0, self._largest(1, 0, self._size, begin, end)))

    def _largest(self, i: int, low: int, high: int, begin: int, end: int) -> float:
        if end <= low or high <= begin:
            return -math.inf
        if begin <= low and high <= end:
            return self._maxima[i]
        middle = (low + high) // 2
        left = self._largest(2 * i, low, middle, begin, end)
        right = self._largest(2 * i + 1, middle, high, begin, end)
        return self._pending_additions[i] + max(left, right)
