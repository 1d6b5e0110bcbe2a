"""The default graph, and functions over its scopes and collections.

The default graph is the innermost one of this thread, or that of the process.
"""

from __future__ import annotations

__all__ = [
    "add_to_collection",
    "add_to_collections",
    "colocate_with",
    "container",
    "control_dependencies",
    "device",
    "get_collection",
    "get_collection_ref",
    "get_default_graph",
    "init_scope",
    "is_symbolic_tensor",
    "is_tensor",
    "name_scope",
    "op_scope",
    "reset_default_graph",
]

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.graph import DeviceRequest, Graph
from weft_graph.ir.node import Output
from weft_graph.ir.scopes import ControlScope
from weft_graph.ir.thread_stacks import of_thread
from weft_tensor import errors

_global_graph: Graph | None = None
_lock = threading.Lock()


def get_default_graph() -> Graph:
    """Return the innermost graph of this thread's `with graph.as_default()`, or the process's one.

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

    Nodes and sessions of the old graph remain usable.

    Raises: FailedPreconditionError: called inside `with graph.as_default()`.

    Examples:
      >>> x = wf.constant(1.0, name="x")
      >>> wf.reset_default_graph()
      >>> wf.constant(2.0, name="x").name
      'x:0'
    """
    global _global_graph
    if of_thread.graphs:
        raise errors.FailedPreconditionError(
            "reset_default_graph cannot be called inside `with graph.as_default():`"
        )
    _global_graph = None


def graph_for(value: Any) -> Graph:
    """Return the graph for nodes that use `value`: the current function body, or its graph."""
    graph: Graph = get_default_graph() if of_thread.bodies else value.graph
    return graph


class name_scope:  # noqa: N801 - TensorFlow's public name
    """Context manager that prefixes the names of nodes created inside; yields the scope.

    Args:
      name: name of the scope; None for `default_name`.
      default_name: name to use if `name` is None.
      values: tensors of the graph to build in; the default graph if there are none.
    Raises: InvalidArgumentError: the name is not valid.

    Examples:
      >>> with wf.name_scope("layer") as scope:
      ...     wf.constant(1.0, name="bias").op.name
      'layer/bias'
    """

    def __init__(
        self, name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None
    ) -> None:
        self._name = default_name if name is None else name
        if not isinstance(self._name, str | None):
            raise errors.InvalidTypeError(f"name must be text or None, got {self._name!r}")
        self._graph = next(
            (graph_for(v) for v in values or () if isinstance(v, Output)), get_default_graph()
        )
        self._scopes: list[AbstractContextManager[Any]] = []

    @property
    def name(self) -> str | None:
        """The requested name."""
        return self._name

    def __enter__(self) -> str:
        scope = self._graph.name_scope(self._name)
        self._scopes.append(scope)
        self._scopes.append(self._graph.as_default())
        entered = self._scopes[-2].__enter__()
        self._scopes[-1].__enter__()
        return entered  # type: ignore[no-any-return]

    def __exit__(self, *exception: Any) -> None:
        self._scopes.pop().__exit__(None, None, None)
        self._scopes.pop().__exit__(None, None, None)


@contextmanager
def op_scope(
    values: Iterable[Any], name: str | None, default_name: str | None = None
) -> Iterator[str]:
    """Enter a `name_scope`, with TensorFlow's older order of arguments.

    Args:
      values: tensors whose graph becomes the default graph.
      name: name of the scope, or None for `default_name`.
      default_name: name to use if `name` is None.

    Examples:
      >>> x = wf.constant(1.0)
      >>> with wf.op_scope([x], None, "layer"):
      ...     y = wf.negative(x, name="y")
      >>> y.op.name
      'layer/y'
    """
    with name_scope(name, default_name, values) as scope:
        yield scope


def device(device_name_or_function: DeviceRequest) -> AbstractContextManager[None]:
    """Request a device, fully or partly specified, for nodes created inside.

    Args:
      device_name_or_function: a full or partial name such as "/GPU:0" or "/job:worker/task:1"; a
        function from a node to a name; or None to ignore outer requests.

    Examples:
      >>> with wf.device("/CPU:0"):
      ...     wf.constant(1.0).device
      '/device:CPU:0'
    """
    return get_default_graph().device(device_name_or_function)


def container(container_name: str) -> AbstractContextManager[None]:
    """Put the resources of nodes created inside into a container.

    Args:
      container_name: name of the container; "" for the default one.

    Examples:
      >>> with wf.container("shared"):
      ...     x = wf.Variable(1.0)
    """
    return get_default_graph().container(container_name)


def control_dependencies(
    control_inputs: Iterable[Any] | None,
) -> AbstractContextManager[ControlScope | None]:
    """Make nodes created inside wait for `control_inputs`; None clears outer ones.

    Args:
      control_inputs: list of nodes and outputs; None to clear those of outer blocks too.

    Examples:
      >>> count = wf.Variable(0)
      >>> with wf.control_dependencies([count.assign_add(1)]):
      ...     done = wf.constant("counted")
      >>> with wf.Session() as session:
      ...     session.run(count.initializer)
      ...     session.run(done)
      ...     session.run(count)
      b'counted'
      np.int32(1)
    """
    return get_default_graph().control_dependencies(control_inputs)


def colocate_with(op: Any, ignore_existing: bool = False) -> AbstractContextManager[None]:
    """Place nodes created inside on the device of `op`.

    Args:
      op: a node, an output or a variable.
      ignore_existing: ignore outer colocation requests.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> with wf.colocate_with(x):
      ...     y = wf.constant(2.0)
    """
    return get_default_graph().colocate_with(op, ignore_existing)


@contextmanager
def init_scope() -> Iterator[None]:
    """Leave control inputs and name scopes, for initialization nodes.

    Examples:
      >>> with wf.init_scope():
      ...     x = wf.constant(1.0)
    """
    graph = get_default_graph()
    with graph.control_dependencies(None), graph.name_scope(None):
        yield


def add_to_collection(name: Any, value: Any) -> None:
    """Append to a collection of the default graph.

    Args:
      name: name of the collection.
      value: any object.

    Examples:
      >>> wf.add_to_collection("kept", 1)
      >>> wf.get_collection("kept")
      [1]
    """
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Any, value: Any) -> None:
    """Append to several collections of the default graph.

    Args:
      names: names of collections.
      value: any object.

    Examples:
      >>> wf.add_to_collections(["first", "second"], 1)
      >>> wf.get_collection("second")
      [1]
    """
    get_default_graph().add_to_collections(names, value)


def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """Return a copy of a collection of the default graph.

    Args:
      key: name of the collection, such as one of `wf.GraphKeys`.
      scope: regular expression; return only items whose name it matches at the start.
    Returns: a list.

    Examples:
      >>> wf.add_to_collection("kept", 1)
      >>> wf.get_collection("kept")
      [1]
    """
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> list[Any]:
    """Return a collection of the default graph itself.

    Args:
      key: name of the collection.
    Returns: the list itself; changes to it change the collection.

    Examples:
      >>> wf.get_collection_ref("kept").append(1)
      >>> wf.get_collection("kept")
      [1]
    """
    return get_default_graph().get_collection_ref(key)


def is_tensor(x: Any) -> bool:
    """Return True if `x` is an output, a variable, or a composite of outputs.

    Args:
      x: any object.

    Examples:
      >>> wf.is_tensor(wf.constant(1.0)), wf.is_tensor(1.0)
      (True, False)
    """
    return isinstance(x, Output | CompositeTensor) or hasattr(x, "_as_output")


is_symbolic_tensor = is_tensor
