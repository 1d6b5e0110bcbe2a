"""The part of a graph that one Run signature needs, as a separate graph."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from weft_graph.ir.costs import free
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op, register_op
from weft_graph.ir.traits import Role, State, Traits
from weft_tensor import errors

_log = logging.getLogger("weft.passes")

register_op(
    "_Arg",
    outputs=("output: T",),
    attrs={"T": "type", "index": "int >= 0", "shape": "shape = unknown"},
    shape=lambda node: [node.attrs["shape"]],
    traits=Traits(state=State.READS, role=Role.ARGUMENT, cost=free),
    doc="The value fed to Run at a position of its signature.",
)


class StepGraph:
    """A pruned copy that passes may edit, with its feeds and fetches.

    Attributes:
      graph: the copy; names, attributes and source lines are those of the original.
      feeds: the `_Arg` outputs, in the order of the signature's feeds.
      fetches: the outputs to return, in the order of the signature's fetches.
      targets: nodes to run for their effects.
      isolated: fetches routed through a separate node, and the outputs whose value they return.
      changes: number of changes by reason.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Sequence[Output],
        fetches: Sequence[Output],
        targets: Sequence[Node],
    ) -> None:
        self.graph = graph
        self.feeds = list(feeds)
        self.targets = list(targets)
        self.changes: Counter[str] = Counter()
        self.isolated: dict[Output, Output] = {}
        self._fetches = list(fetches)
        self._forward: dict[Output, Output] = {}

    @property
    def fetches(self) -> list[Output]:
        """The outputs to return, after replacements."""
        return [self.resolve(output) for output in self._fetches]

    def isolate_fetch(self, position: int, controls: Sequence[Node] = ()) -> None:
        """Route a fetch through a new node that runs after some nodes."""
        output = self.fetches[position]
        copy = self.identity(output, f"_fetch{position}_{output.node.name}", controls=controls)
        self._fetches[position] = copy
        self.isolated[copy] = output

    def identity(
        self,
        value: Output,
        name: str,
        device: str = "",
        controls: Sequence[Node] = (),
        *,
        reason: str = "identity",
    ) -> Output:
        """Return a value through a new node on a device that runs after some nodes."""
        dtype = value.dtype.base_dtype
        node = self.graph.add_derived(
            value.node,
            lookup_op("Identity"),
            self.graph.unique_name(name),
            (value,),
            {"T": dtype},
            [dtype],
            [value.dims],
        )
        node.device = device
        if controls:
            self.graph.set_control_inputs(node, controls, reason=reason)
        return node.outputs[0]

    def resolve(self, output: Output) -> Output:
        """Return the final replacement of `output`."""
        path: list[Output] = []
        while output in self._forward:
            path.append(output)
            output = self._forward[output]
        for step in path:
            self._forward[step] = output
        return output

    def replace(self, old: Output, new: Output, *, reason: str) -> None:
        """Replace `old` by `new` everywhere, including fetches."""
        self.replace_all({old: new}, reason=reason)

    def replace_all(
        self, replacements: Mapping[Output, Output], *, reason: str, keep: Collection[Node] = ()
    ) -> None:
        """Replace each key by its value in fetches and in all nodes except some."""
        self.graph.replace_all_uses(replacements, reason=reason, keep=keep)
        for old, new in replacements.items():
            self.note_replacement(old, new, reason=reason)

    def note_replacement(self, old: Output, new: Output, *, reason: str) -> None:
        """Fetch `new` instead of `old`; the caller updates the consumers of `old`."""
        self._forward[old] = new
        self.changes[reason] += 1
        if new.node.role not in (Role.CONSTANT, Role.ARGUMENT):
            self.graph.origins.note_replaced(new.node.name, old.node.name)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s is now %s", reason, old.name, new.name)

    def forward(self, old: Output, new: Output) -> None:
        """Fetch `new` instead of `old`, without changing the consumers of `old`."""
        self._fetches = [
            new if self.resolve(fetched) is old else fetched for fetched in self._fetches
        ]

    def drop_unused(self, nodes: Iterable[Node]) -> None:
        """Remove those of `nodes` that are unused and not targets."""
        targets = set(self.targets)
        doomed = [node for node in nodes if node not in targets and not node.consumers]
        if doomed:
            self.graph.remove_nodes(doomed, reason="unused")

    def remove_unreachable(self, *, reason: str) -> None:
        """Remove the nodes that neither fetches nor targets need, except feeds."""
        live = reachable([output.node for output in self.fetches] + self.targets)
        live |= {feed.node for feed in self.feeds}
        self.graph.remove_nodes([n for n in self.graph.nodes if n not in live], reason=reason)

    def live_nodes(self) -> list[Node]:
        """Return the nodes that fetches and targets still need, inputs before users.

        Raises: InvalidArgumentError: the nodes form a cycle.
        """
        roots = [output.node for output in self.fetches] + self.targets
        return sort_nodes(reachable(roots))


class Replacements:
    """Replacements found by a pass that visits the nodes of a step, inputs before users.

    All inputs of a node are replaced together when the pass visits it; replacing them one by one
    would take quadratic time. Nodes visited before their inputs, because of back edges, are updated
    at the end of the `with` block.
    """

    def __init__(self, step: StepGraph) -> None:
        self._step = step
        self._replaced: dict[Output, None] = {}

    def __enter__(self) -> Replacements:
        return self

    def visit(self, node: Node) -> None:
        """Apply the replacements to a node's inputs."""
        if self._replaced and not self._replaced.keys().isdisjoint(node.inputs):
            inputs = [self._step.resolve(source) for source in node.inputs]
            self._step.graph.set_inputs(node, inputs, reason="replacement")

    def add(self, old: Output, new: Output, *, reason: str) -> None:
        """Replace `old`, an output of the visited node, by `new`."""
        self._step.note_replacement(old, new, reason=reason)
        self._replaced[old] = None

    def __exit__(self, *failure: object) -> None:
        remaining = {old: self._step.resolve(old) for old in self._replaced if old.consumers()}
        self._step.graph.replace_all_uses(remaining, reason="replacement")


class Part:
    """The part of a step that one device runs.

    Attributes:
      step: graph of the part.
      nodes: its nodes, in the order of the whole step.
      feeds, fetches: indices of its feeds and fetches among those of the whole step.
    """

    def __init__(
        self,
        step: StepGraph,
        nodes: Sequence[Node],
        feeds: Sequence[int],
        fetches: Sequence[int],
    ) -> None:
        self.step = step
        self.nodes = tuple(nodes)
        self.feeds = tuple(feeds)
        self.fetches = tuple(fetches)


RunOrder = Callable[[Sequence[Node]], Sequence[Node]]
"""Function from live nodes to their execution order."""


def reorder_nodes(
    step: StepGraph, nodes: Sequence[Node], before: Mapping[Node, Sequence[Node]]
) -> None:
    """Reorder the step's graph to an order of nodes.

    Args:
      nodes: the live nodes, except new ones, in execution order.
      before: mapping from a node to the new nodes directly before it.
    """
    order: list[Node] = []
    for node in nodes:
        order += before.get(node, ())
        order.append(node)
    live = set(order)
    new_nodes = [node for node in step.graph.nodes if node not in live]
    step.graph.reorder([*new_nodes, *order], reason="run order")


def copy_nodes(
    nodes: Sequence[Node], graph: Graph, outputs: dict[Output, Output]
) -> dict[Node, Node]:
    """Append copies of nodes to a graph.

    Control inputs and forward nodes that are not copied are dropped.

    Args:
      nodes: nodes with inputs before users, ignoring back edges.
      outputs: replacements of outputs; the copies' outputs are added to it.
    Returns: the copies.
    """
    counterparts: dict[Node, Node] = {}
    for node in nodes:
        counterpart = graph.add_copy(node, node.name, _sources(node, outputs))
        counterpart.device = node.device
        if node.forward is not None:
            counterpart.forward = counterparts.get(node.forward)
        controls = [counterparts[control] for control in node.controls if control in counterparts]
        if controls:
            graph.set_control_inputs(counterpart, controls, reason="copy")
        counterparts[node] = counterpart
        for output, copied_output in zip(node.outputs, counterpart.outputs, strict=True):
            outputs.setdefault(output, copied_output)
    for node in nodes:
        if node.role is Role.MERGE:
            graph.set_inputs(counterparts[node], [outputs[s] for s in node.inputs], reason="copy")
    return counterparts


def _sources(node: Node, outputs: dict[Output, Output]) -> tuple[Output, ...]:
    """Return the copies of a node's inputs; placeholders for back edges not yet copied."""
    if node.role is not Role.MERGE:
        return tuple([outputs[source] for source in node.inputs])
    forward_value = next(outputs[source] for source in node.inputs if source in outputs)
    return tuple([outputs.get(source, forward_value) for source in node.inputs])


def is_back_edge(node: Node, source: Output) -> bool:
    """Return True if an input of a node comes from the previous iteration."""
    return source.node.role is Role.NEXT_ITERATION and node.role is Role.MERGE


def reachable(
    roots: Iterable[Node], stop: frozenset[Output] | set[Output] = frozenset()
) -> set[Node]:
    """Return `roots` and all nodes that they need, not following outputs in `stop`.

    Control edges to the node of such an output are not followed either.
    """
    live: set[Node] = set()
    stopped = {output.node for output in stop}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in live:
            continue
        live.add(node)
        if stop:
            stack.extend([source.node for source in node.inputs if source not in stop])
        else:
            stack.extend([source.node for source in node.inputs])
        if node.controls:
            stack.extend([control for control in node.controls if control not in stopped])
    return live


def sort_nodes(nodes: set[Node], stop: frozenset[Output] | set[Output] = frozenset()) -> list[Node]:
    """Return `nodes` in topological order, with ties in the order of construction.

    Raises: InvalidArgumentError: the nodes form a cycle; the message lists it.
    """
    in_order = sorted(nodes, key=lambda node: node.index)
    for node in in_order:
        index = node.index
        for source in node.inputs:
            if source.node.index >= index and source not in stop and not is_back_edge(node, source):
                return _topological(in_order, stop)
        for control in node.controls:
            if control.index >= index and control in nodes:
                return _topological(in_order, stop)
    return in_order


def _topological(nodes: list[Node], stop: frozenset[Output] | set[Output]) -> list[Node]:
    members = set(nodes)
    users: dict[Node, list[Node]] = {node: [] for node in nodes}
    pending: dict[Node, int] = {}
    for node in nodes:
        needs = {s.node for s in node.inputs if s not in stop and not is_back_edge(node, s)}
        needs.update(node.controls)
        needs &= members
        pending[node] = len(needs)
        for need in needs:
            users[need].append(node)
    ready = [node.index for node in nodes if not pending[node]]
    by_index = {node.index: node for node in nodes}
    result: list[Node] = []
    heapq.heapify(ready)
    while ready:
        node = by_index[heapq.heappop(ready)]
        result.append(node)
        for user in users[node]:
            pending[user] -= 1
            if not pending[user]:
                heapq.heappush(ready, user.index)
    if len(result) < len(nodes):
        raise _cycle_error({node for node in nodes if pending[node]})
    return result


def _cycle_error(stuck: set[Node]) -> errors.InvalidArgumentError:
    node = min(stuck, key=lambda n: n.index)
    path: dict[Node, None] = {}
    while node not in path:
        path[node] = None
        predecessors = [s.node for s in node.inputs] + list(node.controls)
        node = next(n for n in predecessors if n in stuck)
    names = list(path)
    cycle = [n.name for n in names[names.index(node) :]]
    return errors.InvalidArgumentError(
        "the graph has a cycle outside loops: " + " <- ".join([*cycle, cycle[0]]),
        op=node.type,
        node=node.name,
        line=node.line,
    )
