"""`weft prove`: all backends agree on a model, and a fault in one of them is found and named."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load
from weft_testing.workspace import ROOT

import weft as wf
from weft_io.porting import backends as io_backends
from weft_io.porting.backends import Backend, Compiled, Model, Onnx, Recording, compare_backends
from weft_lite.convert.backends import Emulated, Lite
from weft_lite.convert.commands import proving
from weft_lite.convert.machines import MACHINES

planted = load(ROOT / "tests/io/porting/test_planted_faults.py")

FEEDS = {"x": planted.IMAGES, "words": planted.WORDS}
HERE: dict[str, Callable[[], Backend]] = {
    "compiled": Compiled,
    "compiled-fused": lambda: Compiled(fused=True),
    "onnx": Onnx,
    "lite": Lite,
    "lite-int8": lambda: Lite([]),
}
LARGE = [
    "kernel upside down", "swapped channels of a kernel", "transposed weight", "wrong activation",
    "wrong order of axes", "operands of a subtraction exchanged",
]  # fmt: skip
"""Faults that are larger than the rounding of int8."""


def parts(graph: wf.Graph) -> tuple[dict[str, wf.Tensor], dict[str, wf.Tensor]]:
    named = {name: graph.get_tensor_by_name(f"{name}:0") for name in ("x", "words", "result")}
    return {"x": named["x"], "words": named["words"]}, {"result": named["result"]}


@pytest.fixture(scope="module")
def definition() -> Any:
    with wf.Graph().as_default() as graph:
        planted.network()
        return graph.as_graph_def()


def compare(definition: Any, *backends: Backend) -> Any:
    with wf.Graph().as_default() as graph, wf.Session() as session:
        wf.import_graph_def(definition, name="")
        inputs, outputs = parts(graph)
        return compare_backends(session, inputs, outputs, FEEDS, backends)


class Faulty:
    """A backend whose model has a fault."""

    def __init__(self, backend: Backend, plant: Callable[[Any], None]) -> None:
        self.name = backend.name
        self._backend, self._plant = backend, plant

    def record(self, model: Model) -> Recording:
        definition = model.graph.as_graph_def()
        for entry in definition.node:
            entry.attr.pop("_output_shapes", None)
        self._plant(definition)
        with wf.Graph().as_default() as graph:
            wf.import_graph_def(definition, name="")
        named = graph.get_tensor_by_name
        inputs = {name: named(tensor.name) for name, tensor in model.inputs.items()}
        outputs = {name: named(tensor.name) for name, tensor in model.outputs.items()}
        tensors = [named(tensor.name) for tensor in model.tensors]
        return self._backend.record(Model(graph, inputs, outputs, model.feeds, tensors))


class Changed:
    """A backend one of whose results is rotated along its last axis."""

    def __init__(self, backend: Backend, tensor: str) -> None:
        self.name = backend.name
        self._backend, self._tensor = backend, tensor

    def record(self, model: Model) -> Recording:
        recording = self._backend.record(model)
        value = np.roll(recording.values[self._tensor], 1, -1)
        return recording._replace(values={**recording.values, self._tensor: value})


def test_all_backends_agree(definition: Any) -> None:
    result = compare(definition, *[make() for make in HERE.values()])
    assert result.agrees, str(result)
    assert [each.status for each in result.results] == ["agrees"] * 5
    counts = [len(each.matches) for each in result.results]
    assert counts == [len(result.tensors), 1, len(result.tensors), 25, 26]


@pytest.mark.parametrize("name", ["shifted:0", "embedded:0", "result:0"])
def test_a_changed_result_is_found_and_named(definition: Any, name: str) -> None:
    made = [make() for label, make in HERE.items() if label != "compiled-fused"]
    result = compare(definition, *[Changed(backend, name) for backend in made])
    assert not result.agrees
    for each in result.results:
        assert each.status == "departs", each
        assert each.first is not None and each.first.tensor.name == name, each.first


def test_a_changed_output_of_fused_code_is_found(definition: Any) -> None:
    result = compare(definition, Changed(Compiled(fused=True), "result:0"))
    assert result.results[0].first.tensor.name == "result:0"


@pytest.mark.parametrize(
    ("backend", "faults"),
    [("lite", list(planted.FAULTS)), ("lite-int8", LARGE), ("onnx", LARGE), ("compiled", LARGE)],
)
def test_a_fault_in_the_model_of_a_backend_is_named(
    definition: Any, backend: str, faults: list[str]
) -> None:
    cases = {name: planted.FAULTS[name] for name in faults}
    result = compare(definition, *[Faulty(HERE[backend](), plant) for plant, _ in cases.values()])
    for (fault, (_, node)), each in zip(cases.items(), result.results, strict=True):
        assert each.status == "departs", (fault, each)
        recorded = {match.tensor.op.name for match in each.matches}
        named = each.first.tensor.op.name
        assert named == node or node not in recorded, (fault, named)


def test_a_scale_of_int8_that_is_too_small_is_found(
    definition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each op is right with such a scale, but the outputs are clipped."""
    from weft_lite.convert.calibration import Range

    whole = Range.scale
    monkeypatch.setattr(
        Range, "scale", lambda self, *args: whole(Range(self.low / 8, self.high / 8), *args)
    )
    (result,) = compare(definition, Lite([])).results
    assert result.status == "departs" and result.output_difference > 0.1


def test_a_backend_that_is_not_installed_is_skipped_by_name(
    definition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_backends, "find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    machine = Emulated(MACHINES["aarch64"], [Lite()], Lite(), {})
    result = compare(definition, Compiled(), machine)
    assert result.agrees
    assert [each.status for each in result.results] == ["skipped", "skipped"]
    assert "weftml-compiler" in result.results[0].detail
    assert "qemu-aarch64" in result.results[1].detail


def test_random_nodes_are_refused() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2], name="x")
        y = wf.nn.dropout(x, rate=0.5)
        with pytest.raises(wf.errors.InvalidArgumentError, match="has the random node"):
            compare_backends(session, {"x": x}, {"y": y}, {"x": [1.0, 2.0]}, [])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [({}, "no value for 'x'"), ({"x": [1.0], "z": 1.0}, "an unknown input 'z'"),
     ({"x": [[1.0]]}, "has shape"),],
)  # fmt: skip
def test_wrong_inputs_are_refused(feeds: dict[str, Any], message: str) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1], name="x")
        with pytest.raises(wf.errors.InvalidArgumentError, match=message):
            compare_backends(session, {"x": x}, {"y": wf.sin(x)}, feeds, [])


# ----------------------------------------------------------------------------- loops


def looped() -> None:
    """Build a loop with a loop inside, whose weights are constants with names."""
    rng = np.random.default_rng(1)
    weights = wf.constant(rng.normal(0, 0.5, (4, 4)).astype(np.float32), name="weights")
    bias = wf.constant(rng.normal(size=4).astype(np.float32), name="bias")
    images = wf.placeholder(wf.float32, [2, 8, 8, 4], name="x")
    words = wf.placeholder(wf.int32, [2, 2], name="words")
    start = wf.add(images[:, 0, 0], wf.cast(words[:, :1], wf.float32), name="start")

    def inner(i: wf.Tensor, x: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
        return i + 1, wf.nn.leaky_relu(wf.subtract(x, 0.25, name="lowered"), 0.2, name="leaky")

    def body(i: wf.Tensor, x: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
        y = wf.nn.bias_add(wf.matmul(x, weights, name="product"), bias, name="biased")
        y = wf.concat([y[:, 1:], y[:, :1]], wf.constant(1, name="axis"), name="turned")
        _, y = wf.while_loop(lambda j, _: j < 2, inner, [0, y], name="inner")
        return i + 1, wf.tanh(wf.add(y, x, name="summed"), name="squashed")

    _, last = wf.while_loop(lambda i, _: wf.less(i, 3, name="more"), body, [0, start], name="outer")
    wf.add(last, 1.0, name="result")


def set_op(name: str, kind: str) -> Callable[[Any], None]:
    def plant(definition: Any) -> None:
        planted.node(definition, name).op = kind

    return plant


def exchange(name: str) -> Callable[[Any], None]:
    def plant(definition: Any) -> None:
        entry = planted.node(definition, name)
        entry.input[:2] = reversed(entry.input[:2])

    return plant


def set_flag(name: str, key: str, value: Any) -> Callable[[Any], None]:
    def plant(definition: Any) -> None:
        attr = planted.node(definition, name).attr[key]
        if isinstance(value, bool):
            attr.b = value
        else:
            attr.f = value

    return plant


def drop_bias(definition: Any) -> None:
    planted.node(definition, "outer/biased").op = "Identity"
    del planted.node(definition, "outer/biased").input[1:]
    planted.node(definition, "outer/biased").attr.pop("data_format", None)


def run_longer(definition: Any) -> None:
    planted.node(definition, "outer/more").op = "LessEqual"


LOOP_FAULTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "transposed weight": (set_flag("outer/product", "transpose_b", True), "outer/product"),
    "dropped bias": (drop_bias, "outer/biased"),
    "rotated the other way": (exchange("outer/turned"), "outer/turned"),
    "wrong activation": (set_op("outer/squashed", "Sin"), "outer/squashed"),
    "product instead of a sum": (set_op("outer/summed", "Mul"), "outer/summed"),
    "operands exchanged, inner loop": (exchange("outer/inner/lowered"), "outer/inner/lowered"),
    "wrong slope, inner loop": (set_flag("outer/inner/leaky", "alpha", 0.5), "outer/inner/leaky"),
    "one more iteration": (run_longer, "outer/LoopCond"),
}
"""Functions that plant a fault in a loop, and the node that has it."""


@pytest.mark.parametrize("backend", ["compiled", "compiled-fused", "lite", "lite-int8"])
def test_a_fault_inside_of_a_loop_is_named(backend: str) -> None:
    with wf.Graph().as_default() as graph:
        looped()
        definition = graph.as_graph_def()
    faulty = [Faulty(HERE[backend](), plant) for plant, _ in LOOP_FAULTS.values()]
    right, *results = compare(definition, HERE[backend](), *faulty).results
    assert right.status == "agrees", right
    names = {match.tensor.op.name for match in right.matches}
    assert {"outer/product", "outer/inner/leaky"} <= names, right.detail
    for (fault, (_, node)), each in zip(LOOP_FAULTS.items(), results, strict=True):
        assert each.status == "departs", (fault, each)
        assert each.first is not None and each.first.tensor.op.name == node, (fault, each.first)


# ----------------------------------------------------------------------------- the command


def prove(*arguments: str | Path | None) -> int:
    parser = argparse.ArgumentParser()
    proving.add(parser)
    parsed = parser.parse_args([str(argument) for argument in arguments])
    code: int = parsed.run(parsed)
    return code


@pytest.fixture
def model(tmp_path: Path) -> Path:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 3], name="x")
        weights = wf.constant(np.random.default_rng(0).normal(size=(3, 4)).astype("float32"))
        wf.nn.softmax(wf.matmul(x, weights, name="scores"), name="y")
        (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return tmp_path / "model.pb"


def test_command_with_generated_inputs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "compiled,onnx,lite,lite-int8"
    assert prove(model, "--backends", names, "--nodes") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines[:4]] == [[name, "agrees"] for name in names.split(",")]
    assert [line[:2] for line in lines[4:]] == [["scores:0", "MatMul"], ["y:0", "Softmax"]]


def test_command_with_values_as_json(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.ones((5, 3), "float32"))
    monkeypatch.setattr(proving, "_backends", lambda samples: {"lite": Changed(Lite(), "scores:0")})
    assert prove(model, "--inputs", tmp_path / "inputs.npz", "--json") == 1
    result = json.loads(capsys.readouterr().out)
    (backend,) = result["backends"]
    assert not result["agrees"] and backend["first_departure"] == "scores:0"
    assert [each["tensor"] for each in backend["tensors"]] == ["scores:0", "y:0"]


def test_command_with_onnx_and_a_saved_model(tmp_path: Path) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 3], name="x")
        y = wf.tanh(x * wf.Variable(2.0))
        session.run(wf.global_variables_initializer())
        wf.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": y})
        prefix = wf.train.Saver().save(session, str(tmp_path / "model"))
        wf.onnx.export({"y": y}, {"x": x}, session, tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 3), "float32"))
    assert prove(tmp_path / "saved", "--backends", "lite") == 0
    assert prove(tmp_path / "model.onnx", "--backends", "lite") == 0
    values = ["--inputs", tmp_path / "inputs.npz", "--outputs", y.op.name]
    assert prove(prefix, "--backends", "lite", *values) == 0
    with pytest.raises(wf.errors.InvalidArgumentError, match="needs --inputs and --outputs"):
        prove(prefix, "--backends", "lite")


def test_a_backend_asked_for_by_name_must_run(model: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert prove(model, "--backends", "aarch64") == 2
    with pytest.raises(wf.errors.InvalidArgumentError, match="no backend 'arm'"):
        prove(model, "--backends", "arm")


def test_unknown_sizes_need_a_shape(tmp_path: Path) -> None:
    with wf.Graph().as_default() as graph:
        wf.identity(wf.placeholder(wf.float32, [None, None], name="x"), name="y")
        path = tmp_path / "open.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(wf.errors.InvalidArgumentError, match="give --shape x="):
        prove(path, "--backends", "lite")
    with pytest.raises(wf.errors.InvalidArgumentError, match="there is no input 'z'"):
        prove(path, "--backends", "lite", "--shape", "z=1")
    assert prove(path, "--backends", "lite", "--shape", "x=2,3") == 0


# ----------------------------------------------------------------------------- other machines


@pytest.mark.long
@pytest.mark.parametrize("name", MACHINES)
def test_emulated_machines_agree_and_a_fault_is_found(definition: Any, name: str) -> None:
    machine = MACHINES[name]
    if missing := machine.missing():
        pytest.skip(f"no {missing}")
    files = [Lite(), Lite([])]
    shared: dict[str, Any] = {}
    backends = [Emulated(machine, files, file, shared) for file in files]
    changed = [Changed(backend, "shifted:0") for backend in backends]
    result = compare(definition, *backends, *changed)
    assert [each.status for each in result.results] == ["agrees"] * 2 + ["departs"] * 2
    assert [each.first.tensor.name for each in result.results[2:]] == ["shifted:0"] * 2


@pytest.mark.parametrize("name", ["compiled", "lite", "lite-int8"])
def test_values_around_loops_and_conditionals_are_compared(name: str) -> None:
    """An imported graph does not say which nodes are in loops: that follows from its frames."""
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [2, 6, 4], name="x")
        random = np.random.default_rng(0)
        weights = wf.constant(random.normal(0, 0.5, (4, 4)).astype("float32"))
        states = wf.scan(
            lambda state, value: wf.tanh(wf.matmul(state, weights) + value),
            wf.transpose(x, [1, 0, 2]),
            wf.zeros([2, 4]),
        )
        side = wf.cond(
            wf.reduce_sum(x) > 0.0, lambda: wf.sin(states), lambda: wf.exp(states), name="side"
        )
        wf.add(wf.reduce_sum(side, 0), 1.0, name="y")
    with wf.Graph().as_default() as copy, wf.Session() as session:
        wf.import_graph_def(graph.as_graph_def(), name="")
        inputs, outputs = ({key: copy.get_tensor_by_name(f"{key}:0")} for key in "xy")
        feeds = {"x": random.normal(size=(2, 6, 4))}
        result = compare_backends(session, inputs, outputs, feeds, [HERE[name]()])
    assert [each.status for each in result.results] == ["agrees"], str(result)
    assert {"transpose", "y"} <= {match.tensor.op.name for match in result.results[0].matches}
    assert {"scan/while/Tanh", "scan/while/MatMul"} <= {
        match.tensor.op.name for match in result.results[0].matches
    }
