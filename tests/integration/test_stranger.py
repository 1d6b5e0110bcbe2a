"""A package outside weft adds ops, gradients, kernels and resources through entry points."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import weft_stranger

import weft as wf
from weft import errors
from weft_autodiff.registry import gradient_of, not_differentiable
from weft_exec.costs import CostModel
from weft_exec.executor.priority import sort_by_priority
from weft_graph.functions.state import has_effect, only_reads
from weft_graph.passes import memory, prune
from weft_graph.passes.memory import estimate_memory, occupies_memory
from weft_graph.passes.recompute import SUFFIX, Recompute, recompute


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def test_the_op_has_shapes_types_values_and_a_gradient() -> None:
    x = wf.constant([[3.0], [5.0]])
    y = wf.constant([4.0, 12.0])
    z = weft_stranger.hypot(x, y)
    assert z.shape.as_list() == [2, 2]
    with pytest.raises(TypeError, match="float32"):
        weft_stranger.hypot(wf.constant(1), wf.constant(2))
    with pytest.raises(ValueError, match=r"api\.py"):
        weft_stranger.hypot(wf.zeros([2]), wf.zeros([3]))
    a = wf.constant([3.0, 5.0])
    (da,) = wf.gradients(weft_stranger.hypot(a, wf.constant([4.0, 12.0])), [a])
    (dx,) = wf.gradients(z, [x])
    with wf.Session() as session:
        np.testing.assert_allclose(session.run(z), np.hypot([[3], [5]], [4, 12]), rtol=1e-6)
        np.testing.assert_allclose(session.run(da), [3 / 5, 5 / 13], rtol=1e-6)
        both = [[3 / 5 + 3 / 153**0.5], [5 / 41**0.5 + 5 / 13]]
        np.testing.assert_allclose(session.run(dx), both, rtol=1e-6)


def test_an_asynchronous_kernel_waits_for_another_step() -> None:
    target = wf.placeholder(wf.int64, [])
    reached = weft_stranger.tally_await("steps", target) * 10
    add = weft_stranger.tally_add("steps", np.int64(1))
    results: list[int] = []
    with wf.Session() as session:
        threads = [
            threading.Thread(target=lambda: results.append(session.run(reached, {target: 3})))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        assert not results
        for _ in range(3):
            session.run(add)
        for thread in threads:
            thread.join(30)
    assert results == [30] * 4


def test_one_step_both_waits_and_adds() -> None:
    reached = weft_stranger.tally_await("both", np.int64(2))
    with wf.control_dependencies([weft_stranger.tally_add("both", np.int64(1))]):
        again = weft_stranger.tally_add("both", np.int64(1))
    with wf.Session() as session:
        assert session.run([reached, again]) == [2, 2]


def test_a_waiting_step_ends_at_its_timeout_and_leaves_nobody_in_line() -> None:
    reached = weft_stranger.tally_await("never", np.int64(5), name="waits")
    add = weft_stranger.tally_add("never", np.int64(1))
    with wf.Session() as session:
        with pytest.raises(errors.DeadlineExceededError, match="waits"):
            session.run(reached, options=wf.RunOptions(timeout_in_ms=50))
        for _ in range(5):
            session.run(add)
        assert session.run(reached) == 5


def test_a_failure_elsewhere_cancels_what_waits() -> None:
    reached = weft_stranger.tally_await("unreached", np.int64(5))
    zero = wf.placeholder(wf.int32, [])
    broken = wf.floordiv(1, zero, name="broken")
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="broken"):
        session.run([reached, broken], {zero: 0})


# ------------------------------------------------------------------ what its traits give it


def test_equal_nodes_are_merged_and_constant_ones_folded() -> None:
    x = wf.placeholder(wf.float32, [2])
    twice = weft_stranger.hypot(x, x, "a") + weft_stranger.hypot(x, x, "b")
    known = weft_stranger.hypot(wf.constant([3.0, 5.0]), wf.constant([4.0, 12.0]), "known")
    with wf.Session() as session:
        plan = session.explain([twice, known], [x])
        ops = {node.name: node.op for node in plan.stages["optimized"].node}
        assert ops["known"] == "Const"
        assert sum(op == "StrangerHypot" for op in ops.values()) == 1
        np.testing.assert_allclose(session.run(known), [5, 13], rtol=1e-6)


def test_it_costs_what_its_declaration_says() -> None:
    x = wf.placeholder(wf.float32, [4, 5])
    model = CostModel()
    assert model.work(weft_stranger.hypot(x, x).node) == (80, 240)
    assert model.work(weft_stranger.diagonal(wf.ones([6, 6])).node) == (0, 0)


def test_a_view_takes_no_memory_and_is_copied_out() -> None:
    x = wf.placeholder(wf.float32, [300, 300])
    made = wf.exp(x)
    diagonal = weft_stranger.diagonal(made)
    assert occupies_memory(made) and memory.aliased_value(diagonal) is made
    without = estimate_memory([x.node, made.node], [made]).largest
    assert estimate_memory([x.node, made.node, diagonal.node], [diagonal]).largest == without
    fed = np.eye(3, dtype=np.float32)
    y = wf.placeholder(wf.float32, [3, 3])
    with wf.Session() as session:
        result = session.run(weft_stranger.diagonal(y), {y: fed})
    assert result.flags.writeable and not np.shares_memory(result, fed)


def test_it_is_computed_again_rather_than_kept() -> None:
    x = wf.placeholder(wf.float32, [4096], name="x")
    h = x
    for i in range(12):
        h = wf.sin(weft_stranger.hypot(h, x, f"h{i}"), f"s{i}")
    (gradient,) = wf.gradients(wf.reduce_sum(h), [x])
    step = prune([x], [gradient], [])
    assert recompute(step, Recompute.CHEAP, run_order=sort_by_priority)
    copied = {node.type for node in step.graph.nodes if node.name.endswith(SUFFIX)}
    assert "StrangerHypot" in copied


def test_what_reads_is_no_effect_and_what_writes_comes_last() -> None:
    add, get = weft_stranger.tally_add("t", np.int64(1)), weft_stranger.tally_get("t")
    assert has_effect(add.node) and not has_effect(get.node) and only_reads(get.node)

    @wf.function
    def add_and_get() -> wf.Tensor:
        before = weft_stranger.tally_get("f")
        weft_stranger.tally_add("f", np.int64(5))
        return weft_stranger.tally_get("f") - before

    with wf.Session() as session:
        assert session.run(add_and_get()) == 5
        placement = session.explain([add, get]).placement
        assert placement[add.node.name].device == placement[get.node.name].device


def test_a_declaration_says_that_it_has_no_gradient() -> None:
    add = weft_stranger.tally_add("t", np.int64(1))
    assert gradient_of(add.node).function is not_differentiable
    with pytest.raises(errors.AlreadyExistsError, match="not differentiable"):
        wf.RegisterGradient("StrangerTallyAdd")(lambda node, grad: grad)
