"""New reads of reference variables, for uses that need a newer value than the shared read.

All uses of a reference variable share one node `read`. Nodes that run after an update, or in a loop
that updates the variable, must not use that value: they get a new read. Without an update in
between, the shared value is used, so that a loop reads the variable once instead of in each
iteration.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from weft_graph.ir import builder
from weft_graph.ir.node import Context, Node, Output
from weft_graph.ir.traits import Role, State
from weft_tensor import dtypes


def reference_of(value: Output) -> Output | None:
    """Return the reference whose shared read "<variable>/read" is `value`, or None.

    A value on another device than the variable is an explicit cache, not a shared read.
    """
    node = value.node
    if not node.traits.identity or value.dtype.is_ref or not node.inputs[0].dtype.is_ref:
        return None
    variable = node.inputs[0].node
    if variable.role is not Role.VARIABLE or node.controls or node.device != variable.device:
        return None
    return node.inputs[0] if node.name == variable.name + "/read" else None


def read(reference: Output) -> Output:
    """Return a new read of a variable in the current scopes."""
    with reference.graph.colocate_with(reference.node):
        if reference.dtype is dtypes.resource:
            attrs = {"dtype": reference.node.attrs["dtype"]}
            return builder.out("ReadVariableOp", [reference], attrs)
        return builder.out("Identity", [reference], None, "read")


@dataclass(frozen=True)
class SharedValue:
    """The shared value of a variable, or of the parts of a partitioned one.

    Attributes:
      references: references or handles of the variable or its parts.
      axis: axis along which the parts are concatenated; None for a single variable.
    """

    references: tuple[Output, ...]
    axis: Output | None = None

    def updates_inside(self, context: Context | None) -> list[Node]:
        """Return the nodes that may update it in a context or a nested one."""
        return [
            node for reference in self.references for node in updates_inside(reference, context)
        ]

    def read(self) -> Output:
        """Return a new read of the value in the current scopes."""
        values = [read(reference) for reference in self.references]
        if self.axis is None:
            return values[0]
        return builder.out("ConcatV2", [values, self.axis], None, "concat")


def shared_value(value: Output) -> SharedValue | None:
    """Return the SharedValue with value `value`, or None."""
    reference = reference_of(value)
    if reference is not None:
        return SharedValue((reference,))
    joined = value.node.inputs[0].node if value.node.traits.identity else value.node
    if not joined.name.endswith(_JOINED) or _has_ends(joined):
        return None
    is_partitioned = not joined.traits.identity
    part_references = [
        _part_of(part) for part in (joined.inputs[:-1] if is_partitioned else joined.inputs)
    ]
    references = tuple([reference for reference in part_references if reference is not None])
    if len(references) < len(part_references):
        return None
    return SharedValue(references, joined.inputs[-1] if is_partitioned else None)


_JOINED = "/ConcatPartitions/concat"
"""Suffix of the names of nodes that concatenate the parts of a variable for all readers."""


def _part_of(value: Output) -> Output | None:
    node = value.node
    if node.role is Role.READ:
        source = node.inputs[0]
        return source if source.node.role is Role.VARIABLE and not _has_ends(node) else None
    return reference_of(value)


def _has_ends(node: Node) -> bool:
    """Return True if a node is in a context or has control inputs, so that it is not shared."""
    return node.context is not None or bool(node.controls)


def updates(reference: Output) -> Sequence[Node]:
    """Return the nodes that may update a variable, including its initializer.

    Args:
      reference: reference or handle of the variable: the output of its node.
    """
    graph = reference.graph
    cached = graph.variable_updates
    if cached is None or not cached.is_of(graph.nodes):
        cached = graph.variable_updates = _Updates()
    cached.register_nodes(graph.nodes)
    update_nodes: Sequence[Node] = cached.of.get(_state(reference.node), ())
    return update_nodes


def _state(variable: Node) -> Hashable:
    """Return the identity of a variable's state; nodes with the same shared name share it."""
    if variable.role is not Role.VARIABLE:
        return variable
    return variable.attrs.get("container"), variable.attrs.get("shared_name") or variable.name


class _Updates:
    """The updates in a graph; each node is examined once.

    Attributes:
      of: updates by state of the variable.
    """

    def __init__(self) -> None:
        self.of: dict[Hashable, list[Node]] = {}
        self._count = 0
        self._last: Node | None = None

    def is_of(self, nodes: Sequence[Node]) -> bool:
        """Return True if the recorded nodes are still in the graph; failed imports are removed."""
        count = self._count
        return not count or (len(nodes) >= count and nodes[count - 1] is self._last)

    def register_nodes(self, nodes: Sequence[Node]) -> None:
        """Register new nodes."""
        for position in range(self._count, len(nodes)):
            node = nodes[position]
            if node.traits.state is State.WRITES or node.role is Role.CALL:
                for variable in _variables_of(node):
                    self.of.setdefault(_state(variable), []).append(node)
        self._count = len(nodes)
        self._last = nodes[-1] if nodes else None


def _variables_of(node: Node) -> set[Node]:
    """Return the nodes of the variables whose references or handles a node uses."""
    variables: set[Node] = set()
    stack = [node]
    visited = {node}
    while stack:
        current = stack.pop()
        state = [source.node for source in current.inputs if _names_state(source)]
        if not state:
            variables.add(current)
        new = [source for source in state if source not in visited]
        visited.update(new)
        stack += new
    return variables


def _names_state(output: Output) -> bool:
    return output.dtype.is_ref or output.dtype is dtypes.resource


def updates_inside(reference: Output, context: Context | None) -> list[Node]:
    """Return the nodes of `updates` that run in a context or in one nested in it."""
    update_nodes = updates(reference)
    return [
        n for n in update_nodes if context is None or (n.context and n.context.is_inside(context))
    ]


def filter_following(nodes: Iterable[Node], earlier: Iterable[Node]) -> list[Node]:
    """Return the `nodes` that run after one of `earlier`, through data or control edges."""
    candidates, sources = dict.fromkeys(nodes), list(earlier)
    return [node for node in candidates if _follows(node, sources)]


def _follows(node: Node, earlier: Iterable[Node]) -> bool:
    """Return True if a path leads to a node; the search runs from both ends."""
    ahead = {source for source in earlier if source.index <= node.index}
    visited_backward = {node}
    if node in ahead:
        return True
    forward, backward = list(ahead), [node]
    steps = 0  # forward ones less backward ones
    while forward and backward:
        goes_back = steps >= 0
        if goes_back:
            last = backward.pop()
            neighbors = (*last.controls, *[source.node for source in last.inputs])
        else:
            neighbors = tuple(forward.pop().consumers)
        steps += -1 - len(neighbors) if goes_back else 1 + len(neighbors)
        visited, targets, stack = (
            (visited_backward, ahead, backward) if goes_back else (ahead, visited_backward, forward)
        )
        for neighbor in neighbors:
            if neighbor in targets:
                return True
            if neighbor.index <= node.index and neighbor not in visited:
                visited.add(neighbor)
                stack.append(neighbor)
    return False
