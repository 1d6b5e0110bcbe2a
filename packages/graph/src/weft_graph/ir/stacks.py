"""The stacks of default graphs and default sessions, one of each per thread."""

from __future__ import annotations

__all__ = ["get_default_graph", "get_default_session", "reset_default_graph"]

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph


class SessionProtocol(Protocol):
    """What a session must offer for `Output.eval` and `Node.run`."""

    @property
    def graph(self) -> Graph:
        """The graph it runs."""
        ...

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Run one step."""
        ...


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.sessions: list[SessionProtocol] = []
        self.bodies = 0


_stacks = _Stacks()
_global_graph: Graph | None = None
_lock = threading.Lock()


def get_default_graph() -> Graph:
    """The innermost graph of this thread's `with graph.as_default()`, or the process's own."""
    graphs = _stacks.graphs
    return graphs[-1] if graphs else _process_graph()


def _process_graph() -> Graph:
    global _global_graph
    if _global_graph is None:
        from weft_graph.ir.graph import Graph

        with _lock:
            if _global_graph is None:
                _global_graph = Graph()
    return _global_graph


def reset_default_graph() -> None:
    """Replace the process's default graph by an empty one.

    Raises: FailedPreconditionError: called inside `with graph.as_default()`.
    """
    global _global_graph
    if _stacks.graphs:
        raise errors.FailedPreconditionError(
            "reset_default_graph needs the process's own graph to be the default one, "
            "but it was called inside `with graph.as_default():`"
        )
    _global_graph = None


@contextmanager
def graph_as_default(graph: Graph) -> Iterator[Graph]:
    """Make `graph` this thread's default inside the block."""
    push_graph(graph)
    try:
        yield graph
    finally:
        pop_graph(graph)


def push_graph(graph: Graph) -> None:
    """Make `graph` this thread's default until `pop_graph`."""
    _stacks.graphs.append(graph)


def pop_graph(graph: Graph) -> None:
    """Undo `push_graph`.

    Raises: FailedPreconditionError: another graph is innermost.
    """
    _pop(_stacks.graphs, graph, "graphs")


def tracing() -> int:
    """How many bodies of functions this thread is building, one inside the other."""
    return _stacks.bodies


@contextmanager
def building_body(graph: Graph) -> Iterator[None]:
    """Make the body of a function the default graph; what it uses from outside is captured."""
    push_graph(graph)
    _stacks.bodies += 1
    try:
        yield
    finally:
        _stacks.bodies -= 1
        pop_graph(graph)


def graph_for(value: Any) -> Graph:
    """The graph of nodes that use `value`: the body of a function that is built, else its own."""
    graph: Graph = get_default_graph() if _stacks.bodies else value.graph
    return graph


def get_default_session() -> Any:
    """The innermost session of this thread's `with session:`, or None."""
    return _stacks.sessions[-1] if _stacks.sessions else None


def push_session(session: SessionProtocol) -> None:
    """Make `session` this thread's default until `pop_session`."""
    _stacks.sessions.append(session)


def pop_session(session: SessionProtocol) -> None:
    """Undo `push_session`.

    Raises: FailedPreconditionError: another session is innermost.
    """
    _pop(_stacks.sessions, session, "sessions")


def _pop(stack: list[Any], item: Any, what: str) -> None:
    if not stack or stack[-1] is not item:
        raise errors.FailedPreconditionError(
            f"nesting violated: the default {what} must be left in the reverse order of entering"
        )
    stack.pop()


def drop(session: SessionProtocol, graph: Graph | None) -> None:
    """Take a session, and the graph it made the default, off the stacks wherever they are."""
    if session in _stacks.sessions:
        _stacks.sessions.remove(session)
    if graph is not None and graph in _stacks.graphs:
        _stacks.graphs.reverse()
        _stacks.graphs.remove(graph)
        _stacks.graphs.reverse()


def session_for(graph: Graph, session: Any, call: str) -> SessionProtocol:
    """`session` or the default one, checked to run `graph`.

    Raises:
      FailedPreconditionError: there is neither.
      InvalidArgumentError: it runs another graph.
    """
    chosen: SessionProtocol | None = session or get_default_session()
    if chosen is None:
        raise errors.FailedPreconditionError(
            f"{call} needs a session: pass session=, or call it inside `with wf.Session():`"
        )
    if chosen.graph is not graph:
        raise errors.InvalidArgumentError(f"{call}: the session runs a different graph")
    return chosen
