"""Separate reads after updates of reference variables, for graphs written by TensorFlow.

In TensorFlow, the node `read` of a reference variable returns the variable's memory, not a copy.
Nodes that run after an update therefore see the new value, also in each iteration of a loop. Values
in weft are immutable, so an import adds separate reads for nodes that run after an update. Graphs
built with weft's functions already have these reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial

from weft_graph.control_flow.context import is_constant_enter
from weft_graph.ir.node import Context, Node, Output
from weft_graph.ir.traits import Role
from weft_graph.ops import control_flow as primitives
from weft_graph.variables import reads


def read_after_updates(nodes: Iterable[Node]) -> None:
    """Add new reads of variables for imported nodes that run after an update."""
    reads_of_variables = []
    for node in nodes:
        reference = reads.reference_of(node.outputs[0]) if node.outputs else None
        if reference is not None:
            reads_of_variables.append((node.outputs[0], reference))
    successors = _Successors(
        [node for _, reference in reads_of_variables for node in reads.updates(reference)]
    )
    for value, reference in reads_of_variables:
        _Reader(successors, reference).renew(value, partial(_itself, reference))


class _Successors:
    """The nodes that run after updates of variables.

    Args:
      updates: the updates of all variables, used to recognize unaffected nodes quickly.
    """

    def __init__(self, updates: Iterable[Node]) -> None:
        self._updates = frozenset(updates)
        self._nodes = _all_successors(self._updates)
        self._successors: dict[Node, frozenset[Node]] = {}

    def follows(self, node: Node, updates: frozenset[Node]) -> bool:
        """Return True if a node is, or runs after, one of some updates."""
        if node not in self._nodes:
            return False
        return node in updates or any(
            not updates.isdisjoint(self._preceding_updates(need)) for need in _predecessors(node)
        )

    def _preceding_updates(self, node: Node) -> frozenset[Node]:
        """Return the updates that a node is or runs after, with caching for shared predecessors."""
        earlier_updates = self._successors.get(node)
        if earlier_updates is None:
            visited = {node} & self._nodes
            stack = list(visited)
            while stack:
                new = [
                    need
                    for need in _predecessors(stack.pop())
                    if need in self._nodes and need not in visited
                ]
                visited.update(new)
                stack += new
            earlier_updates = self._successors[node] = self._updates & visited
        return earlier_updates


class _Reader:
    """Adds separate reads for the successors of a variable's updates."""

    def __init__(self, successors: _Successors, reference: Output) -> None:
        self._update_successors = successors
        self._updates = frozenset(reads.updates(reference))

    def _is_late(self, node: Node) -> bool:
        return self._update_successors.follows(node, self._updates)

    def renew(self, value: Output, reference: Callable[[], Output]) -> None:
        """Rebuild the users of `value`, which aliases the variable.

        Args:
          reference: function that returns the variable's reference in the context of `value`.
        """
        reference = cache(reference)
        for user in value.consumers():
            if is_constant_enter(user):
                self.renew(user.outputs[0], partial(_enter_reference, reference, user))
            elif self._is_late(user):
                self._read_for(user, value, reference())
            elif user.role is Role.SWITCH:
                for side in user.outputs:
                    self.renew(side, partial(_switch_reference, reference, side))
            elif user.traits.identity:
                self.renew(user.outputs[0], reference)

    def _read_for(self, user: Node, value: Output, reference: Output) -> None:
        predecessors = [source.node for source in user.inputs if source is not value]
        late = [node for node in (*predecessors, *user.controls) if self._is_late(node)]
        graph = user.graph
        with _create_like(user, value.node.context), graph.control_dependencies(late):
            fresh_read = reads.read(reference)
        for position, source in enumerate(user.inputs):
            if source is value:
                graph.replace_input(user, position, fresh_read, reason="variable that was updated")


def _itself(reference: Output) -> Output:
    return reference


def _enter_reference(reference: Callable[[], Output], enter: Node) -> Output:
    """Return the reference in the loop that a value enters."""
    attrs = enter.attrs
    with _create_like(enter, _enclosing_context(enter)):
        frame, parallel = attrs["frame_name"], attrs["parallel_iterations"]
        inner_reference = primitives.enter(reference(), frame, True, parallel)
    inner_reference.node.context = enter.context
    return inner_reference


def _switch_reference(reference: Callable[[], Output], side: Output) -> Output:
    """Return the reference in the branch that a value enters."""
    switch = side.node
    with _create_like(switch, _enclosing_context(switch)):
        sides = primitives.switch(reference(), switch.inputs[1])
    sides[0].node.context = switch.context
    return sides[side.index]


def _enclosing_context(node: Node) -> Context | None:
    """Return the context that encloses the one into which a node imports a value."""
    return None if node.context is None else node.context.outer


@contextmanager
def _create_like(node: Node, context: Context | None) -> Iterator[None]:
    """Create new nodes in a context, named after an existing node."""
    graph = node.graph
    with graph.scopes.inside(context), graph.name_scope(node.name + "/"):
        yield


def _predecessors(node: Node) -> Iterator[Node]:
    """Yield the nodes that a node waits for."""
    for source in node.inputs:
        yield source.node
    yield from node.controls


def _all_successors(nodes: Iterable[Node]) -> set[Node]:
    """Return `nodes` and all nodes that run after one of them."""
    stack = list(nodes)
    followers = set(stack)
    while stack:
        for user in stack.pop().consumers:
            if user not in followers:
                followers.add(user)
                stack.append(user)
    return followers
