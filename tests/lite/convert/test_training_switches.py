"""Models whose training is switched by placeholders convert to lite and ONNX for inference."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.commands.main import main
from weft_lite.convert import Converter

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
X = np.random.default_rng(0).standard_normal((5, 4, 4, 2)).astype(np.float32)

Layer = Callable[[Any, Any, Any], Any]


def recurrent(h: Any, training: Any, keep: Any) -> Any:
    """An LSTM over the rows of an image, whose outputs are dropped out in the loop."""
    cell = wf.nn.rnn_cell.LSTMCell(5)
    cell = wf.nn.rnn_cell.DropoutWrapper(cell, keep, keep)
    return wf.nn.dynamic_rnn(cell, wf.reshape(h, [-1, 2, 8]), dtype=wf.float32)[0]


LAYERS: dict[str, Layer] = {
    "fused": lambda h, t, k: wf.layers.batch_normalization(h, training=t),
    "elementary": lambda h, t, k: wf.layers.batch_normalization(h, training=t, fused=False),
    "renorm": lambda h, t, k: wf.layers.batch_normalization(h, training=t, renorm=True),
    "contrib": lambda h, t, k: wf.contrib.layers.batch_norm(h, is_training=t),
    "contrib, updates in place": lambda h, t, k: wf.contrib.layers.batch_norm(
        h, is_training=t, updates_collections=None, fused=True
    ),
    "slim": lambda h, t, k: wf.contrib.slim.batch_norm(h, is_training=t),
    "layers.dropout": lambda h, t, k: wf.layers.dropout(h, 0.4, training=t),
    "slim.dropout": lambda h, t, k: wf.contrib.slim.dropout(h, 0.6, is_training=t),
    "nn.dropout": lambda h, t, k: wf.nn.dropout(h, keep_prob=k),
    "nn.dropout, rate": lambda h, t, k: wf.nn.dropout(h, rate=1 - k),
    "DropoutWrapper": recurrent,
    "where": lambda h, t, k: wf.where(wf.fill(wf.shape(h), t), h * 2.0, h),
}


def network(layer: Layer, defaults: bool) -> tuple[Any, Any, dict[Any, Any]]:
    """A classifier of images with a layer that trains in another way than it runs."""
    x = wf.placeholder(wf.float32, [None, 4, 4, 2], name="x")
    if defaults:
        training = wf.placeholder_with_default(False, [], name="training")
        keep = wf.placeholder_with_default(1.0, [], name="keep")
    else:
        training = wf.placeholder(wf.bool, [], name="training")
        keep = wf.placeholder(wf.float32, [], name="keep")
    h = layer(wf.layers.conv2d(x, 4, 3, activation=wf.nn.relu), training, keep)
    y = wf.identity(wf.layers.dense(wf.layers.flatten(h), 3), name="y")
    return x, y, {training: False, keep: 1.0}


def run_file(content: Any, **inputs: Any) -> Any:
    return Interpreter(model_content=content).get_signature_runner()(**inputs)


def run_onnx(model: Any, **inputs: Any) -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        imported = wf.onnx.import_model(model)
        return session.run(imported.outputs, {imported.inputs[k]: v for k, v in inputs.items()})


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("defaults", [True, False])
def test_layers_convert_as_they_are_at_inference(layer: str, defaults: bool) -> None:
    with (
        wf.Graph().as_default(),
        wf.Session() as session,
        wf.variable_scope("", use_resource=defaults),
    ):
        x, y, values = network(LAYERS[layer], defaults)
        session.run(wf.global_variables_initializer())
        expected = session.run(y, {x: X, **values})
        values = {} if defaults else values
        made = Converter.from_session(session, [x], [y], {"x": X.shape}, values=values)
        model = wf.onnx.export(y, x, session, values=values)
    content = made.convert()
    np.testing.assert_allclose(run_file(content, x=X)["y"], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(run_onnx(model, x=X)["y"], expected, 1e-4, 1e-5)
    removed = {"If", "RandomUniform"} | ({"Loop"} if LAYERS[layer] is not recurrent else set())
    assert not removed & {node.op_type for node in model.graph.node}
    small = run_file(made.convert(calibration=[{"x": X}]), x=X)["y"]
    assert np.abs(small - expected).max() < 0.1 * np.abs(expected).max()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A model as frozen graph, SavedModel and checkpoint, and the scores of `X`."""
    folder = tmp_path_factory.mktemp("saved")
    with wf.Graph().as_default(), wf.Session() as session:
        layers = LAYERS["fused"], LAYERS["nn.dropout"]
        x, y, values = network(lambda h, t, k: layers[1](layers[0](h, t, k), t, k), False)
        training, _keep = values
        session.run(wf.global_variables_initializer())
        wf.saved_model.simple_save(
            session, str(folder / "model"), {"x": x, "switch": training}, {"y": y}
        )
        wf.train.Saver().save(session, str(folder / "checkpoint"))
        frozen = wf.graph_util.convert_variables_to_constants(session, session.graph_def, ["y"])
        (folder / "frozen.pb").write_bytes(frozen.SerializeToString())
        return folder, session.run(y, {x: X, **values})


VALUES = {"training": False, "keep": 1.0}


def test_all_sources_take_values(saved: tuple[Path, Any]) -> None:
    folder, expected = saved
    bounds = {"x": X.shape}
    for made in (
        Converter.from_frozen_graph(folder / "frozen.pb", ["x"], ["y"], bounds, VALUES),
        Converter.from_frozen_graph(folder / "frozen.pb", ["x", "keep"], ["y"], bounds, VALUES),
        Converter.from_checkpoint(str(folder / "checkpoint"), ["x"], ["y"], bounds, values=VALUES),
        Converter.from_saved_model(
            folder / "model", bounds=bounds, values={"switch": False, "keep:0": 1.0}
        ),
    ):
        interpreter = Interpreter(model_content=made.convert())
        assert [each["name"] for each in interpreter.get_input_details()] == ["x"]
        np.testing.assert_allclose(
            interpreter.get_signature_runner()(x=X)["y"], expected, 1e-4, 1e-5
        )


@pytest.mark.parametrize("source", ["frozen.pb", "checkpoint", "model"])
def test_the_command_takes_values(saved: tuple[Path, Any], source: str, tmp_path: Path) -> None:
    folder, expected = saved
    ends = ["--inputs", "x", "--outputs", "y"] if source == "checkpoint" else []
    np.save(tmp_path / "keep.npy", np.float32(1.0))
    words = ["--bound", "x=5,4,4,2", "--value", "training=false"]
    words += ["--value", "keep=1" if source == "model" else f"keep=@{tmp_path / 'keep.npy'}"]
    output = tmp_path / "made.weftlite"
    assert main(["convert", str(folder / source), "-o", str(output), *words, *ends]) == 0
    np.testing.assert_allclose(run_file(output.read_bytes(), x=X)["y"], expected, 1e-4, 1e-5)


def test_values_that_do_not_fit(
    saved: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = saved

    def convert(values: Any) -> bytes:
        made = Converter.from_frozen_graph(
            folder / "frozen.pb", ["x"], ["y"], {"x": X.shape}, {**VALUES, **values}
        )
        return made.convert()

    with pytest.raises(wf.errors.NotFoundError, match="no tensor 'trainign:0'"):
        convert({"trainign": False})
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"training:0.*fed.*shape \[2\]"):
        convert({"training": [False, True]})
    with pytest.raises(wf.errors.UnimplementedError, match=r"values={'training': False}"):
        convert({"training": True})
    with pytest.raises(wf.errors.UnimplementedError, match=r"values={'keep_prob': 1.0}"):
        convert({"keep": 0.5})
    made = Converter.from_frozen_graph(folder / "frozen.pb", ["x"], ["y"], {"x": X.shape})
    with pytest.raises(wf.errors.UnimplementedError, match=r"values={'training': ...}"):
        made.convert()
    words = ["convert", str(folder / "frozen.pb"), "-o", str(tmp_path / "out")]
    assert main([*words, "--value", "keep=often"]) == 2
    assert "--value keep= must be true, false, a number" in capsys.readouterr().err


def test_an_onnx_export_names_the_placeholder_that_it_needs() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x, y, values = network(LAYERS["layers.dropout"], False)
        session.run(wf.global_variables_initializer())
        (training, _) = values
        with pytest.raises(wf.errors.InvalidArgumentError, match=r"values={'training': ...}"):
            wf.onnx.export(y, x, session)
        model = wf.onnx.export(y, [x, training], session, values={"training": False})
        assert [each.name for each in model.graph.input] == ["x"]
        with pytest.raises(wf.errors.NotFoundError, match="no tensor 'trainign:0'"):
            wf.onnx.export(y, x, session, values={"trainign": False})


def test_a_switch_that_stays_an_input() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x, y, values = network(LAYERS["where"], True)
        (training, _) = values
        session.run(wf.global_variables_initializer())
        expected = [session.run(y, {x: X, training: value}) for value in (False, True)]
        content = Converter.from_session(session, [x, training], [y], {"x": X.shape}).convert()
    for value, wanted in zip((False, True), expected, strict=True):
        np.testing.assert_allclose(run_file(content, x=X, training=value)["y"], wanted, 1e-4, 1e-5)


def test_the_models_of_the_page_convert_in_all_forms() -> None:
    """Convert the models of docs/models.md to lite in float and int8, and to ONNX."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M)
    with wf.Graph().as_default():
        names: dict[str, Any] = {}
        exec("\n".join(blocks), names)
        images, words, lengths = names["images"], names["words"], names["lengths"]
        sentences = {
            words: np.array([[1, 2, 3], [4, 5, 0]], np.int32),
            lengths: np.array([3, 2], np.int32),
        }
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            for feeds, fetches in (
                ({images: names["batch"]}, [names["logits"]]),
                (sentences, [names["outputs"], names["gru"], names["lstm"].h]),
            ):
                _require_agreement(session, feeds, fetches)


def _require_agreement(session: Any, feeds: dict[Any, Any], fetches: list[Any]) -> None:
    """Convert in all forms, and compare with the session."""
    inputs = {x.op.name: value for x, value in feeds.items()}
    expected = session.run(fetches, feeds)
    bounds = {name: value.shape for name, value in inputs.items()}
    made = Converter.from_session(session, list(feeds), fetches, bounds)
    model = wf.onnx.export(fetches, list(feeds), session)
    for outputs, limit in (
        (run_file(made.convert(), **inputs), 1e-4),
        (run_onnx(model, **inputs), 1e-4),
        (run_file(made.convert(calibration=[inputs]), **inputs), 0.1),
    ):
        by_name = {name.removesuffix(":0"): value for name, value in outputs.items()}
        for fetch, value in zip(fetches, expected, strict=True):
            found = by_name[fetch.name.removesuffix(":0")]
            assert np.abs(found - value).max() < limit * np.abs(value).max(), fetch
