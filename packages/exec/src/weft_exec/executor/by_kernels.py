"""What a compiled function says where kernels should run in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ByKernels:
    """What a function gives to have the members run one by one, and be told how long that took.

    Attributes:
      skips: how many times after that they are to run so without asking the function.
    """

    __slots__ = ("skips",)

    def __init__(self) -> None:
        self.skips = 0

    def took(self, seconds: float) -> None:
        """Note how long the members took."""
        raise NotImplementedError


class ToCompare:
    """What a function of a loop gives to have its kernels run, and what they give compared."""

    __slots__ = ()

    def compare(self, values: Sequence[Any]) -> None:
        """Compare the last values of the loop's variables.

        Raises: InternalError: something differs.
        """
        raise NotImplementedError
