"""The executions that each execution of a node waited for.

An execution is identified by its step, its iteration and its node. `Node.inputs` and
`Node.crossing` say which executions feed it; here they are looked up for all events.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.errors import TraceError
from weft_trace.schema import NO_STEP, Crossing, Iteration, Kind, Node
from weft_trace.trace import Trace

_EXECUTIONS: Final = (
    Kind.KERNEL, Kind.REGION, Kind.RECEIVE, Kind.TRANSFER, Kind.WAIT, Kind.CHECKPOINT, Kind.COPY,
)  # fmt: skip
_TABLE: Final = 1 << 22
"""Entries of the table of a batch of steps: small enough for a cache."""
_DENSE: Final = 1 << 26
_MAX_EDGES: Final = 1 << 24

_Ints = NDArray[np.int64]


class Dependencies(NamedTuple):
    """The producers of the inputs of events.

    Attributes:
      offsets: array [number of events + 1]; the producers of event `i` are
        `producers[offsets[i]:offsets[i + 1]]`.
      producers: indices of events.
    """

    offsets: _Ints
    producers: _Ints

    def of(self, event: int) -> _Ints:
        """Return the indices of the events that an event waited for."""
        return self.producers[self.offsets[event] : self.offsets[event + 1]]


def resolve_dependencies(trace: Trace, events: NDArray[np.intp] | None = None) -> Dependencies:
    """Find the producers of the inputs of events.

    Args:
      trace: the trace.
      events: indices of the events of some steps; by default, those of all steps.
    Returns: the producers of all events of the trace; others have none.
    """
    table = trace.events
    if events is None:
        events = np.arange(len(table))
    kinds = np.zeros(256, bool)
    kinds[list(_EXECUTIONS)] = True
    is_execution = kinds[table["kind"][events]] & (table["step"][events] != NO_STEP)
    events = events[is_execution]
    steps = table["step"][events].astype(np.int64)
    order = np.argsort(steps, kind="stable")
    events, steps = events[order], steps[order]
    loops = _Loops(trace.iterations)
    iterations = loops.canonical[table["iteration"][events]]
    nodes = table["node"][events].astype(np.int64)
    pairs = _Pairs(iterations, nodes, trace, loops)
    producers = []
    for batch in _batches(steps, pairs.count):
        found_producers, consumers, slots = _resolve_batch(
            steps[batch], pairs.ids[batch], events[batch], pairs
        )
        # In the first iteration, the back edge of a Merge would lead to the end of the same one.
        is_earlier = (found_producers < consumers) | ~pairs.is_first_merge[slots]
        found_producers, consumers = found_producers[is_earlier], consumers[is_earlier]
        producers.append(np.stack([consumers, found_producers]))
    edges = np.concatenate(producers, axis=1) if producers else np.zeros((2, 0), np.int64)
    edges = edges[:, np.argsort(edges[0], kind="stable")]
    offsets = np.searchsorted(edges[0], np.arange(len(table) + 1))
    return Dependencies(offsets, edges[1])


def _batches(steps: _Ints, num_pairs: int) -> list[slice]:
    """Return slices of events of complete steps, so that a table of steps × pairs fits."""
    if not len(steps):
        return []
    begins = np.flatnonzero(np.diff(steps, prepend=-1))
    per_batch = max(1, _TABLE // max(1, num_pairs))
    cuts = [*begins[::per_batch].tolist(), len(steps)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def _resolve_batch(
    steps: _Ints, pair_ids: _Ints, events: NDArray[np.intp], pairs: _Pairs
) -> tuple[_Ints, _Ints, _Ints]:
    """Return the producers, the consumers and the slots of the edges of a batch of steps."""
    rows = np.cumsum(np.diff(steps, prepend=steps[0]) != 0)
    table = np.full((int(rows[-1]) + 1) * pairs.count, -1, np.int64)
    table[rows * pairs.count + pair_ids] = events
    source, slots = _expand(pairs.slot_offsets[pair_ids], pairs.slot_offsets[pair_ids + 1])
    base = rows[source] * pairs.count
    found_producers = np.full(len(slots), -1, np.int64)
    for candidates in pairs.candidates:
        candidate = candidates[slots]
        missing = np.flatnonzero((found_producers < 0) & (candidate >= 0))
        found_producers[missing] = table[base[missing] + candidate[missing]]
    missing = np.flatnonzero((found_producers < 0) & pairs.has_children[slots])
    if len(missing):
        found_producers[missing] = _last_children(table, base[missing], slots[missing], pairs)
    is_found = found_producers >= 0
    return found_producers[is_found], events[source[is_found]], slots[is_found]


def _last_children(table: _Ints, base: _Ints, slots: _Ints, pairs: _Pairs) -> _Ints:
    """Return, for Exits, the execution of the input in the last iteration that ran it."""
    begins, ends = pairs.child_begins[slots], pairs.child_ends[slots]
    source, positions = _expand(begins, ends)
    producers = table[base[source] + pairs.children[positions]]
    rank = np.where(producers >= 0, np.arange(len(producers)), -1)
    last = np.maximum.reduceat(rank, np.cumsum(ends - begins) - (ends - begins))
    return np.where(last >= 0, producers[last], -1)


def _expand(begins: _Ints, ends: _Ints) -> tuple[_Ints, _Ints]:
    """Return the numbers of all ranges, and for each the index of its range."""
    lengths = ends - begins
    source = np.repeat(np.arange(len(lengths)), lengths)
    shifts = begins - (np.cumsum(lengths) - lengths)
    return source, np.arange(len(source)) + shifts[source]


def find_inputs(
    nodes: Sequence[Node], has_events: Sequence[bool]
) -> list[list[tuple[int, Crossing]]]:
    """Return, for each node with events, the inputs with events that it waits for.

    A node without events is replaced by its own inputs, in the iteration given by its crossing. A
    region also represents its last members, which run in its place in steps with kernels.

    Raises: TraceError: there are too many, as only hostile files have.
    """
    result: list[list[tuple[int, Crossing]]] = []
    last_members = {i: _last_members(nodes, i) for i, node in enumerate(nodes) if node.members}
    total = 0
    for node, has_event in zip(nodes, has_events, strict=True):
        edges: dict[tuple[int, Crossing], None] = {}
        stack = [(i, node.crossing) for i in reversed(node.inputs)] if has_event else []
        while stack:
            edge = stack.pop()
            if edge in edges:
                continue
            edges[edge] = None
            source, crossing = edge
            stack += [(i, crossing) for i in last_members.get(source, ()) if has_events[i]]
            if not has_events[source]:
                crossing = max(crossing, nodes[source].crossing)
                stack += [(i, crossing) for i in nodes[source].inputs]
        total += len(edges)
        if total > _MAX_EDGES:
            raise TraceError(f"the nodes of the trace have more than {_MAX_EDGES} inputs")
        result.append([(i, crossing) for i, crossing in edges if has_events[i]])
    return result


def _last_members(nodes: Sequence[Node], region: int) -> list[int]:
    """Return the members of a region that no other member waits for."""
    members = nodes[region].members
    read = {i for member in members for i in nodes[member].inputs}
    return [member for member in members if member not in read]


class _Loops:
    """The iterations of a trace as arrays, indexed by id.

    Attributes:
      canonical: the first id of the same frame, number and parent.
      parent, number: of each iteration.
      previous: the iteration before, or -1.
      first: iteration 0 of the same loop, or -1.
    """

    def __init__(self, iterations: Sequence[Iteration]) -> None:
        ids: dict[Iteration, int] = {}
        canonical: list[int] = []
        for i, iteration in enumerate(iterations):
            parent = canonical[iteration.parent] if i else 0
            canonical.append(ids.setdefault(iteration._replace(parent=parent), i))
        self.canonical = np.array(canonical)
        self.parent = self.canonical[[iteration.parent for iteration in iterations]]
        self.number = np.array([iteration.number for iteration in iterations])
        self.previous = self._find(iterations, ids, lambda number: number - 1)
        self.first = self._find(iterations, ids, lambda _: 0)

    def _find(
        self, iterations: Sequence[Iteration], ids: dict[Iteration, int], transform: Any
    ) -> _Ints:
        iteration_ids = [
            ids.get(Iteration(old.frame, transform(old.number), int(parent)), -1)
            for old, parent in zip(iterations, self.parent, strict=True)
        ]
        return np.array(iteration_ids, np.int64)


class _Pairs:
    """The pairs of an iteration and a node that ran in any step, and where their inputs are.

    Attributes:
      ids: for each execution, the id of its pair; `count` is their number.
      slot_offsets: array [count + 1]; a slot is an input of a pair.
      candidates: arrays [number of slots] of pairs, or -1; the first one that ran in a step is the
        producer in that step.
      children: pairs; those between `child_begins` and `child_ends` of a slot are the executions of
        its input in the iterations of the inner loop, in order.
      has_children: for each slot, whether there are such.
      is_first_merge: for each slot, whether it is an input of a Merge in the first iteration.
    """

    def __init__(self, iterations: _Ints, nodes: _Ints, trace: Trace, loops: _Loops) -> None:
        self._num_nodes = len(trace.nodes)
        self.ids = self._compact(iterations * self._num_nodes + nodes, len(trace.iterations))
        self.count = len(self._keys)
        self._loops = loops
        self._iterations, self._nodes = np.divmod(self._keys, max(1, self._num_nodes))
        self._make_slots(trace)
        self._make_candidates()
        self._make_children()

    def _compact(self, keys: _Ints, num_iterations: int) -> _Ints:
        if num_iterations * self._num_nodes > _DENSE:
            self._keys, ids = np.unique(keys, return_inverse=True)
            return ids.astype(np.int64)
        exists = np.zeros(num_iterations * self._num_nodes, bool)
        exists[keys] = True
        self._keys = np.flatnonzero(exists)
        return (np.cumsum(exists) - 1)[keys]

    def _find(self, iterations: _Ints, nodes: _Ints) -> _Ints:
        """Return the pairs of iterations and nodes, or -1."""
        if not self.count:
            return np.full(len(nodes), -1, np.int64)
        keys = iterations * self._num_nodes + nodes
        positions = np.minimum(np.searchsorted(self._keys, keys), self.count - 1)
        return np.where((iterations >= 0) & (self._keys[positions] == keys), positions, -1)

    def _make_slots(self, trace: Trace) -> None:
        has_events = np.zeros(self._num_nodes, bool)
        has_events[self._nodes] = True
        edges = find_inputs(trace.nodes, has_events.tolist())
        lengths = np.array([len(node_edges) for node_edges in edges], np.int64)
        flat = np.array([edge for node_edges in edges for edge in node_edges], np.int64)
        inputs, crossings = flat.reshape(-1, 2).T
        ends = np.cumsum(lengths)
        begins = ends - lengths
        source, positions = _expand(begins[self._nodes], ends[self._nodes])
        self.slot_offsets = np.concatenate([[0], np.cumsum(lengths[self._nodes])])
        self._slot_input = inputs[positions]
        self._slot_iteration = self._iterations[source]
        self._slot_crossing = crossings[positions]

    def _make_candidates(self) -> None:
        loops = self._loops
        iteration = self._slot_iteration.copy()
        is_back_edge = (self._slot_crossing == Crossing.PREVIOUS) & (loops.number[iteration] > 0)
        self.is_first_merge = ~is_back_edge & (self._slot_crossing == Crossing.PREVIOUS)
        iteration = np.where(is_back_edge, loops.previous[iteration], iteration)
        self.candidates = [self._find(iteration, self._slot_input)]
        # Loop invariants may be recorded in the first iteration, or in the enclosing one.
        is_outer = ~is_back_edge & (self._slot_crossing != Crossing.INNER)
        iteration = np.where(is_outer, iteration, 0)
        while iteration.any():
            for related in (loops.first[iteration], loops.parent[iteration]):
                candidate_slots = self._find(np.where(iteration > 0, related, -1), self._slot_input)
                if (candidate_slots >= 0).any():
                    self.candidates.append(candidate_slots)
            iteration = loops.parent[iteration]

    def _make_children(self) -> None:
        loops = self._loops
        count = len(loops.parent)
        # Sorted by node, enclosing iteration and number.
        enclosing = np.where(self._iterations > 0, loops.parent[self._iterations], -1)
        keys = np.where(enclosing >= 0, self._nodes * count + enclosing, -1)
        self.children = np.lexsort((loops.number[self._iterations], keys))
        keys = keys[self.children]
        queries = self._slot_input * count + self._slot_iteration
        queries[self._slot_crossing != Crossing.INNER] = -2
        self.child_begins = np.searchsorted(keys, queries, "left")
        self.child_ends = np.searchsorted(keys, queries, "right")
        self.has_children = self.child_ends > self.child_begins
