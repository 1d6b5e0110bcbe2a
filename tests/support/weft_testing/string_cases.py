"""String values and cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_testing.cases import UNTYPED, Array, Case, Raw


def text(values: Any) -> Array:
    """Convert bytes, or nested lists of them, to an array of objects."""
    shape: list[int] = []
    probe = values
    while isinstance(probe, list):
        shape.append(len(probe))
        probe = probe[0] if probe else None
    result = np.empty(shape, object)
    if not shape:
        result[()] = values
    else:
        flat = np.ravel(np.array(values, object)).tolist()
        result.reshape(-1)[:] = flat
    return result


def words(values: Any) -> Raw:
    return Raw(text(values), "string")


def string_case(
    op: str,
    inputs: Sequence[Any],
    expected: Any,
    attrs: dict[str, Any] | None = None,
    label: str = "",
    static: bool = True,
) -> Case:
    """Return a case whose expected value is independent of the inputs' shapes."""
    function: Callable[..., Any] = expected if callable(expected) else lambda *_: expected
    return Case(op, inputs, attrs, function, dtypes=UNTYPED, label=label, grad=False, static=static)
