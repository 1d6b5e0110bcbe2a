"""Arithmetic of collective operations: merging of pieces, and the final division."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

MERGES: Final[Mapping[str, Callable[..., Any]]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}
"""Merge functions `merge(a, b, out=c)` by the name of a merge_op."""

NCCL_OPS: Final[Mapping[str, str]] = {
    "Add": "NCCL_SUM",
    "Mul": "NCCL_PROD",
    "Min": "NCCL_MIN",
    "Max": "NCCL_MAX",
}
"""NCCL's names of the merges."""


def divide(values: Any, count: int) -> None:
    """Divide an array, of the host or a GPU, in place; integers are rounded towards zero."""
    divisor = values.dtype.type(count)
    if values.dtype.kind not in "iu":
        values /= divisor
        return
    quotients = values // divisor
    quotients += (quotients * divisor != values) & (values < 0)
    values[...] = quotients
