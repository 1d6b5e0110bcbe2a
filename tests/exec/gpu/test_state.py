"""Variables, updates and random numbers on a GPU, through the stand-in: the values of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cupy_standin import Machine

import weft as wf

Values = list[Any]


def on_both(program: Callable[[], Callable[[wf.Session], Values]]) -> tuple[Values, Values]:
    """Return the results of a program on the CPU and on the GPU."""
    found = []
    for device in ("/cpu:0", "/gpu:0"):
        config = wf.ConfigProto(device_count={"GPU": int(device == "/gpu:0")})
        config.gpu_options.allow_growth = True
        with wf.Graph().as_default():
            with wf.device(device):
                run = program()
            with wf.Session(config=config) as session:
                session.run(wf.global_variables_initializer())
                found.append(run(session))
    return found[0], found[1]


def equal(program: Callable[[], Callable[[wf.Session], Values]], rtol: float = 1e-6) -> None:
    mine, theirs = on_both(program)
    for want, got in zip(mine, theirs, strict=True):
        assert np.asarray(got).dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-7)


HOWS = ("update", "add", "sub", "mul", "div", "min", "max")


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("how", HOWS)
def test_scatters(machine: Machine, how: str, dtype: str, resource: bool) -> None:
    rng = np.random.default_rng(3)
    start = rng.integers(1, 9, (5, 3)).astype(dtype)
    indices = np.array([[0, 3], [3, 0]])
    updates = rng.integers(1, 5, (2, 2, 3)).astype(dtype)

    def program() -> Callable[[wf.Session], Values]:
        v = wf.get_variable("v", initializer=start, use_resource=resource)
        steps = [getattr(v, f"scatter_{how}")(wf.IndexedSlices(updates, indices))]
        if how in ("update", "add", "sub") and not resource:
            points = np.array([[0, 1], [4, 2], [0, 1]])
            steps.append(getattr(wf, f"scatter_nd_{how}")(v, points, updates[0, 0]))

        def run(session: wf.Session) -> Values:
            for step in steps:
                session.run(step)
            return [session.run(v)]

        return run

    equal(program, 2e-3 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "bool"])
def test_assignments(machine: Machine, dtype: str, resource: bool) -> None:
    start = np.array([[1, 0], [3, 4]]).astype(dtype)

    def program() -> Callable[[wf.Session], Values]:
        v = wf.get_variable("v", initializer=start, use_resource=resource)
        steps = [v.assign(start.T)]
        if dtype != "bool":
            steps += [v.assign_add(start), v.assign_sub(start[::-1])]

        def run(session: wf.Session) -> Values:
            found = []
            for step in steps:
                session.run(step)
                found.append(session.run(v))
            return [*found, session.run(wf.is_variable_initialized(v))]

        return run

    equal(program)


def test_counters_stay_on_the_host(machine: Machine) -> None:
    with wf.Graph().as_default():
        with wf.device("/gpu:0"):
            count = wf.get_variable("count", initializer=np.int64(0))
            step = wf.assign_add(count, 1)
        with wf.Session() as session:
            session.run(count.initializer)
            assert [session.run(step) for _ in range(3)] == [1, 2, 3]
    assert not [what for _, what in machine.log if what.startswith("copy")]


@pytest.mark.parametrize("batch", [0, 1])
def test_gathers_from_variables(machine: Machine, batch: int) -> None:
    table = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    indices = np.array([[1, 0], [0, 1]])

    def program() -> Callable[[wf.Session], Values]:
        v = wf.get_variable("v", initializer=table, use_resource=True)
        rows = wf.gather(v, indices, batch_dims=batch, axis=batch)
        points = v.gather_nd(indices)
        looked_up = wf.nn.embedding_lookup(v, [1, 1, 0])
        return lambda session: session.run([rows, points, looked_up])

    equal(program)


def optimizers() -> list[Any]:
    train = wf.train
    return [
        train.GradientDescentOptimizer(0.1),
        train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        train.AdagradOptimizer(0.1),
        train.AdagradDAOptimizer(0.1, wf.constant(1, wf.int64)),
        train.AdadeltaOptimizer(0.1),
        train.AdamOptimizer(0.1),
        train.RMSPropOptimizer(0.1, momentum=0.5),
        train.RMSPropOptimizer(0.1, centered=True),
        train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
        train.ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=0.01),
        train.ProximalAdagradOptimizer(0.1),
    ]


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("which", range(11))
def test_training(machine: Machine, which: int, sparse: bool, resource: bool) -> None:
    start = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)

    def program() -> Callable[[wf.Session], Values]:
        v = wf.get_variable("v", initializer=start, use_resource=resource)
        used = wf.gather(v, [0, 2, 2, 5]) if sparse else v
        step = optimizers()[which].minimize(wf.reduce_sum(wf.square(used - 1.0)))

        def run(session: wf.Session) -> Values:
            for _ in range(4):
                session.run(step)
            return [session.run(v)]

        return run

    equal(program, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_random_numbers_are_those_of_the_cpu(machine: Machine, dtype: str) -> None:
    def program() -> Callable[[wf.Session], Values]:
        wf.set_random_seed(7)
        kind = wf.as_dtype(dtype)
        exact = [
            wf.random_uniform([7, 3], dtype=kind),
            wf.random_uniform([1030], -5, 9, wf.int64),
            wf.random_shuffle(wf.range(50)),
        ]
        rounded = [wf.random_normal([1001], dtype=kind), wf.truncated_normal([500], dtype=kind)]

        def run(session: wf.Session) -> Values:
            return [value for _ in range(3) for value in session.run([*exact, *rounded])]

        return run

    mine, theirs = on_both(program)
    for i, (want, got) in enumerate(zip(mine, theirs, strict=True)):
        if i % 5 < 3:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=2e-3 if dtype == "float16" else 2e-5)


def test_tensor_arrays_and_stacks(machine: Machine) -> None:
    def program() -> Callable[[wf.Session], Values]:
        x = wf.placeholder_with_default(np.float32([1.0, 2.0]), [2])

        def body(i: Any, v: Any, kept: Any) -> Any:
            return i + 1, wf.sin(v) * x, kept.write(i, v)

        array = wf.TensorArray(wf.float32, 4)
        _, last, kept = wf.while_loop(lambda i, *_: i < 4, body, [0, x, array])
        grad = wf.gradients(wf.reduce_sum(kept.stack()) + wf.reduce_sum(last), [x])
        return lambda session: session.run([kept.stack(), last, *grad])

    equal(program, 1e-5)


def test_a_convnet_learns_as_on_the_cpu(machine: Machine) -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(8, 8, 8, 2)).astype(np.float32)
    labels = rng.integers(0, 3, 8)

    def program() -> Callable[[wf.Session], Values]:
        wf.set_random_seed(2)
        h = wf.layers.conv2d(wf.constant(images), 4, 3, padding="same", activation=wf.nn.relu)
        h = wf.layers.max_pooling2d(wf.layers.batch_normalization(h, training=True), 2, 2)
        logits = wf.layers.dense(wf.layers.flatten(h), 3)
        loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
        step = wf.train.AdamOptimizer(0.01).minimize(loss)
        return lambda session: [session.run([loss, step])[0] for _ in range(5)]

    mine, theirs = on_both(program)
    np.testing.assert_allclose(theirs, mine, rtol=1e-4)
    assert theirs[-1] < theirs[0]


def test_what_is_out_of_range_is_zero_or_dropped(machine: Machine) -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x, at = wf.placeholder(wf.float32, [3]), wf.placeholder(wf.int32, [3])
        picked = wf.gather(x, at)
        placed = wf.scatter_nd(at[:2, None] - 1, x[:2], [3])
        with wf.Session() as session:
            found = session.run([picked, placed], {x: [1, 2, 3], at: [2, 5, -1]})
    assert [value.tolist() for value in found] == [[3, 0, 0], [0, 1, 0]]
