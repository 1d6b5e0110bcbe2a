"""Which nodes may read and change variables where they are compiled."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft_exec.executor.compilers import Offer
from weft_exec.executor.priority import variable_of
from weft_exec.executor.variable_order import Touch, in_order, touches
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import needs_of


def _before_loops(nodes: Sequence[Node]) -> set[Node]:
    """The nodes that loops wait for, and so what follows these."""
    found: set[Node] = set()
    waiting = [node for node in nodes if node.role is Role.ENTER]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += needs_of(node)
    return found


class Variables:
    """The variables of a part, and what touches them in which order."""

    def __init__(self, offer: Offer) -> None:
        self._touches: dict[Node, list[Touch]] = touches(offer.nodes)
        self._fetched = set(offer.step.fetches)
        entered = _before_loops(offer.nodes)
        self._settled = {
            variable
            for variable, order in self._touches.items()
            if len({offer.where(touch.node) for touch in order}) == 1
            and entered.isdisjoint(touch.node for touch in order if touch.changes)
        }
        self._before: dict[Node, list[Node]] = {}
        for variable in self._settled:
            for first, then in in_order(self._touches[variable]):
                self._before.setdefault(then, []).append(first)

    def before(self, node: Node) -> list[Node]:
        """The nodes that touch a variable before a node does."""
        return self._before.get(node, [])

    def may_read(self, node: Node) -> bool:
        """Whether all references that a node takes are read of variables that loops leave alone."""
        return all(
            source.node.role is Role.VARIABLE
            and (source.node not in self._touches or source.node in self._settled)
            for source in node.inputs
            if source.dtype.is_ref
        )

    def may_be_read_by(self, node: Node, members: Collection[Node]) -> bool:
        """Whether a read of a variable gives its value to some nodes alone, and waits for nothing.

        What changes the variable, if anything does, has to be among them: it waits for the read.
        Handles are read by who changes the variable only.
        """
        source = node.inputs[0]
        changing = {t.node for t in self._touches.get(source.node, ()) if t.changes}
        return (
            source.node.role is Role.VARIABLE
            and self.may_read(node)
            and (source.dtype.is_ref or bool(changing))
            and changing.issubset(members)
            and node.outputs[0] not in self._fetched
            and not node.control_inputs
            and not self.before(node)
            and set(node.consumers).issubset(members)
        )

    def may_change(self, node: Node, count: int) -> bool:
        """Whether a node is all that changes its first inputs, and nothing takes its results."""
        if any(output.consumers() or output in self._fetched for output in node.outputs):
            return False
        variables = [variable_of(source) for source in node.inputs[:count]]
        return (
            len(set(variables)) == count
            and all(source.node.role is Role.VARIABLE for source in node.inputs[:count])
            and all(
                variable in self._settled
                and sum(touch.changes for touch in self._touches[variable]) == 1
                for variable in variables
                if variable is not None
            )
            and self.may_read(node)
        )
