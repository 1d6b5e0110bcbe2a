"""Gradients of calls: those of the same code without a function, to second order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.differentiate import directional_error, random_like
from weft_testing.evaluate import evaluate
from weft_testing.loading import load_family

import weft as wf
from weft_graph.functions.decorator import TensorSpec, function
from weft_graph.functions.defun import Declare, Defun
from weft_graph.functions.function import call_function
from weft_graph.ir.node import Output
from weft_graph.passes import eliminate_common_subexpressions, prune, simplify
from weft_graph.passes.inline import inline_calls
from weft_tensor import dtypes, errors

ROWS = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}")
    for case in load_family("functional").FUNCTION_CASES
    for dtype in ("float64", "complex128")
    if case.name != "large" and not (dtype == "complex128" and case.name == "branch")
]
CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def run(fetches: Any, feeds: Any = None, config: Any = None) -> Any:
    with wf.Session(config=config) as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetches, feeds)


def dense(grad: Any) -> Any:
    return None if grad is None else wf.convert_to_tensor(grad)


def assert_same(
    body: Callable[..., Any],
    point: list[Any],
    variables: Callable[[], list[Any]] = list,
    dtype: Any = wf.float64,
) -> None:
    """Compare a function with its body: values, kinds of gradients, gradients of both orders."""
    found = []
    for wrap in (lambda f: f, function):
        with wf.Graph().as_default():
            made = variables()
            xs = [wf.placeholder(dtype, np.shape(p)) for p in point]
            result = wrap(lambda *args: body(*args, *made))(*xs)  # noqa: B023 - called at once
            ys = result if isinstance(result, list | tuple) else [result]
            loss = wf.add_n([wf.reduce_sum(y * y) for y in ys])
            first = wf.gradients(loss, [*xs, *made])
            again = wf.add_n([wf.reduce_sum(wf.sin(dense(g))) for g in first if g is not None])
            second = wf.gradients(again, [*xs, *made])
            kinds = [type(g) for g in first]
            fetches = [ys, [g for g in map(dense, first) if g is not None]]
            fetches.append([g for g in map(dense, second) if g is not None])
            shape = [g is None for g in second]
            values = run(fetches, dict(zip(xs, point, strict=True)))
        found.append((kinds, shape, values))
    assert found[0][:2] == found[1][:2]
    for mine, its in zip(found[0][2], found[1][2], strict=True):
        for a, b in zip(mine, its, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


# --------------------------------------------------------------------------- cases


@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_against_differences(case: Any, dtype: str) -> None:
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    kind = dtypes.as_dtype(dtype).numpy
    arrays = [random_like(rng, np.zeros(shape, kind)) for shape in case.shapes]
    xs = [wf.placeholder(dtypes.as_dtype(dtype), array.shape) for array in arrays]
    point: dict[Output, Any] = dict(zip(xs, arrays, strict=True))
    f = function(lambda *args: case.build(*[arg * arg for arg in args]))
    ys = [y * y for y in f(*xs) if y.dtype.base_dtype is dtypes.as_dtype(dtype)]
    grads = differentiate(ys, xs, point, rng)
    differentiate(grads, xs, point, rng)


def differentiate(
    ys: list[Output], xs: list[Output], point: dict[Output, Any], rng: np.random.Generator
) -> list[Output]:
    """Gradients for random seeds, checked against differences; the seeds join `point`."""
    seeds = [random_like(rng, np.asarray(value)) for value in evaluate(ys, point)]
    fed = [wf.placeholder(dtypes.from_numpy(seed.dtype), seed.shape) for seed in seeds]
    point |= dict(zip(fed, seeds, strict=True))
    grads = wf.gradients(ys, xs, grad_ys=fed)
    by_y = dict(zip(ys, seeds, strict=True))
    expected, found = directional_error(ys, grads, xs, point, by_y, rng)
    assert abs(expected - found) <= 1e-6 * max(abs(expected), abs(found), 1)
    return [grad for grad in grads if isinstance(grad, Output)]


# --------------------------------------------------------------------------- the same as without

X, Y = np.array([0.3, -0.8, 1.1]), np.array([-0.2, 0.5, 0.9])


def resource() -> Any:
    return wf.Variable([0.5, 1.0, -0.7], dtype=wf.float64, use_resource=True)


def reference() -> Any:
    return wf.Variable([0.2, -1.0, 0.7], dtype=wf.float64)


def test_plain() -> None:
    assert_same(lambda x, y: (wf.tanh(x) * y, x - y * y), [X, Y])


@pytest.mark.parametrize("make", [resource, reference])
def test_variables(make: Callable[[], Any]) -> None:
    assert_same(lambda x, v: wf.tanh(x * v) + v, [X], lambda: [make()])


def test_a_variable_read_in_a_branch() -> None:
    assert_same(
        lambda x, v: wf.cond(wf.reduce_sum(x) > 0.0, lambda: wf.sin(x) * v, lambda: wf.sin(x)),
        [X],
        lambda: [resource()],
    )
    assert_same(
        lambda x, v: wf.cond(wf.reduce_sum(x) > 9.0, lambda: wf.sin(x) * v, lambda: wf.sin(x)),
        [X],
        lambda: [resource()],
    )


def test_a_variable_read_in_a_loop() -> None:
    def body(x: Any, v: Any) -> Any:
        return wf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, wf.sin(y * v)), [0, x])[1]

    assert_same(body, [X], lambda: [resource()])


def test_sparse_gradients_stay_sparse() -> None:
    def body(x: Any, v: Any) -> Any:
        return wf.gather(v, [0, 2, 0]) * x

    assert_same(body, [X], lambda: [resource()])
    assert_same(body, [X], lambda: [reference()])
    table = resource()
    inner = function(lambda x: wf.gather(table, [0, 2, 0]) * x)
    outer = function(lambda x: inner(x) * 2.0)
    (grad,) = wf.gradients(outer(wf.constant(X)), [table])
    assert isinstance(grad, wf.IndexedSlices)
    with wf.Session() as session:
        session.run(table.initializer)
        value = session.run(grad)
    assert value.indices.tolist() == [0, 2, 0]
    np.testing.assert_allclose(value.values, 2 * X)
    assert value.dense_shape.tolist() == [3]


def test_sparse_gradients_flow_in() -> None:
    def body(x: Any) -> Any:
        return x * x

    found = []
    for f in (body, function(body)):
        x = wf.constant(X)
        y = wf.gather(f(x), [2, 0, 2])
        found.append(run(wf.gradients(y, [x])[0]))
    np.testing.assert_allclose(found[0], found[1])


def test_functions_in_functions() -> None:
    inner = function(lambda x, v: wf.sin(x) * v, name="inner")
    assert_same(
        lambda x, v: inner(inner(x, v) + x, v) * v,
        [X],
        lambda: [resource()],
    )


def test_calls_in_loops_and_branches() -> None:
    @function
    def f(x: Any, y: Any) -> Any:
        return wf.sin(x) * y

    def body(x: Any, y: Any) -> Any:
        z = wf.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, f(z, y)), [0, x])[1]
        return wf.cond(wf.reduce_sum(z) > 9.0, lambda: f(z, x), lambda: f(x, z))

    def plain(x: Any, y: Any) -> Any:
        z = wf.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, wf.sin(z) * y), [0, x])[1]
        return wf.cond(wf.reduce_sum(z) > 9.0, lambda: wf.sin(z) * x, lambda: wf.sin(x) * z)

    values = []
    for each in (body, plain):
        x, y = wf.constant(X), wf.constant(Y)
        first = wf.gradients(each(x, y), [x, y])
        second = wf.gradients([wf.sin(g) for g in first], [x, y])
        values.append(run([first, second]))
    for a, b in zip(*[np.ravel(v) for v in values], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_tensor_arrays_inside() -> None:
    def body(x: Any) -> Any:
        ta = wf.TensorArray(wf.float64, 3, element_shape=[])

        def step(i: Any, ta: Any) -> Any:
            return i + 1, ta.write(i, wf.sin(x[i]) * wf.cast(i + 1, wf.float64))

        return wf.while_loop(lambda i, ta: i < 3, step, [0, ta])[1].stack()

    assert_same(body, [X])


def test_a_tensor_array_from_outside() -> None:
    def build(wrap: Any) -> Any:
        x = wf.constant(X)
        ta = wf.TensorArray(wf.float64, 3, clear_after_read=False).unstack(x * x)
        f = wrap(lambda ta, y: ta.read(0) * y + ta.read(2))
        y = f(ta, x[1])
        return run([y, *wf.gradients(y, [x])])

    for a, b in zip(build(lambda f: f), build(function), strict=True):
        np.testing.assert_allclose(a, b)


def test_one_argument_twice() -> None:
    @function
    def f(a: Any, b: Any) -> Any:
        with_state = wf.while_loop(
            lambda i, z: i < 2,
            lambda i, z: (i + 1, z * wf.cast(wf.shape(a)[0], wf.float64)),
            [0, a],
        )[1]
        return wf.cond(wf.reduce_sum(with_state) > 0.0, lambda: a * b, lambda: a - b)

    x = wf.constant(X)
    np.testing.assert_allclose(run(wf.gradients(f(x, x), [x])[0]), 2 * X)


def test_results_that_nothing_uses() -> None:
    f = function(lambda x, y: (x * x, y * y, wf.cast(x, wf.int32)))
    x, y = wf.constant(X), wf.constant(Y)
    first, _, _ = f(x, y)
    assert wf.gradients(first, [y]) == [None]
    np.testing.assert_allclose(run(wf.gradients(first, [x])[0]), 2 * X)


def test_gradients_inside_a_function() -> None:
    @function
    def slope(x: Any) -> Any:
        return wf.gradients(wf.reduce_sum(wf.sin(x)), [x])[0]

    x = wf.constant(X)
    np.testing.assert_allclose(run(slope(x)), np.cos(X))
    np.testing.assert_allclose(run(wf.gradients(slope(x), [x])[0]), -np.sin(X))


@pytest.mark.parametrize("kind", [resource, reference])
def test_training_steps_inside_a_function(kind: Any) -> None:
    v = kind()
    optimizer = wf.train.GradientDescentOptimizer(0.5)

    @function
    def step(x: Any) -> Any:
        loss = wf.reduce_sum(wf.square(v - x))
        return loss, optimizer.minimize(loss, var_list=[v])

    loss, train = step(wf.constant(X))
    with wf.Session() as session:
        session.run(v.initializer)
        session.run(train)
        np.testing.assert_allclose(session.run(v), X)
        assert session.run(loss) == pytest.approx(0.0)


# --------------------------------------------------------------------------- random numbers


def test_forward_and_gradient_see_the_same_random_numbers() -> None:
    @function
    def noisy(x: Any) -> Any:
        noise = wf.random_uniform([3], dtype=wf.float64)
        return x * noise, noise

    x = wf.constant(X)
    y, noise = noisy(x)
    (grad,) = wf.gradients(y, [x])
    inside = wf.cond(wf.reduce_sum(x) > 0.0, lambda: noisy(x)[0], lambda: x)
    (of_branch,) = wf.gradients(inside, [x])
    for _ in range(3):
        a, b, c, d = run([grad, noise, of_branch, inside])
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(c * X, d)


def test_random_numbers_in_a_branch_and_in_a_loop() -> None:
    @function
    def branchy(x: Any, p: Any) -> Any:
        return wf.cond(p, lambda: x * wf.random_uniform([3], dtype=wf.float64), lambda: x * 2.0)

    @function
    def loopy(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return i + 1, y * wf.random_uniform([3], dtype=wf.float64)

        return wf.while_loop(lambda i, y: i < 3, step, [0, x])[1]

    x, p = wf.constant(X), wf.placeholder(wf.bool, [])
    ys = [branchy(x, p), loopy(x)]
    grads = [wf.gradients(y, [x])[0] for y in ys]
    assert ys[0].op.type == "StatefulPartitionedCall"
    for choice in (True, False):
        values, slopes = run([ys, grads], {p: choice})
        for value, slope in zip(values, slopes, strict=True):
            np.testing.assert_allclose(slope * X, value)


def test_a_call_in_a_loop_draws_each_time() -> None:
    noisy = function(lambda x: x * wf.random_uniform([3], dtype=wf.float64))
    x = wf.constant(X)
    y = wf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, noisy(y)), [0, x])[1]
    value, slope = run([y, wf.gradients(y, [x])[0]])
    np.testing.assert_allclose(slope * X, value)


def test_dropout_in_nested_functions() -> None:
    inner = function(lambda x: wf.nn.dropout(x, rate=0.5), name="inner")
    outer = function(lambda x: inner(x * 2.0) + inner(x), name="outer")
    x = wf.constant(np.arange(1.0, 101.0))
    y = outer(x)
    value, slope = run([y, wf.gradients(y, [x])[0]])
    np.testing.assert_allclose(slope * np.arange(1.0, 101.0), value)


def test_effects_happen_once() -> None:
    counter = wf.Variable(0, use_resource=True)

    @function
    def counted(x: Any) -> Any:
        counter.assign_add(1)
        return wf.sin(x) * wf.cast(counter, wf.float64)

    x = wf.constant(X)
    (grad,) = wf.gradients(counted(x), [x])
    (second,) = wf.gradients(wf.sin(grad), [x])
    with wf.Session() as session:
        session.run(counter.initializer)
        np.testing.assert_allclose(session.run([grad, second])[0], np.cos(X))
        assert session.run(counter) == 1


# --------------------------------------------------------------------------- recomputation


def test_inlining_and_merging_leave_one_computation() -> None:
    """A function and its gradient in one step take as many nodes as the code without a function."""

    def body(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = wf.tanh(wf.matmul(x, w))
        return wf.reduce_sum(x)

    counts = []
    for f in (body, function(body)):
        with wf.Graph().as_default():
            w = wf.Variable(np.eye(3), use_resource=True)
            x = wf.placeholder(wf.float64, [3, 3])
            y = f(x, w.value())
            step = prune([x], [y, *wf.gradients(y, [x, w])], [])
            inline_calls(step)
            simplify(step)
            eliminate_common_subexpressions(step)
            counts.append(len([n for n in step.live_nodes() if n.type not in ("Identity",)]))
    assert counts[0] == counts[1]


def test_random_numbers_are_not_drawn_again_for_the_gradient() -> None:
    f = function(lambda x: x * wf.random_uniform([3], dtype=wf.float64))
    x = wf.constant(X)
    y = f(x)
    step = prune([], [y, *wf.gradients(y, [x])], [])
    inline_calls(step)
    assert sum(n.type == "RandomUniform" for n in step.live_nodes()) == 1


def test_one_gradient_function_serves_all_calls(graph: wf.Graph) -> None:
    f = function(lambda x: wf.sin(x), name="f")
    x = wf.constant(X)
    y = f(f(f(x)))
    wf.gradients(y, [x])
    wf.gradients(y, [x])
    assert set(graph.functions) == {"f", "f_grad"}


# --------------------------------------------------------------------------- recursion


def power(name: str = "power") -> Callable[..., Any]:
    declared = Declare(name, [("x", wf.float64), ("n", wf.int32)], [("y", wf.float64)])
    return Defun(wf.float64, wf.int32, func_name=name)(
        lambda x, n: wf.cond(n < 1, lambda: wf.ones_like(x), lambda: x * declared(x, n - 1))
    )


def test_gradients_of_a_recursive_function() -> None:
    x, n = wf.constant(1.5, wf.float64), wf.placeholder(wf.int32, [])
    y = power()(x, n)
    (first,) = wf.gradients(y, [x])
    (second,) = wf.gradients(first, [x])
    for k in (0, 1, 5):
        values = run([y, first, second], {n: k})
        wanted = [1.5**k, k * 1.5 ** (k - 1), k * (k - 1) * 1.5 ** (k - 2)]
        np.testing.assert_allclose(values, wanted)


def test_a_recursive_function_with_a_variable() -> None:
    v = wf.Variable(2.0, dtype=wf.float64, use_resource=True)
    declared = Declare(
        "f", [("n", wf.int32), ("v", wf.resource)], [("y", wf.float64)], stateful=True
    )

    @Defun(wf.int32, wf.resource, func_name="f")
    def f(n: Any, handle: Any) -> Any:
        read = wf.raw_ops.ReadVariableOp(resource=handle, dtype=wf.float64)
        return wf.cond(n < 1, lambda: wf.identity(read), lambda: read * declared(n - 1, handle))

    y = f(4, v.handle)
    (grad,) = wf.gradients(y, [v])
    assert run([y, grad]) == [32.0, 5 * 16.0]


def test_a_recursive_function_that_draws_has_no_gradient() -> None:
    declared = Declare("f", [("x", wf.float64)], [("y", wf.float64)], stateful=True)

    @Defun(wf.float64, func_name="f")
    def f(x: Any) -> Any:
        u = wf.random_uniform([], dtype=wf.float64)
        return wf.cond(u > 0.5, lambda: declared(x * u), lambda: x * u)

    x = wf.constant(1.0, wf.float64)
    y = f(x)
    assert 0 <= run(y) <= 1
    with pytest.raises(
        errors.UnimplementedError, match=r"'f' would run .*RandomUniform.*recursive"
    ):
        wf.gradients(y, [x])


# --------------------------------------------------------------------------- other gradients


def test_the_gradient_of_a_call_is_overridden(graph: wf.Graph) -> None:
    @wf.RegisterGradient("TestTenfold")
    def tenfold(op: Any, *grads: Any) -> Any:
        return [grads[0] * 10.0 for _ in op.inputs]

    f = function(lambda x: x * 2.0, name="f")
    x = wf.constant(X)
    for key in ("PartitionedCall", "f"):
        with graph.gradient_override_map({key: "TestTenfold"}):
            y = f(x)
        np.testing.assert_allclose(run(wf.gradients(y, [x])[0]), np.full(3, 10.0))
    np.testing.assert_allclose(run(wf.gradients(f(x), [x])[0]), np.full(3, 2.0))


def test_custom_gradients_around_and_inside() -> None:
    @wf.custom_gradient
    def clipped(x: Any) -> Any:
        return x * x, lambda dy: dy * wf.minimum(2.0 * x, wf.ones_like(x))

    inside = function(lambda x: clipped(wf.sin(x)) * x)
    around = wf.custom_gradient(lambda x: (inside(x), lambda dy: dy * 7.0))
    x = wf.constant(X)
    sine = np.sin(X)
    plain = clipped(wf.sin(x)) * x
    np.testing.assert_allclose(*run([wf.gradients(inside(x), [x])[0], wf.gradients(plain, [x])[0]]))
    assert sine.max() < 1
    np.testing.assert_allclose(run(wf.gradients(around(x), [x])[0]), np.full(3, 7.0))
    mine, its = [wf.gradients(wf.gradients(y, [x])[0], [x])[0] for y in (inside(x), plain)]
    np.testing.assert_allclose(*run([mine, its]))


def test_a_custom_gradient_that_uses_values_from_outside() -> None:
    scale = wf.placeholder(wf.float64, [3])
    unused = wf.placeholder(wf.float64, [3])

    @function
    def f(x: Any) -> Any:
        @wf.custom_gradient
        def inner(x: Any) -> Any:
            return x * scale, lambda dy: dy * scale * unused

        return inner(x)

    x = wf.constant(X)
    grad = run(wf.gradients(f(x), [x])[0], {scale: Y, unused: 2 * Y})
    np.testing.assert_allclose(grad, 2 * Y * Y)


def test_a_custom_gradient_in_two_functions_at_once() -> None:
    def make(factor: float) -> Any:
        @wf.custom_gradient
        def scaled(x: Any) -> Any:
            return x * 1.0, lambda dy: dy * factor

        return function(lambda x: scaled(x), name=f"scaled{int(factor)}")

    two, three = make(2.0), make(3.0)
    both = function(lambda x: (two(x), three(x)), name="both")
    x = wf.constant(X)
    a, b = both(x)
    np.testing.assert_allclose(run(wf.gradients(a, [x])[0]), np.full(3, 2.0))
    np.testing.assert_allclose(run(wf.gradients(b, [x])[0]), np.full(3, 3.0))


def test_a_gradient_built_by_a_python_function() -> None:
    def backward(op: Any, dy: Any, dz: Any) -> Any:
        assert op.type == "PartitionedCall"
        return [dy * 3.0 + dz * op.inputs[1], None]

    f = Defun(wf.float64, wf.float64, python_grad_func=backward)(lambda x, y: (x * y, x + y))
    x, y = wf.constant(X), wf.constant(Y)
    a, b = f(x, y)
    gx, gy = wf.gradients([a, b], [x, y])
    assert gy is None
    np.testing.assert_allclose(run(gx), 3.0 + Y)


def test_a_gradient_computed_by_another_function() -> None:
    @Defun(wf.float64, wf.float64)
    def backward(x: Any, dy: Any) -> Any:
        return dy * x * 100.0

    f = Defun(wf.float64, grad_func=backward)(lambda x: x * x)
    x = wf.constant(X)
    np.testing.assert_allclose(run(wf.gradients(f(x), [x])[0]), 100.0 * X)
    g = Defun(wf.float64)(lambda x: x * x)
    g.set_grad_func(backward)
    np.testing.assert_allclose(run(wf.gradients(g(x), [x])[0]), 100.0 * X)
    with pytest.raises(errors.FailedPreconditionError, match="already"):
        g.set_grad_func(backward)


def test_functions_of_any_types_with_gradients_of_any_types() -> None:
    backward = Defun(func_name="B")(lambda x, dy: dy * x * 5)
    f = Defun(func_name="F", grad_func=backward)(lambda x: x * x)
    for dtype in (wf.float32, wf.float64):
        x = wf.constant(X, dtype)
        np.testing.assert_allclose(run(wf.gradients(f(x), [x])[0]), 5.0 * X, rtol=1e-6)


# --------------------------------------------------------------------------- several graphs


def test_a_shared_function_is_differentiated_in_each_graph() -> None:
    concrete = function(lambda x: wf.sin(x), name="sine").get_concrete_function(
        TensorSpec([3], wf.float64)
    )
    for _ in range(2):
        with wf.Graph().as_default() as graph:
            x = wf.constant(X)
            (grad,) = wf.gradients(call_function(concrete, [x]), [x])
            np.testing.assert_allclose(run(grad), np.cos(X))
            assert set(graph.functions) == {"sine", "sine_grad"}


def test_functions_whose_names_no_node_may_have() -> None:
    """TensorFlow 2 calls its functions `__inference_f_83`."""
    x = wf.placeholder(wf.float64, [])
    y = function(lambda a: a * a * a, name="__inference_f_83")(x)
    slope = wf.gradients(y, x)[0]
    curve = wf.gradients(slope, x)[0]
    assert run([y, slope, curve], {x: 2.0}) == [8.0, 12.0, 12.0]
