"""Linear functions of a size, and the comparison of numbers that they yield."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearFunction:
    """The linear function slope·n + offset; the slope of a constant number is 0."""

    slope: int
    offset: int | float

    def at(self, size: int) -> int | float:
        """Return the number for a size."""
        return self.slope * size + self.offset if self.slope else self.offset

    @classmethod
    def through(cls, x: float, y: float, first: int, second: int) -> LinearFunction | None:
        """Return the line through two numbers at two sizes; None if its slope is not an integer."""
        if is_same(x, y):
            return cls(0, x)
        if not (math.isfinite(x) and math.isfinite(y)):
            return None
        if x != int(x) or y != int(y) or (y - x) % (second - first):
            return None
        slope = int(y - x) // (second - first)
        return cls(slope, int(x) - slope * first)


def is_same(x: float, y: float) -> bool:
    """Return True if two numbers are identical: signed zeros differ, NaN equals itself."""
    return (x == y and math.copysign(1, x) == math.copysign(1, y)) or (x != x and y != y)
