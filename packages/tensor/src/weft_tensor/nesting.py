"""Nested Python values that are too deep for Python's stack, or contain themselves."""

from __future__ import annotations

import sys
from typing import Any

from weft_tensor.errors import InvalidArgumentError


def shown(value: Any) -> str:
    """The `repr` of a value for a message, or its type where it is nested too deep for that."""
    try:
        return repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deep to be shown"


def too_deep(value: Any) -> InvalidArgumentError:
    """The error of who walked a nested value and met a RecursionError.

    Whoever walks catches that at each level: only somewhere up there is room to make an error.
    """
    return InvalidArgumentError(
        "a structure may be nested as deep as Python's stack allows, which is "
        f"{sys.getrecursionlimit()} calls; got a {type(value).__name__} that is nested deeper, or "
        "contains itself"
    )
