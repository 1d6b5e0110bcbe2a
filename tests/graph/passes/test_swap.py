"""Swapping: the same numbers, less memory on the device, values back when they are needed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from edited_session import EditedSession
from hypothesis import given, settings, strategies as st

import weft as wf
from weft_exec.executor.priority import sort_by_priority
from weft_graph.ir.step_graph import reachable
from weft_graph.passes import StepGraph, prune
from weft_graph.passes.flow import dependencies_of
from weft_graph.passes.max_tree import MaxTree
from weft_graph.passes.memory import MemoryLimits, estimate_memory
from weft_graph.passes.swap import swap_to_host

HOST, DEVICE = "/device:CPU:0", "/device:CPU:1"


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def network(layers: int) -> tuple[Any, list[Any]]:
    """A chain on the device: its input, and its loss and gradients."""
    x = wf.placeholder(wf.float32, [256, 32], name="x")
    with wf.device(DEVICE):
        h, variables = x, []
        for _ in range(layers):
            variables.append(wf.Variable(np.eye(32, dtype=np.float32)))
            h = wf.tanh(wf.matmul(h, variables[-1]))
        loss = wf.reduce_sum(h)
        return x, [loss, *wf.gradients(loss, variables)]


def where(node: Any) -> str:
    return node.device or HOST


def room(limit: int) -> MemoryLimits:
    return MemoryLimits({DEVICE: limit}, where)


def on_device(step: StepGraph) -> int:
    found = estimate_memory(step.live_nodes(), step.fetches, device_of=where)
    return found.peak.get(DEVICE, 0)


def test_what_is_too_much_waits_on_the_host() -> None:
    x, fetches = network(16)
    step = prune([x], fetches, [])
    full = on_device(step)
    count = swap_to_host(step, room(full // 2), HOST)
    assert count > 0
    assert on_device(step) <= full // 2
    step.graph.check_integrity()
    nodes = step.live_nodes()
    place = {node: i for i, node in enumerate(nodes)}
    assert all(place[need] < place[node] for node in nodes for need in dependencies_of(node))
    outs = [node for node in nodes if node.name.endswith("/swapped_out")]
    backs = [node for node in nodes if node.name.endswith("/swapped_in")]
    assert len(outs) + 1 == len(backs) == count  # what is fed is on the host
    for out in outs:
        value = out.inputs[0]
        assert out.device == HOST
        early = {user for user in value.consumers() if user is not out}
        assert early <= set(out.control_inputs)  # it goes when they are over
    for back in backs:
        (held,) = [source.node for source in back.inputs]
        assert (held.device, back.device) == (HOST, DEVICE)
        (called,) = held.control_inputs
        assert called.device == DEVICE
        assert called not in reachable([held.inputs[0].node])


def test_no_more_waits_than_must() -> None:
    x, fetches = network(16)
    counts = []
    full = on_device(prune([x], fetches, []))
    for limit in (full, full * 3 // 4, full // 2, 0):
        step = prune([x], fetches, [])
        counts.append(swap_to_host(step, room(limit), HOST))
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[1] < counts[2]


def peak_with_slow_copies(nodes: list[Any]) -> int:
    """Return the bytes on the device if copies take as long as allowed; no node waits in vain."""
    done: set[Any] = set()
    waiting = list(nodes)
    live: set[Any] = set()
    most = 0
    while waiting:
        ready = [node for node in waiting if all(need in done for need in dependencies_of(node))]
        node = min(ready, key=lambda node: node.name.endswith("/swapped_out"))
        waiting.remove(node)
        done.add(node)
        live.update([o for o in node.outputs if where(node) == DEVICE and o.dims == (256, 32)])
        most = max(most, len(live))
        live = {o for o in live if any(user in waiting for user in o.consumers())}
    return most * 256 * 32 * 4


@pytest.mark.parametrize("room_for", [10, 6])
def test_kernels_wait_for_copies_that_have_to_clear_their_room(room_for: int) -> None:
    x = wf.placeholder(wf.float32, [256, 32])
    with wf.device(DEVICE):
        h = x
        for _ in range(32):
            h = wf.sin(h)
        (gradient,) = wf.gradients(h, x)
    limit = room_for * 256 * 32 * 4
    step = prune([x], [gradient], [])
    full = peak_with_slow_copies(step.live_nodes())
    assert full > 30 * 256 * 32 * 4
    assert swap_to_host(step, room(limit), HOST, ahead=2) > 0
    assert peak_with_slow_copies(step.live_nodes()) <= limit


def test_nothing_leaves_the_host_itself() -> None:
    x, fetches = network(8)
    step = prune([x], fetches, [])
    assert swap_to_host(step, MemoryLimits({HOST: 0}, lambda node: HOST), HOST) == 0
    assert swap_to_host(prune([x], [x], []), room(0), HOST) == 0


def swapped(sessions: list[EditedSession], limit: int, step: StepGraph) -> int:
    """Swap in a step of the last session."""
    host, device = [device.name for device in sessions[-1].list_devices()]
    room = MemoryLimits({device: limit}, sessions[-1].places(step))
    return swap_to_host(step, room, host, run_order=sort_by_priority)


@pytest.mark.kernels
@pytest.mark.parametrize("executor", ["", "READY_QUEUE"])
@pytest.mark.parametrize("again", [False, True])
def test_numbers_are_the_same(executor: str, again: bool) -> None:
    x, fetches = network(12)
    value = np.random.default_rng(1).normal(size=(256, 32)).astype(np.float32)
    results = []
    for limit in (1 << 40, 0):
        sessions: list[EditedSession] = []
        edit = partial(swapped, sessions, limit)
        with EditedSession(edit, executor, devices=2) as session:
            sessions.append(session)
            session.run(wf.global_variables_initializer())
            for _ in range(1 + again):
                results.append(session.run(fetches, {x: value}))
            assert (session.made[-1][0] > 0) == (limit == 0)
    for found in results[1:]:
        for a, b in zip(results[0], found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_loops_and_fetched_values_stay() -> None:
    x = wf.placeholder(wf.float32, [64, 64])
    with wf.device(DEVICE):
        kept = wf.exp(x, name="kept")
        _, h = wf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, wf.sin(h) * h), [0, kept])
        for _ in range(24):
            h = wf.sin(h)
        end = wf.reduce_sum(h * kept)
    step = prune([x], [end, kept], [])
    assert swap_to_host(step, room(0), HOST) == 0
    swapped = prune([x], [end], [])
    assert swap_to_host(swapped, room(0), HOST) == 0 or "kept/swapped_out" in [
        node.name for node in swapped.live_nodes()
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.data())
def test_the_tree_of_largest_numbers(numbers: list[int], data: Any) -> None:
    tree, plain = MaxTree(numbers), list(numbers)
    for _ in range(5):
        begin = data.draw(st.integers(0, len(numbers)))
        end = data.draw(st.integers(begin, len(numbers)))
        assert tree.largest(begin, end) == max([0, *plain[begin:end]])
        more = data.draw(st.integers(0, 9))
        tree.add(begin, end, more)
        plain[begin:end] = [number + more for number in plain[begin:end]]
