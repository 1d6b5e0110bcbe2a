"""Sessions as users open them: `Session` and `InteractiveSession`."""

from __future__ import annotations

from typing import Any

from weft_exec.session.base import BaseSession
from weft_graph.ir import thread_stacks
from weft_graph.ir.graph import Graph
from weft_tensor import errors

__all__ = ["InteractiveSession", "Session"]


class Session(BaseSession):
    """Runs a graph: places its nodes on devices and executes steps.

    `run` executes one step; `make_callable` returns a function for a step that runs often. Inside a
    `with` block, it is the default session and its graph is the default graph. The end of the block
    closes it.

    Args:
      target: "" for this process alone; `inproc://name` to share variables and queues with other
        sessions of the process on the same name.
      graph: the graph to run; the default graph by default.
      config: a ConfigProto, such as `wf.ConfigProto(allow_soft_placement=True)`.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None], name="x")
      >>> total = wf.reduce_sum(2.0 * x)
      >>> with wf.Session() as session:
      ...     session.run(total, {x: [1.0, 2.0, 3.0]})
      np.float32(12.0)
    """

    def __enter__(self) -> Session:
        if self._is_entered:
            raise errors.FailedPreconditionError("the session is already in use by a `with` block")
        self._is_entered = True
        self._graph_scope = self._graph.as_default()
        self._graph_scope.__enter__()
        thread_stacks.push_session(self)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._is_entered = False
        thread_stacks.pop_session(self)
        self._graph_scope.__exit__(None, None, None)
        self.close()

    def as_default(self) -> Any:
        """Make this the default session inside a block, which does not close it."""
        return _default(self)


class _default:  # noqa: N801 - a context manager used as a function
    def __init__(self, session: BaseSession) -> None:
        self._session = session

    def __enter__(self) -> BaseSession:
        thread_stacks.push_session(self._session)
        return self._session

    def __exit__(self, *_: Any) -> None:
        thread_stacks.pop_session(self._session)


class InteractiveSession(BaseSession):
    """A session that becomes the default session when it is created.

    Args:
      target: as for `Session`.
      graph: the graph to run; it becomes the default graph. The default graph by default.
      config: a ConfigProto.

    Examples:
      >>> session = wf.InteractiveSession()
      >>> wf.constant(3.0).eval()
      np.float32(3.0)
      >>> session.close()
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._private_graph = graph
        if graph is not None:
            thread_stacks.push_graph(graph)
        thread_stacks.push_session(self)

    def close(self) -> None:
        """Close the session and remove it from the stack of default sessions."""
        if not self._closed:
            thread_stacks.drop(self, self._private_graph)
        super().close()
