"""Training from other languages: initial values, optimizers and checkpoints are those of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load
from weft_testing.tasks import jobs, servers
from weft_testing.workspace import ROOT

import weft as wf
from tests.client.conftest import command, run
from tests.client.files import read_tensors, write_tensor

OPTIMIZERS: dict[str, Any] = {
    "GradientDescent": lambda: wf.train.GradientDescentOptimizer(0.01),
    "Momentum": lambda: wf.train.MomentumOptimizer(0.01, 0.9),
    "Nesterov": lambda: wf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    "Adagrad": lambda: wf.train.AdagradOptimizer(0.01),
    "RMSProp": lambda: wf.train.RMSPropOptimizer(0.01, 0.9, 0.5),
    "Adam": lambda: wf.train.AdamOptimizer(0.01),
}

pytestmark = pytest.mark.parametrize("language", ["cpp", "js"])


def test_digits_are_learned_by_two_tasks(
    request: pytest.FixtureRequest, language: str, tmp_path: Path
) -> None:
    program = command(request, language, "suite")
    training, held_out = load(ROOT / "examples" / "digits" / "digits.py").load()
    with (tmp_path / "digits").open("wb") as file:
        for array in (*training, *held_out):
            write_tensor(file, array)
    with servers(jobs(ps=1, worker=1)) as (_, worker):
        printed = run(*program, "train", worker.value_target, tmp_path / "digits", tmp_path)
    trained, forgotten, restored = map(float, printed.split())
    assert trained >= 0.98 and forgotten < 0.5 and restored == trained
    (filters,) = read_tensors(tmp_path / "filters")
    with wf.Graph().as_default(), wf.Session() as session:
        drawn = wf.raw_ops.TruncatedNormal(shape=[3, 3, 1, 32], dtype=wf.float32, seed=1, seed2=7)
        np.testing.assert_array_equal(filters, session.run(drawn * np.float32(0.3)))
    names = [name for name, _ in wf.train.list_variables(str(tmp_path / "model"))]
    assert names == ["filters", "hidden_bias", "hidden_weights", "more_filters", "weights"]


def fill(*shape: int) -> np.ndarray:
    """Return 1, 2, 3, ... over 10."""
    return (np.arange(1, 1 + np.prod(shape), dtype=np.float32) / np.float32(10)).reshape(shape)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_and_their_slots_are_those_of_python(
    request: pytest.FixtureRequest, language: str, name: str, target: str, tmp_path: Path
) -> None:
    run(*command(request, language, "suite"), "optimize", target, name, tmp_path)
    with wf.Graph().as_default(), wf.Session() as session:
        weights = wf.Variable(fill(2, 3), name="w")
        table = wf.Variable(fill(4, 3), name="table")
        rows = wf.gather(table, [1, 3, 1])  # a sparse gradient whose rows repeat
        loss = wf.reduce_sum(wf.square(wf.matmul(rows, weights, transpose_b=True) - 1.0))
        optimizer = OPTIMIZERS[name]()
        step = optimizer.minimize(loss, var_list=[weights, table])
        session.run(wf.global_variables_initializer())
        for _ in range(3):
            session.run(step)
        checkpoint = str(tmp_path / name)
        ours = {variable.op.name: session.run(variable) for variable in wf.global_variables()}
        theirs = {key: wf.train.load_variable(checkpoint, key) for key in ours}
        assert {key for key, _ in wf.train.list_variables(checkpoint)} == ours.keys()
        for key, value in ours.items():
            np.testing.assert_allclose(theirs[key], value, rtol=1e-5, err_msg=key)
        wf.train.Saver().restore(session, checkpoint)
        session.run(step)
        written = read_tensors(tmp_path / f"{name}.values")
        for value, variable in zip(written, (weights, table), strict=True):
            np.testing.assert_allclose(value, session.run(variable), rtol=1e-5)
