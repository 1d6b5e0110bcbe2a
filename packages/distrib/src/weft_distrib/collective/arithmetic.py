"""What is done to pieces of tensors: merged, and divided in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

MERGES: Final[Mapping[str, Callable[..., Any]]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}
"""By the name of a merge_op: `merge(a, b, out=c)`."""


def divide(values: Array, count: int) -> None:
    """Divide in place; integers are rounded towards zero."""
    if values.dtype.kind not in "iu":
        values /= values.dtype.type(count)
        return
    quotients, rests = np.divmod(values, values.dtype.type(count))
    quotients += (rests != 0) & (values < 0)
    values[...] = quotients
