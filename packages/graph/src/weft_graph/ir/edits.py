"""Edits of a graph: replacing inputs, reordering, folding to constants, and removing nodes.

Each edit keeps the use lists consistent in both directions. If an edit fails, the graph is
unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from weft_graph.ir.collections import Collections
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_signature import OpDef
from weft_tensor import errors


class Edits(Collections):
    """Base class of graphs: the nodes and the edits of them.

    Attributes:
      nodes: all nodes in the order of construction; append-only for callers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self._by_name: dict[str, Node] = {}
        self._num_fixed_nodes = 0

    def mark_extended(self, count: int) -> None:
        """Record that a session runs the first `count` nodes, which edits may no longer change."""
        self._num_fixed_nodes = max(self._num_fixed_nodes, count)

    def replace_input(self, node: Node, position: int, new: Output, *, reason: str) -> None:
        """Replace the input of `node` at index `position` by `new`.

        Raises: as `set_inputs`.
        """
        inputs = (*node.inputs[:position], new, *node.inputs[position + 1 :])
        self.set_inputs(node, inputs, reason=reason)

    def set_inputs(self, node: Node, inputs: Sequence[Output], *, reason: str) -> None:
        """Replace all inputs of `node` by the same number of new ones.

        Raises:
          FailedPreconditionError: a session runs `node`.
          InvalidArgumentError: an input has another element type or is in another graph; the graph
            is then unchanged.
        """
        self._check_editable(node, reason)
        pairs = zip(node.inputs, inputs, strict=True)
        changed = [(old, new) for old, new in pairs if old is not new]
        for old, new in changed:
            _check_replacement(old, new, self, reason)
        node.inputs = tuple(inputs)
        for old, new in changed:
            old._drop_use(node)
            new._add_use(node)

    def replace_uses(self, old: Output, new: Output, *, reason: str) -> int:
        """Replace `old` by `new` in every consumer; return the number of changed consumers.

        Raises: as `set_inputs`; the graph is then unchanged.
        """
        return self.replace_all_uses({old: new}, reason=reason)

    def replace_all_uses(
        self, replacements: Mapping[Output, Output], *, reason: str, keep: Collection[Node] = ()
    ) -> int:
        """Replace each key by its value in all consumers.

        The inputs of a consumer are rebuilt once, even if several change. Replacements are not
        replaced in turn.

        Args:
          keep: consumers to leave unchanged.
        Returns: the number of changed consumers.
        Raises: as `set_inputs`; the graph is then unchanged.
        """
        changed = {old: new for old, new in replacements.items() if old is not new}
        moved_uses: dict[Output, dict[Node, int]] = {}
        for old, new in changed.items():
            moved_uses[old] = {n: count for n, count in (old._uses or {}).items() if n not in keep}
            _check_replacement(old, new, self, reason)
        consumers = dict.fromkeys(node for counts in moved_uses.values() for node in counts)
        for node in consumers:
            self._check_editable(node, reason)
        for old, counts in moved_uses.items():
            old._uses = {n: count for n, count in (old._uses or {}).items() if n not in counts}
        for node in consumers:
            node.inputs = tuple([changed.get(source, source) for source in node.inputs])
        for old, counts in moved_uses.items():
            uses = changed[old]._uses = changed[old]._uses or {}
            for node, count in counts.items():
                uses[node] = uses.get(node, 0) + count
        return len(consumers)

    def set_control_inputs(self, node: Node, controls: Sequence[Node], *, reason: str) -> None:
        """Make `controls` the control inputs of `node`.

        Raises: FailedPreconditionError: a session runs `node`.
        """
        self._check_editable(node, reason)
        for control in node.controls:
            assert control._control_outputs is not None
            del control._control_outputs[node]
        node.controls = tuple(dict.fromkeys(controls))
        for control in node.controls:
            control._add_control_output(node)

    def remove_nodes(self, nodes: Iterable[Node], *, reason: str) -> None:
        """Remove nodes that nothing outside the set uses.

        Raises:
          FailedPreconditionError: a session runs one of them.
          InvalidArgumentError: a remaining node uses one of them; the graph is then unchanged.
        """
        doomed = dict.fromkeys(nodes)
        for node in doomed:
            self._check_editable(node, reason)
            for user in node.consumers:
                if user not in doomed:
                    raise errors.InvalidArgumentError(
                        f"cannot remove {node.name!r} ({reason}): {user.name!r} uses it"
                    )
        for node in doomed:
            for source in node.inputs:
                source._drop_use(node)
            for control in node.controls:
                assert control._control_outputs is not None
                del control._control_outputs[node]
            del self._by_name[node.name]
        self.nodes = [node for node in self.nodes if node not in doomed]
        for index, node in enumerate(self.nodes):
            node.index = index

    def reorder(self, nodes: Sequence[Node], *, reason: str) -> None:
        """Set the order of construction to the order of `nodes`, which must contain all nodes.

        Raises:
          FailedPreconditionError: a session runs one of them.
          InvalidArgumentError: some are missing or in another graph; the graph is then unchanged.
        """
        for node in nodes:
            self._check_editable(node, reason)
        if len(nodes) != len(self.nodes) or len(set(nodes)) != len(nodes):
            raise errors.InvalidArgumentError(
                f"an order of all {len(self.nodes)} nodes is required ({reason}), got {len(nodes)}"
            )
        self.nodes = list(nodes)
        for index, node in enumerate(self.nodes):
            node.index = index

    def become_constant(self, node: Node, const: OpDef, value: Any, *, reason: str) -> None:
        """Turn a node with one output into a constant with the same name and position.

        Raises: FailedPreconditionError: a session runs `node`.
        """
        self._check_editable(node, reason)
        for source in node.inputs:
            source._drop_use(node)
        output = node.outputs[0]
        node.inputs = ()
        node.set_op(const)
        node.attrs = {"value": value, "dtype": output.dtype}
        output.dims = value.shape

    def check_integrity(self) -> None:
        """Recompute every use-list and index from scratch and compare.

        Raises: InternalError: an entry is missing or superfluous; the message lists it.
        """
        problems: list[str] = []
        uses: dict[Output, Counter[Node]] = {
            out: Counter() for n in self.nodes for out in n.outputs
        }
        control_counts: dict[Node, Counter[Node]] = {n: Counter() for n in self.nodes}
        for index, node in enumerate(self.nodes):
            if node.index != index or self._by_name.get(node.name) is not node:
                problems.append(f"{node.name}: index {node.index} or name table is wrong")
            for source in node.inputs:
                if source not in uses:
                    problems.append(f"{node.name}: input {source.name} is not in the graph")
                else:
                    uses[source][node] += 1
            for control in node.controls:
                if control not in control_counts:
                    problems.append(
                        f"{node.name}: control input {control.name} is not in the graph"
                    )
                else:
                    control_counts[control][node] += 1
        if len(self._by_name) != len(self.nodes):
            problems.append("the name table has entries for removed nodes")
        for out, counts in uses.items():
            problems.extend(_difference(out.name, Counter(out._uses or {}), counts))
        for node, counted in control_counts.items():
            problems.extend(_difference("^" + node.name, Counter(node.control_outputs), counted))
        if problems:
            raise errors.InternalError("the graph is inconsistent: " + "; ".join(problems))

    def _check_editable(self, node: Node, reason: str) -> None:
        if node.graph is not self:
            raise errors.InvalidArgumentError(f"{node!r} belongs to a different graph ({reason})")
        if node.index < self._num_fixed_nodes:
            raise errors.FailedPreconditionError(
                f"{node.type} {node.name!r} was already run by a session and cannot be edited "
                f"({reason}); add nodes instead",
                op=node.type,
                node=node.name,
                line=node.line,
            )


def _check_replacement(old: Output, new: Output, graph: Edits, reason: str) -> None:
    if new.dtype.base_dtype is not old.dtype.base_dtype:
        raise errors.InvalidTypeError(
            f"cannot replace {old!r} by {new!r} ({reason}): the element types differ"
        )
    if new.graph is not graph:
        raise errors.InvalidArgumentError(f"{new!r} belongs to a different graph ({reason})")


def _difference(name: str, actual: Counter[Node], expected: Counter[Node]) -> list[str]:
    missing = [n.name for n in (expected - actual)]
    excess = [n.name for n in (actual - expected)]
    return [
        f"{name}: {kind} users {names}"
        for kind, names in (("missing", missing), ("excess", excess))
        if names
    ]
