"""Choice of the nodes of a part that are compiled together.

Nodes may be in one region if they wait for the same late values (of receives, dequeues and other
asynchronous nodes), and for the same number of alternations with nodes that are not compiled. No
path leaves a region and returns, and a region waits for nothing that some of its nodes do not need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from weft_exec.executor.compilers import CompileOffer
from weft_exec.executor.native.conditionals import Conditionals
from weft_exec.executor.native.variables import Variables
from weft_exec.kernels.random_counters import needs_counters
from weft_graph.ir.code_generators import CompileSupport, are_sizes, is_size
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import dependencies_of, only_waits
from weft_tensor import dtypes

LEAST: Final = 2
"""Minimum number of computing nodes that makes a region worth its call."""
MOST: Final = 1000
"""Maximum number of nodes of a region: a step gains nothing until all of it is compiled."""


class NodeSelection(NamedTuple):
    """Nodes of a part that are compiled.

    Attributes:
      regions: sets of nodes that are compiled together.
      left: reasons why other computing nodes run by their kernels.
      conditionals: the conditionals that are in regions.
      loops: reasons why loops are not compiled, by name.
      names: names of the regions; a compiled loop has the position of its frame.
    """

    regions: list[list[Node]]
    left: dict[Node, str]
    conditionals: Conditionals
    loops: Mapping[str, str] = MappingProxyType({})
    names: Sequence[str] = ()


def choose(
    offer: CompileOffer,
    generator: CompileSupport,
    allowed: Collection[Node],
    device_type: str = "CPU",
) -> NodeSelection:
    """Choose sets of the requested nodes that can be compiled together, and are worth it.

    Args:
      device_type: the type of the devices that the generator compiles for.
    """
    plain = offer if device_type == "CPU" else offer._replace(flow=None)
    conditionals = Conditionals(plain, generator, allowed)
    while True:
        selection = _add_reads(offer, generator, allowed, conditionals, device_type)
        if not conditionals.drop_split(selection.regions):
            return selection


def _add_reads(
    offer: CompileOffer,
    generator: CompileSupport,
    allowed: Collection[Node],
    conditionals: Conditionals,
    device_type: str,
) -> NodeSelection:
    """Choose nodes, including reads of variables whose values only members use."""
    offer = offer._replace(where=conditionals.where)
    variables = Variables(offer)
    later = _later_reads(offer, generator, variables, allowed)
    while True:
        selection = _choose(offer, generator, allowed, variables, later, conditionals, device_type)
        separate_reads = [
            read for read in later if _is_for_others(read, selection.regions, variables)
        ]
        if not separate_reads:
            return selection
        later = later.difference(separate_reads)


def _later_reads(
    offer: CompileOffer, generator: CompileSupport, variables: Variables, allowed: Collection[Node]
) -> set[Node]:
    """Return reads of variables, in their order, whose values only compiled nodes may use."""
    return {
        node
        for node in offer.nodes
        if node in allowed
        and generator.reads(node)
        and not are_sizes(node)
        and variables.reads_later(node)
        and all(
            user in allowed and not generator.unsupported_reason(user)
            for user in node.outputs[0].consumers()
        )
    }


def _is_for_others(read: Node, regions: Sequence[list[Node]], variables: Variables) -> bool:
    """Return True if others use a read in a region, or the region does not change its variable."""
    for members in regions:
        if read in members:
            member_set = set(members)
            changed = variables.is_changed_by_any(member_set, read.inputs[0])
            return not (changed and member_set.issuperset(read.outputs[0].consumers()))
    return False


def _choose(
    offer: CompileOffer,
    generator: CompileSupport,
    allowed: Collection[Node],
    variables: Variables,
    later: Collection[Node],
    conditionals: Conditionals,
    device_type: str,
) -> NodeSelection:
    """Choose sets of nodes.

    Args:
      later: reads of variables, in their order, that may be members.
    """
    reasons: dict[Node, str] = {}
    offered = set(offer.nodes)
    needs = _needs(offer, variables, offered)
    dependencies: dict[Node, _Dependencies] = {}
    groups: dict[tuple[object, _Dependencies], list[Node]] = {}
    sizes: set[Node] = set()
    for node in _sort_topologically(list(needs), needs):
        if node not in offered:  # computed by another compiler
            dependencies[node] = _combine_waits(
                None, 0, [dependencies[need] for need in needs[node]], False
            )
            continue
        why = "" if node in allowed else "no scope or option asks for it"
        if not why and node not in later:
            why = _unsupported_reason(generator, variables, node, sizes, conditionals)
        if not why:
            why = _placement_reason(offer, generator, node, device_type)
        if not why and are_sizes(node):
            sizes.add(node)
        elif not why and _has_value_dependent_inputs(generator, node, dependencies, sizes):
            why = "what is compiled depends on a value that is computed with it"
        context = None if why else (offer.where(node), conditionals.device(node).name)
        if why and not node.traits.routes and node.inputs:
            reasons[node] = why
        own_bit = (
            1 << len(dependencies) if node.traits.asynchronous and not node.traits.routes else 0
        )
        ends = context is not None and generator.changes_places(node)
        waited = [dependencies[need] for need in needs[node]]
        if node in conditionals or any(need in conditionals for need in needs[node]):
            takes = {source.node for source in node.inputs} | set(variables.before(node))
            waited = [
                dependencies[need] if need in takes else dependencies[need]._replace(ends=False)
                for need in needs[node]
            ]
        if only_waits(node):
            dependencies[node] = _forwarded_waits(waited)
            continue
        dependencies[node] = waits = _combine_waits(context, own_bit, waited, ends)
        if context is not None:
            groups.setdefault((context, waits._replace(ends=False)), []).append(node)
    worth = [members for members in groups.values() if _is_worth_it(generator, members, sizes)]
    pieces = [piece for members in worth for piece in _split_nodes(members, conditionals)]
    for members in pieces:
        members[:0] = _snapshots(offer, generator, variables, members, allowed, conditionals)
    selected = {node for members in pieces for node in members}
    reasons = {node: why for node, why in reasons.items() if node not in selected}
    reason = "too little waits for the same things"
    reasons |= {node: reason for group in groups.values() for node in group if node not in selected}
    return NodeSelection(pieces, reasons, conditionals)


def _snapshots(
    offer: CompileOffer,
    generator: CompileSupport,
    variables: Variables,
    members: Sequence[Node],
    allowed: Collection[Node],
    conditionals: Conditionals,
) -> list[Node]:
    """Return reads of variables that only members use, so that they need no copy.

    A value that is held while its variable is updated makes the update copy the variable.
    """
    member_set = set(members)
    device = conditionals.device(members[0])
    sources = dict.fromkeys(source.node for member in members for source in member.inputs)
    return [
        node
        for node in sources
        if node in allowed
        and node not in member_set
        and generator.reads(node)
        and variables.may_be_read_by(node, member_set)
        and offer.where(node) == offer.where(members[0])
        and offer.place(node)[0] == device
    ]


def _split_nodes(members: list[Node], conditionals: Conditionals) -> list[list[Node]]:
    """Split topologically ordered nodes into pieces of similar size that need only earlier ones.

    A conditional is in one piece, unless that would be twice as large as others.
    """
    count = -(-len(members) // MOST)
    ends = [len(members) * part_index // count for part_index in range(count + 1)]
    if count > 1:
        spans = list(conditionals.spans(members))
        ends = sorted({_move_cut(end, spans) for end in ends})
    return [members[low:high] for low, high in pairwise(ends)]


def _move_cut(end: int, spans: Iterable[tuple[int, int]]) -> int:
    """Move a cut out of a conditional to its beginning, if that is near."""
    position = end
    for first, last in sorted(spans, reverse=True):
        if first < position <= last:
            position = first
    return position if end - position < MOST else end


def _needs(
    offer: CompileOffer, variables: Variables, offered: Collection[Node]
) -> dict[Node, list[Node]]:
    """Return the nodes that each node waits for; an exit of a loop waits for all nodes of the loop.

    A node that accesses a variable waits for earlier accesses. Paths also lead through
    nodes that are not offered any more because another compiler took them.
    """
    loops: dict[object, list[Node]] = {}
    for node in offer.nodes:
        loops.setdefault(_loop(offer, node), []).append(node)
    needs_by_node: dict[Node, list[Node]] = {}
    waiting = list(offer.nodes)
    for node in waiting:
        if node in needs_by_node:
            continue
        if node.role is Role.EXIT and node in offered:
            needs_by_node[node] = loops[_loop(offer, node.inputs[0].node)]
            continue
        needs_by_node[node] = _dependencies_of(node)
        needs_by_node[node] += variables.before(node) if node in offered else []
        waiting += [need for need in needs_by_node[node] if need not in offered]
    return needs_by_node


def _dependencies_of(node: Node) -> list[Node]:
    """Return the nodes that a node waits for; constants are replaced by their dependencies."""
    needs = dependencies_of(node)
    constant_needs = {need for need in needs if need.role is Role.CONSTANT and need.controls}
    if constant_needs:
        needs = [need for need in needs if need not in constant_needs]
        needs += [need for constant in constant_needs for need in constant.controls]
    return list(needs)


def _loop(offer: CompileOffer, node: Node) -> object:
    context = offer.where(node)
    return context[0] if isinstance(context, tuple) else context


def _sort_topologically(nodes: Sequence[Node], needs: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """Sort nodes topologically.

    Returns: nothing for nodes that wait for each other; derivation refuses these by their names.
    """
    ordered: dict[Node, None] = {}
    visited: set[Node] = set()
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting[-1]
        missing = [] if node in ordered else [need for need in needs[node] if need not in ordered]
        if missing:
            if node in visited:
                return []
            visited.add(node)
            waiting += missing
            continue
        waiting.pop()
        ordered.setdefault(node)
    return list(ordered)


class _Dependencies(NamedTuple):
    """Dependencies of a node.

    Attributes:
      where: key of the nodes that it may be compiled together with; None if it is not compiled.
      steps: number of transitions, on the longest path to it, into compiled nodes from other nodes.
      late: bit set of the nodes among its sources whose values come late.
      ends: True if it changes variables in place, so that nodes that wait for it are in another
        region: results of members are read in place, or copied.
    """

    where: object
    steps: int
    late: int
    ends: bool = False


def _combine_waits(
    context: object, own_bits: int, needs: Iterable[_Dependencies], ends: bool
) -> _Dependencies:
    """Combine the dependencies of a node's needs into the node's dependencies.

    Args:
      own_bits: its own bit, if its value comes late.
    """
    steps = 0
    for other in needs:
        is_separate = context is not None and (other.ends or other.where != context)
        steps, own_bits = max(steps, other.steps + is_separate), own_bits | other.late
    return _Dependencies(context, steps, own_bits, ends)


def _forwarded_waits(needs: Sequence[_Dependencies]) -> _Dependencies:
    """Return the dependencies of a node that only waits; it may join the region of its needs."""
    conditions = {other.where for other in needs}
    context = conditions.pop() if len(conditions) == 1 and not any(n.ends for n in needs) else None
    return _combine_waits(context, 0, needs, False)


def _has_value_dependent_inputs(
    generator: CompileSupport,
    node: Node,
    dependencies: Mapping[Node, _Dependencies],
    sizes: Collection[Node],
) -> bool:
    """Return True if an input whose value must be known to compile a node is itself compiled."""
    deciding = generator.value_dependent_inputs(node)
    if not deciding:
        return False
    sources = [node.inputs[input_index].node for input_index in deciding]
    return any(
        source in dependencies and dependencies[source].where is not None and source not in sizes
        for source in sources
    )


def static_inputs(generator: CompileSupport, node: Node) -> Sequence[int]:
    """Return the positions of a compiled node's inputs whose values affect the compiled code."""
    if are_sizes(node):
        return () if node.role is Role.SWITCH else _shape_inputs(node)
    return generator.value_dependent_inputs(node)


def _are_known_from_shapes(node: Node, sizes: Collection[Node]) -> bool:
    """Return True if sizes are known whenever shapes are.

    Args:
      sizes: nodes whose results are known so.
    """
    if node.op_def.value_rule is None:
        return False
    if node.role is Role.SWITCH:
        source = node.inputs[0].node
        return source.role is Role.CONSTANT or source in sizes
    sources = [node.inputs[input_index].node for input_index in _shape_inputs(node)]
    return all(source.role is Role.CONSTANT or source in sizes for source in sources)


def _shape_inputs(node: Node) -> Sequence[int]:
    """Return the positions of inputs whose values determine sizes; none if shapes suffice."""
    rule = node.op_def.value_rule
    return range(len(node.inputs)) if rule is None or rule.needs is None else rule.needs


def _unsupported_reason(
    generator: CompileSupport,
    variables: Variables,
    node: Node,
    sizes: Collection[Node],
    conditionals: Conditionals,
) -> str:
    """Return why a node cannot be compiled, or ""."""
    changes = generator.changes(node)
    traits = node.traits
    if node in conditionals and (traits.routes or generator.reads(node)):
        return _routing_reason(generator, variables, node, sizes)
    if changes:
        if not variables.may_change(node, changes):
            return "a loop or conditional that is not compiled accesses its variable"
        if all(map(is_size, node.inputs[changes:])):
            return "it only updates a counter"
    elif (
        traits.routes
        or (traits.stateful and not generator.uses_rng(node))
        or not (node.inputs and node.outputs)
    ):
        return "it is stateful, or only routes values"
    elif not variables.may_read(node) or (traits.identity and node.inputs[0].dtype.is_ref):
        return "it forwards a variable, or its order relative to updates is undefined"
    elif any(v.dtype is dtypes.resource for v in (*node.inputs, *node.outputs)):
        return "it uses a resource handle"
    elif (
        traits.identity
        and node.outputs[0].dtype.is_bool
        and _is_routing_predicate(node, conditionals)
    ):
        return "it selects a branch that kernels run"
    elif are_sizes(node) and not _are_known_from_shapes(node, sizes):
        return "it may compute sizes or axes of other nodes"
    return generator.unsupported_reason(node)


def _routing_reason(
    generator: CompileSupport, variables: Variables, node: Node, sizes: Collection[Node]
) -> str:
    """Return why a control-flow node or a read of a variable cannot be compiled, or ""."""
    if node.traits.routes:
        if are_sizes(node) and not _are_known_from_shapes(node, sizes):
            return "it may compute sizes or axes of other nodes"
        return generator.unsupported_reason(node)
    if not variables.may_be_read(node.inputs[0]):
        return "its order relative to updates of its variable is undefined"
    return ""


def _is_routing_predicate(node: Node, conditionals: Conditionals) -> bool:
    """Return True if nodes that route values with kernels use a node's result."""
    return any(user.traits.routes and user not in conditionals for user in node.consumers)


def _placement_reason(
    offer: CompileOffer, generator: CompileSupport, node: Node, device_type: str
) -> str:
    if node.traits.routes:
        return ""
    device, kernel = offer.place(node)
    if device.type != device_type:
        return f"it is on {device.name}"
    counts = needs_counters(node) and not generator.uses_rng(node)
    waits = kernel.asynchronous or counts
    return "it is asynchronous, or draws random numbers" if waits else ""


def _is_worth_it(
    generator: CompileSupport, members: Sequence[Node], sizes: Collection[Node]
) -> bool:
    """Return True if nodes are worth a call; kernels update several variables in many passes."""
    work = [
        node
        for node in members
        if not (node in sizes or node.role is Role.SWITCH or generator.reads(node))
    ]
    counts = [(node.traits.view is None) + (generator.changes(node) > 1) for node in work]
    return sum(counts) >= LEAST or any(map(generator.repays, work))
