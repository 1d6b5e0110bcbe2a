"""Predictions for programs whose kernels are then really made slower or faster."""

import time

import numpy as np
import pytest

import weft as wf
from weft_trace import load
from weft_trace.analysis.changes import Change
from weft_trace.analysis.replay import Replay
from weft_trace.analysis.steps import StepIndex

STEPS = 7


def delay(x, milliseconds, name):
    """A node that lets `milliseconds` pass, on a thread of the pool."""

    def run(value):
        time.sleep(milliseconds / 1000)
        return value

    result = wf.py_func(run, [x], x.dtype, name=name)
    result.set_shape(x.shape)
    return result


def chain(x, slow):
    return delay(delay(delay(x, 6, "a"), slow, "slow"), 4, "b")


def two_branches(x, slow):
    return delay(x, 15, "a") + delay(x, slow, "slow")


def diamond(x, slow):
    top = delay(x, 5, "top")
    return delay(delay(top, slow, "slow") + delay(top, 12, "a"), 5, "bottom")


def loop(x, slow):
    def body(i, value):
        return i + 1, delay(value, slow, "slow")

    return wf.while_loop(lambda i, _: i < 4, body, [wf.constant(0), x])[1]


def loop_with_other_work(x, slow):
    def body(i, value):
        return i + 1, delay(value, slow, "slow") + delay(value, 8, "a")

    return wf.while_loop(lambda i, _: i < 3, body, [wf.constant(0), x])[1]


def conditional(x, slow):
    y = wf.cond(x[0] < 1, lambda: delay(x, slow, "slow"), lambda: delay(x, 50, "a"))
    return delay(y, 6, "b")


def two_chains(x, slow):
    return delay(delay(x, slow, "slow0"), 9, "a") + delay(delay(x, 7, "b"), slow, "slow1")


def pipeline(x, slow):
    stages = []
    for i in range(3):
        x = delay(x, slow, f"slow{i}")
        stages.append(delay(x, 9, f"a{i}"))
    return wf.add_n(stages)


def fan_out(x, slow):
    shared = delay(x, slow, "slow")
    return wf.add_n([delay(shared, 4 + i, f"a{i}") for i in range(3)])


def short_side_branch(x, slow):
    return delay(delay(x, slow, "slow"), 5, "a") + wf.reduce_sum(delay(x, 2, "b"))


PROGRAMS = [
    (chain, 10, 20), (two_branches, 10, 30), (diamond, 8, 20), (loop, 10, 5),
    (loop_with_other_work, 15, 5), (conditional, 10, 25), (two_chains, 10, 20),
    (pipeline, 6, 15), (fan_out, 20, 10), (short_side_branch, 10, 30),
]  # fmt: skip
SEEN = 3  # of the programs, in the ordinary suite


def run_steps(build, slow, path=None):
    """Run a program; returns the duration of its fastest step in nanoseconds."""
    config = wf.ConfigProto(inter_op_parallelism_threads=3)
    with wf.Graph().as_default(), wf.Session(config=config) as session:
        x = wf.placeholder(wf.float32, [4], name="x")
        y = build(x, slow)
        run = lambda: session.run(y, {x: np.zeros(4, np.float32)})  # noqa: E731
        for _ in range(2):
            run()
        times = []
        with wf.trace(path):
            for _ in range(STEPS):
                begin = time.perf_counter_ns()
                run()
                times.append(time.perf_counter_ns() - begin)
    return min(times)


@pytest.mark.parametrize(
    ("build", "before", "after"),
    [
        pytest.param(*program, marks=[] if i < SEEN else [pytest.mark.long])
        for i, program in enumerate(PROGRAMS)
    ],
)
def test_changed_kernel_is_predicted(tmp_path, build, before, after):
    for attempt in range(4):  # other processes may disturb a measurement
        run_steps(build, before, tmp_path / "before")
        true = run_steps(build, after, tmp_path / "after")
        index = StepIndex(load(tmp_path / "before"))
        span = min(index.spans(), key=lambda span: span.duration)
        change = Change("node", "*slow*", after / before)
        predicted = Replay(index, span).predict([change]).predicted
        if abs(predicted - true) <= 0.05 * true or attempt == 3:
            break
    assert predicted == pytest.approx(true, rel=0.05)
