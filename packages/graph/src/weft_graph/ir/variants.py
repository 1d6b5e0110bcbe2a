"""Elements of tensors of variants that are plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class RaggedVariant:
    """A ragged tensor, or a tensor, that is one element of a tensor of variants.

    Args:
      splits: of each level of rows, from the outermost.
      values: the innermost ones.
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
