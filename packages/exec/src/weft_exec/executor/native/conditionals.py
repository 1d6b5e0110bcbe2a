"""Conditionals that are compiled with the nodes around them: both sides in one region."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import CompileOffer
from weft_exec.executor.priority import variable_of
from weft_graph.ir.code_generators import Branches, CompileSupport, Path
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow, dependencies_of, only_waits, predicate


class Conditionals:
    """Conditionals of a part; the nodes of each can still be in the same region.

    Args:
      asked: the nodes that should be compiled.
    """

    def __init__(
        self, offer: CompileOffer, generator: CompileSupport, allowed: Collection[Node]
    ) -> None:
        self._where = offer.where
        self._flow = offer.flow
        self._open: list[tuple[Output, list[Node]]] = []
        if offer.flow is not None:
            offered = set(offer.nodes)
            for predicate, nodes in _classes(offer.flow).items():
                self._open += [
                    (predicate, component)
                    for component in _connected_components(nodes, offer.flow, predicate)
                    if all(
                        node in offered and _may_be_inside(offer, generator, node, allowed)
                        for node in component
                    )
                    and _is_closed(component, offer.flow, predicate)
                    and len({offer.place(node)[0] for node in component if _has_kernel(node)}) == 1
                ]
        self._place = offer.place
        self._note()

    def _note(self) -> None:
        """Index the nodes of conditionals, and drop conditionals whose outer one is missing.

        A gradient reads values of an inner conditional through a Switch of the outer one.
        """
        count = -1
        while count != len(self._open):
            count = len(self._open)
            self._decided_by: dict[Node, set[Output]] = {}
            for decided, nodes in self._open:
                for node in nodes:
                    self._decided_by.setdefault(node, set()).add(decided)
            self._open = [
                (decided, nodes)
                for decided, nodes in self._open
                if all(
                    predicate(node) in self._decided_by[node]
                    for node in nodes
                    if node.role is Role.SWITCH
                )
            ]

    def __contains__(self, node: Node) -> bool:
        """Return True if a node is in a conditional, or is a Switch or Merge of one."""
        return node in self._decided_by

    def where(self, node: Node) -> object:
        """Return a key of a node's condition, apart from predicates of these conditionals."""
        condition = self._where(node)
        inner_path = self._decided_by.get(node)
        if not inner_path or not isinstance(condition, tuple):
            return condition
        frame, guard = condition
        return frame, frozenset(atom for atom in guard if atom[0] not in inner_path)

    def device(self, node: Node) -> Device:
        """Return the device of a node; for control flow, that of nodes in its conditional."""
        if not node.traits.routes:
            return self._place(node)[0]
        nodes = next(nodes for _, nodes in self._open if node in nodes)
        return next(self._place(other)[0] for other in nodes if _has_kernel(other))

    def spans(self, members: Sequence[Node]) -> Iterator[tuple[int, int]]:
        """Yield the first and the last position of each conditional among some nodes."""
        position = {node: i for i, node in enumerate(members)}
        for _, nodes in self._open:
            positions = [position[node] for node in nodes if node in position]
            if positions:
                yield min(positions), max(positions)

    def drop_split(self, regions: Iterable[Sequence[Node]]) -> bool:
        """Drop conditionals that are divided between regions; return True if there were any."""
        region_of = {
            node: region_index for region_index, members in enumerate(regions) for node in members
        }
        complete = [
            (predicate, nodes)
            for predicate, nodes in self._open
            if len({region_of.get(node) for node in nodes if not _is_left_out(node)} | {None}) == 2
            and all(node in region_of for node in nodes if not _is_left_out(node))
        ]
        num_before = len(self._open)
        self._open = complete
        self._note()
        return len(self._open) < num_before

    def of(self, members: Sequence[Node]) -> Branches:
        """Return the branches of a set of nodes that contains complete conditionals."""
        flow = self._flow
        if flow is None or not any(node in self for node in members):
            return Branches()
        switches: dict[Output, Node] = {}
        for node in members:
            if node.role is Role.SWITCH:
                switches.setdefault(predicate(node), node)
        paths: dict[Node, Path] = {}
        sides: dict[Node, tuple[Node, bool]] = {}
        for node in members:
            inner_path = self._decided_by.get(node, ())
            path = [atom for atom in flow.path(flow.guard(node)) if atom[0] in inner_path]
            if path:
                paths[node] = tuple([(switches[decided], bool(side)) for decided, side in path])
            if node.role is Role.MERGE:
                decided, side = _merge_predicate(flow, node)
                sides[node] = switches[decided], bool(side)
        return Branches(paths, sides)


def _is_left_out(node: Node) -> bool:
    """Return True if a node may be in a conditional without being in a region."""
    return only_waits(node) or node.role in (Role.CONSTANT, Role.TRIGGER)


def _has_kernel(node: Node) -> bool:
    return not (_is_left_out(node) or node.traits.routes)


def _classes(flow: Flow) -> dict[Output, list[Node]]:
    """Return the nodes that each predicate decides, with the Switches and Merges around them."""
    nodes_by_predicate: dict[Output, dict[Node, None]] = {}
    for node in flow.frame:
        predicates = [source for source, _ in flow.guard(node) if isinstance(source, Output)]
        if node.role is Role.SWITCH:
            predicates.append(predicate(node))
        elif node.role is Role.MERGE and _joins_conditional(flow, node):
            predicates.append(_merge_predicate(flow, node)[0])
        for source in predicates:
            if source.node.role is not Role.LOOP_COND:
                nodes_by_predicate.setdefault(source, {})[node] = None
    return {source: list(nodes) for source, nodes in nodes_by_predicate.items()}


def _joins_conditional(flow: Flow, merge: Node) -> bool:
    """Return True if a Merge joins the two sides of one conditional."""
    if len(merge.inputs) != 2 or any(is_back_edge(merge, source) for source in merge.inputs):
        return False
    lower, upper = [flow.output_guard(source) for source in merge.inputs]
    only_lower, only_upper = lower - upper, upper - lower
    if len(only_lower) != 1 or len(only_upper) != 1:
        return False
    ((predicate, side),), ((other, other_side),) = only_lower, only_upper
    return predicate is other and isinstance(predicate, Output) and side + other_side == 1


def _merge_predicate(flow: Flow, merge: Node) -> tuple[Output, int]:
    """Return the predicate of a Merge, and the predicate value that selects input 1."""
    lower, upper = [flow.output_guard(source) for source in merge.inputs]
    ((predicate, side),) = upper - lower
    return predicate, side


def _connected_components(nodes: Sequence[Node], flow: Flow, predicate: Output) -> list[list[Node]]:
    """Split the nodes of a predicate into sets that are only connected through Merges."""
    leader = {node: node for node in nodes}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = node = leader[leader[node]]
        return node

    for node in nodes:
        for need in dependencies_of(node):
            if need in leader and not _is_join(flow, need, predicate):
                leader[find(need)] = find(node)
    neighbors: dict[Node, list[Node]] = {}
    for node in nodes:
        neighbors.setdefault(find(node), []).append(node)
    return list(neighbors.values())


def _is_closed(nodes: Sequence[Node], flow: Flow, predicate: Output) -> bool:
    """Return True if values that depend on a predicate only leave through Merges.

    A Merge of another predicate waits for a live input, as for constants in a branch.
    """
    node_set = set(nodes)
    return all(
        _is_join(flow, node, predicate)
        or all(node_set.issuperset(output.consumers()) for output in node.outputs)
        for node in nodes
    )


def _is_join(flow: Flow, node: Node, predicate: Output) -> bool:
    """Return True if a node joins the sides of a conditional."""
    joins = node.role is Role.MERGE and _joins_conditional(flow, node)
    return joins and _merge_predicate(flow, node)[0] is predicate


def _may_be_inside(
    offer: CompileOffer, generator: CompileSupport, node: Node, allowed: Collection[Node]
) -> bool:
    """Return True if a node of a conditional may be in a region, apart from its neighbors."""
    if _is_left_out(node):
        return True
    if node not in allowed:
        return False
    if node.role is not Role.MERGE and any(out in offer.step.fetches for out in node.outputs):
        return False
    if node.role is Role.SWITCH:
        source = node.inputs[0]
        is_value = not (source.dtype.is_ref or _is_handle(source))
        return not generator.unsupported_reason(node) and (
            is_value or variable_of(source) is not None
        )
    if node.role is Role.MERGE:
        return not (
            generator.unsupported_reason(node) or generator.changes(node)
        ) and _have_one_shape(node)
    if generator.reads(node):
        return variable_of(node.inputs[0]) is not None
    return not generator.unsupported_reason(node) and not any(map(_is_handle, node.outputs))


def _is_handle(output: Output) -> bool:
    return output.dtype.name == "resource"


def _have_one_shape(merge: Node) -> bool:
    """Return True if both inputs may have the same shape."""
    first, second = [source.dims for source in merge.inputs]
    if first is None or second is None:
        return True
    return len(first) == len(second) and all(
        a is None or b is None or a == b for a, b in zip(first, second, strict=True)
    )
