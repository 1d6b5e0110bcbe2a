"""recompute_grad: the gradients of the function itself, from values computed again, and late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_autodiff.recompute_grad import recompute_grad
from weft_graph.passes import eliminate_common_subexpressions, prune, simplify
from weft_tensor import errors

Build = Callable[[Callable[[Any], Any]], tuple[Any, list[Any]]]
"""From what wraps functions to a loss and what to differentiate it by."""


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def both(build: Build, feeds: dict[str, Any] | None = None, twice: bool = True) -> None:
    """Values, gradients and second gradients equal those without recomputation, up to rounding."""
    wraps = (lambda f: f, recompute_grad)
    plain, recomputed = [evaluated(build, wrap, feeds, twice) for wrap in wraps]
    assert len(plain) == len(recomputed)
    for a, b in zip(plain, recomputed, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_array_equal(plain[0], recomputed[0])


def evaluated(build: Build, wrap: Any, feeds: dict[str, Any] | None, twice: bool) -> list[Any]:
    with wf.Graph().as_default() as graph, wf.Session() as session:
        wf.set_random_seed(7)
        loss, xs = build(wrap)
        first = wf.gradients(loss, xs)
        fetches = [loss, *first]
        if twice:
            floating = [wf.reduce_sum(wf.square(wf.convert_to_tensor(g))) for g in first]
            fetches += wf.gradients(wf.add_n(floating), xs, unconnected_gradients="zero")
        session.run(wf.global_variables_initializer())
        graph.check_integrity()
        return session.run([wf.convert_to_tensor(f) for f in fetches], feeds)


def _x(*shape: int) -> Any:
    values = np.random.default_rng(3).normal(size=shape).astype(np.float64)
    return wf.constant(values, name="x")


def test_several_inputs_and_outputs() -> None:
    def build(wrap: Any) -> Any:
        x, y = _x(3, 4), _x(4, 3)

        def f(x: Any, pair: Any) -> Any:
            h = wf.tanh(wf.matmul(x, pair["y"]))
            return {"a": h * h, "b": (wf.reduce_sum(h), pair["n"] + 1)}

        found = wrap(f)(x, {"y": y, "n": wf.constant(2)})
        return wf.reduce_sum(found["a"] * 3.0) + found["b"][0] ** 2, [x, y]

    both(build)


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_that_it_makes_and_captures(use_resource: bool) -> None:
    def build(wrap: Any) -> Any:
        x = _x(5, 4)
        ones = wf.ones_initializer()
        with wf.variable_scope("outer"):
            outer = wf.get_variable(
                "o", [4], dtype=wf.float64, initializer=ones, use_resource=use_resource
            )

            def f(x: Any) -> Any:
                w = wf.get_variable(
                    "w", [4, 4], dtype=wf.float64, initializer=ones, use_resource=use_resource
                )
                return wf.sigmoid(wf.matmul(x, w * 0.1) * outer)

            y = wrap(f)(x)
        assert [v.op.name for v in wf.trainable_variables()] == ["outer/o", "outer/w"]
        return wf.reduce_sum(y * y), [x, *wf.trainable_variables()]

    both(build)


def test_embeddings_get_slices() -> None:
    def build(wrap: Any) -> Any:
        table = wf.get_variable("t", [9, 4], wf.float64, wf.ones_initializer())
        handle = wf.get_variable("r", [9, 4], wf.float64, wf.ones_initializer(), use_resource=True)
        x = _x(2, 4)
        f = wrap(lambda x: wf.tanh(wf.gather(table, [1, 3]) * wf.gather(handle, [2, 2]) * x))
        loss = wf.reduce_sum(f(x))
        if wrap is recompute_grad:
            slices = wf.gradients(loss, [table, handle])
            assert all(isinstance(each, wf.IndexedSlices) for each in slices)
        return loss, [table, handle, x]

    both(build, twice=False)


def test_the_function_runs_once_and_so_do_its_effects() -> None:
    calls = []
    count = wf.Variable(0)
    x = wf.constant([1.0, 2.0])

    def f(x: Any) -> Any:
        """Doc."""
        calls.append(x)
        with wf.control_dependencies([wf.assign_add(count, 1)]):
            h = wf.exp(x)
        wf.add_to_collection("seen", h)
        return wf.nn.dropout(h * h, 0.5, seed=1)

    g = recompute_grad(f)
    assert (g.__wrapped__, g.__name__, g.__doc__) == (f, "f", "Doc.")  # type: ignore[attr-defined]
    y = g(x)
    (dx,) = wf.gradients(y, x)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        value, grad = session.run([y, dx])
        assert session.run(count) == 1
    np.testing.assert_allclose(grad, 2 * value)  # the mask is the same in both passes
    assert len(calls) == len(wf.get_collection("seen")) == 1


def test_recomputation_waits_for_the_gradient_and_is_not_merged() -> None:
    x = wf.placeholder(wf.float32, [4, 4])
    y = recompute_grad(lambda x: wf.exp(wf.sin(wf.matmul(x, x))))(x)
    arriving = wf.identity(wf.placeholder(wf.float32, [4, 4], name="given"), name="arriving")
    (dx,) = wf.gradients(y, x, arriving)
    step = prune([x], [y, dx], [])
    simplify(step)
    eliminate_common_subexpressions(step)
    live = step.live_nodes()
    forward = {n for n in live if n.type in ("MatMul", "Sin", "Exp") and n.forward is None}
    copies = [n for n in live if n.type in ("MatMul", "Sin", "Exp") and "recomputed/" in n.name]
    assert len(forward) == 3
    assert {n.type for n in copies} >= {"MatMul", "Sin"}
    for node in live:
        if node.forward is not None:  # nothing of the backward pass holds on to an intermediate
            assert not forward.intersection(s.node for s in node.inputs)
    for copy in copies:
        assert _waits_for(copy, "given")


def _waits_for(node: Any, name: str) -> bool:
    stack, seen = [node], set()
    while stack:
        here = stack.pop()
        if here not in seen:
            seen.add(here)
            stack.extend([s.node for s in here.inputs] + list(here.control_inputs))
    return any(name in here.name for here in seen)


@pytest.mark.kernels
def test_nested() -> None:
    def build(wrap: Any) -> Any:
        x, w = _x(4, 4), wf.get_variable("w", [4, 4], wf.float64, wf.ones_initializer())
        inner = wrap(lambda x: wf.tanh(wf.matmul(wf.tanh(x), w)))
        f = wrap(lambda x: inner(wf.sin(inner(x)) * 2.0))
        return wf.reduce_sum(f(f(x))), [x, w]

    both(build)


def test_in_a_conditional() -> None:
    def build(wrap: Any) -> Any:
        x, w = _x(4, 4), wf.get_variable("w", [4, 4], wf.float64, wf.ones_initializer())
        f = wrap(lambda x: wf.exp(wf.tanh(wf.matmul(x, w * 0.3))))
        y = wf.cond(wf.reduce_sum(x) > -100.0, lambda: f(x), lambda: x * 2.0)
        z = wf.cond(wf.reduce_sum(x) < -100.0, lambda: f(x), lambda: x * w)
        return wf.reduce_sum(y * z), [x, w]

    both(build)


def test_in_a_loop() -> None:
    def build(wrap: Any) -> Any:
        x, w = _x(4, 4), wf.get_variable("w", [4, 4], wf.float64, wf.ones_initializer())
        f = wrap(lambda x: wf.sin(wf.tanh(wf.matmul(x, w * 0.3))))
        _, y = wf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, f(y)), [0, x])
        return wf.reduce_sum(y * y), [x, w]

    both(build)


@pytest.mark.parametrize("outer", ["none", "loop", "cond"])
def test_conditionals_and_loops_inside(outer: str) -> None:
    def build(wrap: Any) -> Any:
        x, w = _x(4, 4), wf.get_variable("w", [4, 4], wf.float64, wf.ones_initializer())

        def f(x: Any) -> Any:
            h = wf.tanh(wf.matmul(x, w * 0.2))
            h = wf.cond(wf.reduce_sum(h) > 0.0, lambda: wf.exp(h) * x, lambda: wf.sin(h))
            _, h = wf.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, wf.sin(h) * x), [0, h])
            return h + 1.0

        g = wrap(f)
        if outer == "loop":
            _, y = wf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, g(y)), [0, x])
        elif outer == "cond":
            y = wf.cond(wf.reduce_sum(x) < 99.0, lambda: g(x), lambda: x)
        else:
            y = g(x)
        return wf.reduce_sum(y * y), [x, w]

    both(build)


def test_a_predicate_from_outside() -> None:
    def build(wrap: Any) -> Any:
        x = _x(4, 4)
        pred = wf.unstack(wf.constant([False, True]))[1]

        def f(x: Any) -> Any:
            return wf.tanh(wf.cond(pred, lambda: wf.exp(x), lambda: x))

        return wf.reduce_sum(wrap(f)(x)), [x]

    both(build)


def test_recurrent_networks() -> None:
    def build(wrap: Any) -> Any:
        x = _x(2, 3, 4)

        def f(x: Any) -> Any:
            cell = wf.nn.rnn_cell.BasicRNNCell(4, name="cell")
            return wf.nn.dynamic_rnn(cell, x, dtype=wf.float64)[0]

        y = wrap(f)(x)
        return wf.reduce_sum(y * y), [x, *wf.trainable_variables()]

    both(build, twice=False)


def test_random_numbers_in_loops_and_branches_are_kept() -> None:
    x = wf.constant([[1.0, 2.0]])

    def f(x: Any) -> Any:
        noisy = wf.cond(wf.constant(True), lambda: x * wf.random_uniform([1, 2]), lambda: x)
        _, y = wf.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y * wf.random_uniform([1, 2])), [0, noisy]
        )
        return wf.identity(y)

    y = recompute_grad(f)(x)
    (dx,) = wf.gradients(y, x)
    with wf.Session() as session:
        value, grad = session.run([y, dx])
    np.testing.assert_allclose(grad * [[1.0, 2.0]], value, rtol=1e-5)


def test_tensor_arrays_from_outside_and_inside() -> None:
    def build(wrap: Any) -> Any:
        x = _x(3, 4)
        given = wf.TensorArray(wf.float64, 3, clear_after_read=False).unstack(x)

        def f(x: Any) -> Any:
            own = wf.TensorArray(wf.float64, 2).unstack(wf.sin(x[:2]))
            return wf.tanh(own.stack() * given.read(1))

        return wf.reduce_sum(wrap(f)(x)), [x]

    both(build, twice=False)


def test_an_array_that_is_kept_in_part_is_kept_whole() -> None:
    x = wf.constant([0.5, 1.0])

    def f(x: Any) -> Any:
        array = wf.TensorArray(wf.float32, 3)
        _, array = wf.while_loop(
            lambda i, array: i < 3,
            lambda i, array: (i + 1, array.write(i, x * wf.random_uniform([2]))),
            [0, array],
        )
        return wf.exp(wf.sin(array.stack()))

    y = recompute_grad(f)(x)
    (dx,) = wf.gradients(wf.log(y), x)
    with wf.Session() as session:
        value, grad = session.run([y, dx])
    drawn = np.arcsin(np.log(value))  # x times random numbers, below 1
    np.testing.assert_allclose(grad * [0.5, 1.0], np.sum(np.cos(drawn) * drawn, 0), rtol=1e-4)


def test_in_functions() -> None:
    def build(wrap: Any) -> Any:
        x, w = _x(4, 4), wf.get_variable("w", [4, 4], wf.float64, wf.ones_initializer())
        call = wf.function(wrap(lambda x: wf.sin(wf.tanh(wf.matmul(x, w)))))
        return wf.reduce_sum(call(call(x))), [x, w]

    both(build)


def test_custom_gradients_inside() -> None:
    def build(wrap: Any) -> Any:
        @wf.custom_gradient
        def doubled(x: Any) -> Any:
            h = wf.exp(x)
            return h, lambda g: g * h * 2.0

        x = _x(3)
        return wf.reduce_sum(wrap(lambda x: wf.sin(doubled(wf.cos(x))))(x)), [x]

    both(build, twice=False)


def test_results_that_are_arguments_and_no_results() -> None:
    def build(wrap: Any) -> Any:
        x = _x(3)
        a, b = wrap(lambda x: (x, wf.exp(x)))(x)
        return wf.reduce_sum(a * b), [x]

    both(build)
    assert recompute_grad(lambda: ())() == ()


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(errors.InvalidTypeError, match="requires a function"):
        recompute_grad(3)  # type: ignore[arg-type]
    with pytest.raises(errors.OpError):
        recompute_grad(lambda x: object())(wf.constant(1.0))
