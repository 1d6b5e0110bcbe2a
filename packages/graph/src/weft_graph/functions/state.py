"""What nodes of a body do with state: give handles, look at it, draw numbers, have effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role, State
from weft_tensor import dtypes

_HANDLES = (dtypes.resource, dtypes.variant)


def callee(node: Node) -> Any:
    """The `Function` that a node calls; None for other nodes, and if it is not in the library."""
    if node.role is not Role.CALL:
        return None
    library = node.graph.functions
    name = node.attrs["f"].name
    if name not in library or library.is_reading(name):
        return None
    return library[name]


def origin(output: Output) -> Output:
    """Where a handle or a reference comes from, through control flow."""
    for _ in range(256):
        node = output.node
        traits = node.traits
        if not (traits.identity or traits.routes) or not node.inputs:
            break
        output = node.inputs[0]
    return output


def is_handle(output: Output) -> bool:
    """Whether an output stands for state rather than being a value."""
    return output.dtype.is_ref or output.dtype in _HANDLES


def gives_handle(node: Node) -> bool:
    """Whether a node gives the handle of something that it makes or finds by its name."""
    return node.traits.state is State.CREATES


def is_private(node: Node) -> bool:
    """Whether a node uses a TensorArray or a stack, which a step makes anew and its flow orders."""
    return node.traits.state is State.STEP


def draws(node: Node) -> bool:
    """Whether a node draws random numbers."""
    return node.traits.random


def only_reads(node: Node) -> bool:
    """Whether a node reads state and does not change it."""
    traits = node.traits
    if traits.state is State.READS:
        return True
    return traits.identity and node.inputs[0].dtype.is_ref and not node.outputs[0].dtype.is_ref


def has_effect(node: Node) -> bool:
    """Whether somebody could notice that a node was left out."""
    function = callee(node)
    return node.traits.state is State.WRITES if function is None else bool(function.effects)


class Effects:
    """Which nodes of a body have effects, or wait for some."""

    def __init__(self) -> None:
        self._known: dict[Node, bool] = {}

    def reach(self, node: Node) -> bool:
        """Whether running a node would run an effect; values from state are taken as given."""
        found = self._known.get(node)
        if found is None:
            seen = {node}
            stack = [node]
            while stack and not found:
                here = stack.pop()
                found = self._known.get(here) or has_effect(here)
                before = [s.node for s in here.inputs if not gives_state(s.node)]
                for other in (*before, *here.controls):
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)
            found = self._known[node] = bool(found)
        return found


def gives_state(node: Node) -> bool:
    """Whether a second run of a node could give other values than the first."""
    if not any(not is_handle(output) for output in node.outputs):
        return False
    traits = node.traits
    return only_reads(node) or traits.random or traits.state is State.WRITES


def is_repeatable(node: Node) -> bool:
    """Whether a node that gives state may be run again, nothing else having changed meanwhile."""
    function = callee(node)
    if function is None:
        return only_reads(node) and bool(resources(node))  # what changes a file is not known
    return bool(function.reads_only)


def saved_outputs(node: Node) -> list[Output]:
    """Of a node that gives state, the outputs that its gradient cannot compute again."""
    return [output for output in node.outputs if not is_handle(output)]


def resources(node: Node) -> list[Output]:
    """Where the handles and references that a node takes come from."""
    return [origin(source) for source in node.inputs if is_handle(source)]


def uses_outside(nodes: Iterable[Node], inputs: Iterable[Output]) -> Node | None:
    """A node that uses a TensorArray or a stack that is given to the function, or None."""
    given = set(inputs)
    for node in nodes:
        if is_private(node) and any(origin(s) in given for s in node.inputs if is_handle(s)):
            return node
    return None
