"""Rematerialization plans: runs of cheap nodes, or segments between checkpoints."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum

from weft_graph.passes.recompute.analysis import Analysis, Group, Plan, is_hinted

_LONGEST_RUN = 8
"""Largest number of consecutive cheap nodes; a longer run would be as expensive as its source."""


class Recompute(Enum):
    """Generator of plans for sets of nodes that may be recomputed."""

    HINTS = "nodes with a hint"
    CHEAP = "cheap nodes and those with a hint"
    ALL = "what is between checkpoints"


def choose_plan(analysis: Analysis, candidates: Recompute, fit: bool) -> Plan | None:
    """Return the best plan, or None.

    Args:
      fit: True to minimize work within the limits; False to minimize memory.
    """
    hinted = [i for i, node in enumerate(analysis.nodes) if analysis.movable[i] and is_hinted(node)]
    crossing = _bytes_across(analysis)
    base = analysis.plan(_runs(analysis, set(hinted), len(hinted), hinted, ()))
    plans = [base]
    if candidates is not Recompute.HINTS:
        plans += _cheap_plans(analysis, hinted, crossing)
    if candidates is Recompute.ALL and not (fit and min(p.excess for p in plans) <= 0):
        plans += _segmentations(analysis, set(hinted), crossing)
    fitting = [plan for plan in plans if fit and plan.excess <= 0]
    if fitting:
        best = min(fitting, key=lambda plan: (plan.work, plan.excess))
        best = best if hinted else _thin_plan(analysis, best)
    else:
        best = min(plans, key=lambda plan: (plan.excess, plan.work))
    return best if best.groups else None


def _thin_plan(analysis: Analysis, plan: Plan) -> Plan:
    """Return the fewest first groups of a plan that meet the limits; the last ones save least."""
    groups = sorted(plan.groups)
    low, high, best = 0, len(groups), plan
    while low < high:
        middle = (low + high) // 2
        smaller_plan = analysis.plan(groups[:middle])
        if smaller_plan.excess <= 0:
            high, best = middle, smaller_plan
        else:
            low = middle + 1
    return best


def _movable(analysis: Analysis) -> list[int]:
    return [i for i, movable in enumerate(analysis.movable) if movable]


def _cheap_plans(analysis: Analysis, hinted: Sequence[int], crossing: Sequence[int]) -> list[Plan]:
    """Return plans that copy cheap and hinted nodes in runs of different lengths."""
    allowed = {i for i in _movable(analysis) if analysis.nodes[i].traits.cheap}
    allowed.update(hinted)
    plans: list[Plan] = []
    for number in (1, 8, 64, 512):
        cuts = _cuts(analysis, crossing, number) if number > 1 else []
        if number == 1 or cuts:
            runs = _runs(analysis, allowed, _LONGEST_RUN, hinted, cuts)
            plans.append(analysis.plan(runs))
    return plans


def _runs(
    analysis: Analysis,
    allowed: set[int],
    longest: int,
    hinted: Sequence[int],
    cuts: Sequence[int],
) -> list[Group]:
    """Return groups of consecutive allowed nodes, of limited length.

    Args:
      hinted: allowed nodes that are copied in any case.
      cuts: indices that groups must not cross.
    """
    parents: dict[int, int] = {}
    depth: dict[int, int] = {}

    def find(i: int) -> int:
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i

    for i in sorted(allowed):
        parents_in_group = {
            analysis.position[s.node] for s in analysis.nodes[i].inputs
        } & parents.keys()
        if cuts:
            segment = bisect_left(cuts, i)
            parents_in_group = {j for j in parents_in_group if bisect_left(cuts, j) == segment}
        level = 1 + max([depth[j] for j in parents_in_group], default=0)
        if level > longest:
            continue  # it is kept, and the next run starts behind it
        parents[i], depth[i] = i, level
        for j in parents_in_group:
            parents[find(j)] = find(i)
    components: dict[int, list[int]] = {}
    for i in sorted(parents):
        components.setdefault(find(i), []).append(i)
    hinted_set = set(hinted)
    groups: list[Group] = []
    for members in components.values():
        if not hinted_set.isdisjoint(members):
            group = analysis.group(
                members, [i for i in members if _is_used(analysis, i, hinted_set)]
            )
        else:
            group = analysis.group(members)
            if group is not None and not _wins(analysis, group):
                group = None
        if group is not None:
            groups.append(group)
    return groups


def _is_used(analysis: Analysis, i: int, hinted: set[int]) -> bool:
    return (i in hinted or bool(analysis.saved[i])) and any(
        [analysis.backward[j] for j in analysis.readers[i]]
    )


def _wins(analysis: Analysis, group: Group) -> bool:
    """Return True if a group saves more memory than it keeps alive."""
    values, members = analysis.values, set(group.members)
    created = {v for i in members for v in values.makes[i]}
    read = {v for i in members for v in values.reads[i]} - created
    kept_bytes = sum(
        [values.sizes[v] for v in read if not analysis.used_backward[v] and v not in values.kept]
    )
    return sum([analysis.saved[i] for i in members]) > kept_bytes


def _segmentations(analysis: Analysis, hinted: set[int], crossing: Sequence[int]) -> list[Plan]:
    """Return plans with different numbers of checkpoints: powers of two, then near the best."""
    count = sum([bool(saved) for saved in analysis.saved])
    limit = min(count, 4 * math.isqrt(count) + 4)
    plans_by_size: dict[int, Plan] = {}

    def evaluate(number: int) -> None:
        if 2 <= number <= limit and number not in plans_by_size:
            cuts = _cuts(analysis, crossing, number)
            plans_by_size[number] = analysis.plan(_segments(analysis, cuts, hinted))

    number = 2
    while number <= limit:
        evaluate(number)
        number *= 2
    for shift in (4, 8):
        if plans_by_size:
            best = min(
                plans_by_size, key=lambda n: (plans_by_size[n].excess, plans_by_size[n].work)
            )
            evaluate(best - max(1, best // shift))
            evaluate(best + max(1, best // shift))
    return list(plans_by_size.values())


def _bytes_across(analysis: Analysis) -> list[int]:
    """Return the bytes that would be kept if a segment ended at each index."""
    values = analysis.values
    change = [0] * (len(analysis.nodes) + 1)
    for i, created in enumerate(values.makes):
        if analysis.movable[i]:
            for value in created:
                end = analysis.last_forward[value]
                if end > i:
                    change[i] += values.sizes[value]
                    change[end] -= values.sizes[value]
    total, totals = 0, []
    for i in range(len(analysis.nodes)):
        total += change[i]
        totals.append(total)
    return totals


def _cuts(analysis: Analysis, crossing: Sequence[int], number: int) -> list[int]:
    """Return the ends of about `count` segments, at indices that the fewest bytes cross."""
    budget = max(1, sum(analysis.saved) // number)
    cuts: list[int] = []
    bytes_held, best = 0, -1
    since_best = 0
    for i, saved in enumerate(analysis.saved):
        if analysis.backward[i]:
            continue
        bytes_held += saved
        since_best += saved
        if bytes_held * 2 >= budget and (best < 0 or crossing[i] <= crossing[best]):
            best, since_best = i, 0
        if bytes_held >= budget and best >= 0:
            cuts.append(best)
            bytes_held, best = since_best, -1
            since_best = 0
    return cuts


def _segments(analysis: Analysis, cuts: Sequence[int], hinted: set[int]) -> list[Group]:
    """Return the groups between cuts; values after the last cut are used immediately and kept."""
    values = analysis.values
    numbers = values.numbers
    groups: list[Group] = []
    begin = 0
    for end in cuts:
        allowed = [
            i
            for i in range(begin, end + 1)
            if analysis.movable[i]
            and all([_is_retained(analysis, numbers[o], end) for o in analysis.nodes[i].outputs])
        ]
        begin = end + 1
        group = analysis.group(allowed)
        if group is not None:
            groups.append(group)
    hinted_behind = {i for i in hinted if i >= begin}
    return groups + (
        _runs(analysis, hinted_behind, len(hinted_behind), sorted(hinted_behind), ())
        if hinted_behind
        else []
    )


def _is_retained(analysis: Analysis, value: int, end: int) -> bool:
    """Return True if no forward node after the end of a segment uses a value."""
    return analysis.last_forward[value] <= end
