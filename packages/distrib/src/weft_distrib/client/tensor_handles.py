"""The values that tasks keep for a session between its steps."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from weft_exec.executor.runner import closed_error
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ops.session_handles import delete_session_tensor, get_session_tensor
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.session.base import BaseSession
    from weft_tensor.dtypes import DType


class RemoteTensors:
    """The values that one session keeps, like `SessionTensors`; its steps read and delete them.

    The nodes of these steps are added to the session's graph, once for each device that keeps
    values.

    Args:
      session: the session, which is only weakly referenced.
    """

    def __init__(self, session: BaseSession) -> None:
        self._session = weakref.ref(session)
        self._lock = threading.Lock()
        self._getters: dict[tuple[str, DType], tuple[Output, Output]] = {}
        self._deleters: dict[str, tuple[Output, Node]] = {}
        self._dropped: deque[str] = deque()

    def get(self, handle: str, dtype: DType) -> Any:
        """Return a value, which belongs to the caller.

        Raises:
          InvalidArgumentError: the value does not exist or has another type.
          OpError: see `Session.run`.
        """
        session, key = self._open_session(), (_keeper(handle), dtype)
        with self._lock:
            if key not in self._getters:
                with _add_nodes_to(session.graph):
                    self._getters[key] = get_session_tensor(handle, dtype)
            holder, value = self._getters[key]
        return session.run(value, {holder: handle})

    def delete(self, handle: str) -> None:
        """Delete a value.

        Raises:
          InvalidArgumentError: the value does not exist.
          OpError: see `Session.run`.
        """
        session, key = self._open_session(), _keeper(handle)
        with self._lock:
            if key not in self._deleters:
                with _add_nodes_to(session.graph):
                    self._deleters[key] = delete_session_tensor(handle)
            holder, deleter = self._deleters[key]
        session.run(deleter, {holder: handle})

    def discard(self, handle: str) -> None:
        """Mark a value for deletion by the next call of `drop_discarded`."""
        self._dropped.append(handle)

    def drop_discarded(self) -> None:
        """Delete the values whose handles no longer exist."""
        while self._dropped:
            with suppress(errors.OpError):  # it was deleted by its name, or with its task
                self.delete(self._dropped.popleft())

    def _open_session(self) -> BaseSession:
        session = self._session()
        if session is None:
            raise closed_error()
        return session


def _keeper(handle: str) -> str:
    """Return the device that keeps a value, which is the last part of its handle."""
    return handle.rpartition(";")[2]


@contextmanager
def _add_nodes_to(graph: Graph) -> Iterator[None]:
    """Add nodes to a graph, independently of the program's current scopes."""
    with (
        graph.as_default(),
        graph.control_dependencies(None),
        graph.name_scope(None),
        graph.colocate_with(None, ignore_existing=True),
        graph.device(None),
    ):
        yield
