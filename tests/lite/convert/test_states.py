"""States that a file keeps: pairs of an input and an output of a streaming model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, save

import weft as wf
from weft_lite import Interpreter
from weft_lite.commands import main
from weft_lite.convert import Converter
from weft_tensor import errors

UNITS, FEATURES = 4, 3
PAIRS = {"h_in": "h_out", "c_in": "c_out"}


@pytest.fixture(scope="module")
def model() -> ModelProto:
    """An LSTM over two steps, whose states are inputs and outputs."""
    random = np.random.default_rng(0)
    shapes = {
        "W": (1, 4 * UNITS, FEATURES),
        "R": (1, 4 * UNITS, UNITS),
        "B": (1, 8 * UNITS),
    }
    weights = [
        numpy_helper.from_array(random.normal(size=shape).astype("float32"), name)
        for name, shape in shapes.items()
    ]
    info = helper.make_tensor_value_info
    state = [1, 1, UNITS]
    operands = ["x", "W", "R", "B", "", "h_in", "c_in"]
    graph = helper.make_graph(
        [
            helper.make_node("LSTM", operands, ["y", "h_out", "c_out"], hidden_size=UNITS),
            helper.make_node("Tanh", ["y"], ["out"]),
        ],
        "stream",
        [info("x", 1, [2, 1, FEATURES]), info("h_in", 1, state), info("c_in", 1, state)],
        [info("out", 1, [2, 1, 1, UNITS]), info("h_out", 1, state), info("c_out", 1, state)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def chunks(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=(count, 2, 1, FEATURES)).astype("float32")


def in_session(model: ModelProto, first: float = 0.0) -> list[Any]:
    """Results of chunks, whose states go through feeds and fetches."""
    results = []
    states = {name: np.full((1, 1, UNITS), first, "float32") for name in PAIRS}
    with wf.Graph().as_default(), wf.Session() as session:
        imported = wf.onnx.import_model(model)
        for chunk in chunks(4):
            feeds = {imported.inputs[k]: v for k, v in {"x": chunk, **states}.items()}
            fetched = session.run(imported.outputs, feeds)
            results.append(fetched["out"])
            states = {name: fetched[following] for name, following in PAIRS.items()}
    return results


def test_states_carry_over_invocations(model: ModelProto) -> None:
    converter = Converter.from_onnx(model).keep_states(PAIRS)
    interpreter = Interpreter(model_content=converter.convert())
    run = interpreter.get_signature_runner()
    assert interpreter.get_signature_list()["serving_default"] == {
        "inputs": ["x"],
        "outputs": ["out"],
    }
    results = in_session(model)
    for _ in range(2):
        for chunk, result in zip(chunks(4), results, strict=True):
            np.testing.assert_allclose(run(x=chunk)["out"], result, 1e-5, 1e-6)
        interpreter.reset_all_variables()


def test_states_are_saved_and_restored(model: ModelProto) -> None:
    content = Converter.from_onnx(model).keep_states(PAIRS).convert()
    first, second = Interpreter(model_content=content), Interpreter(model_content=content)
    first.get_signature_runner()(x=chunks(4)[0])
    second.restore_variables(first.save_variables())
    got = second.get_signature_runner()(x=chunks(4)[1])["out"]
    np.testing.assert_allclose(got, in_session(model)[1], 1e-5, 1e-6)


def test_first_values_of_states(model: ModelProto) -> None:
    initial = {name: np.full((1, 1, UNITS), 0.5, "float32") for name in PAIRS}
    content = Converter.from_onnx(model).keep_states(PAIRS, initial).convert()
    run = Interpreter(model_content=content).get_signature_runner()
    for chunk, result in zip(chunks(4), in_session(model, 0.5), strict=True):
        np.testing.assert_allclose(run(x=chunk)["out"], result, 1e-5, 1e-6)


def test_states_with_calibration(model: ModelProto) -> None:
    converter = Converter.from_onnx(model).keep_states(PAIRS)
    content = converter.convert(calibration=[{"x": chunk} for chunk in chunks(4)])
    run = Interpreter(model_content=content).get_signature_runner()
    for chunk, result in zip(chunks(4), in_session(model), strict=True):
        assert np.abs(run(x=chunk)["out"] - result).max() < 0.1


def test_the_command_line_keeps_states(model: ModelProto, tmp_path: Path) -> None:
    save(model, tmp_path / "stream.onnx")
    words = ["convert", str(tmp_path / "stream.onnx"), "-o", str(tmp_path / "stream.weftlite")]
    np.save(tmp_path / "first.npy", np.full((1, 1, UNITS), 0.5, "float32"))
    for name, following in PAIRS.items():
        words += ["--state", f"{name}={following}", "--value", f"{name}=@{tmp_path}/first.npy"]
    assert main(words) == 0
    run = Interpreter(tmp_path / "stream.weftlite").get_signature_runner()
    np.testing.assert_allclose(run(x=chunks(4)[0])["out"], in_session(model, 0.5)[0], 1e-5, 1e-6)


def test_an_old_value_that_is_an_output_is_read_before_the_update() -> None:
    with wf.Graph().as_default() as graph:
        x, h = (wf.placeholder(wf.int32, [], name=name) for name in "xh")
        ends = [wf.identity(h, name="old"), wf.identity(x, name="new")]
        content = Converter(graph, [x, h], ends).keep_states({"h": "new"}, {"h": 7}).convert()
    run = Interpreter(model_content=content).get_signature_runner()
    assert [int(run(x=value)["old"]) for value in (1, 2, 3)] == [7, 1, 2]


@pytest.mark.parametrize(
    ("states", "initial", "error", "words"),
    [
        ({"g": "total"}, {}, errors.NotFoundError, r"the inputs \['g'\]; there are"),
        ({"h": "g"}, {}, errors.NotFoundError, r"the outputs \['g'\]; there are"),
        ({"h": "total"}, {"x": 1}, errors.NotFoundError, r"initial has \['x'\]; there are \['h'\]"),
        ({"h": "wide"}, {}, errors.InvalidArgumentError, r"float32 \[2\], but its next .*\[4\]"),
        ({"h": "count"}, {}, errors.InvalidArgumentError, "next value count:0 is int32"),
        ({"h": "total", "x": "total"}, {}, errors.InvalidArgumentError, "the same next value"),
        ({"h": "total"}, {"h": [1.0]}, errors.InvalidArgumentError, r"value .*float64 \[1\]"),
        ({"o": "total"}, {}, errors.InvalidArgumentError, "its sizes must be known.*shapes="),
    ],
)  # fmt: skip
def test_pairs_that_do_not_fit(
    states: dict[str, str], initial: dict[str, Any], error: type[Exception], words: str
) -> None:
    with wf.Graph().as_default() as graph:
        x, h = (wf.placeholder(wf.float32, [2], name=name) for name in "xh")
        o = wf.placeholder(wf.float32, [None], name="o")
        outputs = [
            wf.add(x, h, name="total"),
            wf.concat([x, h], 0, name="wide"),
            wf.cast(x, wf.int32, name="count"),
            wf.identity(o, name="same"),
        ]
        converter = Converter(graph, [x, h, o], outputs, bounds={"o": [4]})
    with pytest.raises(error, match=words):
        converter.keep_states(states, initial)


def test_a_file_needs_an_output_that_is_no_state() -> None:
    with wf.Graph().as_default() as graph:
        h = wf.placeholder(wf.float32, [2], name="h")
        converter = Converter(graph, [h], [wf.add(h, 1.0, name="total")])
    with pytest.raises(errors.InvalidArgumentError, match="at least one must not be a state"):
        converter.keep_states({"h": "total"})
