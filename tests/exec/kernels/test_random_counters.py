"""Random numbers in loops and calls depend on the step and the iteration, not on the executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

SIZE = 2000
STRIDE = 0x9E3779B97F4A7C15


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def words(tag: int, execution: int = 0) -> Any:
    """The uniform numbers of a stream with the seeds (3, 4), as `philox` says."""
    counter = np.array([0, 0, execution, tag], np.uint64)
    raw = np.random.Philox(key=np.array([3, 4], np.uint64), counter=counter).random_raw(SIZE // 2)
    return ((raw.view(np.uint32) >> 8) * np.float32(2.0**-24)).astype(np.float32)


def uniform(device: str = "") -> Any:
    wf.set_random_seed(3)
    with wf.device(device):
        return wf.random_uniform([SIZE], seed=4)


def in_loop(count: int, value: Any, **options: Any) -> Any:
    """`value(i)` of each iteration."""
    array = wf.TensorArray(wf.float32, count)
    _, array = wf.while_loop(
        lambda i, _: i < count, lambda i, a: (i + 1, a.write(i, value(i))), [0, array], **options
    )
    return array.stack()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("parallel", [1, 8])
def test_each_iteration_has_its_numbers(threads: int, devices: int, parallel: int) -> None:
    device = f"/cpu:{devices - 1}"
    found = in_loop(12, lambda i: uniform(device), parallel_iterations=parallel)
    config = wf.ConfigProto(inter_op_parallelism_threads=threads, device_count={"CPU": devices})
    with wf.Session(config=config) as session:
        for step in range(2):
            wanted = np.stack([words(tag, step) for tag in range(12)])
            np.testing.assert_array_equal(session.run(found), wanted)


def test_a_device_with_threads_of_its_own() -> None:
    found = in_loop(6, lambda i: uniform("/device:ACCEL:0") * 1.0)
    with wf.Session(config=wf.ConfigProto(device_count={"ACCEL": 1})) as session:
        for step in range(2):
            wanted = np.stack([words(tag, step) for tag in range(6)])
            np.testing.assert_array_equal(session.run(found), wanted)


@pytest.mark.parametrize("parallel", [1, 8])
@pytest.mark.parametrize("traced", [False, True])
def test_loops_in_loops(parallel: int, traced: bool) -> None:
    found = in_loop(
        3,
        lambda i: in_loop(2 + i % 2, lambda j: uniform(), parallel_iterations=parallel)[0],
        parallel_iterations=parallel,
    )
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE if traced else 0)
    with wf.Session(config=wf.ConfigProto(inter_op_parallelism_threads=4)) as session:
        got = session.run(found, options=options, run_metadata=wf.RunMetadata())
    wanted = [words(i * STRIDE % 2**64) for i in range(3)]
    np.testing.assert_array_equal(got, np.stack(wanted))


def test_one_branch_after_the_other_does_not_use_up_numbers() -> None:
    """The numbers of a step depend on the number of earlier drawing steps, not on their draws."""
    count = wf.placeholder(wf.int32, [])
    _, total = wf.while_loop(
        lambda i, _: i < count, lambda i, s: (i + 1, s + uniform()), [0, wf.zeros([SIZE])]
    )
    with wf.Session() as session:
        session.run(total, {count: 5})
        np.testing.assert_array_equal(session.run(total, {count: 1}), words(0, 1))


def test_calls_in_one_step_draw_different_numbers() -> None:
    @wf.Defun(wf.float32, func_name="noisy", noinline=True)
    def noisy(x: Any) -> Any:
        return x + uniform()

    first, second = noisy(wf.zeros([SIZE])), noisy(wf.zeros([SIZE]))
    with wf.Session() as session:
        results = [*session.run([first, second]), *session.run([first, second])]
    assert len({array.tobytes() for array in results}) == 4


def test_a_deep_recursion_draws_different_numbers_at_each_depth() -> None:
    """Deeper than the stack of one thread."""
    body = wf.Declare("deep", [("n", wf.int32)], [("sum", wf.float32)])

    @wf.Defun(wf.int32, func_name="deep", out_names=["sum"])
    def deep(n: Any) -> Any:
        here = wf.reshape(wf.random_uniform([1], seed=4), [1])
        return wf.cond(n > 0, lambda: wf.concat([here, body(n - 1)], 0), lambda: here)

    with wf.Session() as session:
        found = session.run(deep(300))
    assert len(found) == len(set(found)) == 301


def test_a_session_within_a_step_has_steps_of_its_own() -> None:
    inner_graph = wf.Graph()
    with inner_graph.as_default():
        inner = uniform()
    session = wf.Session(graph=inner_graph)

    def run(x: Any) -> Any:
        return np.stack([session.run(inner), session.run(inner)]) + x

    found = wf.py_func(run, [uniform() * 0.0], wf.float32)
    with wf.Session() as outer:
        np.testing.assert_array_equal(outer.run(found), np.stack([words(0), words(0, 1)]))
    session.close()
