"""Copying graphs and checking that their use-lists are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft_graph.ir.node import Node, Output
from weft_graph.ops.control_flow import ENTERS
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph


def copy_nodes(source: Graph, nodes: Iterable[Node]) -> Graph:
    """A new graph with copies of `nodes` of `source`, in the order given, and of its functions.

    An input may come later in the order, as after an edit or in a loop. Control inputs that are
    not among the nodes are dropped.

    Raises: InvalidArgumentError: an input is not among the nodes.
    """
    from weft_graph.ir.graph import Graph

    graph = Graph()
    twins = {node: _copy_alone(node, graph) for node in nodes}
    for node, twin in twins.items():
        try:
            twin.inputs = tuple([twins[s.node].outputs[s.index] for s in node.inputs])
        except KeyError as missing:
            raise errors.InvalidArgumentError(
                f"cannot copy {node.name!r} without its input {missing.args[0]!r}"
            ) from None
        for output in twin.inputs:
            output._add_use(twin)
        if node.control_inputs:
            controls = [twins[c] for c in node.control_inputs if c in twins]
            graph.set_control_inputs(twin, controls, reason="copy")
        if node.forward is not None:
            twin.forward = twins.get(node.forward)
    if source.has_contexts:
        _copy_contexts(source, graph, twins)
    graph.functions.update(source.functions)
    graph.gradient_functions.update(source.gradient_functions)
    return graph


def _copy_contexts(source: Graph, graph: Graph, twins: dict[Node, Node]) -> None:
    """Copy the contexts, unless some of their nodes were left out, as by pruning."""
    from weft_graph.control_flow.records import records_of, restore

    if all(node in twins for node in source.nodes if node.context is not None):
        restore(graph, records_of(source, twins), lambda place: twins[source.nodes[place]])


def _copy_alone(node: Node, graph: Graph) -> Node:
    """A copy without its edges, which takes its name in `graph`."""
    twin = graph.add_node(
        node.op_def,
        graph.exact_name(node.name),
        (),
        dict(node.attrs),
        [out.dtype for out in node.outputs],
        [out.dims for out in node.outputs],
        node._code,
        node._line,
    )
    twin.device = node.device
    if node.type in ENTERS:
        graph.reserve_name(node.attrs["frame_name"])
    return twin


def check_integrity(graph: Graph) -> None:
    """Recompute use-lists, control outputs, names and indices; InternalError lists what differs."""
    problems: list[str] = []
    uses: dict[Output, Counter[Node]] = {out: Counter() for n in graph.nodes for out in n.outputs}
    waits: dict[Node, Counter[Node]] = {n: Counter() for n in graph.nodes}
    for index, node in enumerate(graph.nodes):
        if node.index != index or graph._by_name.get(node.name) is not node:
            problems.append(f"{node.name}: index {node.index} or name table is wrong")
        for source in node.inputs:
            if source not in uses:
                problems.append(f"{node.name}: input {source.name} is not in the graph")
            else:
                uses[source][node] += 1
        for control in node.control_inputs:
            if control not in waits:
                problems.append(f"{node.name}: control input {control.name} is not in the graph")
            else:
                waits[control][node] += 1
    if len(graph._by_name) != len(graph.nodes):
        problems.append("the name table has entries for nodes that are gone")
    for out, counted in uses.items():
        problems.extend(_difference(out.name, Counter(out._uses or {}), counted))
    for node, counted in waits.items():
        problems.extend(_difference("^" + node.name, Counter(node.control_outputs), counted))
    if problems:
        raise errors.InternalError("the graph is inconsistent: " + "; ".join(problems))


def _difference(name: str, have: Counter[Node], want: Counter[Node]) -> list[str]:
    missing = [n.name for n in (want - have)]
    excess = [n.name for n in (have - want)]
    return [
        f"{name}: {kind} users {names}"
        for kind, names in (("missing", missing), ("excess", excess))
        if names
    ]
