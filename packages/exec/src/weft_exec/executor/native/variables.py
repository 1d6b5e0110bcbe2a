"""Access to variables by compiled nodes: which may read and change them in place."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft_exec.executor.compilers import CompileOffer
from weft_exec.executor.priority import variable_of
from weft_exec.executor.variable_order import VariableAccess, access_order, variable_accesses
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import dependencies_of


def _nodes_before_loops(nodes: Sequence[Node]) -> set[Node]:
    """Return the nodes that loops wait for; they run before all nodes of loops."""
    result: set[Node] = set()
    waiting = [node for node in nodes if node.role is Role.ENTER]
    while waiting:
        node = waiting.pop()
        if node not in result:
            result.add(node)
            waiting += dependencies_of(node)
    return result


class Variables:
    """Variables of a part, and the order in which nodes access them.

    A variable is settled if all its accesses run under the same condition and in the same loop, and
    no loop waits for a node that changes it.
    """

    def __init__(self, offer: CompileOffer) -> None:
        self._touches: dict[Node, list[VariableAccess]] = variable_accesses(offer.every)
        self._fetched = set(offer.step.fetches)
        entered = _nodes_before_loops(offer.every)
        self._settled = {
            variable
            for variable, order in self._touches.items()
            if len({offer.where(touch.node) for touch in order}) == 1
            and entered.isdisjoint(touch.node for touch in order if touch.changes)
        }
        self._earlier_accesses: dict[Node, list[Node]] = {}
        for variable in self._settled:
            for first, second in access_order(self._touches[variable]):
                self._earlier_accesses.setdefault(second, []).append(first)

    def before(self, node: Node) -> list[Node]:
        """Return the nodes that access a variable before a node does."""
        return self._earlier_accesses.get(node, [])

    def may_read(self, node: Node) -> bool:
        """Return True if all references that a node reads are of variables that may be read."""
        return all(self.may_be_read(source) for source in node.inputs if source.dtype.is_ref)

    def may_be_read(self, source: Output) -> bool:
        """Return True if a reference or a handle is of a settled or unaccessed variable."""
        variable = variable_of(source)
        return variable is not None and (variable not in self._touches or variable in self._settled)

    def may_be_read_by(self, node: Node, members: Collection[Node]) -> bool:
        """Return True if only some nodes use a read of a variable, which waits for nothing.

        The node that changes the variable, if there is one, must be among them: it waits for the
        read. Handles are read only by the node that changes the variable.
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
        """Return True if a node changes distinct settled variables, its first inputs."""
        variables = [variable_of(source) for source in node.inputs[:count]]
        return (
            len(set(variables)) == count
            and all(variable in self._settled for variable in variables)
            and self.may_read(node)
        )

    def reads_later(self, node: Node) -> bool:
        """Return True if a read of a variable that the step changes waits for other nodes."""
        return (
            variable_of(node.inputs[0]) in self._settled
            and node.outputs[0] not in self._fetched
            and bool(self.before(node) or node.controls)
        )

    def is_changed_by_any(self, nodes: Collection[Node], source: Output) -> bool:
        """Return True if any of the nodes changes the variable of a reference or a handle."""
        variable = variable_of(source)
        order = () if variable is None else self._touches.get(variable, ())
        return any(touch.changes and touch.node in nodes for touch in order)
