"""The chain rule over graphs."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def run(fetches: object, feeds: dict[wf.Tensor, object] | None = None) -> object:
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetches, feeds)


def test_several_paths_are_summed() -> None:
    x = wf.placeholder(wf.float32, [])
    y = x * x + wf.exp(x) * x
    (dx,) = wf.gradients(y, [x])
    np.testing.assert_allclose(run(dx, {x: 2.0}), 4 + np.exp(2.0) * 3, rtol=1e-6)


def test_an_output_that_nothing_uses_counts_as_zero() -> None:
    x = wf.placeholder(wf.float32, [4])
    first, _ = wf.split(x, 2)
    (dx,) = wf.gradients(wf.reduce_sum(first * first), [x])
    np.testing.assert_array_equal(run(dx, {x: [1, 2, 3, 4]}), [2, 4, 0, 0])


def test_no_path_is_none_or_zero() -> None:
    x, y = wf.constant([1.0, 2.0]), wf.constant(3.0)
    assert wf.gradients(y * 2.0, [x]) == [None]
    (zero,) = wf.gradients(y * 2.0, [x], unconnected_gradients="zero")
    np.testing.assert_array_equal(run(zero), [0, 0])


def test_no_gradient_on_purpose_differs_from_a_missing_one(graph: wf.Graph) -> None:
    x = wf.constant([1.0, 2.0])
    assert wf.gradients(wf.cast(wf.argmax(x, 0), wf.float32), [x]) == [None]
    with graph.gradient_override_map({"Exp": "NobodyRegisteredThis"}):
        y = wf.exp(x, name="odd")
    with pytest.raises(LookupError, match="NobodyRegisteredThis"):
        wf.gradients(y, [x])


def test_stop_gradient_and_stop_gradients() -> None:
    x = wf.placeholder(wf.float32, [])
    y = wf.square(x)
    (stopped,) = wf.gradients(x * wf.stop_gradient(y), [x])
    (partial,) = wf.gradients(x * y, [x], stop_gradients=[y])
    assert run([stopped, partial], {x: 3.0}) == [9.0, 9.0]


def test_stopping_at_the_xs_gives_partial_derivatives() -> None:
    a = wf.placeholder(wf.float32, [])
    b = 2.0 * a
    partial = wf.gradients(a + b, [a, b], stop_gradients=[a, b])
    total = wf.gradients(a + b, [a, b])
    assert run([*partial, *total], {a: 0.0}) == [1.0, 1.0, 3.0, 1.0]


def test_second_and_third_order() -> None:
    x = wf.placeholder(wf.float64, [])
    y = wf.sin(x) * wf.exp(x)
    orders = [y]
    for _ in range(3):
        orders.append(wf.gradients(orders[-1], [x])[0])
    value = 0.7
    e, s, c = np.exp(value), np.sin(value), np.cos(value)
    expected = [e * s, e * (s + c), 2 * e * c, 2 * e * (c - s)]
    np.testing.assert_allclose(run(orders, {x: value}), expected, rtol=1e-12)


def test_gathers_give_indexed_slices_and_sum_repeated_rows() -> None:
    table = wf.Variable(np.ones([5, 2], np.float32))
    rows = wf.gather(table, [1, 3, 1])
    (grad,) = wf.gradients(wf.reduce_sum(rows * [[1.0], [2.0], [4.0]]), [table])
    assert isinstance(grad, wf.IndexedSlices)
    dense = run(wf.convert_to_tensor(grad))
    np.testing.assert_array_equal(dense, [[0, 0], [5, 5], [0, 0], [2, 2], [0, 0]])
    value = run(grad)
    assert value.indices.tolist() == [1, 3, 1]


@pytest.mark.parametrize("use_resource", [False, True])
def test_gradients_reach_variables(use_resource: bool) -> None:
    v = wf.Variable(3.0, use_resource=use_resource)
    (dv,) = wf.gradients(v * v + v, [v])
    assert run(dv) == 7.0


def test_grad_ys_are_the_start() -> None:
    x = wf.placeholder(wf.float32, [2])
    y, z = x * 2.0, x * 3.0
    (dx,) = wf.gradients([y, z], [x], grad_ys=[[1.0, 10.0], None])
    np.testing.assert_array_equal(run(dx, {x: [0, 0]}), [5, 23])
    with pytest.raises(ValueError, match="required 2, got 1"):
        wf.gradients([y, z], [x], grad_ys=[None])
    with pytest.raises(ValueError, match=r"grad_ys: .* does not have the shape of"):
        wf.gradients(y, [x], grad_ys=[[1.0, 2.0, 3.0]])


def test_integers_have_no_gradients() -> None:
    x = wf.constant(1)
    with pytest.raises(TypeError, match="floating or complex"):
        wf.gradients(x * 2, [x])


def test_added_nodes_know_their_forward_node(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [2])
    y = wf.tanh(x, name="y")
    start = len(graph.nodes)
    wf.gradients(y, [x])
    added = [node for node in graph.nodes[start:] if node.type == "TanhGrad"]
    assert [node.forward for node in added] == [y.op]
    assert added[0].name.startswith("gradients/y_grad/")


@pytest.mark.parametrize("x", (1.0, 2.0, 5.0))
def test_the_gradient_of_clipping_goes_to_one_limit_where_they_are_crossed(x: float) -> None:
    sources = [wf.constant(value) for value in (x, 3.0, 1.5)]
    clipped = wf.clip_by_value(*sources)
    assert run(wf.gradients(clipped, sources)) == [0.0, 1.0, 0.0]


def test_custom_gradient() -> None:
    @wf.custom_gradient
    def clipped(x: wf.Tensor) -> object:
        return wf.exp(x), lambda dy: wf.clip_by_value(dy, -1.0, 1.0)

    x = wf.placeholder(wf.float32, [])
    y = clipped(x)
    (dx,) = wf.gradients(y * 5.0, [x])
    assert run(dx, {x: 1.0}) == 1.0
    np.testing.assert_allclose(run(y, {x: 1.0}), np.e, rtol=1e-6)


def test_custom_gradient_of_a_function_that_reads_a_variable() -> None:
    v = wf.Variable(2.0)

    @wf.custom_gradient
    def scaled(x: wf.Tensor) -> object:
        def grad(dy: wf.Tensor, variables: list[wf.Variable]) -> object:
            assert variables == [v]
            return dy * 10.0, [dy * 100.0]

        return x * v, grad

    x = wf.placeholder(wf.float32, [])
    dx, dv = wf.gradients(scaled(x), [x, v])
    assert run([dx, dv], {x: 3.0}) == [10.0, 100.0]


def test_gradient_overrides(graph: wf.Graph) -> None:
    @wf.RegisterGradient("TestDoubledSquare")
    def _doubled(op: wf.Operation, grad: wf.Tensor) -> wf.Tensor:
        return 2.0 * grad * 2.0 * op.inputs[0]

    x = wf.placeholder(wf.float32, [])
    with graph.gradient_override_map({"Square": "TestDoubledSquare"}):
        y = wf.square(x)
    assert run(wf.gradients(y, [x])[0], {x: 3.0}) == 12.0
    assert run(wf.gradients(wf.square(x), [x])[0], {x: 3.0}) == 6.0


def test_a_gradient_that_does_not_fit_is_refused(graph: wf.Graph) -> None:
    @wf.RegisterGradient("TestWrongShape")
    def _wrong(op: wf.Operation, grad: wf.Tensor) -> wf.Tensor:
        return wf.zeros([3])

    x = wf.placeholder(wf.float32, [2])
    with graph.gradient_override_map({"Exp": "TestWrongShape"}):
        y = wf.exp(x, name="y")
    with pytest.raises(errors.InvalidArgumentError, match="gradient of Exp"):
        wf.gradients(y, [x])


def test_gradients_can_be_gated_and_colocated() -> None:
    with wf.device("/cpu:0"):
        x = wf.placeholder(wf.float32, [2, 2], name="x")
        y = wf.matmul(x, x, name="y")
    (dx,) = wf.gradients(y, [x], gate_gradients=True, colocate_gradients_with_ops=True)
    np.testing.assert_array_equal(run(dx, {x: np.eye(2)}), 2 * np.ones([2, 2]))
    inner = [n for n in dx.graph.get_operations() if n.forward is y.op and n.type == "MatMul"]
    assert inner and all(n.device == "/device:CPU:0" for n in inner)


def test_a_sum_of_gradients_is_colocated_with_the_forward_node() -> None:
    with wf.device("/job:worker/task:1"):
        x = wf.placeholder(wf.float32, [2], name="x")
        hidden = wf.tanh(x)
        y = hidden * 2.0 + hidden * 3.0
    with wf.device("/job:worker/task:0"):
        (dx,) = wf.gradients(y, [x], colocate_gradients_with_ops=True)
    sums = [n for n in dx.graph.get_operations() if n.type == "AddN"]
    assert [n.device for n in sums] == ["/job:worker/task:1"]


def test_unconnected_gradients_by_their_names() -> None:
    x, y = wf.constant([1.0, 2.0]), wf.constant(3.0)
    assert wf.gradients(y, [x], unconnected_gradients=wf.UnconnectedGradients.NONE) == [None]
    (zero,) = wf.gradients(y, [x], unconnected_gradients=wf.UnconnectedGradients.ZERO)
    np.testing.assert_array_equal(run(zero), [0.0, 0.0])
    with pytest.raises(errors.InvalidArgumentError, match="'nil'"):
        wf.gradients(y, [x], unconnected_gradients="nil")


def test_aggregation_methods_give_the_same_sum() -> None:
    x = wf.constant(3.0)
    method = wf.AggregationMethod.EXPERIMENTAL_TREE
    (dx,) = wf.gradients(x * x + x, [x], aggregation_method=method)
    assert run(dx) == 7.0


@pytest.mark.parametrize("count", [0, 2])
def test_a_gradient_function_returns_as_many_as_there_are_inputs(count: int) -> None:
    name = f"TestGradientsOfAnotherCount{count}"
    wf.RegisterGradient(name)(lambda op, grad: [grad] * count)
    x = wf.constant(1.0)
    with wf.get_default_graph().gradient_override_map({"Tanh": name}):
        y = wf.tanh(x)
    with pytest.raises(errors.OpError, match=f"one gradient per input: required 1, got {count}"):
        wf.gradients(y, x)
