"""Advice in errors about uninitialized variables: the initializer to run first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from weft_exec.resources.resources import ResourceManager, VariableState
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node
from weft_graph.variables.base import Variable
from weft_tensor import errors

_INITIALIZERS: Final = {
    GraphKeys.GLOBAL_VARIABLES: ("global", "global_variables_initializer()"),
    GraphKeys.LOCAL_VARIABLES: ("local", "local_variables_initializer()"),
}
_NAMED: Final = 3
"""Maximum number of variables that a message names."""


def advise(
    error: errors.FailedPreconditionError,
    graph: Graph,
    resources: ResourceManager,
    targets: Iterable[Node],
) -> None:
    """Add the initializer of uninitialized variables, and their number, to an error.

    Args:
      error: the error to extend; errors of other kinds are left unchanged.
      targets: the targets of the step.
    """
    name = error.details.get("uninitialized")
    if name is None or "run_first" in error.details:
        return
    first, words = _advice(name, graph, resources, set(targets))
    error.details["run_first"] = first
    error.message = f"{error.message}: {words}"
    error.args = (error.message,)


def _advice(
    name: str, graph: Graph, resources: ResourceManager, targets: set[Node]
) -> tuple[str, str]:
    for key, (kind, initializer) in _INITIALIZERS.items():
        variables = list(_variables(graph, key))
        failed = [variable for variable in variables if _resource_name(variable) == name]
        if not failed:
            continue
        if _runs_initializer(targets, failed[0].initializer):
            return "initialized_value()", (
                "its initializer runs in the same step; use its initialized_value() there"
            )
        lacking = [
            variable.op.name for variable in variables if not _has_value(variable, resources)
        ]
        named = ", ".join(lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
        subject = f"{len(lacking)} {kind} variable{'' if len(lacking) == 1 else 's'}"
        verb = "has" if len(lacking) == 1 else "have"
        return initializer, f"run {initializer} first; {subject} {verb} no value: {named}"
    return "initializer", "run its initializer first; it is neither a global nor a local variable"


def _variables(graph: Graph, key: str) -> Iterator[Variable]:
    return (item for item in graph.get_collection(key) if isinstance(item, Variable))


def _resource_name(variable: Variable) -> str:
    name: str = variable.op.attrs.get("shared_name") or variable.op.name
    return name


def _has_value(variable: Variable, resources: ResourceManager) -> bool:
    container = variable.op.attrs.get("container", "")
    try:
        return resources.lookup(container, _resource_name(variable), VariableState).is_initialized
    except errors.OpError:  # it was never used, or its name belongs to another resource
        return False


def _runs_initializer(targets: set[Node], initializer: Node) -> bool:
    """Return True if a target is the initializer, or a group that directly includes it."""
    return initializer in targets or any(initializer in node.controls for node in targets)
