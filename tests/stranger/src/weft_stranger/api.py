"""The functions that programs call."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output


def hypot(x: Any, y: Any, name: str | None = None) -> Output:
    """Compute sqrt(x² + y²), elementwise with broadcasting; floating."""
    return out("StrangerHypot", [x, y], name=name)


def diagonal(x: Any, name: str | None = None) -> Output:
    """Return the diagonal of a square matrix; floating, shape (N, N) to (N,)."""
    return out("StrangerDiagonal", [x], name=name)


def tally_add(tally: str, amount: Any, name: str | None = None) -> Output:
    """Add to the session's tally of a name; return the new value, int64, shape ()."""
    return out("StrangerTallyAdd", [amount], {"tally": tally}, name)


def tally_get(tally: str, name: str | None = None) -> Output:
    """Return the session's tally of a name, int64, shape ()."""
    return out("StrangerTallyGet", [], {"tally": tally}, name)


def tally_await(tally: str, value: Any, name: str | None = None) -> Output:
    """Wait until the tally has reached `value`; return the tally, int64, shape ()."""
    return out("StrangerTallyAwait", [value], {"tally": tally}, name)
