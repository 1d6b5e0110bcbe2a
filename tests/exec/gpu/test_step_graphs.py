"""Whole steps as CUDA graphs: on the stand-in, and on a GPU if available (`-m gpu`).

The stand-in notes launches down and runs them when a graph is launched, on the addresses of then;
what a capture computes is no number. So what is at a wrong address, or missing, is a wrong value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from cupy_standin import machine
from weft_testing.gpu_programs import assembling

import weft as wf
from weft_exec.gpu.captured_graph import CapturedGraph
from weft_exec.resources.resources import VariableState


class Launches:
    """Return how many pieces of steps ran as graphs, and how many one by one."""

    def __init__(self) -> None:
        self.graphs = self.refused = self.captured = 0


@pytest.fixture(autouse=True)
def seen(somewhere: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    found = Launches()
    launch, new = CapturedGraph.launch, CapturedGraph.__init__

    def count(self: Any, slots: Any) -> bool:
        done = launch(self, slots)
        found.graphs += done
        found.refused += not done
        return done

    def make(self: Any, *args: Any) -> None:
        new(self, *args)
        found.captured += 1

    monkeypatch.setattr(CapturedGraph, "launch", count)
    monkeypatch.setattr(CapturedGraph, "__init__", make)
    monkeypatch.setenv("WEFT_JIT", "now")
    with assembling() if somewhere == "stand-in" else nullcontext():
        yield found


def config(**options: Any) -> wf.ConfigProto:
    made = wf.ConfigProto(**options)
    made.gpu_options.allow_growth = True
    return made


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


Feeds = list[list[Any]]


def both(build: Callable[..., Any], feeds: Feeds) -> tuple[list[Any], list[Any]]:
    """Return the results of some steps on the GPU, and on the CPU by kernels."""
    found = []
    for where in ("/gpu:0", "/cpu:0"):
        with pytest.MonkeyPatch.context() as patch, wf.Graph().as_default(), wf.device(where):
            if where == "/cpu:0":
                patch.setenv("WEFT_JIT", "off")
            wf.set_random_seed(4)
            places = [wf.placeholder(array.dtype, array.shape) for array in feeds[0]]
            fetches = build(*places)
            with wf.Session(config=config(allow_soft_placement=True)) as session:
                session.run(wf.global_variables_initializer())
                steps = [dict(zip(places, values, strict=True)) for values in feeds]
                found.append([session.run(fetches, step) for step in steps])
    return found[0], found[1]


def classifier(x: Any, labels: Any) -> Any:
    w, v = wf.Variable(numbers(20, 40) * 0.2), wf.Variable(numbers(40, 5) * 0.2)
    h = wf.nn.relu(wf.layers.batch_normalization(wf.matmul(x, w), training=True))
    logits = wf.matmul(wf.tanh(h) + 0.1, v)
    loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
    count = wf.train.get_or_create_global_step()
    train = wf.train.AdamOptimizer(0.01).minimize(loss, global_step=count)
    with wf.control_dependencies([train]):
        return wf.identity(loss), wf.nn.softmax(logits), wf.identity(count)


def test_a_training_step_is_a_graph_and_learns_as_on_the_cpu(seen: Launches) -> None:
    rng = np.random.default_rng(1)
    feeds = [[numbers(16, 20, seed=i), rng.integers(0, 5, 16)] for i in range(12)]
    got, want = both(classifier, feeds)
    for mine, theirs in zip(got, want, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=5e-3, atol=1e-5)
    assert seen.graphs >= 6 and not seen.refused


def test_random_numbers_go_on_from_launch_to_launch(seen: Launches) -> None:
    def build(x: Any) -> Any:
        h = wf.nn.dropout(wf.tanh(wf.matmul(x, wf.constant(numbers(30, 30)))), rate=0.5, seed=7)
        return wf.matmul(h * 2.0 + 1.0, wf.constant(numbers(30, 8)))

    got, want = both(build, [[numbers(16, 30, seed=i)] for i in range(10)])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert seen.graphs >= 5 and np.abs(got[8] - got[9]).max() > 1


@pytest.mark.parametrize("inside", [True, False])
def test_what_was_read_before_an_update_stays_as_it_was(seen: Launches, inside: bool) -> None:
    def build(x: Any) -> Any:
        w = wf.Variable(wf.ones([40, 40]))
        h = wf.matmul(x, x, transpose_b=True) * 0.1
        with wf.control_dependencies([h] if inside else []):
            before = wf.identity(w)
        change = wf.tanh(wf.matmul(h, before)) * 0.1 + before * 0.01
        with wf.control_dependencies([change, before]):
            after = w.assign_sub(change)
        return before, wf.identity(after)

    got, want = both(build, [[numbers(40, 40, seed=i)] for i in range(16)])
    for mine, theirs in zip(got, want, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-3)
    assert seen.graphs >= 10


def test_variables_that_somebody_holds_or_replaces_are_found(seen: Launches) -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        w = wf.Variable(wf.ones([64, 64]))
        x = wf.constant(numbers(64, 64) * 0.1)
        step = w.assign(wf.tanh(wf.matmul(w, x)) + w * 0.5)
        with wf.Session(config=config()) as session:
            session.run(wf.global_variables_initializer())
            want = np.ones((64, 64))
            held: list[Any] = []
            for at in range(24):
                if at in (10, 18):
                    session.run(w.assign(wf.fill([64, 64], float(at))))
                    want = np.full((64, 64), float(at))
                if at == 14:
                    (state,) = session.resources.resources(VariableState, "")
                    held.append(state.read())  # as a checkpoint that is written meanwhile does
                session.run(step.op)
                want = np.tanh(want @ (numbers(64, 64) * 0.1).astype(np.float64)) + want * 0.5
                np.testing.assert_allclose(session.run(w), want, rtol=1e-3, atol=1e-4)
    assert seen.graphs >= 8


def test_a_check_in_a_graph_leaves_the_step_to_kernels(seen: Launches) -> None:
    table, good = numbers(40, 30), np.arange(300, dtype=np.int32) % 40
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x, at = wf.placeholder(wf.float32, [40, 30]), wf.placeholder(wf.int32, [300])
        rows = wf.gather(wf.matmul(x, wf.constant(numbers(30, 30))) * 2.0, at)
        y = wf.matmul(rows + 1.0, wf.constant(numbers(30, 5)))
        with wf.Session(config=config()) as session:
            for k in range(10):
                found = session.run(y, {x: table + k, at: good + (k == 8)})
                inside = (table + k) @ numbers(30, 30) * 2
                picked = np.where(
                    (good + (k == 8) < 40)[:, None], inside[np.minimum(good + (k == 8), 39)], 0
                )
                np.testing.assert_allclose(
                    found, (picked + 1) @ numbers(30, 5), rtol=1e-3, atol=1e-2
                )
    assert seen.graphs >= 4 and seen.refused == 1


def test_turns_of_a_loop_are_graphs_and_counters_stay_on_the_host(
    seen: Launches, somewhere: str
) -> None:
    def build(x: Any) -> Any:
        w = wf.constant(numbers(20, 20) * 0.3)

        def turn(i: Any, h: Any) -> Any:
            h = wf.tanh(wf.matmul(h, w)) + wf.cast(i, wf.float32) * 0.1
            return i + 1, wf.tanh(wf.matmul(h * 0.5, w))

        return wf.while_loop(lambda i, _: i < 12, turn, [0, x])[1]

    got, want = both(build, [[numbers(6, 20, seed=i)] for i in range(3)])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert seen.graphs >= 30
    if somewhere == "stand-in":  # what is fetched is all that is read back
        assert sum(what == "copy out" for _, what in machine().log) == 3


def test_steps_of_several_threads_do_not_mix(seen: Launches) -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.placeholder(wf.float32, [30, 30])
        y = wf.matmul(wf.tanh(wf.matmul(x, x)) + 1.0, x) * 0.5
        with wf.Session(config=config()) as session:
            wrong: list[int] = []

            def work(number: int) -> None:
                values = numbers(30, 30, seed=number)
                want = (np.tanh(values @ values) + 1) @ values * 0.5
                for _ in range(8):
                    if not np.allclose(session.run(y, {x: values}), want, rtol=1e-3, atol=1e-3):
                        wrong.append(number)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert not wrong and seen.graphs  # how many depends on who comes first


@pytest.mark.parametrize("said", ["on", "off", "deterministic", "sometimes"])
def test_graphs_can_be_forbidden(
    seen: Launches, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("WEFT_GPU_GRAPHS", "on" if said == "deterministic" else said)
    asked = config()
    asked.experimental.deterministic = said == "deterministic"
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        y = wf.matmul(wf.tanh(wf.Variable(numbers(20, 20))) * 2.0, numbers(20, 20)) + 1.0
        with wf.Session(config=asked) as session:
            if said == "sometimes":
                with pytest.raises(wf.errors.InvalidArgumentError, match="WEFT_GPU_GRAPHS"):
                    session.run(wf.global_variables_initializer())
                return
            session.run(wf.global_variables_initializer())
            for _ in range(6):
                session.run(y)
    assert bool(seen.captured) is (said == "on")


def test_values_of_the_host_that_keep_changing_capture_no_more_graphs(
    seen: Launches, caplog: pytest.LogCaptureFixture
) -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.Variable(numbers(200, 20))
        at = wf.placeholder(wf.int32, [])
        y = wf.tanh(wf.matmul(wf.slice(x, [at, 0], [5, 20]), wf.constant(numbers(20, 20)))) + 1.0
        logged = caplog.at_level("INFO", "weft_exec.gpu.graph_piece")
        with logged, wf.Session(config=config()) as session:
            session.run(wf.global_variables_initializer())
            for k in range(90):
                want = np.tanh(numbers(200, 20)[k : k + 5] @ numbers(20, 20)) + 1
                np.testing.assert_allclose(session.run(y, {at: k}), want, rtol=1e-3, atol=1e-4)
    said = [each.getMessage() for each in caplog.records]
    assert len([words for words in said if "inputs keep changing" in words]) == 1
    assert not seen.graphs


def norm(x: Any, size: int) -> Any:
    mean, variance = wf.nn.moments(x, [-1], keep_dims=True)
    return (x - mean) * wf.rsqrt(variance + 1e-5) * wf.Variable(wf.ones([size]))


def block(x: Any) -> Any:
    """A transformer block in training: 2 texts of 6 tokens, width 16, 2 heads."""
    parts = wf.split(wf.matmul(norm(x, 16), wf.Variable(numbers(16, 48) * 0.3)), 3, 1)
    q, k, v = (wf.transpose(wf.reshape(p, [2, 6, 2, 8]), [0, 2, 1, 3]) for p in parts)
    scores = wf.nn.softmax(wf.matmul(q, k, transpose_b=True) * 0.35)
    merged = wf.reshape(wf.transpose(wf.matmul(scores, v), [0, 2, 1, 3]), [12, 16])
    h = x + wf.matmul(merged, wf.Variable(numbers(16, 16) * 0.3))
    wide = wf.matmul(norm(h, 16), wf.Variable(numbers(16, 32) * 0.3))
    h += wf.matmul(wide * wf.sigmoid(wide * 1.702), wf.Variable(numbers(32, 16) * 0.3))
    loss = wf.reduce_mean(wf.square(h))
    with wf.control_dependencies([wf.train.AdamOptimizer(0.01).minimize(loss)]):
        return wf.identity(loss)


def recurrent(x: Any) -> Any:
    """A GRU over 5 steps, in training."""
    gates, inner = wf.Variable(numbers(16, 16) * 0.3), wf.Variable(numbers(16, 8) * 0.3)

    def step(h: Any, now: Any) -> Any:
        reset, keep = wf.split(wf.sigmoid(wf.matmul(wf.concat([now, h], 1), gates)), 2, 1)
        new = wf.tanh(wf.matmul(wf.concat([now, reset * h], 1), inner))
        return keep * h + (1.0 - keep) * new

    loss = wf.reduce_mean(wf.square(wf.scan(step, x, wf.zeros([4, 8]))))
    train = wf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with wf.control_dependencies([train]):
        return wf.identity(loss)


def decayed(x: Any) -> Any:
    """AdamW on three variables."""
    variables = [wf.Variable(numbers(40, seed=k)) for k in range(3)]
    decay = [wf.assign_sub(v, v * 0.001) for v in variables]
    with wf.control_dependencies(decay):
        pairs = [(x * (k + 1.0), v) for k, v in enumerate(variables)]
        train = wf.train.AdamOptimizer(0.01).apply_gradients(pairs)
    with wf.control_dependencies([train]):
        return wf.add_n([wf.identity(v) for v in variables])


@pytest.mark.parametrize(
    ("build", "shape", "steps"),
    [(block, (12, 16), 9), (recurrent, (5, 4, 8), 5), (decayed, (40,), 9)],
    ids=["transformer block", "GRU", "AdamW"],
)
def test_rows_of_the_benchmarks_are_right(
    seen: Launches, build: Callable[..., Any], shape: Any, steps: int
) -> None:
    got, want = both(build, [[numbers(*shape, seed=i)] for i in range(steps)])
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-5)
    assert seen.graphs
