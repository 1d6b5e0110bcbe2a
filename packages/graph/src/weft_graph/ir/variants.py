"""Plain data types that can be elements of variant tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class RaggedVariant:
    """A ragged tensor or a tensor as one element of a variant tensor.

    Args:
      splits: row splits of each ragged dimension, from the outermost.
      values: the flat values.
    """

    __slots__ = ("splits", "values")

    def __init__(self, splits: list[Array], values: Array) -> None:
        self.splits = splits
        self.values = values


class TensorVariant:
    """An array as one element of a variant tensor, such as a part of a sparse tensor."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array
