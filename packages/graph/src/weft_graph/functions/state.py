"""Analysis of state in a body: handles, reads, random numbers, side effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role, State
from weft_tensor import dtypes

_HANDLES = (dtypes.resource, dtypes.variant)


def callee(node: Node) -> Any:
    """Return the `Function` that a node calls; None for other nodes and unknown functions."""
    if node.role is not Role.CALL:
        return None
    library = node.graph.functions
    name = node.attrs["f"].name
    if name not in library or library.is_reading(name):
        return None
    return library[name]


def origin(output: Output) -> Output:
    """Return the source of a handle or reference, traced through control flow."""
    for _ in range(256):
        node = output.node
        traits = node.traits
        if not (traits.identity or traits.routes) or not node.inputs:
            break
        output = node.inputs[0]
    return output


def is_handle(output: Output) -> bool:
    """Return True if an output is a handle or reference rather than a value."""
    return output.dtype.is_ref or output.dtype in _HANDLES


def returns_handle(node: Node) -> bool:
    """Return True if a node returns the handle of a resource that it creates or finds by name."""
    return node.traits.state is State.CREATES


def is_private(node: Node) -> bool:
    """Return True if a node uses a TensorArray or stack, which belong to one step."""
    return node.traits.state is State.STEP


def uses_rng(node: Node) -> bool:
    """Return True if a node uses random numbers."""
    return node.traits.random


def only_reads(node: Node) -> bool:
    """Return True if a node reads state but does not change it."""
    traits = node.traits
    if traits.state is State.READS:
        return True
    return traits.identity and node.inputs[0].dtype.is_ref and not node.outputs[0].dtype.is_ref


def has_effect(node: Node) -> bool:
    """Return True if a node has a side effect."""
    function = callee(node)
    return node.traits.state is State.WRITES if function is None else bool(function.effects)


class Effects:
    """The nodes of a body that have side effects or depend on one."""

    def __init__(self) -> None:
        self._cache: dict[Node, bool] = {}

    def reach(self, node: Node) -> bool:
        """Return True if a node depends on a side effect; state values count as inputs."""
        reaches = self._cache.get(node)
        if reaches is None:
            visited = {node}
            stack = [node]
            while stack and not reaches:
                current = stack.pop()
                reaches = self._cache.get(current) or has_effect(current)
                predecessors = [s.node for s in current.inputs if not returns_state(s.node)]
                for predecessor in (*predecessors, *current.controls):
                    if predecessor not in visited:
                        visited.add(predecessor)
                        stack.append(predecessor)
            reaches = self._cache[node] = bool(reaches)
        return reaches


def returns_state(node: Node) -> bool:
    """Return True if a second run of a node could return other values than the first."""
    if not any(not is_handle(output) for output in node.outputs):
        return False
    traits = node.traits
    return only_reads(node) or traits.random or traits.state is State.WRITES


def is_repeatable(node: Node) -> bool:
    """Return True if a node with values from state may be rerun while the state is unchanged."""
    function = callee(node)
    if function is None:
        return only_reads(node) and bool(resources(node))  # changes of files cannot be tracked
    return bool(function.reads_only)


def saved_outputs(node: Node) -> list[Output]:
    """Return the outputs of a stateful node that its gradient cannot recompute."""
    return [output for output in node.outputs if not is_handle(output)]


def resources(node: Node) -> list[Output]:
    """Return the origins of the handles and references among a node's inputs."""
    return [origin(source) for source in node.inputs if is_handle(source)]


def find_external_use(nodes: Iterable[Node], inputs: Iterable[Output]) -> Node | None:
    """Return a node that uses a TensorArray or stack from an argument, or None."""
    input_set = set(inputs)
    for node in nodes:
        if is_private(node) and any(origin(s) in input_set for s in node.inputs if is_handle(s)):
            return node
    return None
