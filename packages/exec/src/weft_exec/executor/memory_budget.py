"""What a part may take of its device's memory, also when several of its nodes become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph
from weft_graph.passes.memory import BytesOf, Values, peaks

_FRAGMENTATION = 16
"""One part in so many of a device's memory is left to gaps between blocks that are in use."""


class MemoryBudget(NamedTuple):
    """What the values of a part may take.

    Attributes:
      limit: bytes.
      bytes_of: sizes of values.
    """

    limit: int
    bytes_of: BytesOf


def left_for_values(limit: int, kept: int) -> int:
    """What a device has for the values of a step, in bytes.

    Args:
      limit: of its memory.
      kept: what is there with or without the step.
    """
    return max(0, limit - limit // _FRAGMENTATION - kept)


def unknown_size(feeds: Sequence[Output], values: Iterable[Any]) -> int:
    """The typical value of the sizes that static shapes leave open; 0 if none is open.

    Of each feed the geometric mean of its open sizes, and of the feeds the largest.
    """
    found = 0
    for feed, value in zip(feeds, values, strict=False):
        dims, shape = feed.dims, getattr(value, "shape", None)
        if dims is None or None not in dims or not isinstance(shape, tuple):
            continue
        sizes = [size for known, size in zip(dims, shape, strict=False) if known is None]
        found = max(found, round(math.prod(sizes) ** (1 / len(sizes)) if sizes else 0))
    return found


class StepMemory:
    """The values of a part by its nodes, in the order in which they run.

    Args:
      nodes: in that order.
      budget: which may be passed already; then what is taken together may not make it worse.
    """

    def __init__(self, step: StepGraph, nodes: Sequence[Node], budget: MemoryBudget) -> None:
        values = Values(nodes, step.fetches, budget.bytes_of)
        self._bytes_of = budget.bytes_of
        self._place = {node: i for i, node in enumerate(nodes)}
        self._reads, self._makes = list(values.reads), list(values.makes)
        self._sizes, self._kept = list(values.sizes), values.kept
        self._most = max(budget.limit, self._peak(self._reads, self._makes))

    def take_together(
        self, members: Sequence[Node], peak_bytes: Callable[[BytesOf], int] | None
    ) -> bool:
        """Let nodes run as one, in the place of the last of them, if there is room for that.

        The members must fit as well when they run one by one, beside what all of them read, as they
        do in steps that look at each.

        Args:
          peak_bytes: as of a `Claim`.
        Returns: whether there is room; otherwise nothing changes.
        """
        places = sorted([self._place[member] for member in members])
        last = places[-1]
        reads, makes = self._reads.copy(), self._makes.copy()
        made = {value for place in places for value in makes[place]}
        read = {value for place in places for value in reads[place]}
        own_reads = [tuple(made.intersection(reads[place])) for place in places]
        own_makes = [makes[place] for place in places]
        for place in places:
            reads[place] = makes[place] = ()
        first_use = {v: i for i in reversed(range(len(reads))) for v in reads[i] if v in made}
        leaving = made & (first_use.keys() | self._kept)
        inside = sum(self._sizes[value] for value in made)
        if peak_bytes is not None:
            one_by_one = peaks(own_reads, own_makes, self._sizes, leaving)[0][0]
            inside = max(peak_bytes(self._bytes_of), one_by_one)
        results = sum(self._sizes[value] for value in leaving)
        reads[last] = (*(read - made), *leaving)
        makes[last] = (len(self._sizes),)
        for value in leaving:
            # A user before the last member will run after all of them, beside the value.
            place = min(first_use.get(value, last), last)
            makes[place] = (*makes[place], value)
        self._sizes.append(max(0, inside - results))
        if self._peak(reads, makes) > self._most:
            self._sizes.pop()
            return False
        self._reads, self._makes = reads, makes
        return True

    def _peak(self, reads: Sequence[tuple[int, ...]], makes: Sequence[tuple[int, ...]]) -> int:
        return peaks(reads, makes, self._sizes, self._kept)[0][0]
