"""Rematerialization: gradients recompute forward values instead of keeping them (paper, 4.1).

Gradient nodes read copies of forward nodes (`node/recomputed`). Nodes are copied in groups. A group
starts when its first gradient does: it waits for a node that comes after the group's originals, so
its values do not take memory during the rest of the forward pass.

Groups are runs of cheap nodes, or the segments between checkpoints. Values that are used in a later
segment are kept, and all others are recomputed. Segments end where the fewest bytes are used later.
Their number is chosen to minimize the estimated memory; for a chain it is about the square root of
its length.

Source: T. Chen, B. Xu, C. Zhang, C. Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016.
"""

from __future__ import annotations

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import RunOrder, StepGraph, reorder_nodes
from weft_graph.passes.memory import BytesOf, MemoryLimits, static_bytes
from weft_graph.passes.recompute.analysis import Analysis, Group, Plan
from weft_graph.passes.recompute.plans import Recompute, choose_plan

SUFFIX = "/recomputed"
"""Suffix of the names of copies."""


def recompute(
    step: StepGraph,
    candidates: Recompute = Recompute.ALL,
    *,
    scope: str = "gradients/",
    memory: MemoryLimits | None = None,
    bytes_of: BytesOf | None = None,
    run_order: RunOrder = list,
) -> int:
    """Make gradient nodes use recomputed values.

    Stateful, fed and fetched nodes, and nodes in branches and loops, are never copied. Hints are
    followed wherever the step has gradients; other groups are formed only if they save memory.

    Args:
      candidates: the nodes that may be recomputed.
      scope: name scope of gradient nodes that are not marked as such.
      memory: memory limits of the step; the plan with the least work within them is chosen. None to
        minimize memory.
      bytes_of: sizes of values; default to those of static shapes.
      run_order: sorts live nodes into execution order; they are in that order by default.
    Returns: the number of copied nodes.
    """
    minimum = MemoryLimits({"": 0})
    analysis = Analysis(step, scope, bytes_of or static_bytes, memory or minimum, run_order)
    if not analysis.has_gradients:
        return 0
    plan = choose_plan(analysis, candidates, memory is not None)
    if plan is None:
        return 0
    return _Rewriter(step, analysis, plan).run()


class _Rewriter:
    """Rewriter that applies a plan."""

    def __init__(self, step: StepGraph, analysis: Analysis, plan: Plan) -> None:
        self._step = step
        self._analysis = analysis
        self._groups = plan.groups
        self._copies: dict[Output, Output] = {}

    def run(self) -> int:
        """Copy the groups, make gradients use the copies, and insert these into the order."""
        nodes, count = self._analysis.nodes, 0
        insertions: dict[Node, list[Node]] = {}
        for group in self._groups:
            copies = self._copy(group)
            insertions.setdefault(nodes[group.start], []).extend(copies)
            count += len(copies)
        for i, node in enumerate(nodes):
            if self._analysis.backward[i]:
                self._use_copies(node)
        reorder_nodes(self._step, nodes, insertions)
        self._step.changes["recompute"] += count
        return count

    def _copy(self, group: Group) -> list[Node]:
        nodes = self._analysis.nodes
        outputs: dict[Output, Output] = {}
        copies: list[Node] = []
        for i in group.members:
            inputs = tuple([outputs.get(source, source) for source in nodes[i].inputs])
            counterpart = self._copy_node(nodes[i], inputs)
            if not any([source in outputs for source in nodes[i].inputs]):
                self._step.graph.set_control_inputs(
                    counterpart, [nodes[group.trigger]], reason="recompute"
                )
            outputs.update(zip(nodes[i].outputs, counterpart.outputs, strict=True))
            copies.append(counterpart)
        self._copies.update(outputs)
        return copies

    def _copy_node(self, node: Node, inputs: tuple[Output, ...]) -> Node:
        graph = self._step.graph
        counterpart = graph.add_copy(node, graph.unique_name(node.name + SUFFIX), inputs)
        counterpart.device = node.device
        return counterpart

    def _use_copies(self, node: Node) -> None:
        for position, source in enumerate(node.inputs):
            copy = self._copies.get(source)
            if copy is not None:
                self._step.graph.replace_input(node, position, copy, reason="recompute")
