"""Implementations that get the same batches: the first value that differs is named."""

import numpy as np
import pytest

import weft as wf
from weft_io.porting import Program, SessionRun, compare_runs, compare_targets

RNG = np.random.default_rng(0)
BATCHES = [{"x": RNG.normal(size=(8, 4)), "y": RNG.normal(size=(8, 1))} for _ in range(4)]


def program(rate=0.1, slope=0.0):
    """Return a two-layer network with a momentum optimizer; `slope` is a fault in a layer."""
    x = wf.placeholder(wf.float64, [None, 4])
    y = wf.placeholder(wf.float64, [None, 1])
    first = wf.get_variable("first", [4, 5], wf.float64, wf.ones_initializer())
    second = wf.get_variable("second", [5, 1], wf.float64, wf.ones_initializer())
    hidden = wf.nn.leaky_relu(wf.matmul(x, first), alpha=slope)
    output = wf.matmul(hidden, second)
    loss = wf.reduce_mean(wf.square(output - y))
    train = wf.train.MomentumOptimizer(rate, 0.9).minimize(loss)
    fetches = {"hidden": hidden, "output": output, "loss": loss}
    return Program(fetches, {"x": x, "y": y}, [train])


def session_run(**arguments):
    with wf.Graph().as_default():
        fetches, inputs, then = program(**arguments)
        session = wf.Session()
        session.run(wf.global_variables_initializer())
        return SessionRun(session, fetches, inputs, then)


def test_equal_programs_agree_in_all_steps():
    result = compare_runs(session_run(), session_run(), BATCHES)
    assert result.agrees and result.num_steps == 4
    assert "agree in 4 steps" in str(result)


def test_first_different_layer_is_named():
    result = compare_runs(session_run(rate=0.0), session_run(rate=0.0, slope=0.01), BATCHES)
    assert (result.first.step, result.first.name) == (0, "hidden")
    assert "hidden is the first value that differs" in str(result)


def test_other_learning_rate_shows_in_the_second_step():
    result = compare_runs(session_run(rate=0.1), session_run(rate=0.11), BATCHES)
    assert (result.first.step, result.first.name) == (1, "hidden")


def test_shapes_and_missing_values_are_reported():
    result = compare_runs(lambda b: {"a": b["x"]}, lambda b: {"a": b["x"].T}, BATCHES)
    assert result.first.shapes == ((8, 4), (4, 8))
    with pytest.raises(wf.errors.NotFoundError, match="lacks a"):
        compare_runs(lambda b: {"a": 1}, lambda b: {"b": 1}, BATCHES)
    with pytest.raises(wf.errors.NotFoundError, match="values for z; the inputs are x, y"):
        session_run()({"z": 1})


def test_nan_and_infinity_differ_from_numbers():
    nan = compare_runs(lambda b: {"a": np.nan}, lambda b: {"a": 1.0}, BATCHES)
    assert nan.first.difference.absolute == np.inf
    assert compare_runs(lambda b: {"a": np.nan}, lambda b: {"a": np.nan}, BATCHES).agrees


def test_exact_runs_differ_in_the_last_bit():
    slightly = np.nextafter(np.float32(1), 2)
    pair = (lambda b: {"a": np.float32(1)}), (lambda b: {"a": slightly})
    assert compare_runs(*pair, BATCHES).agrees
    assert not compare_runs(*pair, BATCHES, exact=True).agrees


def clustered(target):
    if not target:
        return program()
    with wf.device("/job:worker/task:1"):
        return program()


def test_one_task_and_a_cluster_agree_bit_for_bit():
    workers, _ = wf.test.create_local_cluster(num_workers=2, num_ps=0)
    result = compare_targets(clustered, ("", workers[0].target), BATCHES)
    assert result.agrees and result.num_steps == 4


def test_programs_for_targets_must_have_the_same_variables():
    def build(target):
        if target:
            wf.get_variable("other", [1])
        return program()

    server = wf.train.Server.create_local_server()
    with pytest.raises(wf.errors.InvalidArgumentError, match="other"):
        compare_targets(build, ("", server.target), BATCHES)
