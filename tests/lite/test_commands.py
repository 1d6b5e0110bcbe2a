"""`weft-lite`: output, errors and exit codes."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.workspace import ROOT

import weft as wf
from weft_lite import Interpreter
from weft_lite.commands import main
from weft_lite.commands.arrays import read_npy, write_npy
from weft_lite.errors import DataLossError
from weft_trace import Kind
from weft_trace.analysis.steps import StepIndex, representative_steps
from weft_trace.commands.convert import add_import
from weft_trace.lite_profile import convert_lite_profile
from weft_trace.reader import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A frozen graph of two layers, and the file of it."""
    made = tmp_path_factory.mktemp("files")
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 4], name="x")
        h = wf.tanh(wf.matmul(x, wf.constant(np.eye(4, 3, dtype="float32"))), name="h")
        wf.nn.softmax(h * 2.0, name="y")
        (made / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    assert run(made, "convert", "graph.pb", "-o", "model.weftlite", "--bound", "x=8,4") == 0
    return made


def run(folder: Path, *words: str) -> int:
    """The exit code of a command whose files are in a folder."""
    names = {path.name for path in folder.iterdir()}
    return main([str(folder / w) if w in names or w.startswith("model") else w for w in words])


def test_inputs_are_numbers_or_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "run", "model.weftlite", "-s", "x=1,4", "-i", "x=1,2,3,4") == 0
    value = capsys.readouterr().out.split("\t")[3]
    scores = np.array([np.tanh([1.0, 2.0, 3.0])]) * 2
    want = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(np.array(eval_list(value)), want, 1e-5)
    np.save(folder / "x.npy", np.array([[1, 2, 3, 4]], "float32"))
    assert run(folder, "run", "model.weftlite", "-i", f"x=@{folder / 'x.npy'}") == 0
    assert capsys.readouterr().out.split("\t")[3] == value


def test_inspect_shows_a_summary_or_tensors_or_ops(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(*words: str) -> list[list[str]]:
        assert run(folder, "inspect", "model.weftlite", *words) == 0
        return [line.split("\t") for line in capsys.readouterr().out.splitlines()]

    summary, tensors, ops = rows(), rows("--tensors"), rows("--ops")
    assert ["input", "x", "float32 ?×4"] in summary
    assert {row[1] for row in summary if row[0] == "ops"} == {row[1] for row in ops}
    assert {row[1] for row in ops} == {"FullyConnected", "Mul", "Softmax", "Tanh"}
    assert [row[1:4] for row in tensors if row[1] == "x"] == [["x", "float32 ?×4", "32"]]


def saved(folder: Path) -> Any:
    """The same network as a SavedModel and a checkpoint; gives a sample and its result."""
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, 4], name="x")
        y = wf.nn.relu(wf.layers.dense(wf.layers.dense(x, 64), 64), name="y")
        session.run(wf.global_variables_initializer())
        wf.train.Saver().save(session, str(folder / "trained"))
        wf.saved_model.simple_save(session, str(folder / "saved"), {"x": x}, {"y": y})
        value = np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)
        np.savez(folder / "set.npz", x=value)
        return value, session.run(y, {x: value})


def onnx_model(folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [8, 4])], [value("y", 1, [8, 4])])
    onnx.save(onnx.helper.make_model(graph), folder / "relu.onnx")


def test_what_was_saved_converts_in_all_forms(tmp_path: Path) -> None:
    value, wanted = saved(tmp_path)
    onnx_model(tmp_path)

    def converted(source: str, *words: str) -> tuple[int, Any]:
        made, path = tmp_path / "made.weftlite", str(tmp_path / source)
        assert run(tmp_path, "convert", path, "-o", str(made), "-b", "x=8,4", *words) == 0
        found = Interpreter(made).get_signature_runner()(x=value)["y"]
        return made.stat().st_size, found

    ends = ["--inputs", "x", "--outputs", "y"]
    for source, words in [("saved", []), ("trained", ends)]:
        np.testing.assert_allclose(converted(source, *words)[1], wanted, 1e-5, 1e-6)
    np.testing.assert_array_equal(converted("relu.onnx")[1], np.maximum(value, 0))
    for words in (
        ["--weights", "float16"],
        ["--weights", "int8"],
        ["--calibration", str(tmp_path / "set.npz"), "--ranges", "percentile", "--limit", "0.05"],
        ["--calibration", str(tmp_path / "set.npz"), "--activations", "int16"],
    ):
        found = converted("saved", *words)[1]
        assert 0 < np.abs(found - wanted).max() < 0.05, words


def eval_list(text: str) -> list[list[float]]:
    return [[float(part) for part in text.strip().strip("[]").split(",")]]


REFUSED = [
    (["run", "model.weftlite", "-i", "z=1"], 2, "there is no input 'z'; the inputs are ['x']"),
    (["run", "model.weftlite", "-i", "x"], 2, "NAME=VALUE, got 'x'"),
    (["run", "model.weftlite", "-i", "x=1,2"], 2, "input 'x' has 32 elements, got 2"),
    (["run", "model.weftlite", "-i", "x=one"], 2, "input 'x' is of float32"),
    (["run", "model.weftlite", "-s", "x=9,4"], 2, "may be at most 8, not 9"),
    (["run", "model.weftlite", "-s", "x=a,4"], 2, "a shape must be given as NAME=1,224,224,3"),
    (["run", "model.weftlite", "-t", "0"], 2, "num_threads must be 1 to 64, not 0"),
    (["inspect", "model.nothing"], 2, "No such file"),
    (["verify", "graph.pb"], 1, "no weftlite file"),
    (["profile", "model.weftlite", "--runs", "0"], 2, "--runs must be positive"),
    (["bench", "model.weftlite", "--seconds", "0"], 2, "--seconds must be positive"),
    (["convert", "model.weftlite", "-o", "out"], 1, "is not a GraphDef"),
    (["convert", "graph.pb", "-o", "out"], 2, "--bound x=16,4"),
    (
        ["convert", "graph.pb", "-o", "out", "--tags", "a"],
        2,
        "does not support --tags",
    ),
    (["convert", "graph.pb", "-o", "out", "--ranges", "average"], 2, "needs --calibration"),
    (
        ["convert", "graph.pb", "-o", "out", "-b", "x=8,4", "--activations", "int16"],
        2,
        "'int16' requires calibration",
    ),
    (["convert", "graph.pb", "-o", "out", "--outputs", "z", "--inputs", "x"], 2, "no tensor 'z:0'"),
    (["convert", "graph.pb", "-o", "out", "--from", "checkpoint"], 2, "needs --inputs and --out"),
    (["convert", "graph.pb", "-o", "out", "--from", "onnx"], 2, "graph.pb"),
    (
        ["convert", "graph.pb", "-o", "out", "-b", "x=8,4", "--limit", "0"],
        1,
        "at most 0 is allowed",
    ),
    (["build", "--target", "mips-linux", "--all", "-o", "out"], 2, "target 'mips-linux'"),
    (["build", "--target", "wasm32-wasi", "-o", "out"], 2, "one of --models, --all and --compiled"),
]


@pytest.mark.parametrize(("words", "status", "text"), REFUSED)
def test_what_is_wrong_is_one_plain_error(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, text: str
) -> None:
    assert run(folder, *words) == status
    said = capsys.readouterr().err
    assert said.startswith("weft-lite: ")
    assert text in said
    assert "Traceback" not in said


def test_damaged_weights_are_found_by_verify(folder: Path) -> None:
    data = bytearray((folder / "model.weftlite").read_bytes())
    data[-1] ^= 1
    (folder / "model-damaged").write_bytes(data)
    assert run(folder, "verify", "model.weftlite") == 0
    assert run(folder, "verify", "model-damaged") == 1


def test_compare_names_the_first_node_that_differs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "compare", "model.weftlite", "graph.pb") == 0
    assert "agree within" in capsys.readouterr().out
    with wf.Graph().as_default() as other:
        x = wf.placeholder(wf.float32, [None, 4], name="x")
        weights = wf.constant(np.eye(4, 3, dtype="float32") * 1.5)
        wf.nn.softmax(wf.tanh(wf.matmul(x, weights), name="h") * 2.0, name="y")
        (folder / "other.pb").write_bytes(other.as_graph_def().SerializeToString())
    assert run(folder, "compare", "model.weftlite", "other.pb") == 1
    assert [line.split("\t")[2] for line in capsys.readouterr().out.splitlines()] == ["MatMul"]


@pytest.mark.parametrize("command", ["bench --runs 3", "profile --runs 2"])
def test_timing_says_which_shape_is_timed(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name, *words = command.split()
    np.save(folder / "four.npy", np.zeros((4, 4), np.float32))
    for given in ([], ["-s", "x=2,4"], ["-i", f"x=@{folder / 'four.npy'}"]):
        assert run(folder, name, "model.weftlite", *words, *given) == 0
        out, err = capsys.readouterr()
        assert ("input x is timed at its largest shape, 8×4" in err) == (not given)
        assert ("--shape x=8,4" in err) == (not given)
        if name == "bench":
            rows = {"": "8×4", "-s": "2×4", "-i": "4×4"}
            assert out.splitlines()[0] == f"input x\tfloat32 {rows[(given or [''])[0]]}"


def test_profile_has_a_line_for_each_op(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "profile", "model.weftlite", "--runs", "3") == 0
    kinds = sorted(line.split("\t")[3] for line in capsys.readouterr().out.splitlines())
    assert kinds == ["FullyConnected", "Mul", "Softmax", "Tanh"]


def test_a_timeline_becomes_a_trace(folder: Path) -> None:
    path = str(folder / "times.json")
    assert run(folder, "profile", "model.weftlite", "--runs", "3", "--timeline", path) == 0
    parser = argparse.ArgumentParser()
    add_import(parser)
    arguments = parser.parse_args([path, "-o", str(folder / "run.weft-trace")])
    assert arguments.run(arguments) == 0
    trace = load(folder / "run.weft-trace")
    assert not trace.warnings
    assert [(step.label, step.number) for step in trace.steps] == [
        ("model.weftlite", number) for number in range(3)
    ]
    kernels = trace.events[trace.events["kind"] == Kind.KERNEL]
    assert len(kernels) == 12
    for step in trace.events[trace.events["kind"] == Kind.STEP]:
        ops = kernels[kernels["step"] == step["step"]]
        assert step["start"] <= ops["start"].min() and ops["end"].max() <= step["end"]
        kinds = [trace.nodes[node].op for node in ops["node"]]
        assert sorted(kinds) == ["FullyConnected", "Mul", "Softmax", "Tanh"]
        for row, source in zip(ops[1:], ops[:-1], strict=True):
            assert source["end"] <= row["start"]
    softmax = next(node for node in trace.nodes if node.op == "Softmax")
    assert len(softmax.inputs) == 1
    assert len(representative_steps(StepIndex(trace))) == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int8", "uint8", "bool"])
def test_npy_files_are_those_of_numpy(tmp_path: Path, dtype: str) -> None:
    for shape in [(), (3,), (2, 0), (2, 3, 4)]:
        value = np.ones(shape, dtype)
        write_npy(tmp_path / "a.npy", dtype, shape, value.tobytes())
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), value, strict=True)
        np.save(tmp_path / "b.npy", value)
        assert read_npy(str(tmp_path / "b.npy")) == (dtype, shape, value.tobytes())


@pytest.mark.parametrize(
    "data", [b"", b"\x93NUMPY\x01\x00\xff\xff", b"\x93NUMPY\x01\x00\x06\x00[[[[[[" + b"\0" * 9]
)
def test_a_damaged_npy_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(DataLossError, match=r"is not an \.npy file"):
        read_npy(str(tmp_path / "x.npy"))


def test_a_device_without_numpy_has_all_but_convert_and_compare(folder: Path) -> None:
    """`-S` hides installed packages; the sources are enough."""
    source = ROOT / "packages" / "lite" / "src"
    program = f"import sys; sys.path.insert(0, {str(source)!r})\n"
    program += "from weft_lite.commands import main\n"
    program += "print([main([*line.split()]) for line in sys.argv[1].split(';')])"
    model = folder / "model.weftlite"
    lines = [
        f"run {model} -s x=2,4 -o {folder / 'out'}", f"inspect {model} --tensors",
        f"bench {model} --runs 3", f"profile {model} --runs 2 --timeline {folder / 'times.json'}",
        f"verify {model}", f"compare {model} {folder / 'graph.pb'}",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, ";".join(lines)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0, 2]", done.stderr
    assert "this needs the extra: pip install 'weftml-lite[convert]'" in done.stderr
    convert_lite_profile(folder / "times.json", folder / "t")  # on a machine with NumPy
    assert len(load(folder / "t").steps) == 2
    interpreter = Interpreter(model)
    interpreter.resize_tensor_input(0, [2, 4])
    found = np.load(folder / "out" / "y.npy")
    np.testing.assert_allclose(found.sum(1), [1, 1], 1e-5)
