"""Nodes wait for earlier ones exactly as far as the room for them asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import weft as wf
from weft_graph.passes import prune
from weft_graph.passes.flow import dependencies_of
from weft_graph.passes.memory import MemoryLimits, Values, static_bytes
from weft_graph.passes.run_ahead import _earliest_indices, limit_run_ahead

KB = 1024


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
    st.integers(0, 40),
)
def test_first_places_are_those_that_fit(rows: list[tuple[int, int]], limit: int) -> None:
    live = [old + new for old, new in rows]
    made = [new for _, new in rows]
    for place, first in enumerate(_earliest_indices(live, made, limit)):

        def most(begin: int, place: int = place) -> int:
            return max(
                [live[q] + sum(made[q + 1 : place + 1]) for q in range(begin, place)], default=0
            )

        assert most(first) <= limit
        assert not first or live[first - 1] + sum(made[first : place + 1]) > limit


def worst_peak(nodes: list[Any], fetches: Any, ahead: Any) -> int:
    """Return the peak memory of an order that a priority rule determines."""
    values = Values(nodes, fetches, static_bytes)
    place = {node: i for i, node in enumerate(nodes)}
    left = [sum(value in reads for reads in values.reads) for value in range(len(values.sizes))]
    done: set[Any] = set()
    waiting, live, most = list(nodes), 0, 0
    while waiting:
        ready = [node for node in waiting if all(need in done for need in dependencies_of(node))]
        node = max(ready, key=ahead)
        waiting.remove(node)
        done.add(node)
        live += sum(values.sizes[value] for value in values.makes[place[node]])
        most = max(most, live)
        for value in values.reads[place[node]]:
            left[value] -= 1
            if not left[value] and value not in values.kept:
                live -= values.sizes[value]
    return most


def noisy(layers: int) -> Any:
    y = wf.placeholder(wf.float32, [16, 16])
    x = y
    for i in range(layers):
        y = wf.tanh(y + wf.random_uniform([16, 16], seed=i))
    return x, y


@pytest.mark.parametrize("room", [4, 8, 16])
def test_what_runs_ahead_fits(room: int) -> None:
    with wf.Graph().as_default():
        x, y = noisy(30)

    def prefers(node: Any) -> Any:
        return node.type in ("RandomUniform", "Const", "NoOp")

    free = prune([x], [y], [])
    assert worst_peak(free.live_nodes(), free.fetches, prefers) >= 30 * KB
    step = prune([x], [y], [])
    held = limit_run_ahead(step, MemoryLimits({"": room * KB}))
    step.graph.check_integrity()
    assert worst_peak(step.live_nodes(), step.fetches, prefers) <= room * KB
    assert 0 < held < len(free.live_nodes())


def test_with_room_for_all_nobody_waits() -> None:
    with wf.Graph().as_default():
        x, y = noisy(30)
    step = prune([x], [y], [])
    before = len(step.live_nodes())
    assert limit_run_ahead(step, MemoryLimits({"": 1 << 20})) == 0
    assert len(step.live_nodes()) == before


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 30))
def test_graphs_by_chance(seed: int, room: int) -> None:
    """In any order of execution, the live memory fits the limit, or is minimal."""
    rng = np.random.default_rng(seed)
    with wf.Graph().as_default():
        values = [wf.placeholder(wf.float32, [16, 16])]
        for _ in range(25):
            picked = [values[i] for i in rng.integers(0, len(values), rng.integers(1, 3))]
            values.append(wf.random_uniform([16, 16]) if rng.random() < 0.3 else wf.add_n(picked))
        fetches = [values[i] for i in rng.integers(1, len(values), 2)]
    step = prune([values[0]], fetches, [])
    nodes = step.live_nodes()
    in_order = worst_peak(nodes, step.fetches, lambda node: -nodes.index(node))
    limit_run_ahead(step, MemoryLimits({"": room * KB}))
    step.graph.check_integrity()
    nodes = step.live_nodes()
    chance = {node: rng.random() for node in nodes}
    assert worst_peak(nodes, step.fetches, chance.__getitem__) <= max(room * KB, in_order)
