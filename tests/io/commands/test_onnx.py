"""`weft onnx`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

from weft._commands import main  # noqa: E402


def _saved(path: Path, op: str, sizes: Sequence[Any] = (2,), kind: int = TensorProto.FLOAT) -> str:
    x, y = (helper.make_tensor_value_info(name, kind, sizes) for name in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], name="n")], "g", [x], [y])
    (path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    return str(path / "m.onnx")


def test_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx", "inspect", "--plain", _saved(tmp_path, "Relu")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "input\tx\tfloat32 [2]" in lines and "op\tRelu\t1" in lines
    assert main(["onnx", "inspect", "--plain", _saved(tmp_path, "Odd")]) == 1
    assert "not known\tOdd\tn" in capsys.readouterr().out


def test_constants_and_weights_of_branches_are_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [2], [1.0, 2.0]) for name in "abc"]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    branches = {}
    for weight, key in zip(weights, ("then_branch", "else_branch"), strict=False):
        nodes = [helper.make_node("Add", ["x", weight.name], ["y"])]
        branches[key] = helper.make_graph(nodes, key, [], [y], [weight])
    nodes = [
        helper.make_node("Constant", [], ["x"], value=weights[2]),
        helper.make_node("If", ["go"], ["y"], **branches),
    ]
    go = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [go], [y])), tmp_path / "m.onnx")
    assert main(["onnx", "inspect", "--plain", str(tmp_path / "m.onnx")]) == 0
    assert "parameters\t\t6" in capsys.readouterr().out.splitlines()


def test_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, results = _saved(tmp_path, "Neg"), str(tmp_path / "out.npz")
    assert main(["onnx", "run", path, "--input", "x=1,2", "--output", results]) == 0
    assert "[-1. -2.]" in capsys.readouterr().out
    assert np.load(results)["y"].tolist() == [-1.0, -2.0]
    np.save(tmp_path / "x.npy", np.float32([3, 4]))
    assert main(["onnx", "run", path, "-i", f"x=@{tmp_path / 'x.npy'}"]) == 0
    assert "[-3. -4.]" in capsys.readouterr().out
    assert main(["onnx", "run", path, "-i", "z=1"]) != 0
    assert main(["onnx", "run", path, "-i", "x=a,b"]) != 0


@pytest.mark.parametrize(
    ("sizes", "text", "expected"),
    [
        ([], "3", "-3"),
        ([2, 2], "3", "[[-3 -3]\n [-3 -3]]"),
        (["batch", 2], "1,2,3,4", "[[-1 -2]\n [-3 -4]]"),
        (["batch", 2], "1,2,3", "of shape [?,2] must be"),
        (["rows", "columns"], "1,2", "of shape [?,?] must be"),
        ([2], "1,1.5", "must be whole numbers"),
        ([2], "1,nan", "must be whole numbers"),
        ([2], "1e1,2", "[-10  -2]"),
        ([1], "3000000000", "from -2147483648 to 2147483647, got '3000000000'"),
        ([1], "inf", "from -2147483648 to 2147483647, got 'inf'"),
        ([10**6, 10**6], None, "must be passed"),
    ],
)
def test_numbers_of_an_input(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    sizes: list[Any],
    text: str | None,
    expected: str,
) -> None:
    path = _saved(tmp_path, "Neg", sizes, TensorProto.INT32)
    given = [] if text is None else ["-i", f"x={text}"]
    assert (main(["onnx", "run", path, *given]) == 0) == expected.lstrip("[").startswith("-")
    assert expected in "".join(capfd.readouterr())


def test_integers_keep_all_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _saved(tmp_path, "Neg", [1], TensorProto.INT64)
    assert main(["onnx", "run", path, "-i", "x=9007199254740993"]) == 0
    assert "-9007199254740993" in capsys.readouterr().out
