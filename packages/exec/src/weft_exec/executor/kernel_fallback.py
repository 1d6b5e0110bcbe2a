"""Results of a compiled function that request that kernels run instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class KernelFallback:
    """Result of a function that requests to run its members with kernels; it receives their time.

    Attributes:
      skips: the number of later calls that run with kernels without calling the function.
    """

    __slots__ = ("skips",)

    def __init__(self) -> None:
        self.skips = 0

    def record_time(self, seconds: float, iterations: int = 1) -> None:
        """Record the time of the members in seconds, and the iterations if they are a loop."""
        raise NotImplementedError


class ComparisonRequest:
    """Result of a loop's function that requests to run its kernels and to compare the results."""

    __slots__ = ()

    def compare(self, values: Sequence[Any]) -> None:
        """Compare the final values of the loop's variables.

        Raises: InternalError: a value differs.
        """
        raise NotImplementedError
