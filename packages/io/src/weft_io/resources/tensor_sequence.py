"""Sequences of tensors."""

from __future__ import annotations

__all__ = ["TensorSequence"]

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


class TensorSequence:
    """A sequence of tensors of the same element type, as a graph value.

    Args:
      values: arrays, or values that can be converted to them; text as bytes.

    Examples:
      >>> from weft_io.onnx import TensorSequence
      >>> [value.tolist() for value in TensorSequence([[1, 2], [3]])]
      [[1, 2], [3]]
    """

    __slots__ = ("values",)

    shape: tuple[int, ...] = ()
    ndim = 0

    def __init__(self, values: Iterable[Any]) -> None:
        self.values: tuple[Any, ...] = tuple([np.asarray(value) for value in values])

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, index: Any) -> Any:
        """Return a tensor; for the index `()`, the sequence itself, like any value of rank 0."""
        return self if index == () else self.values[index]

    def __repr__(self) -> str:
        return f"TensorSequence({list(self.values)!r})"
