"""Recomputation: bit-identical results, less memory, and no copies of stateful nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from edited_session import Edit, EditedSession
from hypothesis import given, settings, strategies as st

import weft as wf
from weft_exec.executor.priority import sort_by_priority
from weft_graph.ir.step_graph import reachable
from weft_graph.passes import StepGraph, eliminate_common_subexpressions, prune, simplify
from weft_graph.passes.memory import MemoryLimits, estimate_memory
from weft_graph.passes.recompute import HINT, SUFFIX, Recompute, recompute, work_of
from weft_tensor.allocator import cpu_allocator


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def chain(layers: int, batch: int, width: int, seed: int = 0) -> tuple[Any, list[Any], Any]:
    """A dense network: its input, its variables, and its loss."""
    random = np.random.default_rng(seed)
    x = wf.placeholder(wf.float32, [batch, width], name="x")
    h, variables = x, []
    for i in range(layers):
        with wf.name_scope(f"layer{i}"):
            start = random.normal(size=(width, width)) / np.sqrt(width)
            w, b = wf.Variable(start, dtype=wf.float32), wf.Variable(np.zeros(width, np.float32))
            h = wf.tanh(wf.nn.bias_add(wf.matmul(h, w), b))
            variables += [w, b]
    return x, variables, wf.reduce_mean(wf.square(h))


def copies(step: StepGraph) -> list[Any]:
    return [node for node in step.live_nodes() if SUFFIX in node.name]


# -------------------------------------------------------------------------------- memory


@pytest.mark.kernels
def test_a_deep_network_needs_less_memory_and_little_more_work() -> None:
    """64 layers: at most 0.4 of the memory, measured, at most 1.4 of the work; the same numbers."""
    x, variables, loss = chain(64, 512, 64)
    grads = wf.gradients(loss, variables)
    updates = [wf.assign_sub(v, 0.1 * g) for v, g in zip(variables, grads, strict=True)]
    train = wf.group(*updates)
    value = np.random.default_rng(1).normal(size=(512, 64)).astype(np.float32)
    peaks, work, numbers = [], [], []
    for edit in (lambda step: 0, lambda step: recompute(step, run_order=sort_by_priority)):
        with EditedSession(edit) as session:
            session.run(wf.global_variables_initializer())
            session.run([loss, train], {x: value})
            before = cpu_allocator().statistics().bytes_in_use
            cpu_allocator().reset_peak()
            session.run([loss, train], {x: value})
            peaks.append(cpu_allocator().statistics().peak_bytes_in_use - before)
            _, step = session.made[-1]
            order = sort_by_priority(step.live_nodes())
            work.append(sum(map(work_of, order)))
            estimated = estimate_memory(order, step.fetches).largest
            assert abs(peaks[-1] - estimated) < 0.05 * estimated
            numbers.append(session.run([loss, *variables], {x: value}))
    assert peaks[1] <= 0.4 * peaks[0]
    assert work[1] <= 1.4 * work[0]
    for a, b in zip(*numbers, strict=True):
        np.testing.assert_array_equal(a, b)


def test_with_a_limit_no_more_is_done_than_it_needs() -> None:
    x, variables, loss = chain(32, 64, 16)
    grads = wf.gradients(loss, variables)

    def planned(limit: int | None) -> tuple[int, int]:
        step = prune([x], [loss, *grads], [])
        count = recompute(step, memory=None if limit is None else MemoryLimits({"": limit}))
        return estimate_memory(step.live_nodes(), step.fetches).largest, count

    full, none = planned(1 << 40)
    least, most = planned(None)
    assert none == 0
    assert planned(0) == (least, most)
    middle, some = planned((full + least) // 2)
    assert middle <= (full + least) // 2
    assert 0 < some < most


# -------------------------------------------------------------------------------- what is copied


def test_copies_wait_for_the_gradient_and_survive_merging() -> None:
    x, variables, loss = chain(16, 64, 16)
    grads = wf.gradients(loss, variables)
    step = prune([x], [loss, *grads], [])
    count = recompute(step)
    assert count == len(copies(step)) > 0
    last = step.graph.get_operation_by_name("layer15/Tanh")
    for copy in copies(step):
        assert last in reachable([copy])  # it comes after the forward pass
        assert "layer15" not in copy.name  # what is used at once is not computed again
    simplify(step)
    assert eliminate_common_subexpressions(step) == 0
    assert len(copies(step)) == count
    assert step.changes["recompute"] == count
    step.graph.check_integrity()


def test_cheap_nodes_alone() -> None:
    x = wf.placeholder(wf.float32, [64, 64])
    h, w = x, wf.Variable(np.eye(64, dtype=np.float32))
    for _ in range(6):
        h = wf.matmul(h, w)
        h = wf.sin(wf.cos(h) * 2.0)  # three values for the gradient, all of them from one
    grads = wf.gradients(h, [w])
    step = prune([x], grads, [])
    before = estimate_memory(step.live_nodes(), step.fetches).largest
    assert recompute(step, Recompute.CHEAP) > 0
    assert {node.type for node in copies(step)} <= {"Cos", "Mul", "Sin"}
    assert estimate_memory(step.live_nodes(), step.fetches).largest < before


def test_hints_are_followed() -> None:
    x = wf.placeholder(wf.float32, [64, 64])
    a = wf.exp(x, name="a")
    b = wf.exp(a, name="b")
    c = wf.exp(b, name="c")
    b.op.attrs[HINT] = 1
    (dx,) = wf.gradients(c, [x])
    step = prune([x], [dx], [])
    assert recompute(step, Recompute.HINTS) == 1
    assert [node.name for node in copies(step)] == ["b/recomputed"]


@pytest.mark.parametrize("what", [Recompute.CHEAP, Recompute.ALL])
def test_hints_are_followed_beside_other_groups(what: Recompute) -> None:
    x, variables, loss = chain(16, 64, 16)
    for i in (3, 14):
        wf.get_default_graph().get_operation_by_name(f"layer{i}/Tanh").attrs[HINT] = 1
    step = prune([x], [loss, *wf.gradients(loss, variables)], [])
    recompute(step, what)
    names = [node.name for node in copies(step)]
    assert "layer14/Tanh" + SUFFIX in names
    if what is Recompute.CHEAP:
        assert names == ["layer14/Tanh" + SUFFIX, "layer3/Tanh" + SUFFIX]


def test_a_scope_names_gradients() -> None:
    x = wf.placeholder(wf.float32, [64, 64])
    a = wf.exp(x, name="a")
    a.op.attrs[HINT] = 1
    late = wf.sin(a)
    with wf.name_scope("backward"):
        early = wf.negative(x)  # says nothing of when gradients come
        at_once = wf.multiply(late, a) + early
        used = wf.multiply(wf.negative(late), a)
    assert recompute(prune([x], [used], []), Recompute.HINTS) == 0
    assert recompute(prune([x], [used], []), Recompute.HINTS, scope="backward/") == 1
    step = prune([x], [at_once], [])
    assert recompute(step, Recompute.HINTS, scope="backward/") == 0  # nothing tells that it is near


def test_state_and_what_is_fetched_or_fed_stays() -> None:
    x = wf.placeholder(wf.float32, [64, 64])
    v = wf.Variable(np.ones((64, 64), np.float32))
    h, seen, fed = x, None, None
    for i in range(12):
        h = wf.nn.dropout(wf.sin(wf.matmul(h, v)), 0.5)
        h = wf.exp(wf.tanh(h))
        if i == 5:
            seen = h
        if i == 8:
            h = fed = wf.sin(h, name="fed")
    assert seen is not None
    assert fed is not None
    grads = wf.gradients(h, [v])
    step = prune([x, fed], [seen, *grads], [])
    assert recompute(step) > 0
    for node in copies(step):
        assert not node.op_def.stateful
        assert node.type not in ("Placeholder", "_Arg", "RandomUniform")
        assert node.name != seen.op.name + SUFFIX


@pytest.mark.parametrize("executor", ["", "READY_QUEUE"])
def test_branches_and_loops(executor: str) -> None:
    x = wf.placeholder(wf.float32, [32, 32])
    v = wf.Variable(np.eye(32, dtype=np.float32))
    h = x
    for _ in range(8):
        h = wf.sin(wf.tanh(wf.matmul(h, v)) * 2.0)
    h = wf.cond(wf.reduce_sum(h) > 0.0, lambda: h * wf.exp(h), lambda: wf.sin(h))
    _, h = wf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, wf.sin(wf.matmul(h, v))), [0, h])
    for _ in range(8):
        h = wf.sin(wf.tanh(wf.matmul(h, v)) * 2.0)
    fetches = [h, *wf.gradients(h, [x, v])]
    counts = same_numbers(fetches, {x: np.full((32, 32), 0.3, np.float32)}, executor)
    assert max(counts) > 0


def same_numbers(fetches: Any, feeds: Any, executor: str = "") -> list[int]:
    """Run with and without each kind of recomputation; how many nodes were copied."""
    edits: list[Edit] = [
        lambda step: 0,
        lambda step: recompute(step, Recompute.CHEAP),
        lambda step: recompute(step),
        lambda step: recompute(step, memory=MemoryLimits({"": 1}), run_order=sort_by_priority),
    ]
    results, counts = [], []
    for edit in edits:
        with EditedSession(edit, executor) as session:
            session.run(wf.global_variables_initializer())
            results.append(session.run(fetches, feeds))
            counts.append(session.made[-1][0])
    for found in results[1:]:
        for a, b in zip(results[0], found, strict=True):
            np.testing.assert_array_equal(a, b)
    return counts


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_networks(data: Any) -> None:
    check_random_network(data)


@pytest.mark.long
@settings(max_examples=2000, deadline=None)
@given(st.data())
def test_many_random_networks(data: Any) -> None:
    check_random_network(data)


def check_random_network(data: Any) -> None:
    """Values are bit for bit the same, the estimate is not above, and dependencies are kept."""
    with wf.Graph().as_default():
        wf.set_random_seed(5)
        x, v, values = random_network(data)
        loss = wf.add_n([wf.reduce_sum(value) for value in values[-2:]])
        fetches = [loss, *wf.gradients(loss, [x, v], unconnected_gradients="zero")]
        fetches += data.draw(st.lists(st.sampled_from(values), max_size=2, unique=True))
        feed = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
        same_numbers(fetches, {x: feed}, data.draw(st.sampled_from(["", "READY_QUEUE"])))
        step = prune([x], fetches, [])
        before = estimate_memory(step.live_nodes(), step.fetches).largest
        recompute(step, data.draw(st.sampled_from([Recompute.CHEAP, Recompute.ALL])))
        nodes = step.live_nodes()
        assert [n.index for n in nodes] == sorted(n.index for n in nodes)
        assert estimate_memory(nodes, step.fetches).largest <= before


def random_network(data: Any) -> tuple[Any, Any, list[Any]]:
    """A random graph of layers with connections past some of them."""
    x = wf.placeholder(wf.float32, [4, 4])
    v = wf.Variable(np.full((4, 4), 0.2, np.float32))
    values = [x]
    kinds = ["mat", "sin", "tanh", "add", "mul", "view", "drop", "split", "norm", "var"]
    for _ in range(data.draw(st.integers(1, 20))):
        near = st.integers(max(0, len(values) - 3), len(values) - 1)
        a, b = values[data.draw(near)], values[data.draw(st.integers(0, len(values) - 1))]
        values.append(_layer(data.draw(st.sampled_from(kinds)), a, b, v))
    return x, v, values


def _layer(kind: str, a: Any, b: Any, v: Any) -> Any:
    if kind == "mat":
        return wf.matmul(a, v)
    if kind == "add":
        return a + b
    if kind == "mul":
        return a * b * 0.5
    if kind == "view":
        return wf.transpose(wf.reshape(a, [2, 8]))[:4, :1] * b
    if kind == "drop":
        return wf.nn.dropout(a, 0.5)
    if kind == "split":
        left, right = wf.split(a, 2, 1)
        return wf.concat([wf.exp(wf.tanh(right)), left], 1)
    if kind == "norm":
        return a - wf.reduce_mean(a, 0, keepdims=True)
    if kind == "var":
        return a * wf.reduce_sum(v)
    return {"sin": wf.sin, "tanh": wf.tanh}[kind](a)


def test_planning_is_near_linear() -> None:
    times = []
    for layers in (50, 500):
        with wf.Graph().as_default():
            x, variables, loss = chain(layers, 16, 16)
            step = prune([x], wf.gradients(loss, variables), [])
            times.append(calls(lambda step=step: recompute(step)))
    assert times[1] < 25 * times[0]


def calls(function: Callable[[], Any]) -> int:
    import sys

    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
