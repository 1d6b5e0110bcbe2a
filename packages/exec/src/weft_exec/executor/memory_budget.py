"""What a part may take of its device's memory, when several of its nodes become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft_graph.ir.node import Node
from weft_graph.ir.step_graph import StepGraph
from weft_graph.passes.memory import BytesOf, Values, peaks


class MemoryBudget(NamedTuple):
    """What the values of a part may take.

    Attributes:
      limit: bytes.
      bytes_of: sizes of values.
    """

    limit: int
    bytes_of: BytesOf


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

        Args:
          peak_bytes: as of a `Claim`.
        Returns: whether there is room; otherwise nothing changes.
        """
        places = sorted([self._place[member] for member in members])
        last = places[-1]
        reads, makes = self._reads.copy(), self._makes.copy()
        made = {value for place in places for value in makes[place]}
        read = {value for place in places for value in reads[place]}
        for place in places:
            reads[place] = makes[place] = ()
        first_use = {v: i for i in reversed(range(len(reads))) for v in reads[i] if v in made}
        leaving = made & (first_use.keys() | self._kept)
        inside = sum(self._sizes[value] for value in made)
        if peak_bytes is not None:
            inside = peak_bytes(self._bytes_of)
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
