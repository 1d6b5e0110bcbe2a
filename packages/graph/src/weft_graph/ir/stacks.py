"""The default graph: the innermost one of this thread, or the process's own."""

from __future__ import annotations

__all__ = ["get_default_graph", "reset_default_graph"]

import threading
from typing import Any

from weft_graph.ir.defaults import of_thread
from weft_graph.ir.graph import Graph
from weft_tensor import errors

_global_graph: Graph | None = None
_lock = threading.Lock()


def get_default_graph() -> Graph:
    """The innermost graph of this thread's `with graph.as_default()`, or the process's own.

    Examples:
      >>> wf.get_default_graph() is wf.constant(1.0).graph
      True
    """
    graphs: list[Graph] = of_thread.graphs
    return graphs[-1] if graphs else _process_graph()


def _process_graph() -> Graph:
    global _global_graph
    if _global_graph is None:
        with _lock:
            if _global_graph is None:
                _global_graph = Graph()
    return _global_graph


def reset_default_graph() -> None:
    """Replace the process's default graph by an empty one.

    Raises: FailedPreconditionError: called inside `with graph.as_default()`.
    """
    global _global_graph
    if of_thread.graphs:
        raise errors.FailedPreconditionError(
            "reset_default_graph needs the process's own graph to be the default one, "
            "but it was called inside `with graph.as_default():`"
        )
    _global_graph = None


def graph_for(value: Any) -> Graph:
    """The graph of nodes that use `value`: the body of a function that is built, else its own."""
    graph: Graph = get_default_graph() if of_thread.bodies else value.graph
    return graph
