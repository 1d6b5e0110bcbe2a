"""Regions compiled for GPUs: on the stand-in, and on a GPU if available (`-m gpu`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from weft_testing.gpu_programs import assembling

import weft as wf
from weft_exec.gpu.compiled import GpuFunction, Graphs
from weft_exec.gpu.gpu_measurement import GpuMarks


class Seen:
    """Return the numbers of kernel calls and of captured launches."""

    def __init__(self) -> None:
        self.calls = self.captured = 0


@pytest.fixture(autouse=True)
def seen(somewhere: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Regions are compiled, and their calls are counted."""
    found = Seen()
    called, captured = GpuFunction.__call__, Graphs._capture_graph

    def count_call(self: GpuFunction, *arrays: Any) -> None:
        found.calls += 1
        called(self, *arrays)

    def count_graph(self: Graphs, launches: Callable[[], None]) -> Any:
        found.captured += 1
        return captured(self, launches)

    monkeypatch.setattr(GpuFunction, "__call__", count_call)
    monkeypatch.setattr(Graphs, "_capture_graph", count_graph)
    monkeypatch.setenv("WEFT_JIT", "now")
    with assembling() if somewhere == "stand-in" else nullcontext():
        yield found


def config(**options: Any) -> wf.ConfigProto:
    made = wf.ConfigProto(**options)
    made.gpu_options.allow_growth = True
    return made


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def on_gpu(build: Callable[[], Any], steps: int = 1, **options: Any) -> list[Any]:
    """Return the results of some steps on the GPU."""
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        wf.set_random_seed(4)
        fetches = build()
        with wf.Session(config=config(**options)) as session:
            session.run(wf.global_variables_initializer())
            return [session.run(fetches) for _ in range(steps)]


def on_cpu(build: Callable[[], Any], steps: int = 1) -> list[Any]:
    """The same on the CPU, by kernels."""
    with pytest.MonkeyPatch.context() as patch, wf.Graph().as_default(), wf.device("/cpu:0"):
        patch.setenv("WEFT_JIT", "off")
        wf.set_random_seed(4)
        fetches = build()
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            return [session.run(fetches) for _ in range(steps)]


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: wf.train.AdamOptimizer(0.01),
    "momentum": lambda: wf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "rmsprop": lambda: wf.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_classifier_learns_as_on_the_cpu(seen: Seen, optimizer: str) -> None:
    labels = np.random.default_rng(1).integers(0, 5, 64)

    def build() -> Any:
        x = wf.constant(numbers(64, 20))
        w, v = wf.Variable(numbers(20, 40) * 0.2), wf.Variable(numbers(40, 5) * 0.2)
        gain, bias = wf.Variable(wf.ones([40])), wf.Variable(wf.zeros([40]))
        h = wf.matmul(x, w)
        mean, variance = wf.nn.moments(h, [1], keep_dims=True)
        h = wf.nn.relu((h - mean) * wf.rsqrt(variance + 1e-5) * gain + bias)
        logits = wf.matmul(h, v)
        loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
        train = OPTIMIZERS[optimizer]().minimize(loss)
        with wf.control_dependencies([train]):
            return wf.identity(loss)

    got, want = on_gpu(build, 8), on_cpu(build, 8)
    np.testing.assert_allclose(got, want, rtol=5e-3)
    assert seen.calls >= 8 and got[-1] < got[0]


@pytest.mark.parametrize(
    "reduce",
    [wf.reduce_sum, wf.reduce_max, wf.reduce_mean, wf.reduce_logsumexp],
    ids=["sum", "max", "mean", "logsumexp"],
)
@pytest.mark.parametrize(("shape", "axis"), [((70_001,), 0), ((30_011, 3), 0), ((3, 40_000), 1)])
def test_what_many_blocks_reduce(seen: Seen, shape: Any, axis: int, reduce: Any) -> None:
    x = numbers(*shape)
    (got,) = on_gpu(lambda: reduce(wf.Variable(x) * 2.0, axis))
    wide = x.astype(np.float64) * 2
    want = {
        wf.reduce_sum: lambda: wide.sum(axis),
        wf.reduce_max: lambda: wide.max(axis),
        wf.reduce_mean: lambda: wide.mean(axis),
        wf.reduce_logsumexp: lambda: np.log(np.exp(wide).sum(axis)),
    }[reduce]()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-2 if reduce is wf.reduce_sum else 1e-5)
    assert seen.calls


def test_sums_have_the_same_bits_in_every_step(seen: Seen) -> None:
    def build() -> Any:
        x = wf.Variable(numbers(30_011, 7))
        return [wf.reduce_sum(wf.tanh(x), 0), wf.reduce_sum(x * x)]

    first, *others = on_gpu(build, 5)
    for other in others:
        assert [a.tobytes() for a in other] == [a.tobytes() for a in first]


def test_a_softmax_over_two_long_rows(seen: Seen) -> None:
    x = numbers(2, 40_000)
    (got,) = on_gpu(lambda: wf.nn.softmax(wf.Variable(x) * 2.0))
    e = np.exp(2 * x - 2 * x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-4)
    assert seen.calls


def test_jit_check_finds_nothing(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "")
    checked = config()
    checked.experimental.jit_check = True
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.Variable(numbers(50, 60))
        h = wf.nn.softmax(wf.erf(x) + wf.sin(x) * wf.exp(-x * x))
        loss = wf.reduce_sum(wf.log(h + 0.1) * wf.nn.sigmoid(x))
        step = wf.train.AdamOptimizer(0.1).minimize(loss)
        with wf.Session(config=checked) as session:
            session.run(wf.global_variables_initializer())
            for _ in range(3):
                session.run([loss, step])
    assert seen.calls


def test_launches_are_captured_where_arrays_stay_where_they_are(seen: Seen) -> None:
    values = numbers(3000)

    def build() -> Any:
        w, x = wf.Variable(wf.ones([3000])), wf.Variable(values)
        step = w.assign(w * 0.5 + wf.reduce_sum(wf.square(x)) * 0.001 + x)
        with wf.control_dependencies([step.op]):
            return wf.no_op(), w

    with wf.Graph().as_default(), wf.device("/gpu:0"):
        step, w = build()
        with wf.Session(config=config()) as session:
            session.run(wf.global_variables_initializer())
            want = np.ones(3000)
            for _ in range(20):
                session.run(step)
                want = want * 0.5 + np.square(values.astype(np.float64)).sum() * 0.001 + values
            np.testing.assert_allclose(session.run(w), want, rtol=1e-4)
            assert seen.captured
            session.run(w.assign(wf.zeros([3000])))  # the variable may lie elsewhere from now on
            want = np.zeros(3000)
            for _ in range(20):
                session.run(step)
                want = want * 0.5 + np.square(values.astype(np.float64)).sum() * 0.001 + values
            np.testing.assert_allclose(session.run(w), want, rtol=1e-4)


def test_after_a_bad_index_good_ones_are_looked_up(seen: Seen) -> None:
    table, good = numbers(4, 3), np.arange(300, dtype=np.int32) % 4
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x, at = wf.placeholder(wf.float32, [4, 3]), wf.placeholder(wf.int32, [300])
        y = wf.gather(wf.tanh(x) * 2.0, at) + 1.0
        with wf.Session(config=config()) as session:
            first, wrong, last = [session.run(y, {x: table, at: good + k}) for k in (0, 1, 0)]
    np.testing.assert_allclose(first, np.tanh(table)[good] * 2 + 1, rtol=1e-5)
    np.testing.assert_array_equal(first, last)
    np.testing.assert_array_equal(wrong[3], np.ones(3))  # as kernels of GPUs have it
    assert seen.calls


def test_random_numbers_have_the_bits_of_the_cpu(seen: Seen) -> None:
    def build() -> Any:
        return wf.random_uniform([10_001], seed=3) * 2.0

    np.testing.assert_array_equal(on_gpu(build, 3), on_cpu(build, 3))
    assert seen.calls


def test_steps_of_several_threads_do_not_mix(seen: Seen) -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.placeholder(wf.float32, [4000])
        y = wf.tanh(x) * (wf.reduce_sum(x * x) + 1.0)
        with wf.Session(config=config()) as session:
            wrong: list[int] = []

            def work(number: int) -> None:
                values = numbers(4000, seed=number)
                want = np.tanh(values) * (np.square(values.astype(np.float64)).sum() + 1)
                for _ in range(5):
                    if not np.allclose(session.run(y, {x: values}), want, rtol=1e-4):
                        wrong.append(number)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert not wrong and seen.calls == 20


def test_turns_of_loops_and_branches_are_kernels_that_the_host_launches(seen: Seen) -> None:
    x = numbers(3000)

    def build() -> Any:
        v = wf.Variable(x)

        def turn(i: Any, h: Any) -> Any:
            h = wf.cond(i < 3, lambda: wf.tanh(h) * 2.0 + v, lambda: wf.sin(h) * 0.5 - v)
            return i + 1, h * 0.5 + wf.reduce_mean(h * h)

        return wf.while_loop(lambda i, _: i < 5, turn, [0, v])[1]

    (got,), (want,) = on_gpu(build), on_cpu(build)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert seen.calls >= 5  # one in each turn at least


def test_explain_measures_kernels_beside_the_limits_of_the_gpu(seen: Seen) -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.placeholder(wf.float32, [64, 256], name="x")
        w = wf.Variable(numbers(64, 256))
        h = wf.nn.softmax(wf.tanh(x) * w)
        step = wf.train.MomentumOptimizer(1.0, 0.9).minimize(wf.reduce_sum(h * h))
        with wf.Session(config=config()) as session:
            session.run(wf.global_variables_initializer())
            report = session.explain([step, h], feed_dict={x: numbers(64, 256)})
            value = session.run(w)
    assert report.functions and seen.calls == 0
    kernels = [kernel for function in report.functions for kernel in function.kernels]
    assert all(kernel.seconds is not None and kernel.seconds > 0 for kernel in kernels)
    assert {"Softmax", "Tanh", "ApplyMomentum"} <= {n.type for k in kernels for n in k.nodes}
    limits = report.functions[0].limits
    assert limits is not None and limits.float32 > limits.float64 > 0 and limits.bandwidth > 0
    assert "of memory" in str(report) and limits.said in str(report)
    assert all(".target sm_" in text for text in report.assembly.values())
    assert not np.array_equal(value, numbers(64, 256))  # the step ran once, as it is


def test_traces_tell_the_time_of_a_region_by_the_clock_of_the_gpu(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    by_gpu = GpuMarks.times

    def later(self: GpuMarks) -> list[int]:
        times = by_gpu(self)
        assert times == sorted(times)
        if len(times) == 2:  # of the region
            told.append(times[0])
            times[1] = times[0] + 700_000_000
        return times

    monkeypatch.setattr(GpuMarks, "times", later)
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        y = wf.nn.softmax(wf.tanh(wf.Variable(numbers(300, 400))) * 2.0)
        metadata = wf.RunMetadata()
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        with wf.Session(config=config()) as session:
            session.run(wf.global_variables_initializer())
            session.run(y.op)
            session.run(y.op, options=options, run_metadata=metadata)
    (stats,) = [each for each in metadata.step_stats.dev_stats if "GPU" in each.device]
    spans = {each.node_name: each.all_end_rel_micros for each in stats.node_stats}
    assert {"Tanh", "Softmax"} <= spans.keys() and told
    assert abs(spans["Tanh"] + spans["Softmax"] + spans.get("mul", 0) - 700_000) < 100_000
