"""Smaller weights, other ways to find ranges, and ranges that training found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import DataType, OpKind

RANDOM = np.random.default_rng(3)


def ran(content: bytes, **values: Any) -> Any:
    return Interpreter(model_content=content).get_signature_runner()(**values)


@pytest.fixture(scope="module")
def network() -> tuple[Converter, Any, Any]:
    """A convolution, a dense layer and a loop of recurrent cells, with a sample and its result."""
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 8, 8, 3], name="x")
        h = wf.layers.conv2d(x, 20, 3, 1, "same", activation=wf.nn.relu)
        h = wf.reshape(wf.layers.dense(wf.layers.flatten(h), 24), [2, 4, 6])
        h, _ = wf.nn.dynamic_rnn(wf.nn.rnn_cell.GRUCell(40), h, dtype=wf.float32)
        y = wf.identity(h, name="y")
        wf.set_random_seed(1)
        session.run(wf.global_variables_initializer())
        value = RANDOM.random((2, 8, 8, 3), "float32")
        return Converter.from_session(session, [x], [y]), value, session.run(y, {x: value})


@pytest.mark.parametrize(
    ("form", "bytes_each", "apart"), [("float16", 2, 2e-3), ("int8", 1, 3e-2), ("dynamic", 1, 4e-2)]
)
def test_weights_of_another_form(network: Any, form: str, bytes_each: int, apart: float) -> None:
    converter, value, wanted = network
    whole, small = converter.convert(), converter.convert(weights=form)
    assert len(small) < len(whole) * bytes_each / 4 + 8000
    assert np.abs(ran(small, x=value)["y"] - wanted).max() < apart
    noise = converter.noise([{"x": value}], weights=form)
    assert [each.decibels for each in noise] == sorted(each.decibels for each in noise)
    assert noise[0].decibels > (60 if form == "float16" else 30)


def test_images_have_scales_of_their_own() -> None:
    """A dim image beside a bright one; both branches read the bytes of one op."""
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, 9, 8, 6], name="x")
        one = wf.layers.conv2d(x, 20, 3, 2, "same", activation=wf.nn.relu)
        two = wf.layers.separable_conv2d(x, 20, 5, 2, "same", depth_multiplier=2)
        y = wf.identity(one + two, name="y")
        wf.set_random_seed(1)
        session.run(wf.global_variables_initializer())
        converter = Converter.from_session(session, [x], [y], {"x": [4, 9, 8, 6]})
        value = RANDOM.normal(size=(3, 9, 8, 6)).astype("float32")
        value[1] *= 1e-3
        wanted = session.run(y, {x: value})
    content = converter.convert(weights="dynamic")
    model = decode(content).model
    assert [op.kind for op in model.ops].count(OpKind.DynamicQuantize) == 2  # of x, and between
    products = [op for op in model.ops if op.kind in (OpKind.Conv2D, OpKind.DepthwiseConv2D)]
    assert {model.tensors[op.inputs[1]].dtype for op in products} == {DataType.INT8}
    interpreter = Interpreter(model_content=content, num_threads=2)
    interpreter.resize_tensor_input(0, value.shape)
    got = interpreter.get_signature_runner()(x=value)["y"]
    for image, each in zip(got, wanted, strict=True):
        assert np.abs(image - each).max() < 0.02 * np.abs(each).max()


def test_what_is_no_form_or_method(network: Any) -> None:
    converter, value, _ = network
    with pytest.raises(wf.errors.InvalidArgumentError, match="not 'int4'"):
        converter.convert(weights="int4")
    with pytest.raises(wf.errors.InvalidArgumentError, match="not 'luck'"):
        converter.convert(calibration=[{"x": value}], ranges="luck")


@pytest.mark.parametrize("ranges", ["extremes", "percentile", "average"])
def test_outliers_take_precision_from_extremes_alone(ranges: str) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [40000], name="x")
        converter = Converter.from_session(session, [x], [wf.identity(wf.tanh(x) * 2.0, name="y")])
    samples = [RANDOM.normal(size=40000).astype("float32") for _ in range(4)]
    samples[0][7] = 2000.0
    content = converter.convert(
        calibration=[{"x": each} for each in samples], ranges=ranges, limit=3.0
    )
    inner = np.linspace(-2, 2, 40000, dtype="float32")
    apart = np.abs(ran(content, x=inner)["y"] - 2 * np.tanh(inner)).max()
    assert (apart < 0.1) == (ranges == "percentile")


def test_a_body_reads_what_int8_computed() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [4], name="x")
        h = wf.tanh(x)
        y = wf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 0.5 + h), [0, h])[1]
        converter = Converter.from_session(session, [x], [wf.identity(y, name="y")])
    value = np.array([-1, -0.5, 0.5, 1], np.float32)
    found = ran(converter.convert(calibration=[{"x": value}]), x=value)["y"]
    np.testing.assert_allclose(found, 1.875 * np.tanh(value), atol=0.03)


def test_ranges_of_training_are_those_of_int8() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 5], name="x")
        fake = wf.quantization.fake_quant_with_min_max_args
        weights = RANDOM.normal(size=(5, 6)).astype("float32")
        h = fake(wf.nn.relu(wf.matmul(fake(x, -2.0, 2.0), weights)), 0.0, 9.0)
        y = wf.identity(wf.tanh(h) + 0.0, name="y")
        converter = Converter.from_session(session, [x], [y])
        value = RANDOM.uniform(-1, 1, (2, 5)).astype("float32")
        wanted = session.run(y, {x: value})
    np.testing.assert_allclose(ran(converter.convert(), x=value)["y"], wanted, atol=0.05)
    content = converter.convert(calibration=[{"x": value}])
    np.testing.assert_allclose(ran(content, x=value)["y"], wanted, atol=0.05)
    content = converter.convert(calibration=[{"x": value * 0.1}], limit=10.0)
    interpreter = Interpreter(model_content=content)
    scales = {each["name"]: each["quantization"] for each in interpreter.get_tensor_details()}
    assert scales["x/int8"][0] == pytest.approx(4 / 255)
    assert any(each == (pytest.approx(9 / 255), -128) for each in scales.values())


def learnt() -> tuple[Converter, Any]:
    """A network all of whose ranges fake-quant ops say, its output's too; with the graph's own."""
    with wf.Graph().as_default(), wf.Session() as session:
        fake = wf.quantization.fake_quant_with_min_max_args
        x = wf.placeholder(wf.float32, [2, 6, 6, 3], name="x")
        filters = fake(wf.constant(RANDOM.normal(size=(3, 3, 3, 8)).astype("float32")), -3.0, 3.0)
        h = wf.nn.relu(wf.nn.conv2d(fake(x, -3.0, 3.0), filters, 1, "SAME"))
        h = fake(wf.nn.max_pool2d(h, 2, 2, "SAME"), 0.0, 20.0)
        weights = RANDOM.normal(size=(72, 5)).astype("float32")
        y = fake(wf.matmul(wf.reshape(h, [2, 72]), weights), -150.0, 150.0)
        y = wf.identity(y, name="y")
        value = RANDOM.normal(size=(2, 6, 6, 3)).astype("float32")
        return Converter.from_session(session, [x], [y]), (value, session.run(y, {x: value}))


def test_ranges_of_training_need_no_calibration() -> None:
    converter, (value, wanted) = learnt()
    content = converter.convert(ranges="trained")
    np.testing.assert_allclose(ran(content, x=value)["y"], wanted, atol=3)
    model = decode(content).model
    floats = [op for op in model.ops if model.tensors[op.outputs[0]].dtype == DataType.FLOAT32]
    assert [OpKind(op.kind) for op in floats] == [OpKind.Dequantize]
    assert len(model.ops) == 6  # with Quantize, MaxPool, Reshape and the two products
    assert converter.noise([{"x": value}], ranges="trained")[0].decibels > 20
    with pytest.raises(wf.errors.InvalidArgumentError, match="accepts no calibration"):
        converter.convert(ranges="trained", calibration=[{"x": value}])
    with pytest.raises(wf.errors.InvalidArgumentError, match="'average' needs calibration"):
        converter.convert(ranges="average")


def test_ranges_that_training_left_open_are_named() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 5], name="x")
        h = wf.quantization.fake_quant_with_min_max_args(x, -2.0, 2.0)
        y = wf.nn.softmax(wf.exp(wf.tanh(h, name="between")), name="y")
        converter = Converter.from_session(session, [x], [y])
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"\['between', 'y'\]"):
        converter.convert(ranges="trained")
    assert converter.convert(ranges="trained", keep_float=["between", "y"])


def test_a_result_that_is_the_same_everywhere_is_named() -> None:
    value = np.array([-3.0, -1.0, -0.5], np.float32)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [3], name="x")
        h = wf.nn.relu(x, name="dead")
        converter = Converter(x.graph, [x], [wf.add(wf.tanh(h * 2.0, name="t"), x, name="y")])
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"\['dead', 'mul', 't'\]; pass"):
        converter.convert(calibration=[{"x": value}])
    content = converter.convert(calibration=[{"x": value}], keep_float=["dead", "mul", "t"])
    found = ran(content, x=-value)["y"]
    np.testing.assert_allclose(found, np.tanh(-2 * value) - value, atol=1e-6)


def test_ranges_of_other_widths_are_refused() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2], name="x")
        y = wf.quantization.fake_quant_with_min_max_args(x, -1.0, 1.0, num_bits=4)
        with pytest.raises(wf.errors.UnimplementedError, match="num_bits=8"):
            Converter.from_session(session, [x], [y]).convert()
