"""Messages about Python values that are nested too deeply or contain themselves."""

from __future__ import annotations

import sys
from typing import Any

from weft_tensor.errors import InvalidArgumentError


def format_value(value: Any) -> str:
    """Return the `repr` of a value for a message, or its type if it is nested too deep for that."""
    try:
        return repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deep to be shown"


def too_deep_error(value: Any) -> InvalidArgumentError:
    """Return the error for a nested value whose traversal raised RecursionError.

    The traversal catches it at each level, because only the outer levels have enough stack left to
    build a message.
    """
    return InvalidArgumentError(
        "a structure must not be nested deeper than Python's recursion limit of "
        f"{sys.getrecursionlimit()} calls; got a {type(value).__name__} that is deeper or "
        "contains itself"
    )
