"""Critical sections: mutually exclusive parts of steps (the paper's mutexes, Table 1)."""

from __future__ import annotations

__all__ = ["CriticalSection"]

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from weft_graph.ir import nest
from weft_graph.ir.default_graph import (
    colocate_with,
    control_dependencies,
    get_default_graph,
    name_scope,
)
from weft_graph.ir.node import Node, Output
from weft_graph.ops import control, identity, resource_state
from weft_tensor import dtypes, errors

CRITICAL_SECTION_EXECUTIONS = "critical_section_executions"
"""The collection that records the executions of critical sections."""


class Execution(NamedTuple):
    """One use of a critical section.

    Attributes:
      op: the node that waits for the mutex.
      handle: the mutex.
      resources: handles and references used only by this section's body.
      exclusive: True if other sections may not use them.
    """

    op: Node
    handle: Output
    resources: tuple[Output, ...]
    exclusive: bool


class CriticalSection:
    """A mutex around parts of steps: one of them runs at a time.

    Waiters hold no thread and are served in order. If a step fails or ends inside the section, the
    mutex is unlocked.

    Args:
      name: name of the mutex.
      shared_name: the name it is shared under among sessions.
      critical_section_def, import_scope: not supported; must be None.

    Examples:
      >>> section = wf.CriticalSection(name="section")
      >>> x = wf.constant(1.0)
      >>> wf.Session().run(section.execute(lambda: 2.0 * x))
      np.float32(2.0)
    """

    def __init__(
        self,
        name: str | None = None,
        shared_name: str | None = None,
        critical_section_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if critical_section_def is not None or import_scope is not None:
            raise errors.UnimplementedError("a critical section cannot be created from a message")
        with name_scope(name, "CriticalSection", []) as scope, control_dependencies(None):
            self._handle = resource_state.mutex(shared_name or "", name=scope)
        self._graph = get_default_graph()

    @property
    def name(self) -> str:
        """The name of the mutex's node."""
        return self._handle.op.name

    def execute(
        self,
        fn: Callable[[], Any],
        exclusive_resource_access: bool = True,
        name: str | None = None,
    ) -> Any:
        """Run the nodes that `fn` builds while holding the mutex.

        Inputs from outside are computed before the mutex is locked, so that no body implicitly
        waits for another mutex while holding this one.

        Args:
          fn: called once, here; returns a nested structure of tensors, or None.
          exclusive_resource_access: reject a body that uses a resource, such as a variable, of
            another critical section.
        Returns: the structure that `fn` returned; its tensors are available after the mutex was
          unlocked.
        Raises: InvalidArgumentError: the body uses the same section, or a resource of another
          section.
        """
        if not callable(fn):
            raise errors.InvalidTypeError(f"fn must be callable, got {fn!r}")
        with name_scope(name, "critical_section_execute", []):
            lock = resource_state.mutex_acquire(self._handle)
            num_before = len(self._graph.nodes)
            with control_dependencies([lock]):
                built = fn()
            body = self._graph.nodes[num_before:]
            self._wait_for_outer_inputs(lock.op, body)
            resources = _resources_of(body)
            self._check_resources(resources, exclusive_resource_access)
            results = nest.map_structure(_copy_result, built)
            flat = [item for item in nest.flatten(results) if item is not None]
            with control_dependencies([*flat, *_ends(body)]), colocate_with(self._handle):
                release = resource_state.mutex_release(lock)
            with control_dependencies([release]):
                outputs = nest.map_structure(_delay_until_unlock, results)
        execution = Execution(lock.op, self._handle, tuple(resources), exclusive_resource_access)
        self._graph.add_to_collection(CRITICAL_SECTION_EXECUTIONS, execution)
        return release if built is None else outputs

    def _wait_for_outer_inputs(self, lock: Node, body: Sequence[Node]) -> None:
        """Make the lock wait for all inputs of the body from outside."""
        own_nodes = {lock, *body}
        outside = dict.fromkeys(
            producer
            for node in body
            for producer in (*[source.node for source in node.inputs], *node.controls)
            if producer not in own_nodes
        )
        controls = dict.fromkeys([*lock.controls, *outside])
        controls.pop(self._handle.op, None)
        self._graph.set_control_inputs(lock, list(controls), reason="critical section")

    def _check_resources(self, resources: Iterable[Output], exclusive: bool) -> None:
        own_resources = set(resources)
        if self._handle in own_resources:
            raise errors.InvalidArgumentError(
                "The function fn attempts to directly access the CriticalSection in which it would "
                "be running.  This is illegal and would cause deadlocks."
            )
        for execution in self._graph.get_collection(CRITICAL_SECTION_EXECUTIONS):
            if execution.handle is self._handle or not (exclusive or execution.exclusive):
                continue
            shared = own_resources.intersection(execution.resources)
            if shared:
                names = ", ".join(sorted(output.name for output in shared))
                raise errors.InvalidArgumentError(
                    f"this would access resources that the critical section of "
                    f"{execution.op.name!r} "
                    f"uses as well: {names}.  Did you mean to use exclusive_resource_access=False?"
                )

    def __repr__(self) -> str:
        return f"<weft.CriticalSection {self.name!r}>"


def _resources_of(body: Sequence[Node]) -> list[Output]:
    """Return the handles and references that a body uses."""
    return list(
        dict.fromkeys(
            source
            for node in body
            for source in node.inputs
            if source.dtype.base_dtype is dtypes.resource or source.dtype.is_ref
        )
    )


def _ends(body: Sequence[Node]) -> list[Node]:
    """Return the last nodes of a body, which no other node of it uses."""
    return [node for node in body if not node.consumers]


def _copy_result(item: Any) -> Any:
    """Copy a result of the body inside the section."""
    if item is None or isinstance(item, Node):
        return item
    return identity.identity(item)


def _delay_until_unlock(item: Any) -> Any:
    """Return a copy of a result that is available only after the mutex is unlocked."""
    if item is None:
        return None
    return control.group(item) if isinstance(item, Node) else identity.identity(item)
