"""Estimates of memory compared with allocations, and orders that need less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import weft as wf
from weft_graph.ir.node import Node
from weft_graph.passes import StepGraph, prune
from weft_graph.passes.flow import dependencies_of
from weft_graph.passes.memory import MemoryEstimate, estimate_memory, static_bytes
from weft_graph.passes.memory_order import order_for_memory
from weft_tensor.allocator import cpu_allocator

KB = 1024


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def test_a_value_lives_from_its_node_to_its_last_user() -> None:
    x = wf.placeholder(wf.float32, [256])
    a = wf.exp(x)
    b = wf.exp(a)
    c = wf.reshape(b, [16, 16]) + 1.0
    step = prune([x], [wf.reduce_sum(c), a], [])
    found = estimate_memory(step.live_nodes(), step.fetches)
    assert found.peak == {"": 3 * KB}  # a is fetched; b, which the Reshape shows, and c
    assert found.at[""].type == "AddV2"
    assert estimate_memory(step.live_nodes(), []).largest == 2 * KB
    assert estimate_memory([], []).largest == 0


def test_sizes_that_are_not_known() -> None:
    x = wf.placeholder(wf.float32, [None, 256])
    y = wf.exp(x, name="y")
    assert static_bytes(y) == KB
    assert static_bytes(wf.exp(wf.placeholder(wf.float32, None))) == 0


def test_values_are_on_each_device_that_uses_them() -> None:
    x = wf.placeholder(wf.float32, [256])
    with wf.device("/cpu:0"):
        a = wf.exp(x)
    with wf.device("/cpu:1"):
        b = wf.exp(a)
        c = wf.exp(b)
    step = prune([x], [c], [])
    nodes = step.live_nodes()

    def estimate(spaces: dict[str, str]) -> MemoryEstimate:
        return estimate_memory(nodes, step.fetches, None, lambda node: node.device, spaces)

    apart = estimate({})
    assert apart.peak["/device:CPU:0"] == 2 * KB  # with what is fed
    assert apart.peak["/device:CPU:1"] == 2 * KB
    assert (apart.largest, apart.total) == (2 * KB, 4 * KB)
    shared = estimate(dict.fromkeys(["", "/device:CPU:0", "/device:CPU:1"], "host"))
    assert shared.peak == {"": 0, "/device:CPU:0": KB, "/device:CPU:1": 2 * KB}


@pytest.mark.kernels
@pytest.mark.parametrize("layers", [1, 5])
def test_the_estimate_is_what_is_allocated(layers: int) -> None:
    x = wf.placeholder(wf.float32, [512, 64])
    h = x
    ws = []
    for _ in range(layers):
        ws.append(wf.constant(np.eye(64, dtype=np.float32)))
        h = wf.tanh(wf.matmul(h, ws[-1]) + 1.0)
    fetches = [wf.reduce_sum(h), *wf.gradients(h, [x])]
    value = np.ones((512, 64), np.float32)
    config = wf.ConfigProto(inter_op_parallelism_threads=1)
    with wf.Session(config=config) as session:
        session.run(fetches, {x: value})
        before = cpu_allocator().statistics().bytes_in_use
        cpu_allocator().reset_peak()
        session.run(fetches, {x: value})
        measured = cpu_allocator().statistics().peak_bytes_in_use - before
    step = prune([x], fetches, [])
    estimated = estimate_memory(step.live_nodes(), step.fetches).largest
    assert abs(measured - estimated) < 0.05 * estimated


# -------------------------------------------------------------------------------- orders


def wide(branches: int) -> StepGraph:
    """Large values, each soon reduced to one number, constructed one after the other."""
    x = wf.placeholder(wf.float32, [256])
    larges = [wf.exp(x + float(i)) for i in range(branches)]
    return prune([x], [wf.add_n([wf.reduce_sum(large) for large in larges])], [])


def test_an_order_that_needs_less() -> None:
    step = wide(16)
    nodes = step.live_nodes()
    order = order_for_memory(nodes, step.fetches)
    assert set(order) == set(nodes)
    assert estimate_memory(nodes, step.fetches).largest >= 16 * KB
    assert estimate_memory(order, step.fetches).largest < 3 * KB


def in_order(order: list[Node], nodes: list[Node]) -> bool:
    place = {node: i for i, node in enumerate(order)}
    return all(place[need] < place[node] for node in nodes for need in dependencies_of(node))


def test_state_keeps_its_order() -> None:
    v = wf.Variable(np.zeros(256, np.float32))
    first = v.read_value()
    with wf.control_dependencies([first]):
        update = wf.assign_add(v, wf.exp(wf.ones([256])))
    with wf.control_dependencies([update]):
        second = v.read_value()
    randoms = [wf.reduce_sum(wf.random_uniform([512])) for _ in range(4)]
    step = prune([], [wf.reduce_sum(first), wf.reduce_sum(second), *randoms], [])
    nodes = step.live_nodes()
    order = order_for_memory(nodes, step.fetches)
    stateful = [node for node in nodes if node.op_def.stateful]
    assert [node for node in order if node.op_def.stateful] == stateful
    assert in_order(order, nodes)


def test_draws_keep_their_order_where_another_needs_less() -> None:
    larges = [wf.random_uniform([256]) for _ in range(8)]
    total = wf.constant(0.0)
    for large in reversed(larges):
        total = total + wf.reduce_sum(large)
    step = prune([], [total], [])
    nodes = step.live_nodes()
    drawn = [node for node in nodes if node.op_def.stateful]
    assert len(drawn) == 8
    order = order_for_memory(nodes, step.fetches)
    assert [node for node in order if node.op_def.stateful] == drawn


def test_loops_stay_as_they_are() -> None:
    y = wf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
    nodes = prune([], [y], []).live_nodes()
    assert order_for_memory(nodes) == nodes


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_orders_of_random_graphs(data: Any) -> None:
    """Dependencies are kept, and no order needs more than the one given."""
    with wf.Graph().as_default():
        values = [wf.placeholder(wf.float32, [8])]
        for _ in range(data.draw(st.integers(1, 25))):
            a, b = [values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2)]
            kind = data.draw(st.sampled_from(["add", "sum", "wait", "grow", "draw"]))
            if kind == "add":
                values.append(a + b)
            elif kind == "sum":
                values.append(wf.reshape(wf.reduce_sum(a), [1]))
            elif kind == "grow":
                values.append(wf.reduce_sum(wf.tile(a, [data.draw(st.integers(1, 99))])) + b)
            elif kind == "draw":
                values.append(wf.random_uniform([8]) + a)
            else:
                with wf.control_dependencies([b]):
                    values.append(wf.exp(a))
        fetches = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
        step = prune([values[0]], fetches, [])
        nodes = step.live_nodes()
        order = order_for_memory(nodes, step.fetches)
        assert sorted(n.index for n in order) == sorted(n.index for n in nodes)
        assert in_order(order, nodes)
        drawn = [node for node in nodes if node.op_def.stateful]
        assert [node for node in order if node.op_def.stateful] == drawn
        before = estimate_memory(nodes, step.fetches).largest
        assert estimate_memory(order, step.fetches).largest <= before
