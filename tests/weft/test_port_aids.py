"""The actions of `weft port` that compare a port with its original."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import _port, errors

PROGRAM = """
import numpy as np
import weft as wf

def first(batch):
    return {"double": 2 * batch["x"], "loss": batch["x"].sum()}

def second(batch):
    return {"double": 2 * batch["x"], "loss": batch["x"].sum() * (1 + (batch["x"][0] > 1))}

def build(size):
    x = wf.placeholder(wf.float32, [2], name="x")
    loss = wf.reduce_sum(x * wf.get_variable("w", [2], initializer=wf.ones_initializer()))
    return wf.porting.Program({"loss": loss}, {"x": x})

def batch(size):
    return {"x": np.ones(2, np.float32)}
"""


def port(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    _port.add(parser)
    parsed = parser.parse_args([str(argument) for argument in arguments])
    code: int = parsed.run(parsed)
    return code


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    np.savez(tmp_path / "batches.npz", x=np.array([[0.5, 1.0], [2.0, 1.0]]))
    return str(tmp_path / "program.py")


def test_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "ours.npz", **{"dense/kernel": np.ones([2, 3])})
    np.savez(tmp_path / "theirs.npz", **{"fc.weight": np.ones([3, 2]), "fc.bias": np.ones(3)})
    assert port("parameters", tmp_path / "ours.npz", tmp_path / "theirs.npz") == 1
    out = capsys.readouterr().out
    assert "transpose theirs by [1, 0]" in out and "fc.bias [3]" in out
    (tmp_path / "names.json").write_text(json.dumps({"dense/kernel": "lost"}))
    names = "--names", tmp_path / "names.json"
    with pytest.raises(errors.NotFoundError, match="lost"):
        port("parameters", tmp_path / "ours.npz", tmp_path / "theirs.npz", *names)


@pytest.mark.parametrize("value", ["[1]", "{", '{"a": 1}'])
def test_names_must_be_an_object_of_names(tmp_path: Path, value: str) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(2))
    (tmp_path / "names.json").write_text(value)
    with pytest.raises(errors.InvalidArgumentError, match=r"names\.json"):
        port(
            "parameters", tmp_path / "a.npz", tmp_path / "a.npz", "--names", tmp_path / "names.json"
        )


def test_activations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [2], name="x")
        wf.nn.relu(wf.add(x, 1.0, name="sum"), name="relu")
        wf.io.write_graph(graph, str(tmp_path), "model.pb", as_text=False)
    np.savez(tmp_path / "theirs.npz", x=[1.0, -3.0], sum=[2.0, -2.0], relu=[2.0, -2.0])
    assert port("activations", tmp_path / "model.pb", tmp_path / "theirs.npz") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("✗") and "relu:0" in line]
    np.savez(tmp_path / "theirs.npz", x=[1.0, -3.0], sum=[2.0, -2.0], relu=[2.0, 0.0])
    assert port("activations", tmp_path / "model.pb", tmp_path / "theirs.npz") == 0


def test_runs(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    batches = Path(program).with_name("batches.npz")
    assert port("runs", f"{program}:first", f"{program}:first", batches) == 0
    assert port("runs", f"{program}:first", f"{program}:second", batches) == 1
    assert "step 1: loss is the first value that differs" in capsys.readouterr().out


def test_targets(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = wf.train.Server.create_local_server()
    batches = Path(program).with_name("batches.npz")
    assert port("targets", f"{program}:build", server.target, batches, "--exact") == 0
    assert "agree in 2 steps" in capsys.readouterr().out


def test_growth(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    growth = "growth", f"{program}:build", f"{program}:batch"
    # The times of short steps may differ by much on a busy machine.
    assert port(*growth, "1", "2", "--steps", "2", "--tolerance", "1000") == 0
    assert "grow as expected" in capsys.readouterr().out


def test_growth_of_the_loss_is_reported(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(program)
    path.write_text(path.read_text() + "\ndef growing(size):\n    return {'x': np.full(2, size)}\n")
    growth = "growth", f"{program}:build", f"{program}:growing", "1", "5000"
    assert port(*growth, "--steps", "1", "--tolerance", "1000") == 1
    assert "loss from size 1 to 5000: × 5000.00" in capsys.readouterr().out


def test_references_to_functions_are_checked(program: str, tmp_path: Path) -> None:
    batches = tmp_path / "batches.npz"
    for reference, words in (
        ("first", "must have the form"),
        ("lost.py:first", "no file 'lost.py'"),
        (f"{program}:lost", "no function 'lost'"),
    ):
        with pytest.raises(errors.OpError, match=words):
            port("runs", reference, f"{program}:second", batches)


def test_batches_must_have_the_same_length(program: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", x=np.ones([2, 2]), y=np.ones(3))
    with pytest.raises(errors.InvalidArgumentError, match="x: 2, y: 3"):
        port("runs", f"{program}:first", f"{program}:second", tmp_path / "bad.npz")
