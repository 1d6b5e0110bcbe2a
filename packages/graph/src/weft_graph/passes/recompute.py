"""Recomputation: values that only gradients wait for are computed again, not kept (paper, 4.1).

Copies of forward nodes (`node/recomputed`) give gradient nodes what they need.  Nodes are copied in
groups.  A group starts where its first gradient does: it waits for a node that came after the
group's originals, so that its values are not there while the rest of the forward pass is computed.

Groups are runs of cheap nodes, or the segments between checkpoints: the values that cross from one
segment to the next are kept, and all within is computed again.  Cuts are put where least crosses,
and the number of segments is the one that is estimated to need the least memory, which for a chain
is about the square root of its length.

Source: T. Chen, B. Xu, C. Zhang, C. Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from weft_graph.node import Node, Output
from weft_graph.ops.control_flow import ROUTING
from weft_graph.passes.flow import ALWAYS, Flow, has_control_flow, needs_of
from weft_graph.passes.memory import BytesOf, Values, peaks, sizes_of
from weft_graph.passes.step_graph import RunOrder, StepGraph, place_new_nodes

SUFFIX = "/recomputed"
"""What is added to the name of a node for that of its copy."""

HINT = "_recompute_hint"
"""Attribute of nodes that the program wants to be computed again."""

_LONGEST_RUN = 8
"""Cheap nodes one after the other; a longer run would be as dear as what it starts from."""

_SMALL = 4096
"""Bytes that are never worth a node."""

_FARTHEST = 256
"""Nodes between the first gradient of a group and what tells that it is near, at most."""

_GIVEN = frozenset({"_Arg", "Const", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})

_CHEAP = frozenset(
    {
        "Abs",
        "Add",
        "AddN",
        "AddV2",
        "BiasAdd",
        "BroadcastTo",
        "Cast",
        "Cos",
        "Div",
        "Elu",
        "Exp",
        "ExpandDims",
        "Fill",
        "FloorDiv",
        "FloorMod",
        "FusedBatchNorm",
        "FusedBatchNormV2",
        "FusedBatchNormV3",
        "Identity",
        "LeakyRelu",
        "Log",
        "Log1p",
        "Maximum",
        "Minimum",
        "Mul",
        "Neg",
        "OnesLike",
        "RealDiv",
        "Reciprocal",
        "Relu",
        "Relu6",
        "Reshape",
        "Rsqrt",
        "Selu",
        "Sigmoid",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Square",
        "SquaredDifference",
        "Squeeze",
        "Sub",
        "Tanh",
        "Tile",
        "Transpose",
        "ZerosLike",
    }
)
"""Ops that do little for each element, and so are worth doing again before others."""


class Recompute(Enum):
    """What may be computed again, each with what comes before it."""

    HINTS = "nodes with a hint"
    CHEAP = "cheap nodes and those with a hint"
    ALL = "what is between checkpoints"


def recompute(
    step: StepGraph,
    what: Recompute = Recompute.ALL,
    *,
    scope: str = "gradients/",
    limit: int | None = None,
    bytes_of: BytesOf | None = None,
    run_order: RunOrder = list,
) -> int:
    """Let gradient nodes take values that are computed again.

    Stateful nodes, what is fed or fetched, and what is in branches and loops are never copied.
    Hints are followed wherever some node tells that gradients are near; other groups are formed
    only where less memory is needed then.

    Args:
      what: what may be computed again.
      scope: name scope of gradient nodes that are not marked as such.
      limit: bytes that the step should need at most; then of the plans that do the one with the
        least work is chosen. None for as little memory as possible.
      bytes_of: sizes of values; those of static shapes by default.
      run_order: puts live nodes into the order in which they will run; as they are by default.
    Returns: the number of nodes copied.
    """
    analysis = _Analysis(step, scope, bytes_of or sizes_of(), run_order)
    if not analysis.has_gradients:
        return 0
    plan = _chosen(analysis, what, limit)
    if plan is None:
        return 0
    return _Rewriter(step, analysis, plan).run()


class Group(NamedTuple):
    """Nodes that are computed again together.

    Attributes:
      members: places of nodes, inputs first.
      start: the place of the first gradient node that needs them.
      trigger: the place of the node that they wait for.
    """

    members: tuple[int, ...]
    start: int
    trigger: int


class Plan(NamedTuple):
    """Groups, and what comes of them: bytes at the peak, and work in multiplications."""

    groups: list[Group]
    peak: int
    work: int


# -------------------------------------------------------------------------------- what is there


class _Analysis:
    """A step's nodes in order, and what is known of each by its place.

    Attributes:
      nodes: in the order in which they run.
      place: of each node.
      backward: whether a node computes gradients, or waits for some.
      latest: the last place of a forward node that a node waits for, or its own.
      movable: whether it may be copied.
      saved: bytes that are not kept any more if gradients do not use its values.
      readers: the places of nodes that take a node's outputs.
      values: numbered.
    """

    def __init__(self, step: StepGraph, scope: str, bytes_of: BytesOf, run_order: RunOrder) -> None:
        self.nodes = list(run_order(step.live_nodes()))
        self.fetches = step.fetches
        self.place = {node: i for i, node in enumerate(self.nodes)}
        self.values = Values(self.nodes, self.fetches, bytes_of)
        self.backward: list[bool] = []
        self.latest: list[int] = []
        self._find_backward(scope)
        self.has_gradients = any(self.backward)
        self.flow = Flow(self.nodes) if has_control_flow(self.nodes) else None
        targets = set(step.targets)
        self.movable = [node not in targets and self._is_movable(node) for node in self.nodes]
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for source in dict.fromkeys([s.node for s in node.inputs]):
                self.readers[self.place[source]].append(i)
        self.last_forward, self.wanted = self._uses_of_values()
        self.saved = self._savings()

    def _find_backward(self, scope: str) -> None:
        for i, node in enumerate(self.nodes):
            needs = [j for need in needs_of(node) if (j := self.place[need]) < i]
            found = node.forward is not None or _is_in(node.name, scope)
            found = found or any([self.backward[j] for j in needs])
            self.backward.append(found)
            before = max([self.latest[j] for j in needs], default=-1)
            self.latest.append(before if found or node.type in _GIVEN else i)

    def _is_movable(self, node: Node) -> bool:
        if self.backward[self.place[node]] or node.type in _GIVEN or node.type in ROUTING:
            return False
        if node.op_def.stateful or not node.outputs or not self.is_plain(node):
            return False
        if any([o.dtype.is_ref for o in (*node.inputs, *node.outputs)]):
            return False
        numbers, kept = self.values.numbers, self.values.kept
        return not any([numbers[output] in kept for output in node.outputs])

    def is_plain(self, node: Node) -> bool:
        """Whether a node runs once in each step, in no branch and no loop."""
        flow = self.flow
        if flow is None:
            return True
        return (
            node.type not in ROUTING
            and node.type != "LoopCond"
            and flow.frame[node] is flow.root
            and flow.guard(node) == ALWAYS
        )

    def _uses_of_values(self) -> tuple[list[int], list[bool]]:
        """For each value its last use by a forward node, and whether gradients use it."""
        last = [-1] * len(self.values.sizes)
        wanted = [False] * len(self.values.sizes)
        for i, reads in enumerate(self.values.reads):
            for value in reads:
                if self.backward[i]:
                    wanted[value] = True
                else:
                    last[value] = i
        return last, wanted

    def _savings(self) -> list[int]:
        sizes, wanted = self.values.sizes, self.wanted
        every = [
            sum([sizes[v] for v in made if wanted[v]]) if movable else 0
            for made, movable in zip(self.values.makes, self.movable, strict=True)
        ]
        least = min(_SMALL, sum(every) // 256)
        return [size if size > least else 0 for size in every]

    # ------------------------------------------------------------------ groups and plans

    def group(self, allowed: Sequence[int], first: Iterable[int] | None = None) -> Group | None:
        """What of the allowed nodes gradients need again, or None where nothing is won.

        Args:
          allowed: places, in order.
          first: of them those that gradients are to take anew; all that save something by default.
        """
        start = len(self.nodes)
        while True:
            inside = set(allowed)
            roots = [i for i in (allowed if first is None else first) if i in inside]
            roots = [i for i in roots if first is not None or self.saved[i]]
            members = sorted(self._behind(roots, inside))
            users = [j for i in members for j in self.readers[i] if self.backward[j]]
            if not users:
                return None
            start = min(users)
            if members[-1] < start:
                break
            allowed = [i for i in allowed if i < start]
        trigger = self._trigger(start, members[-1])
        return None if trigger is None else Group(tuple(members), start, trigger)

    def _behind(self, roots: Iterable[int], inside: set[int]) -> set[int]:
        found: set[int] = set()
        stack = list(roots)
        while stack:
            i = stack.pop()
            if i in found:
                continue
            found.add(i)
            for source in self.nodes[i].inputs:
                j = self.place[source.node]
                if j in inside and j not in found:
                    stack.append(j)
        return found

    def _trigger(self, start: int, last: int) -> int | None:
        """What tells that gradients are near: a node before `start` that waits for later values."""
        near: list[int] = [self.place[need] for need in needs_of(self.nodes[start])]
        near.sort(reverse=True)
        near.extend(range(start - 1, max(last, start - _FARTHEST), -1))
        for i in near:
            node = self.nodes[i]
            if self.backward[i] and self.latest[i] > last and self.is_plain(node):
                return i
        return None

    def plan(self, groups: Sequence[Group]) -> Plan:
        """What groups come to."""
        work = sum([work_of(self.nodes[i]) for group in groups for i in group.members])
        return Plan(list(groups), self._peak(groups), work)

    def _peak(self, groups: Sequence[Group]) -> int:
        numbers, more = self.values.numbers, len(self.values.sizes)
        group_of = {i: group for group in groups for i in group.members}
        starts: dict[int, list[Group]] = {}
        for group in groups:
            starts.setdefault(group.start, []).append(group)
        reads: list[Sequence[int]] = []
        makes: list[Sequence[int]] = []

        def number(source: Output, group: Group | None) -> int:
            found = group_of.get(self.place[source.node])
            new = found is not None and (group is None or found is group)
            return numbers[source] + more if new else numbers[source]

        for i, node in enumerate(self.nodes):
            for group in starts.get(i, ()):
                for j in group.members:
                    reads.append([number(s, group) for s in self.nodes[j].inputs])
                    makes.append([value + more for value in self.values.makes[j]])
            if self.backward[i]:
                reads.append([number(source, None) for source in node.inputs])
            else:
                reads.append(self.values.reads[i])
            makes.append(self.values.makes[i])
        return peaks(reads, makes, self.values.sizes * 2, self.values.kept)[0][0]


def _is_in(name: str, scope: str) -> bool:
    return bool(scope) and (name.startswith(scope) or f"/{scope}" in name)


def work_of(node: Node) -> int:
    """About how many multiplications or the like a node takes; unknown sizes count as 1."""
    made: int = sum([_elements(output) for output in node.outputs])
    if node.type in ("MatMul", "BatchMatMul", "BatchMatMulV2"):
        dims: tuple[int | None, ...] = node.inputs[0].dims or (1,)
        flipped = node.attrs.get("transpose_a") or node.attrs.get("adj_x")
        inner = dims[-2] if flipped and len(dims) > 1 else dims[-1]
        return made * (inner or 1)
    if "BackpropFilter" in node.type and len(node.inputs) == 3 and node.outputs[0].dims:
        return _elements(node.inputs[2]) * _product(node.outputs[0].dims[:-1])
    if "Conv" in node.type and len(node.inputs) > 1 and node.inputs[1].dims:
        return made * _product(node.inputs[1].dims[:-1])
    return max([made, *[_elements(source) for source in node.inputs]])


def _elements(output: Output) -> int:
    return _product(output.dims or ())


def _product(sizes: Sequence[int | None]) -> int:
    return math.prod([size or 1 for size in sizes])


# -------------------------------------------------------------------------------- plans


def _chosen(analysis: _Analysis, what: Recompute, limit: int | None) -> Plan | None:
    """The plan to carry out, or None."""
    hinted = [i for i, node in enumerate(analysis.nodes) if analysis.movable[i] and _hint(node)]
    crossing = _crossing(analysis)
    base = analysis.plan(_runs(analysis, set(hinted), len(hinted), hinted, ()))
    plans = [base]
    if what is not Recompute.HINTS:
        plans += _cheap_plans(analysis, hinted, crossing)
    if what is Recompute.ALL and (limit is None or min(p.peak for p in plans) > limit):
        plans += _segmentations(analysis, set(hinted), crossing)
    fitting = [plan for plan in plans if limit is not None and plan.peak <= limit]
    if fitting:
        assert limit is not None
        best = min(fitting, key=lambda plan: (plan.work, plan.peak))
        best = best if hinted else _thinned(analysis, best, limit)
    else:
        best = min(plans, key=lambda plan: (plan.peak, plan.work))
    return best if best.groups else None


def _thinned(analysis: _Analysis, plan: Plan, limit: int) -> Plan:
    """As few of a plan's first groups as keep to the limit; values of the last live shortest."""
    groups = sorted(plan.groups)
    low, high, best = 0, len(groups), plan
    while low < high:
        middle = (low + high) // 2
        found = analysis.plan(groups[:middle])
        if found.peak <= limit:
            high, best = middle, found
        else:
            low = middle + 1
    return best


def _hint(node: Node) -> bool:
    return bool(node.attrs.get(HINT))


def _movable(analysis: _Analysis) -> list[int]:
    return [i for i, movable in enumerate(analysis.movable) if movable]


def _cheap_plans(analysis: _Analysis, hinted: Sequence[int], crossing: Sequence[int]) -> list[Plan]:
    """Plans that copy cheap nodes and those with a hint, in longer and shorter runs."""
    allowed = {i for i in _movable(analysis) if analysis.nodes[i].type in _CHEAP}
    allowed.update(hinted)
    plans: list[Plan] = []
    for number in (1, 8, 64, 512):
        cuts = _cuts(analysis, crossing, number) if number > 1 else []
        if number == 1 or cuts:
            runs = _runs(analysis, allowed, _LONGEST_RUN, hinted, cuts)
            plans.append(analysis.plan(runs))
    return plans


def _runs(
    analysis: _Analysis,
    allowed: set[int],
    longest: int,
    hinted: Sequence[int],
    cuts: Sequence[int],
) -> list[Group]:
    """Groups of allowed nodes that follow one another, no more than so many in a line.

    Args:
      hinted: of them those that are copied, whatever that saves.
      cuts: places that no group goes past.
    """
    parents: dict[int, int] = {}
    depth: dict[int, int] = {}

    def find(i: int) -> int:
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i

    for i in sorted(allowed):
        before = {analysis.place[s.node] for s in analysis.nodes[i].inputs} & parents.keys()
        if cuts:
            segment = bisect_left(cuts, i)
            before = {j for j in before if bisect_left(cuts, j) == segment}
        level = 1 + max([depth[j] for j in before], default=0)
        if level > longest:
            continue  # it is kept, and the next run starts behind it
        parents[i], depth[i] = i, level
        for j in before:
            parents[find(j)] = find(i)
    components: dict[int, list[int]] = {}
    for i in sorted(parents):
        components.setdefault(find(i), []).append(i)
    wanted = set(hinted)
    found: list[Group] = []
    for members in components.values():
        if not wanted.isdisjoint(members):
            group = analysis.group(members, [i for i in members if _is_used(analysis, i, wanted)])
        else:
            group = analysis.group(members)
            if group is not None and not _wins(analysis, group):
                group = None
        if group is not None:
            found.append(group)
    return found


def _is_used(analysis: _Analysis, i: int, hinted: set[int]) -> bool:
    return (i in hinted or bool(analysis.saved[i])) and any(
        [analysis.backward[j] for j in analysis.readers[i]]
    )


def _wins(analysis: _Analysis, group: Group) -> bool:
    """Whether a group saves more than is kept for it."""
    values, members = analysis.values, set(group.members)
    made = {v for i in members for v in values.makes[i]}
    read = {v for i in members for v in values.reads[i]} - made
    kept = sum([values.sizes[v] for v in read if not analysis.wanted[v] and v not in values.kept])
    return sum([analysis.saved[i] for i in members]) > kept


def _segmentations(analysis: _Analysis, hinted: set[int], crossing: Sequence[int]) -> list[Plan]:
    """Plans with different numbers of checkpoints: powers of two, and others near the best."""
    count = sum([bool(saved) for saved in analysis.saved])
    most = min(count, 4 * math.isqrt(count) + 4)
    found: dict[int, Plan] = {}

    def look_at(number: int) -> None:
        if 2 <= number <= most and number not in found:
            cuts = _cuts(analysis, crossing, number)
            found[number] = analysis.plan(_segments(analysis, cuts, hinted))

    number = 2
    while number <= most:
        look_at(number)
        number *= 2
    for shift in (4, 8):
        if found:
            best = min(found, key=lambda n: (found[n].peak, found[n].work))
            look_at(best - max(1, best // shift))
            look_at(best + max(1, best // shift))
    return list(found.values())


def _crossing(analysis: _Analysis) -> list[int]:
    """The bytes that would be kept if one segment ended at each place."""
    values = analysis.values
    change = [0] * (len(analysis.nodes) + 1)
    for i, made in enumerate(values.makes):
        if analysis.movable[i]:
            for value in made:
                end = analysis.last_forward[value]
                if end > i:
                    change[i] += values.sizes[value]
                    change[end] -= values.sizes[value]
    total, found = 0, []
    for i in range(len(analysis.nodes)):
        total += change[i]
        found.append(total)
    return found


def _cuts(analysis: _Analysis, crossing: Sequence[int], number: int) -> list[int]:
    """The places at which about so many segments end: where the least crosses."""
    budget = max(1, sum(analysis.saved) // number)
    cuts: list[int] = []
    held, best = 0, -1
    since_best = 0
    for i, saved in enumerate(analysis.saved):
        if analysis.backward[i]:
            continue
        held += saved
        since_best += saved
        if held * 2 >= budget and (best < 0 or crossing[i] <= crossing[best]):
            best, since_best = i, 0
        if held >= budget and best >= 0:
            cuts.append(best)
            held, best = since_best, -1
            since_best = 0
    return cuts


def _segments(analysis: _Analysis, cuts: Sequence[int], hinted: set[int]) -> list[Group]:
    """The groups between cuts; what is behind the last cut is used at once, and kept."""
    values = analysis.values
    numbers = values.numbers
    found: list[Group] = []
    begin = 0
    for end in cuts:
        allowed = [
            i
            for i in range(begin, end + 1)
            if analysis.movable[i]
            and all([_stays(analysis, numbers[o], end) for o in analysis.nodes[i].outputs])
        ]
        begin = end + 1
        group = analysis.group(allowed)
        if group is not None:
            found.append(group)
    rest = {i for i in hinted if i >= begin}
    return found + (_runs(analysis, rest, len(rest), sorted(rest), ()) if rest else [])


def _stays(analysis: _Analysis, value: int, end: int) -> bool:
    """Whether no forward node behind the end of a segment uses a value."""
    return analysis.last_forward[value] <= end


# -------------------------------------------------------------------------------- the edit


class _Rewriter:
    """Carries out a plan."""

    def __init__(self, step: StepGraph, analysis: _Analysis, plan: Plan) -> None:
        self._step = step
        self._analysis = analysis
        self._groups = plan.groups
        self._copies: dict[Output, Output] = {}

    def run(self) -> int:
        """Copy the groups, let gradients use them, and put them where they run."""
        nodes, count = self._analysis.nodes, 0
        before: dict[Node, list[Node]] = {}
        for group in self._groups:
            made = self._copy(group)
            before.setdefault(nodes[group.start], []).extend(made)
            count += len(made)
        for i, node in enumerate(nodes):
            if self._analysis.backward[i]:
                self._use_copies(node)
        place_new_nodes(self._step, nodes, before)
        self._step.changes["recompute"] += count
        return count

    def _copy(self, group: Group) -> list[Node]:
        nodes = self._analysis.nodes
        mine: dict[Output, Output] = {}
        made: list[Node] = []
        for i in group.members:
            inputs = tuple([mine.get(source, source) for source in nodes[i].inputs])
            twin = self._twin(nodes[i], inputs)
            if not any([source in mine for source in nodes[i].inputs]):
                self._step.graph.set_control_inputs(
                    twin, [nodes[group.trigger]], reason="recompute"
                )
            mine.update(zip(nodes[i].outputs, twin.outputs, strict=True))
            made.append(twin)
        self._copies.update(mine)
        return made

    def _twin(self, node: Node, inputs: tuple[Output, ...]) -> Node:
        graph = self._step.graph
        twin = graph.add_node(
            node.op_def,
            graph.unique_name(node.name + SUFFIX),
            inputs,
            node.attrs,
            [output.dtype for output in node.outputs],
            [output.dims for output in node.outputs],
            node._code,
            node._line,
        )
        twin.device = node.device
        return twin

    def _use_copies(self, node: Node) -> None:
        for position, source in enumerate(node.inputs):
            copy = self._copies.get(source)
            if copy is not None:
                self._step.graph.replace_input(node, position, copy, reason="recompute")
