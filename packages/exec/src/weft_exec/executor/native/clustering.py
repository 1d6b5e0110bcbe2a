"""Choice of the nodes of a part that are compiled together.

Nodes may be in one region if they wait for the same late values (of receives, dequeues and other
asynchronous nodes), and for the same number of alternations with nodes that are not compiled. So no
path leaves a region and comes back, and a region waits for no more than each of its nodes does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from weft_exec.executor.compilers import Offer
from weft_exec.executor.native.conditionals import Conditionals
from weft_exec.executor.native.variables import Variables
from weft_exec.kernels.random_counters import needs_counters
from weft_graph.ir.code_generators import Choosing, are_sizes, is_size
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import needs_of, only_waits
from weft_tensor import dtypes

LEAST: Final = 2
"""Minimum number of computing nodes that makes a region worth its call."""
MOST: Final = 1000
"""Maximum number of nodes of a region: a step gains nothing by one until all of it is compiled."""


class Choice(NamedTuple):
    """Nodes of a part that are compiled.

    Attributes:
      regions: sets of nodes that are compiled together.
      left: reasons why other computing nodes run by their kernels.
      conditionals: the conditionals that are in regions.
      loops: reasons why loops are not compiled as wholes, by name.
      names: names of the regions; a whole loop has that of its frame.
    """

    regions: list[list[Node]]
    left: dict[Node, str]
    conditionals: Conditionals
    loops: Mapping[str, str] = MappingProxyType({})
    names: Sequence[str] = ()


def choose(
    offer: Offer, generator: Choosing, asked: Collection[Node], device_type: str = "CPU"
) -> Choice:
    """Choose sets of the requested nodes that can be compiled together, and are worth it.

    Args:
      device_type: the type of the devices that the generator compiles for.
    """
    plain = offer if device_type == "CPU" else offer._replace(flow=None)
    conditionals = Conditionals(plain, generator, asked)
    while True:
        found = _with_reads(offer, generator, asked, conditionals, device_type)
        if not conditionals.drop_split(found.regions):
            return found


def _with_reads(
    offer: Offer,
    generator: Choosing,
    asked: Collection[Node],
    conditionals: Conditionals,
    device_type: str,
) -> Choice:
    """Choose nodes, including reads of variables whose values only members use."""
    offer = offer._replace(where=conditionals.where)
    variables = Variables(offer)
    later = _later_reads(offer, generator, variables, asked)
    while True:
        found = _choose(offer, generator, asked, variables, later, conditionals, device_type)
        apart = [read for read in later if _is_for_others(read, found.regions, variables)]
        if not apart:
            return found
        later = later.difference(apart)


def _later_reads(
    offer: Offer, generator: Choosing, variables: Variables, asked: Collection[Node]
) -> set[Node]:
    """Return reads of variables, in their order, whose values only compiled nodes may use."""
    return {
        node
        for node in offer.nodes
        if node in asked
        and generator.reads(node)
        and not are_sizes(node)
        and variables.reads_later(node)
        and all(
            user in asked and not generator.unsupported_reason(user)
            for user in node.outputs[0].consumers()
        )
    }


def _is_for_others(read: Node, regions: Sequence[list[Node]], variables: Variables) -> bool:
    """Return True if others use a read in a region, or the region does not change its variable."""
    for members in regions:
        if read in members:
            inside = set(members)
            changed = variables.changed_by_one_of(inside, read.inputs[0])
            return not (changed and inside.issuperset(read.outputs[0].consumers()))
    return False


def _choose(
    offer: Offer,
    generator: Choosing,
    asked: Collection[Node],
    variables: Variables,
    later: Collection[Node],
    conditionals: Conditionals,
    device_type: str,
) -> Choice:
    """Choose sets of nodes.

    Args:
      later: reads of variables, in their order, that may be members.
    """
    left: dict[Node, str] = {}
    offered = set(offer.nodes)
    needs = _needs(offer, variables, offered)
    known: dict[Node, _Waits] = {}
    groups: dict[tuple[object, _Waits], list[Node]] = {}
    sizes: set[Node] = set()
    for node in _sources_first(list(needs), needs):
        if node not in offered:  # computed by another compiler
            known[node] = _waits(None, 0, [known[need] for need in needs[node]], False)
            continue
        why = "" if node in asked else "no scope or option asks for it"
        if not why and node not in later:
            why = _unsupported_reason(generator, variables, node, sizes, conditionals)
        if not why:
            why = _placement_reason(offer, generator, node, device_type)
        if not why and are_sizes(node):
            sizes.add(node)
        elif not why and _asks_for_values(generator, node, known, sizes):
            why = "what is compiled depends on a value that is computed with it"
        where = None if why else (offer.where(node), conditionals.device(node).name)
        if why and not node.traits.routes and node.inputs:
            left[node] = why
        late = 1 << len(known) if node.traits.asynchronous and not node.traits.routes else 0
        ends = where is not None and generator.changes_places(node)
        waited = [known[need] for need in needs[node]]
        if node in conditionals or any(need in conditionals for need in needs[node]):
            takes = {source.node for source in node.inputs} | set(variables.before(node))
            waited = [
                known[need] if need in takes else known[need]._replace(ends=False)
                for need in needs[node]
            ]
        if only_waits(node):
            known[node] = _passed(waited)
            continue
        known[node] = waits = _waits(where, late, waited, ends)
        if where is not None:
            groups.setdefault((where, waits._replace(ends=False)), []).append(node)
    worth = [members for members in groups.values() if _is_worth_it(generator, members, sizes)]
    found = [piece for members in worth for piece in _pieces(members, conditionals)]
    for members in found:
        members[:0] = _snapshots(offer, generator, variables, members, asked, conditionals)
    chosen = {node for members in found for node in members}
    left = {node: why for node, why in left.items() if node not in chosen}
    few = "too little waits for the same things"
    left |= {node: few for group in groups.values() for node in group if node not in chosen}
    return Choice(found, left, conditionals)


def _snapshots(
    offer: Offer,
    generator: Choosing,
    variables: Variables,
    members: Sequence[Node],
    asked: Collection[Node],
    conditionals: Conditionals,
) -> list[Node]:
    """Return reads of variables that only members use, so that they need no copy.

    A value that is held while its variable is updated makes the update copy the variable.
    """
    inside = set(members)
    device = conditionals.device(members[0])
    sources = dict.fromkeys(source.node for member in members for source in member.inputs)
    return [
        node
        for node in sources
        if node in asked
        and node not in inside
        and generator.reads(node)
        and variables.may_be_read_by(node, inside)
        and offer.where(node) == offer.where(members[0])
        and offer.place(node)[0] == device
    ]


def _pieces(members: list[Node], conditionals: Conditionals) -> list[list[Node]]:
    """Split nodes, in topological order, into pieces of similar size that only need earlier ones.

    A conditional is in one piece, unless that would be twice as large as others.
    """
    count = -(-len(members) // MOST)
    ends = [len(members) * at // count for at in range(count + 1)]
    if count > 1:
        spans = list(conditionals.spans(members))
        ends = sorted({_beside(end, spans) for end in ends})
    return [members[low:high] for low, high in pairwise(ends)]


def _beside(end: int, spans: Iterable[tuple[int, int]]) -> int:
    """Move a cut out of a conditional to its beginning, if that is near."""
    place = end
    for first, last in sorted(spans, reverse=True):
        if first < place <= last:
            place = first
    return place if end - place < MOST else end


def _needs(offer: Offer, variables: Variables, offered: Collection[Node]) -> dict[Node, list[Node]]:
    """Return the nodes that each node waits for; an exit of a loop waits for all nodes of the loop.

    A node that accesses a variable waits for those that access it before. Paths also lead through
    nodes that are not offered any more because another compiler took them.
    """
    loops: dict[object, list[Node]] = {}
    for node in offer.nodes:
        loops.setdefault(_loop(offer, node), []).append(node)
    found: dict[Node, list[Node]] = {}
    waiting = list(offer.nodes)
    for node in waiting:
        if node in found:
            continue
        if node.role is Role.EXIT and node in offered:
            found[node] = loops[_loop(offer, node.inputs[0].node)]
            continue
        found[node] = _through_constants(node)
        found[node] += variables.before(node) if node in offered else []
        waiting += [need for need in found[node] if need not in offered]
    return found


def _through_constants(node: Node) -> list[Node]:
    """Return the nodes that a node waits for, with constants replaced by what they wait for."""
    found = needs_of(node)
    known = {need for need in found if need.role is Role.CONSTANT and need.controls}
    if known:
        found = [need for need in found if need not in known]
        found += [need for constant in known for need in constant.controls]
    return list(found)


def _loop(offer: Offer, node: Node) -> object:
    where = offer.where(node)
    return where[0] if isinstance(where, tuple) else where


def _sources_first(nodes: Sequence[Node], needs: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """Sort nodes topologically.

    Returns: nothing for nodes that wait for each other; derivation refuses these by their names.
    """
    found: dict[Node, None] = {}
    begun: set[Node] = set()
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting[-1]
        missing = [] if node in found else [need for need in needs[node] if need not in found]
        if missing:
            if node in begun:
                return []
            begun.add(node)
            waiting += missing
            continue
        waiting.pop()
        found.setdefault(node)
    return list(found)


class _Waits(NamedTuple):
    """Dependencies of a node.

    Attributes:
      where: key of the nodes that it may be compiled together with; None if it is not compiled.
      steps: number of transitions, on the longest path to it, into compiled nodes from other
        places.
      late: bit set of the nodes among its sources whose values come late.
      ends: True if it changes variables in place, so that nodes that wait for it are in another
        region: results of members are read in place, or copied.
    """

    where: object
    steps: int
    late: int
    ends: bool = False


def _waits(where: object, late: int, needs: Iterable[_Waits], ends: bool) -> _Waits:
    """Combine the dependencies of a node's needs to those of the node.

    Args:
      late: its own bit, if its value comes late.
    """
    steps = 0
    for other in needs:
        apart = where is not None and (other.ends or other.where != where)
        steps, late = max(steps, other.steps + apart), late | other.late
    return _Waits(where, steps, late, ends)


def _passed(needs: Sequence[_Waits]) -> _Waits:
    """Return the dependencies of a node that only waits; it may join the region of its needs."""
    places = {other.where for other in needs}
    where = places.pop() if len(places) == 1 and not any(n.ends for n in needs) else None
    return _waits(where, 0, needs, False)


def _asks_for_values(
    generator: Choosing, node: Node, known: Mapping[Node, _Waits], sizes: Collection[Node]
) -> bool:
    """Return True if an input whose value must be known to compile a node is itself compiled."""
    deciding = generator.needs_value(node)
    if not deciding:
        return False
    sources = [node.inputs[at].node for at in deciding]
    return any(
        source in known and known[source].where is not None and source not in sizes
        for source in sources
    )


def deciding_inputs(generator: Choosing, node: Node) -> Sequence[int]:
    """Return the positions of inputs of a compiled node whose values decide what is compiled."""
    if are_sizes(node):
        return () if node.role is Role.SWITCH else _evaluated_from(node)
    return generator.needs_value(node)


def _follow_from_shapes(node: Node, sizes: Collection[Node]) -> bool:
    """Return True if sizes are known whenever shapes are.

    Args:
      sizes: nodes whose results are known so.
    """
    if node.op_def.value_rule is None:
        return False
    if node.role is Role.SWITCH:
        source = node.inputs[0].node
        return source.role is Role.CONSTANT or source in sizes
    sources = [node.inputs[at].node for at in _evaluated_from(node)]
    return all(source.role is Role.CONSTANT or source in sizes for source in sources)


def _evaluated_from(node: Node) -> Sequence[int]:
    """Return the positions of inputs whose values sizes depend on; none if shapes suffice."""
    rule = node.op_def.value_rule
    return range(len(node.inputs)) if rule is None or rule.needs is None else rule.needs


def _unsupported_reason(
    generator: Choosing,
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
            return "a loop or a branch touches its variable too"
        if all(map(is_size, node.inputs[changes:])):
            return "it counts"
    elif (
        traits.routes
        or (traits.stateful and not generator.draws(node))
        or not (node.inputs and node.outputs)
    ):
        return "it has state, or only routes values"
    elif not variables.may_read(node) or (traits.identity and node.inputs[0].dtype.is_ref):
        return "it reads a variable for others"
    elif any(v.dtype is dtypes.resource for v in (*node.inputs, *node.outputs)):
        return "it takes a handle"
    elif traits.identity and node.outputs[0].dtype.is_bool and _decides(node, conditionals):
        return "it decides a branch, whose other parts take what it is of"
    elif are_sizes(node) and not _follow_from_shapes(node, sizes):
        return "it may be sizes or axes, which others ask for"
    return generator.unsupported_reason(node)


def _routing_reason(
    generator: Choosing, variables: Variables, node: Node, sizes: Collection[Node]
) -> str:
    """Return why a control-flow node or a read of a variable cannot be compiled, or ""."""
    if node.traits.routes:
        if are_sizes(node) and not _follow_from_shapes(node, sizes):
            return "it may be sizes or axes, which others ask for"
        return generator.unsupported_reason(node)
    if not variables.may_be_read(node.inputs[0]):
        return "it reads a variable in no order with others"
    return ""


def _decides(node: Node, conditionals: Conditionals) -> bool:
    """Return True if nodes that route values by kernels use a node's result."""
    return any(user.traits.routes and user not in conditionals for user in node.consumers)


def _placement_reason(offer: Offer, generator: Choosing, node: Node, device_type: str) -> str:
    if node.traits.routes:
        return ""
    device, kernel = offer.place(node)
    if device.type != device_type:
        return f"it is on {device.name}"
    counts = needs_counters(node) and not generator.draws(node)
    waits = kernel.asynchronous or counts
    return "it is asynchronous, or draws random numbers" if waits else ""


def _is_worth_it(generator: Choosing, members: Sequence[Node], sizes: Collection[Node]) -> bool:
    """Return True if nodes are worth a call; kernels update several variables in many passes."""
    work = [
        node
        for node in members
        if not (node in sizes or node.role is Role.SWITCH or generator.reads(node))
    ]
    counts = [(node.traits.view is None) + (generator.changes(node) > 1) for node in work]
    return sum(counts) >= LEAST or any(map(generator.repays, work))
