"""Arrays and placeholders for tests of ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.node import Output
from weft_graph.ops import array
from weft_tensor import dtypes


def fed(*shape: int | None, dtype: Any = dtypes.float32) -> Output:
    """Return a placeholder of a shape."""
    return array.placeholder(dtype, shape)


def table(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return an array of 0, 1, 2 and so on."""
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
