"""Results by which a compiled function requests its fallback: kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ByKernels:
    """Returned by a function to run its members by kernels and receive their time.

    Attributes:
      skips: number of later calls that run as kernels without calling the function.
    """

    __slots__ = ("skips",)

    def __init__(self) -> None:
        self.skips = 0

    def took(self, seconds: float) -> None:
        """Record the seconds that the members took."""
        raise NotImplementedError


class ToCompare:
    """Returned by a loop's function to run its kernels and compare the results."""

    __slots__ = ()

    def compare(self, values: Sequence[Any]) -> None:
        """Compare the final values of the loop's variables.

        Raises: InternalError: a value differs.
        """
        raise NotImplementedError
