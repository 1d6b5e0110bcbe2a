"""The name scope of a composition."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from weft_graph.ir.default_graph import get_default_graph


def scope(name: str | None, default: str) -> AbstractContextManager[str]:
    """Open the name scope `name`, or `default`; yields it with its closing slash."""
    return get_default_graph().name_scope(name or default)


def static_number(value: Any) -> float | None:
    """Return a Python or NumPy number as a float, or None for graph values."""
    if isinstance(value, bool | int | float):
        return float(value)
    if hasattr(value, "dtype") and hasattr(value, "item") and not hasattr(value, "graph"):
        return float(value)
    return None
