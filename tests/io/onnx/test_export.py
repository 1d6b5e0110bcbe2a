"""Export of parts of graphs as ONNX models: contents, results and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator  # noqa: E402

import weft as wf  # noqa: E402
from weft_tensor import errors  # noqa: E402


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def ops(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def shape(value: Any) -> list[int | str]:
    dims = value.type.tensor_type.shape.dim
    return [each.dim_param or each.dim_value for each in dims]


def convnet() -> tuple[Any, Any, Any]:
    x = wf.placeholder(wf.float32, [None, 8, 8, 3], name="image")
    h = wf.layers.conv2d(x, 4, 3, padding="same", activation=wf.nn.relu)
    h = wf.layers.max_pooling2d(wf.layers.batch_normalization(h), 2, 2)
    h = wf.concat([h, wf.nn.tanh(h)], 3)
    h = wf.layers.conv2d(h, 5, 3, strides=2, padding="same", activation=wf.nn.relu6)
    h = wf.reduce_mean(h, [1, 2])
    logits = wf.layers.dense(h, 10)
    return x, wf.nn.softmax(logits, name="classes"), logits


def test_a_trained_convnet_keeps_its_answers(tmp_path: Path) -> None:
    wf.set_random_seed(1)
    x, classes, logits = convnet()
    labels = wf.constant([1, 2])
    loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
    train = wf.train.AdamOptimizer(0.01).minimize(loss)
    images = np.random.RandomState(0).rand(2, 8, 8, 3).astype(np.float32)
    path = tmp_path / "net.onnx"
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        for _ in range(3):
            session.run(train, {x: images})
        wf.onnx.export(classes, x, session, path)
        expected = session.run(classes, {x: images})
    model = onnx.load(path)
    assert ops(model).count("Transpose") == 1, "NHWC to NCHW, and no way back"
    assert shape(model.graph.input[0]) == ["image_0", 8, 8, 3]
    (answer,) = ReferenceEvaluator(model).run(None, {"image": images})
    np.testing.assert_allclose(answer, expected, 1e-5, 1e-6)
    with wf.Graph().as_default(), wf.Session() as session:
        back = wf.onnx.import_model(path)
        again = session.run(back.outputs["classes"], {back.inputs["image"]: images})
    np.testing.assert_allclose(again, expected, 1e-5, 1e-6)


def test_sizes_that_are_not_known_have_names() -> None:
    x = wf.placeholder(wf.float32, [None, None, 2], name="x")
    y = wf.placeholder(wf.float32, [None, None, 2], name="y")
    with wf.Session() as session:
        axes = {"x": {0: "batch"}, "y": {0: "batch"}}
        model = wf.onnx.export(
            {"z": x + y, "size": wf.shape(x)[0]}, [x, y], session, dynamic_axes=axes
        )
    assert [shape(each) for each in model.graph.input] == [["batch", "x_1", 2], ["batch", "y_1", 2]]
    assert shape(model.graph.output[0])[0] == "batch"
    a, b = np.ones((3, 4, 2), np.float32), np.ones((3, 1, 2), np.float32)
    total, size = ReferenceEvaluator(model).run(None, {"x": a, "y": b})
    assert total.shape == (3, 4, 2) and size == 3
    with pytest.raises(errors.InvalidArgumentError, match="unknown size"), wf.Session() as session:
        wf.onnx.export({"z": x}, x, session, dynamic_axes={"x": {2: "two"}})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"session": None}, "a session is required, got None"),
        ({"path": 5}, "path must be a path of a file, got 5"),
        ({"dynamic_axes": ["x"]}, "dynamic_axes must map inputs to dicts"),
        ({"dynamic_axes": {"x": {0: 5}}}, "must map integers to names"),
        ({"dynamic_axes": {"x": {"rows": "rows"}}}, "must map integers to names"),
        ({"metadata": ["weft"]}, "metadata must be a mapping"),
    ],
)
def test_arguments_of_another_type(wrong: dict[str, Any], text: str) -> None:
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    with wf.Session() as session, pytest.raises(errors.InvalidTypeError, match=text):
        wf.onnx.export(x * 2.0, x, **{"session": session, **wrong})


def test_names_and_metadata() -> None:
    x = wf.placeholder(wf.float32, [2], name="x")
    metadata = {"producer_name": "me", "model_version": "3", "licence": "MIT"}
    with wf.Session() as session:
        wf.identity(x * 2.0, name="y")
        model = wf.onnx.export("y", "x:0", session, metadata=metadata, opset=18)
        renamed = wf.onnx.export({"out": "y"}, {"in": x}, session)
    assert wf.onnx.import_model(model).metadata == metadata
    assert model.opset_import[0].version == 18
    assert ([x.name for x in model.graph.input], [y.name for y in model.graph.output]) == (
        ["x"],
        ["y"],
    )
    assert renamed.graph.input[0].name == "in" and renamed.graph.output[0].name == "out"
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


def test_a_cut_in_the_middle() -> None:
    x = wf.placeholder(wf.float32, [2])
    h = wf.exp(x, name="h")
    y = wf.sqrt(h)
    with wf.Session() as session:
        model = wf.onnx.export(y, h, session)
    assert ops(model) == ["Sqrt"] and model.graph.input[0].name == "h"


def test_inputs_and_constants_may_be_fetched() -> None:
    x = wf.placeholder(wf.int32, [2], name="x")
    with wf.Session() as session:
        model = wf.onnx.export({"a": x, "b": x, "c": wf.constant([5])}, x, session)
    found = ReferenceEvaluator(model).run(None, {"x": np.int32([1, 2])})
    assert [each.tolist() for each in found] == [[1, 2], [1, 2], [5]]


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_have_the_values_of_the_session(use_resource: bool) -> None:
    with wf.variable_scope("v", use_resource=use_resource):
        table = wf.get_variable("table", initializer=[[1.0, 2.0], [3.0, 4.0]])
    rows = wf.placeholder(wf.int32, [None], name="rows")
    y = wf.nn.embedding_lookup(table, rows) + table[0]
    with wf.Session() as session:
        session.run(table.initializer)
        session.run(table.assign([[1.0, 2.0], [5.0, 6.0]]))
        model = wf.onnx.export({"y": y}, rows, session)
    (found,) = ReferenceEvaluator(model).run(None, {"rows": np.int32([1])})
    assert found.tolist() == [[6.0, 8.0]]
    with wf.Session() as session, pytest.raises(errors.FailedPreconditionError):
        wf.onnx.export({"y": y}, rows, session)


@pytest.mark.parametrize("use_resource", [False, True])
def test_reads_after_updates_are_refused(use_resource: bool) -> None:
    v = wf.Variable([1.0], use_resource=use_resource)
    with wf.control_dependencies([v.assign([2.0])]):
        y = wf.add(v.read_value(), 1.0)
    with wf.Session() as session:
        session.run(v.initializer)
        with pytest.raises(errors.UnimplementedError, match="after an update"):
            wf.onnx.export(y, [], session)


def test_calls_of_functions_are_taken_apart() -> None:
    @wf.function
    def twice(x: Any) -> Any:
        return wf.nn.relu(x) * 2.0

    x = wf.placeholder(wf.float32, [2], name="x")
    with wf.Session() as session:
        model = wf.onnx.export({"y": twice(x)}, x, session)
    (found,) = ReferenceEvaluator(model).run(None, {"x": np.float32([-1, 2])})
    assert found.tolist() == [0.0, 4.0]


def test_all_that_has_no_form_is_named_at_once() -> None:
    x = wf.placeholder(wf.float32, [2, 2], name="x")
    a = wf.linalg.inv(x, name="inverse")
    b = wf.lgamma(a, name="gamma")
    c = wf.complex(b, b, name="both")
    with wf.Session() as session, pytest.raises(errors.UnimplementedError) as caught:
        wf.onnx.export(wf.exp(wf.real(c) + 1.0), x, session)
    message = str(caught.value)
    for name in ("inverse", "gamma", "both"):
        assert f"{name} (" in message
    assert "test_export.py" in message and "Exp" not in message
    y = wf.bitwise.left_shift(wf.constant([1]), wf.cast(x[0], wf.int32), name="shift")
    with (
        wf.Session() as session,
        pytest.raises(errors.UnimplementedError, match="takes no int32"),
    ):
        wf.onnx.export(y, x, session)


def test_what_is_not_fed_and_what_is_not_there() -> None:
    x = wf.placeholder(wf.float32, [2], name="x")
    with wf.Session() as session:
        with pytest.raises(errors.InvalidArgumentError, match="'x'"):
            wf.onnx.export(x + 1.0, [], session)
        with pytest.raises(errors.NotFoundError):
            wf.onnx.export("nothing", x, session)
        with pytest.raises(errors.InvalidArgumentError, match="7 to"):
            wf.onnx.export(x, x, session, opset=6)
        with pytest.raises(errors.InvalidArgumentError, match="path"):
            wf.onnx.export(x, x, session, external_data=True)
        with pytest.raises(errors.InvalidArgumentError, match="different names"):
            wf.onnx.export({"x": wf.exp(x)}, x, session)
        with pytest.raises(errors.InvalidArgumentError, match="an integer"):
            wf.onnx.export({"y": x}, x, session, metadata={"model_version": "new"})
        with pytest.raises(errors.InvalidArgumentError, match="an integer"):
            wf.onnx.export({"y": x}, x, session, metadata={"model_version": "9" * 20})
        with pytest.raises(errors.InvalidArgumentError, match=r"strings to strings, got .*: 3"):
            wf.onnx.export({"y": x}, x, session, metadata={"model_version": 3})
        with pytest.raises(errors.InvalidArgumentError, match="cannot write"):
            wf.onnx.export({"y": x}, x, session, "/nowhere/model.onnx")


def test_large_constants_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.RandomState(0).rand(40, 50).astype(np.float32)
    x = wf.placeholder(wf.float32, [None, 40], name="x")
    y = wf.identity(x @ weights, name="y")
    path = tmp_path / "net.onnx"
    with wf.Session() as session:
        wf.onnx.export(y, x, session, path, external_data=True)
        monkeypatch.setattr("weft_io.onnx.initializers.MAX_EMBEDDED_BYTES", 1000)
        with pytest.raises(errors.ResourceExhaustedError, match="external_data"):
            wf.onnx.export(y, x, session, tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()
    assert path.stat().st_size < 1000 and (tmp_path / "net.onnx.data").stat().st_size == 8000
    given = np.ones((1, 40), np.float32)
    with wf.Graph().as_default(), wf.Session() as session:
        back = wf.onnx.import_model(path)
        found = session.run(back.outputs["y"], {back.inputs["x"]: given})
    np.testing.assert_allclose(found, given @ weights, 1e-5)


def test_a_model_takes_the_place_of_the_one_that_it_was_read_from(tmp_path: Path) -> None:
    weights = np.random.RandomState(0).rand(40, 50).astype(np.float32)
    x = wf.placeholder(wf.float32, [None, 40], name="x")
    path = tmp_path / "net.onnx"
    with wf.Session() as session:
        wf.onnx.export({"y": x @ weights}, x, session, path, external_data=True)
    given = np.ones((1, 40), np.float32)
    for _ in range(2):
        with wf.Graph().as_default(), wf.Session() as session:
            back = wf.onnx.import_model(path)
            wf.onnx.export(back.outputs, back.inputs, session, path, external_data=True)
            found = session.run(back.outputs["y"], {back.inputs["x"]: given})
        np.testing.assert_allclose(found, given @ weights, 1e-5)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]


def test_a_rule_of_a_stranger() -> None:
    from weft_io.onnx.registry import _exporters

    before = dict(_exporters)
    x = wf.placeholder(wf.float32, [2], name="x")
    y = wf.lgamma(x, name="y")
    try:

        @wf.onnx.exporter("Lgamma")
        def _rule(export: Any) -> Any:
            return export.add("Neg", export[0])

        with wf.Session() as session:
            assert ops(wf.onnx.export(y, x, session)) == ["Neg"]
    finally:
        _exporters.clear()
        _exporters.update(before)


def test_all_that_is_missing_is_named_at_once() -> None:
    x, y = (wf.placeholder(wf.float32, [2], name=name) for name in "xy")
    z = wf.placeholder(wf.float32, [2], name="z")
    with (
        wf.Session() as session,
        pytest.raises(errors.InvalidArgumentError, match=r"requires .y., .z., which are not fed"),
    ):
        wf.onnx.export(x + y * z, x, session)


def test_convolutions_of_images_whose_channels_only_filters_tell() -> None:
    x = wf.placeholder(wf.float32, [None, None, None, None], name="x")
    plain = wf.nn.conv2d(x, wf.ones([3, 3, 2, 4]), 1, "SAME")
    y = wf.nn.depthwise_conv2d(plain, wf.ones([2, 2, 4, 2]), [1, 1, 1, 1], "VALID")
    with wf.Session() as session:
        model = wf.onnx.export({"y": y}, {"x": x}, session)
        feeds = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)
        expected = session.run(y, {x: feeds})
    found = ReferenceEvaluator(model).run(None, {"x": feeds})[0]
    np.testing.assert_allclose(found, expected, 1e-6)


@pytest.mark.parametrize("declared", [3, None])
@pytest.mark.parametrize("begin", [-1, -2, -3, -4, -9, 2])
@pytest.mark.parametrize("end", [None, -9, -4, -3, -2, -1, 0])
def test_slices_backwards_begin_with_nothing_before_the_first_element(
    begin: int, end: int | None, declared: int | None
) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, declared], name="x")
        model = wf.onnx.export({"y": x[:, begin:end:-1]}, x, session)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = ReferenceEvaluator(model).run(None, {"x": value})
    assert found.tolist() == value[:, begin:end:-1].tolist()
    for size in (1, 3) if declared is None else (3,):
        (back,) = wf.onnx.Backend.run_model(model, [value[:, :size]])
        assert back.tolist() == value[:, :size][:, begin:end:-1].tolist()
