"""The functions that programs call."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output


def hypot(x: Any, y: Any, name: str | None = None) -> Output:
    """sqrt(x² + y²), elementwise with broadcasting; floating."""
    return out("StrangerHypot", [x, y], name=name)


def diagonal(x: Any, name: str | None = None) -> Output:
    """The diagonal of a square matrix; floating, shape (N, N) to (N,)."""
    return out("StrangerDiagonal", [x], name=name)


def tally_add(tally: str, amount: Any, name: str | None = None) -> Output:
    """Add to the session's tally of that name; the new value, int64, shape ()."""
    return out("StrangerTallyAdd", [amount], {"tally": tally}, name)


def tally_get(tally: str, name: str | None = None) -> Output:
    """What the session's tally of that name is, int64, shape ()."""
    return out("StrangerTallyGet", [], {"tally": tally}, name)


def tally_await(tally: str, value: Any, name: str | None = None) -> Output:
    """Wait until the tally has reached `value`; what it is then, int64, shape ()."""
    return out("StrangerTallyAwait", [value], {"tally": tally}, name)
