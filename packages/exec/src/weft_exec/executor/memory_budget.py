"""Memory budgets of partitions, and the memory use of regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph
from weft_graph.passes.memory import BytesOf, Values, lifetimes, peaks

_FRAGMENTATION = 16
"""Reciprocal of the fraction of a device's memory that is reserved for fragmentation."""


Span = tuple[int, int]
_NEVER: Span = (0, 0)


class MemoryBudget(NamedTuple):
    """The memory budget for the values of a partition.

    Attributes:
      limit: bytes.
      bytes_of: returns the size of a value.
    """

    limit: int
    bytes_of: BytesOf


def bytes_for_values(limit: int, kept_bytes: int) -> int:
    """Return the bytes of a device that are available for the values of a step.

    Args:
      limit: the device's memory limit.
      kept_bytes: bytes in use independently of the step.
    """
    return max(0, limit - limit // _FRAGMENTATION - kept_bytes)


def unknown_size(feeds: Sequence[Output], values: Iterable[Any]) -> int:
    """Return a typical value for the sizes that are statically unknown; 0 if there are none.

    It is the geometric mean of a feed's unknown sizes, and the maximum over all feeds.
    """
    result = 0
    for feed, value in zip(feeds, values, strict=False):
        dims, shape = feed.dims, getattr(value, "shape", None)
        if dims is None or None not in dims or not isinstance(shape, tuple):
            continue
        sizes = [size for dim, size in zip(dims, shape, strict=False) if dim is None]
        result = max(result, round(math.prod(sizes) ** (1 / len(sizes)) if sizes else 0))
    return result


class StepMemory:
    """Live ranges of the values of a partition, whose nodes run in a fixed order.

    The effect of joining nodes is computed from their own values only, because a partition may have
    thousands of such sets.

    Args:
      nodes: in execution order.
      budget: the memory budget; if it is already exceeded, joining nodes must not increase the use.
    Attributes:
      spans: for each value, the position of its producer, and the one after its last use.
      live: the bytes that are live while each node runs.
    """

    def __init__(self, step: StepGraph, nodes: Sequence[Node], budget: MemoryBudget) -> None:
        values = Values(nodes, step.fetches, budget.bytes_of)
        self._bytes_of = budget.bytes_of
        self._place = {node: i for i, node in enumerate(nodes)}
        self._reads, self._produced = values.reads, values.makes
        self._sizes, self._retained = list(values.sizes), values.kept
        self._users: dict[int, set[int]] = {}
        for index, read in enumerate(values.reads):
            for value in read:
                self._users.setdefault(value, set()).add(index)
        self.spans = lifetimes(values.reads, values.makes, values.kept)
        self.live = [0] * len(nodes)
        for value, span in self.spans.items():
            self._add(value, [range(*span)])
        self._peak = max(budget.limit, max(self.live, default=0))

    def take_together(
        self, members: Sequence[Node], peak_bytes: Callable[[BytesOf], int] | None
    ) -> bool:
        """Join nodes at the position of the last one, if there is enough memory.

        The members must also fit when they run as kernels with all their inputs alive, as in steps
        that are checked or traced.

        Args:
          peak_bytes: as in `RegionClaim`.
        Returns: True if there was enough memory; otherwise nothing changes.
        """
        indices = sorted([self._place[member] for member in members])
        last = indices[-1]
        result = {value for index in indices for value in self._produced[index]}
        read = {value for index in indices for value in self._reads[index]} - result
        users = {
            value: self._users.get(value, set()).difference(indices) for value in result | read
        }
        leaving = {value for value in result if users[value] or value in self._retained}
        meanwhile = self._members_peak(indices, result, leaving, peak_bytes)
        self._sizes.append(max(0, meanwhile - sum([self._sizes[value] for value in leaving])))
        new_spans: dict[int, Span | None] = dict.fromkeys(result)
        new_spans[len(self._sizes) - 1] = (last, last + 1)
        for value in leaving:
            # A user before the last member will run after all of them, while the value is live.
            first = min(users[value], default=last)
            new_spans[value] = (min(first, last), self._end(value, users[value], last))
        for value in read & self.spans.keys():
            new_spans[value] = (self.spans[value][0], self._end(value, users[value], last))
        old_spans = {value: self.spans.get(value) for value in new_spans}
        if not self._move(old_spans, new_spans):
            self._move(new_spans, old_spans)
            self._sizes.pop()
            return False
        for value, user in users.items():
            self._users[value] = user | {last}
        for value, span in new_spans.items():
            if span is None:
                del self.spans[value]
            else:
                self.spans[value] = span
        return True

    def _members_peak(
        self,
        indices: Sequence[int],
        result: set[int],
        leaving: set[int],
        peak_bytes: Callable[[BytesOf], int] | None,
    ) -> int:
        """Return the peak memory of the members, not counting their inputs."""
        if peak_bytes is None:
            return sum([self._sizes[value] for value in result])
        reads = [tuple(result.intersection(self._reads[index])) for index in indices]
        one_by_one = peaks(
            reads, [self._produced[index] for index in indices], self._sizes, leaving
        )
        return max(peak_bytes(self._bytes_of), one_by_one[0][0])

    def _end(self, value: int, users: set[int], last: int) -> int:
        return len(self.live) if value in self._retained else max([last, *users]) + 1

    def _move(
        self, old_spans: Mapping[int, Span | None], new_spans: Mapping[int, Span | None]
    ) -> bool:
        """Change live ranges if the new ones fit into the budget; return True if they do."""
        is_within_peak = True
        for value, span in new_spans.items():
            old, new = old_spans[value] or _NEVER, span or _NEVER
            self._add(value, _subtract_span(old, new), -1)
            self._add(value, _subtract_span(new, old))
        for value, span in new_spans.items():
            for index_range in _subtract_span(span or _NEVER, old_spans[value] or _NEVER):
                is_within_peak = is_within_peak and all(
                    [self.live[index] <= self._peak for index in index_range]
                )
        return is_within_peak

    def _add(self, value: int, ranges: Iterable[range], sign: int = 1) -> None:
        size = sign * self._sizes[value]
        for index_range in ranges if size else ():
            for index in index_range:
                self.live[index] += size


def _subtract_span(span: Span, other: Span) -> tuple[range, range]:
    """Return the positions of one span that are not in the other span."""
    (begin, end), (first, stop) = span, other
    return range(begin, min(end, first)), range(max(begin, stop), end)
