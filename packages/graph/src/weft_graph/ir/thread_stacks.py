"""The stacks of default graphs and default sessions, one of each per thread.

This module does not depend on the class of graphs; `default_graph.py` does.
"""

from __future__ import annotations

__all__ = ["get_default_session"]

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from weft_tensor import errors

G = TypeVar("G")


class SessionProtocol(Protocol):
    """Interface of a session for `Output.eval` and `Node.run`."""

    @property
    def graph(self) -> Any:
        """The graph of the session."""
        ...

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Run one step."""
        ...


class _Stacks(threading.local):
    """A thread's stacks.

    Attributes:
      graphs, sessions: innermost last.
      bodies: number of nested function bodies under construction.
    """

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.sessions: list[SessionProtocol] = []
        self.bodies = 0


of_thread = _Stacks()


@contextmanager
def graph_as_default(graph: G) -> Iterator[G]:
    """Make `graph` this thread's default inside the block."""
    push_graph(graph)
    try:
        yield graph
    finally:
        pop_graph(graph)


def push_graph(graph: Any) -> None:
    """Make `graph` this thread's default until `pop_graph`."""
    of_thread.graphs.append(graph)


def pop_graph(graph: Any) -> None:
    """Undo `push_graph`.

    Raises: FailedPreconditionError: another graph is innermost.
    """
    _pop(of_thread.graphs, graph, "graphs")


def tracing_depth() -> int:
    """Return the number of nested function bodies under construction in this thread."""
    return of_thread.bodies


@contextmanager
def building_body(graph: Any) -> Iterator[None]:
    """Make a function's body the default graph, so that it captures outer values."""
    push_graph(graph)
    of_thread.bodies += 1
    try:
        yield
    finally:
        of_thread.bodies -= 1
        pop_graph(graph)


def get_default_session() -> Any:
    """Return the innermost session of this thread's `with session:`, or None.

    Examples:
      >>> with wf.Session() as session:
      ...     wf.get_default_session() is session
      True
    """
    return of_thread.sessions[-1] if of_thread.sessions else None


def push_session(session: SessionProtocol) -> None:
    """Make `session` this thread's default until `pop_session`."""
    of_thread.sessions.append(session)


def pop_session(session: SessionProtocol) -> None:
    """Undo `push_session`.

    Raises: FailedPreconditionError: another session is innermost.
    """
    _pop(of_thread.sessions, session, "sessions")


def _pop(stack: list[Any], item: Any, label: str) -> None:
    if not stack or stack[-1] is not item:
        raise errors.FailedPreconditionError(
            f"nesting violated: the default {label} must be left in the reverse order of entering"
        )
    stack.pop()


def drop(session: SessionProtocol, graph: Any) -> None:
    """Remove a session and its default graph from the stacks, at any position."""
    if session in of_thread.sessions:
        of_thread.sessions.remove(session)
    if graph is not None and graph in of_thread.graphs:
        of_thread.graphs.reverse()
        of_thread.graphs.remove(graph)
        of_thread.graphs.reverse()


class NoSessionError(errors.FailedPreconditionError, ValueError):
    """No session is available to run a node; a ValueError in TensorFlow.

    Args: as in OpError.
    """


def session_for(graph: Any, session: Any, call: str) -> SessionProtocol:
    """Return `session` or the default session, and check that its graph is `graph`.

    Raises:
      NoSessionError: there is neither.
      InvalidArgumentError: the session has another graph.
    """
    used_session: SessionProtocol | None = session or get_default_session()
    if used_session is None:
        raise NoSessionError(
            f"{call} needs a session: pass session=, or call it inside `with wf.Session():`"
        )
    if used_session.graph is not graph:
        raise errors.InvalidArgumentError(f"{call}: the session runs a different graph")
    return used_session
