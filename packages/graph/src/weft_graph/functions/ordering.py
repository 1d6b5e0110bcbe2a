"""Ordering of the side effects in a body: program order per resource.

The author of a body expects program order. Control inputs therefore order the uses of each
resource; only reads between two writes stay unordered. Effects without a resource, such as
printing, count as uses of one shared resource.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from weft_graph.control_flow.context import CondContext, ControlFlowContext, WhileContext, home_of
from weft_graph.functions import state
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.ops import control_flow as primitives

_WORLD = "world"
"""The shared resource of effects without a resource."""


def ends_of_effects(graph: Graph) -> list[Node]:
    """Return nodes outside of all contexts that finish after all effects.

    A recursive function whose only stateful nodes are calls of itself has no effects.
    """
    ends = _Ends(graph)
    effects = [node for node in graph.nodes if state.has_effect(node)]
    if all(_calls(node, getattr(graph, "name", "")) for node in effects):
        return []
    return list(dict.fromkeys([ends.at(node, None) for node in effects]))


def _calls(node: Node, name: str) -> bool:
    return node.role is Role.CALL and node.attrs["f"].name == name


def order_effects(graph: Graph) -> None:
    """Add control inputs so that uses of each resource happen in the order of construction."""
    ends = _Ends(graph)
    last: dict[Hashable, Node] = {}
    reads: dict[Hashable, list[Node]] = {}
    for node in list(graph.nodes):
        changed, read = _accessed_resources(node)
        controls: dict[Node, None] = {}
        for key in read:
            if key in last:
                controls[last[key]] = None
            reads.setdefault(key, []).append(node)
        for key in changed:
            controls.update(
                dict.fromkeys([*reads.pop(key, ()), *([last[key]] if key in last else ())])
            )
            last[key] = node
        controls.pop(node, None)
        if controls:
            ends.add_waits(node, list(controls))
        if changed:
            ends.serialize(node)


def _accessed_resources(node: Node) -> tuple[list[Hashable], list[Hashable]]:
    """Return the resources that a node changes, and those that it only reads."""
    if state.only_reads(node):
        return [], list(state.resources(node)) or [_WORLD]
    if not state.has_effect(node):
        return [], []
    function = state.callee(node)
    used = state.resources(node)
    if function is None:
        return list(used) or [_WORLD], []
    changed: list[Hashable] = [state.origin(node.inputs[i]) for i in sorted(function.updates)]
    read: list[Hashable] = [resource for resource in used if resource not in changed]
    return (changed or [_WORLD]), read


class _Ends:
    """Nodes that mark the end of other nodes, in contexts that enclose them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ends: dict[tuple[Node, ControlFlowContext], Node] = {}
        self._serial: set[Node] = set()

    def add_waits(self, node: Node, predecessors: Sequence[Node]) -> None:
        """Make a node wait for other nodes in any context."""
        context = home_of(node)
        controls = []
        for predecessor in predecessors:
            level = _common_context(home_of(predecessor), context)
            end = self.at(predecessor, level)
            controls.append(
                end if context is None or context is level else context.capture_control(end)
            )
        self._wait(node, controls)

    def at(self, node: Node, level: ControlFlowContext | None) -> Node:
        """Return a node of a context that finishes after a node inside it."""
        context = home_of(node)
        while context is not level:
            assert context is not None
            end = self._ends.get((node, context))
            if end is None:
                end = self._ends[node, context] = self._node_outside(node, context)
            node, context = end, context.outer
        return node

    def _node_outside(self, node: Node, context: ControlFlowContext) -> Node:
        """Return a node outside a context that finishes after a node directly in it."""
        if isinstance(context, WhileContext):
            self._serialize(node, context)
            return context.exits[0]
        assert isinstance(context, CondContext)
        predicate = context.conditional.pred.node
        with context.outside(), self._graph.control_dependencies([predicate, node]):
            return primitives.control_trigger()

    def serialize(self, node: Node) -> None:
        """Run the executions of a node in a loop sequentially."""
        context = home_of(node)
        while context is not None:
            if isinstance(context, WhileContext):
                self._serialize(node, context)
            node, context = self.at(node, context.outer), context.outer

    def _serialize(self, node: Node, loop: WhileContext) -> None:
        if node in self._serial:
            return
        self._serial.add(node)
        self._wait(_start_node(node), [loop.merges[0]])
        self._wait(loop.next_values[0], [node])
        if _is_in_condition(node, loop):
            self._wait(loop.exits[0], [node])

    def _wait(self, node: Node, predecessors: Sequence[Node]) -> None:
        controls = [*node.controls, *predecessors]
        self._graph.set_control_inputs(node, controls, reason="order of effects")


def _start_node(node: Node) -> Node:
    """Return the node that control inputs must delay so that `node` runs later."""
    inner = node.context
    if node.role is not Role.EXIT or not isinstance(inner, WhileContext):
        return node
    return inner.merges[0].inputs[0].node


def _common_context(
    a: ControlFlowContext | None, b: ControlFlowContext | None
) -> ControlFlowContext | None:
    """Return the innermost context that contains both contexts."""
    while a is not None and (b is None or not b.is_inside(a)):
        a = a.outer
    return a


def _is_in_condition(node: Node, loop: WhileContext) -> bool:
    """Return True if a node of a loop may run before the loop condition is known."""
    switches = set(loop.switches)
    visited: set[Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current in switches:
            return False
        if (
            current not in visited
            and current.context is not None
            and current.context.is_inside(loop)
        ):
            visited.add(current)
            stack.extend([source.node for source in current.inputs])
            stack.extend(current.controls)
    return True
