"""Regions on GPUs: from a session to kernels that the stand-in for CuPy runs on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cupy_standin import Machine
from weft_testing.gpu_programs import assembling

import weft as wf
from weft_compiler.lower import region
from weft_compiler.lower.values import compute_value
from weft_exec.gpu import compiled
from weft_tensor import errors


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Iterator[None]:
    monkeypatch.setenv("WEFT_JIT", "now")
    with assembling():
        yield


def launches(machine: Machine) -> list[str]:
    """Return the launches of generated kernels and graphs."""
    return [what for _, what in machine.log if what.startswith(("weft_", "graph"))]


def on_gpu(build: Any, *arrays: Any, steps: int = 1) -> tuple[list[Any], list[Any]]:
    """Return the fetches of a graph on the GPU, and on the CPU by kernels."""
    found: list[list[Any]] = []
    for where in ("/gpu:0", "/cpu:0"):
        with pytest.MonkeyPatch.context() as patch, wf.Graph().as_default(), wf.device(where):
            if where == "/cpu:0":
                patch.setenv("WEFT_JIT", "off")
            feeds = [wf.placeholder(array.dtype, array.shape) for array in arrays]
            fetches = build(*feeds)
            with wf.Session() as session:
                session.run(wf.global_variables_initializer())
                given = dict(zip(feeds, arrays, strict=True))
                results = [session.run(fetches, given) for _ in range(steps)]
        found.append(results[-1])
    return found[0], found[1]


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_elementwise_nodes_and_a_softmax_are_kernels(machine: Machine) -> None:
    x = numbers(6, 50)
    got, want = on_gpu(lambda x: [wf.nn.softmax(wf.tanh(x) * 2.0), wf.reduce_sum(x * x, 0)], x)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-5)
    assert "weft_1" in launches(machine)


@pytest.mark.parametrize(("said", "scope"), [("", False), ("asked", False), ("off", True)])
def test_nothing_is_compiled_unasked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, said: str, scope: bool
) -> None:
    monkeypatch.setenv("WEFT_JIT", said)
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        with wf.xla.experimental.jit_scope(scope):
            y = wf.tanh(wf.constant(numbers(30))) * wf.constant(numbers(30))
        with wf.Session() as session:
            session.run(y)
    assert not launches(machine)


def test_a_scope_asks_for_kernels(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "asked")
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.placeholder(wf.float32, [300])
        with wf.xla.experimental.jit_scope():
            y = wf.tanh(x) * 2.0 + x
        with wf.Session() as session:
            found = session.run(y, {x: numbers(300)})
    np.testing.assert_allclose(found, np.tanh(numbers(300)) * 2 + numbers(300), rtol=1e-5)
    assert launches(machine) == ["weft_1"]


def test_products_between_are_the_library_s(machine: Machine) -> None:
    def model(x: Any) -> Any:
        h = wf.nn.relu(wf.matmul(wf.tanh(x) * 2.0, wf.transpose(x)) + 1.0)
        return wf.nn.softmax(h * 0.5)

    got, want = on_gpu(model, numbers(5, 7))
    np.testing.assert_allclose(got, want, rtol=1e-5)
    enqueued = [what for _, what in machine.log]
    product = next(at for at, what in enumerate(enqueued) if "matmul" in what)
    kernels = [at for at, what in enumerate(enqueued) if what.startswith("weft_")]
    assert kernels[0] < product < kernels[-1]


def test_variables_are_updated_in_place(machine: Machine) -> None:
    def model(x: Any) -> Any:
        w = wf.Variable(wf.ones([7, 3]))
        loss = wf.reduce_mean(wf.square(wf.matmul(x, w) - 2.0))
        train = wf.train.AdamOptimizer(0.1).minimize(loss)
        with wf.control_dependencies([train]):
            return wf.identity(loss)

    got, want = on_gpu(model, numbers(5, 7), steps=6)
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_of_bad_indices_comes_what_comes_of_them_by_kernels(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, good = numbers(4, 3), np.arange(300, dtype=np.int32) % 4
    found: list[list[Any]] = []
    for mode in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Graph().as_default(), wf.device("/gpu:0"):
            x, at = wf.placeholder(wf.float32, [4, 3]), wf.placeholder(wf.int32, [300])
            y = wf.gather(wf.tanh(x) * 2.0, at) + 1.0
            with wf.Session() as session:
                steps = [session.run(y, {x: values, at: good + wrong}) for wrong in (0, 1, 0)]
        found.append(steps)
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert launches(machine)


def test_random_numbers_have_the_bits_of_the_kernel(machine: Machine) -> None:
    def model() -> Any:
        return [wf.random_uniform([1000], seed=3) * 2.0 + 1.0]

    got, want = on_gpu(model, steps=3)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6)


def test_a_predicate_is_where_branches_look_at_it(machine: Machine) -> None:
    def model(x: Any) -> Any:
        return wf.cond(wf.reduce_all(x * 2.0 > -9.0), lambda: x + 1.0, lambda: x - 1.0)

    got, want = on_gpu(model, numbers(8, 40))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_several_kernels_become_a_graph_where_arrays_stay_where_they_are(machine: Machine) -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        w = wf.Variable(wf.ones([64]))
        x = wf.Variable(wf.constant(numbers(64)))
        step = w.assign(w * 0.5 + wf.reduce_sum(wf.square(x)) * 0.1 + x)
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            for _ in range(12):
                session.run(step.op)
            values = numbers(64)
            want = np.ones(64, np.float32)
            for _ in range(12):
                want = want * np.float32(0.5) + np.square(values).sum() * np.float32(0.1) + values
            np.testing.assert_allclose(session.run(w), want, rtol=1e-5)
    assert any(what.startswith("graph of ") for what in launches(machine))


@pytest.mark.parametrize("updates", [False, True])
def test_jit_check_names_what_differs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, updates: bool
) -> None:
    monkeypatch.setenv("WEFT_JIT", "")
    config = wf.ConfigProto()
    config.experimental.jit_check = True

    def run() -> Any:
        with wf.Graph().as_default(), wf.device("/gpu:0"):
            v = wf.Variable(numbers(300))
            slope = wf.tanh(wf.sin(v, name="first"), name="second") * 2.0
            step = wf.train.MomentumOptimizer(0.5, 0.9).apply_gradients([(slope, v)])
            with wf.Session(config=config) as session:
                session.run(wf.global_variables_initializer())
                session.run(step if updates else slope)
                return session.run(v)

    want = numbers(300)
    want = want - np.tanh(np.sin(want)) if updates else want
    np.testing.assert_allclose(run(), want, rtol=1e-5, atol=1e-6)
    assert launches(machine)
    elementwise, new_values = region._elementwise, region.new_values

    def wrong(op: Any) -> Any:
        if op.node.type != "Tanh":
            return elementwise(op)
        return compute_value(op.name, op.dtype(), op.shape(), lambda *at: op.inputs[0].at(*at))

    if updates:
        monkeypatch.setattr(
            region, "new_values", lambda *args: [new_values(*args)[1] for _ in range(2)]
        )
    else:
        monkeypatch.setattr(region, "_elementwise", wrong)
    said = (
        "jit_check: ApplyMomentum returns"
        if updates
        else "(?s)jit_check: Tanh returns .*node 'second'"
    )
    with pytest.raises(errors.InternalError, match=said):
        run()


def test_what_fails_in_the_compiler_is_raised_where_that_is_asked_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region, "_elementwise", lambda op: 1 / 0)
    with pytest.raises(errors.InternalError, match="ZeroDivisionError"):
        on_gpu(lambda x: wf.tanh(x) * 2.0, numbers(300))


class _Moving:
    """Launches whose arrays are elsewhere each time."""

    def __init__(self, device: Any) -> None:
        self.graphs = compiled.Graphs(device, "2 kernels")
        self.count = 0

    def run(self, places: tuple[int, ...]) -> None:
        self.graphs.launch(self.launch, places)

    def launch(self) -> None:
        self.count += 1


def test_no_graph_is_captured_where_arrays_keep_moving(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    moving = _Moving(None)
    with caplog.at_level("INFO", "weft_exec.gpu.compiled"):
        for at in range(200):
            moving.run((at,))
    assert moving.count == 200
    assert [each.getMessage() for each in caplog.records] == [
        "2 kernels are launched one by one: the addresses of their arrays keep changing"
    ]
