"""Graphs in int8: close to those of floats, smaller, and refused where calibration is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter, agreement, quantize
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import DataType, OpKind

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def trained() -> tuple[Converter, Array, Array]:
    """A classifier of the bright quarter of an image, with images and labels."""
    random = np.random.default_rng(0)
    right = random.integers(0, 4, 256)
    pictures = random.random((256, 8, 8, 1), "float32")
    for picture, quarter in zip(pictures, right, strict=True):
        top, left = 4 * (quarter // 2), 4 * (quarter % 2)
        picture[top : top + 4, left : left + 4] += 0.8
    with wf.Graph().as_default():
        wf.set_random_seed(1)
        x = wf.placeholder(wf.float32, [None, 8, 8, 1], name="x")
        labels = wf.placeholder(wf.int64, [None])
        h = wf.layers.conv2d(x, 20, 3, padding="same", activation=wf.nn.relu)
        depth = wf.get_variable("depth", [3, 3, 20, 1])
        h = wf.nn.relu6(wf.nn.depthwise_conv2d(h, depth, [1, 2, 2, 1], "SAME"))
        h = h + wf.layers.conv2d(h, 20, 1)
        h = wf.layers.flatten(wf.layers.max_pooling2d(h, 2, 2))
        logits = wf.layers.dense(h, 4)
        y = wf.nn.softmax(logits, name="y")
        loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
        train = wf.train.AdamOptimizer(0.02).minimize(loss)
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            for _ in range(60):
                session.run(train, {x: pictures, labels: right})
            bounds = {"x": [256, 8, 8, 1]}
            return Converter.from_session(session, [x], [y], bounds), pictures, right


def kinds(content: bytes, dtype: DataType) -> list[OpKind]:
    """The ops whose first result is of a type."""
    model = decode(content).model
    return [OpKind(op.kind) for op in model.ops if model.tensors[op.outputs[0]].dtype == dtype]


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_a_trained_net_is_as_good_and_a_quarter_of_the_size(
    trained: tuple[Converter, Array, Array], activations: str
) -> None:
    converter, pictures, right = trained
    whole = converter.convert()
    samples = [{"x": each[None]} for each in pictures[:64]]
    small = converter.convert(calibration=samples, activations=activations)
    assert kinds(small, DataType.FLOAT32) == [OpKind.Dequantize]
    assert len(decode(small).weights) < 0.4 * len(decode(whole).weights)
    scores = [
        Interpreter(model_content=each).get_signature_runner()(x=pictures)["y"]
        for each in (whole, small)
    ]
    exact, close = [float(np.mean(each.argmax(1) == right)) for each in scores]
    assert exact > 0.95
    assert close > exact - 0.02
    assert np.abs(scores[0] - scores[1]).mean() < 0.02


def test_a_limit_can_be_too_narrow_for_int8(trained: tuple[Converter, Array, Array]) -> None:
    converter, pictures, _ = trained
    with pytest.raises(wf.errors.DataLossError, match=r"output y:0 .* at most 1e-07"):
        converter.convert(limit=1e-7, calibration=[{"x": pictures[:64]}])


ONE: dict[str, Callable[[Any], Any]] = {
    "Add": lambda x: wf.add(x, [[0.5, -2.0, 1.0]]),
    "Sub": lambda x: [1.5, 0.5, 2.0] - x,
    "Mul": lambda x: x * wf.tanh(x),
    "Maximum": lambda x: wf.maximum(x, [0.25, 0.5, 1.0]),
    "Minimum": lambda x: wf.minimum(x, wf.square(x)),
    "SquaredDifference": lambda x: wf.squared_difference(x, [0.3, 0.2, 0.1]),
    "Abs": wf.abs,
    "Neg": wf.negative,
    "Square": wf.square,
    "Tanh": wf.tanh,
    "Sigmoid": wf.sigmoid,
    "Relu": wf.nn.relu,
    "Relu6": wf.nn.relu6,
    "LeakyRelu": lambda x: wf.nn.leaky_relu(x, 0.2),
    "Elu": wf.nn.elu,
    "Selu": wf.nn.selu,
    "Softplus": wf.nn.softplus,
    "Softsign": wf.nn.softsign,
    "Silu": wf.nn.swish,
    "Gelu": lambda x: 0.5 * x * (1.0 + wf.erf(x / 2.0**0.5)),
    "Softmax": wf.nn.softmax,
    "Mean": lambda x: wf.reduce_mean(x, 0),
    "Reshape": lambda x: wf.reshape(x, [3, 40]),
    "ExpandDims": lambda x: wf.expand_dims(x, 1),
    "Transpose": wf.transpose,
    "Slice": lambda x: wf.slice(x, [2, 1], [5, 2]),
    "StridedSlice": lambda x: x[::3, 1],
    "Tile": lambda x: wf.tile(x, [2, 1]),
    "Reverse": lambda x: wf.reverse(x, [0]),
    "MaxPool": lambda x: wf.nn.max_pool(wf.reshape(x, [1, 10, 4, 3]), [2, 2], [2, 2], "SAME"),
    "AvgPool": lambda x: wf.nn.avg_pool(wf.reshape(x, [1, 10, 4, 3]), [3, 3], [1, 1], "SAME"),
    "SpaceToDepth": lambda x: wf.space_to_depth(wf.reshape(x, [1, 10, 4, 3]), 2),
    "Split": lambda x: wf.split(x, [10, 30])[1],
    "Unpack": lambda x: wf.unstack(x, axis=1)[2],
    "Pack": lambda x: wf.stack([x, wf.nn.relu(x), x], 1),
    "Gather": lambda x: wf.gather(wf.nn.relu(x), [5, 2, 39, 2]),
    "GatherNd": lambda x: wf.gather_nd(wf.nn.relu(x), [[5, 0], [39, 2]]),
    "ReverseSequence": lambda x: wf.reverse_sequence(x, [2, 5, 40], 0, 1),
    "MirrorPad": lambda x: wf.pad(x, [[1, 2], [0, 1]], "REFLECT"),
    "ResizeNearest": lambda x: wf.image.resize_nearest_neighbor(
        wf.reshape(x, [1, 10, 4, 3]), [20, 6]
    ),
    "FullyConnected": lambda x: wf.add(wf.matmul(x, [[0.5, 0], [-1.27, 0], [0.25, 0]]), [0.1, 3]),
}
"""Weights that int8 has exactly."""


@pytest.mark.parametrize(("activations", "limit"), [("int8", 0.05), ("int16", 3e-4)])
@pytest.mark.parametrize("kind", ONE)
def test_a_quantized_op_is_close(kind: str, activations: str, limit: float) -> None:
    """By parts of the largest value: some units, where operand and result are rounded."""
    value = np.linspace(-3, 3, 120).astype("float32").reshape(40, 3)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [40, 3], name="x")
        converter = Converter(x.graph, [x], [ONE[kind](x)])
        content = converter.convert(
            limit=limit, calibration=[{"x": value}], activations=activations
        )
    assert OpKind[kind] in kinds(content, DataType[activations.upper()])
    assert kinds(content, DataType.FLOAT32) == [OpKind.Dequantize]


def test_int16_keeps_what_int8_loses(trained: tuple[Converter, Array, Array]) -> None:
    """The remaining error is that of the weights, which are int8 in both."""
    converter, pictures, _ = trained
    noise = [
        {
            each.name: each.decibels
            for each in converter.noise([{"x": pictures}], activations=activations)
        }
        for activations in ("int8", "int16")
    ]
    assert noise[0].keys() == noise[1].keys()
    assert min(noise[1].values()) > min(noise[0].values()) + 3
    images = noise[0].keys() & {"depthwise", "conv2d/Relu"}
    assert all(noise[1][name] > noise[0][name] for name in images)


def test_sums_of_int16_and_biases_are_beyond_32_bits() -> None:
    """The largest number in each product; a bias far above all of them, and one without weights."""
    weights = np.ones((3000, 3), "float32") * np.float32([1, -1, 0])
    bias = [0.25, 9000.0, -7000.0]
    value = np.where(np.arange(3000)[None] < 2900, 1.0, [[1.0], [-1.0]]).astype("float32")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2, 3000], name="x")
        y = wf.matmul(x, wf.constant(weights)) + bias
        content = Converter(x.graph, [x], [y]).convert(
            limit=1e-4, calibration=[{"x": value}], activations="int16"
        )
    got = Interpreter(model_content=content).get_signature_runner()(x=value)
    np.testing.assert_allclose(next(iter(got.values())), value @ weights + bias, atol=0.3)


def test_ranges_that_training_found_hold_in_int16() -> None:
    with wf.Graph().as_default():
        fake = wf.quantization.fake_quant_with_min_max_args
        x = wf.placeholder(wf.float32, [8], name="x")
        y = fake(wf.square(fake(x, -2.0, 2.0)), 0.0, 4.0)
        converter = Converter(x.graph, [x], [y])
        value = np.linspace(-1.9, 1.9, 8, dtype="float32")
        content = converter.convert({"x": value}, ranges="trained", activations="int16")
    assert OpKind.Square in kinds(content, DataType.INT16)


def test_activations_that_are_none_or_of_nothing_are_refused() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2], name="x")
        converter = Converter(x.graph, [x], [wf.exp(x)])
        refused = wf.errors.InvalidArgumentError
        with pytest.raises(refused, match="not 'int4'"):
            converter.convert(calibration=[{"x": [1.0, 2.0]}], activations="int4")
        with pytest.raises(refused, match="activations='int16' requires calibration"):
            converter.convert(activations="int16")
        with pytest.raises(refused, match="activations='int16' requires calibration"):
            converter.noise([{"x": [1.0, 2.0]}], weights="int8", activations="int16")


def test_what_has_no_kernel_for_int8_stays_in_float() -> None:
    value = np.linspace(0.5, 3, 12).astype("float32").reshape(4, 3)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [4, 3], name="x")
        h = wf.cumsum(wf.nn.relu(x))
        outputs = [wf.tanh(h), wf.argmax(h, 1), h]
        content = Converter(x.graph, [x], outputs).convert(calibration=[{"x": value}])
    assert OpKind.Cumsum in kinds(content, DataType.FLOAT32)
    assert OpKind.Tanh in kinds(content, DataType.INT8)


def test_the_noisiest_result_is_named_and_can_stay_in_float() -> None:
    """A value with one number far from the others loses all that is near zero."""
    value = np.random.default_rng(4).normal(size=(50, 40)).astype("float32")
    value[0, 0] = 4.0
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [50, 40], name="x")
        wide = wf.square(wf.square(wf.square(x)), name="wide")
        y = wf.tanh(wf.nn.relu(x, name="fine"), name="y") + wf.minimum(wide, 0.01, name="few")
        converter = Converter(x.graph, [x], [y])
        found = converter.noise([{"x": value}])
        assert found[0].name == "few"
        ratios = {each.name: each.decibels for each in found}
        assert ratios["fine"] > ratios["few"] + 15
        kept = converter.noise([{"x": value}], keep_float=[found[0].name])
        assert "few" not in {each.name for each in kept}
        content = converter.convert(calibration=[{"x": value}], keep_float=["few"])
        assert OpKind.Minimum in kinds(content, DataType.FLOAT32)
        with pytest.raises(
            wf.errors.InvalidArgumentError,
            match=r"names that are not inputs, results or ops .*: \['fex'\]",
        ):
            converter.convert(calibration=[{"x": value}], keep_float=["fex"])


def test_ranges_of_nothing_are_refused() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2], name="x")
        z = wf.placeholder(wf.int32, [], name="z")
        y = wf.log(x, name="y") + wf.cast(z, wf.float32)
        converter = Converter(x.graph, [x, z], [y])

    def convert(*samples: Any) -> bytes:
        return converter.convert(calibration=[{"x": x, "z": z} for z, x in enumerate(samples)])

    refused = wf.errors.InvalidArgumentError
    with pytest.raises(refused, match="the calibration set is empty"):
        convert()
    with pytest.raises(refused, match=r"NaN for some sample: \['add', 'x', 'y'\]; .* keep_float"):
        convert([1.0, np.nan])
    with pytest.raises(refused, match=r"NaN for some sample: \['add', 'y'\]"):
        convert([1.0, 2.0], [-1.0, 2.0])
    with pytest.raises(refused, match=r"lacks \['z'\]"):
        converter.convert(calibration=[{"x": [1.0, 2.0]}])
    assert convert([1.0, 2.0], [3.0, 4.0])


def test_a_result_that_is_constant_while_inputs_vary_is_refused() -> None:
    value = np.linspace(-3, -1, 6).astype("f")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [6], name="x")
        converter = Converter(x.graph, [x], [wf.tanh(x) + wf.nn.relu(x, name="shut")])
        refused = pytest.raises(wf.errors.InvalidArgumentError, match=r"constant: \['shut'\]; pass")
        with refused:
            converter.convert(calibration=[{"x": value}])
        content = converter.convert(calibration=[{"x": value}], keep_float=["shut"])
    assert OpKind.Tanh in kinds(content, DataType.INT8)


CONSTANT: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "zero state": (np.zeros((2, 4), "f"), lambda x, s: wf.tanh(s) * 3.0 + x),
    "all-ones mask": (np.ones((2, 4), "f"), lambda x, s: x * s + (1.0 - s) * -1e4),
    "mask of integers": (np.ones((2, 4), "i4"), lambda x, s: x * wf.cast(s, wf.float32)),
    "negative": (np.full((2, 4), -0.3, "f"), lambda x, s: wf.maximum(x, s)),
}


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("case", CONSTANT)
def test_an_input_that_is_constant_in_calibration_is_exact(
    case: str, activations: str, caplog: pytest.LogCaptureFixture
) -> None:
    state, build = CONSTANT[case]
    value = np.linspace(-2, 2, 8).astype("f").reshape(2, 4)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2, 4], name="x")
        s = wf.placeholder(state.dtype, [2, 4], name="s")
        converter = Converter(x.graph, [x, s], [wf.identity(build(x, s), name="y")])
        sample = [{"x": value, "s": state}]
        content = converter.convert(calibration=sample, activations=activations)
        wanted = agreement.run(converter.convert(), [value, state])[0]
        assert ("'Cast'" if case == "mask of integers" else "'s'") in caplog.text
        assert "other values are clipped" in caplog.text
        caplog.clear()
        alone = converter.convert(calibration=sample, activations=activations, keep_float=["s"])
    assert "other values are clipped" not in caplog.text
    assert kinds(content, DataType[activations.upper()])
    limit = 0.02 if activations == "int8" else 1e-4
    for file in (content, alone):
        got = agreement.run(file, [value, state])[0]
        np.testing.assert_allclose(got, wanted, atol=limit * np.abs(wanted).max())
    # what stays in float is right for other values of the input as well
    other = np.linspace(0, 1, 8).astype(state.dtype).reshape(2, 4)
    if case == "zero state":
        exact = np.tanh(other) * 3 + value
        np.testing.assert_allclose(agreement.run(alone, [value, other])[0], exact, atol=0.05)


POOLED: dict[str, Callable[[Any], Any]] = {
    "pads of minus infinity": lambda x: wf.nn.max_pool(
        wf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=-np.inf), 3, 2, "VALID"
    ),
    "pads of the least number": lambda x: wf.nn.max_pool(
        wf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=np.finfo("f").min),
        3,
        2,
        "VALID",
    ),
    "pads of zeros": lambda x: wf.pad(x, [[0, 0], [1, 0], [0, 2], [0, 0]]),
    "pads of a number": lambda x: wf.pad(x, [[0, 0], [1, 0], [0, 2], [0, 0]], constant_values=-0.5),
}


@pytest.mark.parametrize(("activations", "limit"), [("int8", 0.01), ("int16", 1e-4)])
@pytest.mark.parametrize("case", POOLED)
def test_pads_are_quantized(case: str, activations: str, limit: float) -> None:
    value = np.random.default_rng(0).normal(-3, 1, (1, 9, 8, 3)).astype("f")  # zero is no maximum
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [1, 9, 8, 3], name="x")
        y = POOLED[case](wf.minimum(x, 1.0))
        converter = Converter(x.graph, [x], [wf.identity(y, name="y")])
        content = converter.convert(
            limit=limit, calibration=[{"x": value}], activations=activations
        )
        assert all(np.isfinite(each.decibels) for each in converter.noise([{"x": value}]))
    assert OpKind.Pad in kinds(content, DataType[activations.upper()])
    assert kinds(content, DataType.FLOAT32) == [OpKind.Dequantize]


MASKED: dict[str, Callable[[Any, Any, float], Any]] = {
    "product": lambda scores, mask, hidden: scores + mask * hidden,
    "product, scaled later": lambda scores, mask, hidden: (scores + mask * hidden) * 0.5,
    "select": lambda scores, mask, hidden: wf.where(
        mask > 0, wf.fill(wf.shape(scores), hidden), scores
    ),
    "constant": lambda scores, mask, hidden: scores + np.array([0, 0, hidden, 0], np.float32),
    "pad": lambda scores, mask, hidden: wf.pad(
        scores, [[0, 0], [0, 2]], constant_values=hidden, name="masked"
    ),
}


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("hidden", [-1e9, float(np.finfo("f").min) / 2, -1e5])
@pytest.mark.parametrize("case", MASKED)
def test_masked_scores_keep_their_differences(case: str, hidden: float, activations: str) -> None:
    """The scale of a mask's large numbers would leave nothing of the scores beside them."""
    random = np.random.default_rng(0)
    values = random.normal(size=(20, 3, 4)).astype("f")
    masks = (random.random((20, 3, 4)) < 0.4).astype("f")
    masks[:, :, 0] = 0
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [3, 4], name="x")
        mask = wf.placeholder(wf.float32, [3, 4], name="mask")
        hidden_layer = wf.nn.relu(wf.matmul(x, random.normal(size=(4, 6)).astype("f")))
        scores = wf.matmul(hidden_layer, random.normal(size=(6, 4)).astype("f"))
        y = wf.nn.softmax(MASKED[case](scores, mask, hidden))
        converter = Converter(x.graph, [x, mask], [wf.identity(y, name="y")])
        samples = [{"x": v, "mask": m} for v, m in zip(values, masks, strict=True)]
        content = converter.convert(calibration=samples, activations=activations)
        assert OpKind.FullyConnected in kinds(content, DataType[activations.upper()])
        for sample in samples:
            expected = session.run(y, {x: sample["x"], mask: sample["mask"]})
            np.testing.assert_allclose(
                agreement.run(content, list(sample.values()))[0], expected, atol=0.05
            )


FLOATS: dict[str, Callable[[Any], Any]] = {
    "infinite constant": lambda x: wf.nn.softmax(wf.add(x, [[0.0, 0.0, -np.inf, 0.0]])),
    "infinite result": lambda x: wf.nn.softmax(wf.where(x > 0, x, x * np.inf)),
    "NaN constant": lambda x: wf.where(x > 9, x * np.nan, x),
    "pads beyond the range": lambda x: wf.pad(x, [[0, 0], [1, 1]], constant_values=3.0),
    "pads of infinity": lambda x: wf.exp(-wf.pad(x, [[0, 0], [1, 1]], constant_values=np.inf)),
}


@pytest.mark.parametrize("case", FLOATS)
def test_what_int8_cannot_hold_stays_in_float(case: str) -> None:
    value = np.linspace(0.5, 2, 8).astype("f").reshape(2, 4) * [[1, -1, 1, 1]]
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2, 4], name="x")
        named = wf.tanh(FLOATS[case](wf.tanh(x)), name="y")
        converter = Converter(x.graph, [x], [named])
        odd = ["mul"] if case == "NaN constant" else []
        content = converter.convert(calibration=[{"x": value}], keep_float=odd)
        converter.noise([{"x": value}], keep_float=odd)
    assert OpKind.Tanh in kinds(content, DataType.INT8)


def test_whatever_is_named_can_stay_in_float() -> None:
    """Inputs, results and ops, those of branches too, by the names that errors and noise give."""
    value = np.linspace(-2, 2, 8).astype("f").reshape(2, 4)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2, 4], name="x")
        p = wf.placeholder(wf.bool, [], name="p")
        either = wf.cond(p, lambda: wf.square(x, name="inside"), lambda: wf.abs(x))
        h = wf.tanh(x, name="h")
        pair = wf.split(h, 2, axis=1, name="pair")
        y = wf.multiply(pair[0], pair[1], name="y") + either[:, :2]
        converter = Converter(x.graph, [x, p], [y])
        sample = [{"x": value, "p": True}]
        names = [each.name for each in converter.noise(sample)]
        assert {"h", "y"} <= set(names)
        for name in [*names, "x", "p", "pair", "x:0", "h:0", "cond/inside"]:
            assert converter.convert(calibration=sample, keep_float=[name])
        content = converter.convert(calibration=sample, keep_float=["x"])
        assert OpKind.Tanh in kinds(content, DataType.FLOAT32)
        with pytest.raises(
            wf.errors.InvalidArgumentError, match="names that are not inputs, results or ops"
        ):
            converter.convert(calibration=sample, keep_float=["pears"])


@pytest.mark.parametrize("method", ["percentile", "average"])
def test_ranges_of_a_point_are_the_extremes(method: str) -> None:
    """Nearly all numbers are one, or each sample has one number."""
    value = np.zeros(20_000, "f")
    value[0] = 4.0
    samples = [value] if method == "percentile" else [np.zeros(9, "f"), np.full(9, 4.0, "f")]
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, samples[0].shape, name="x")
        converter = Converter(x.graph, [x], [wf.nn.relu(x, name="y")])
        calibration = [{"x": sample} for sample in samples]
        content = converter.convert(calibration=calibration, ranges=method)
    assert agreement.run(content, [samples[-1]])[0].max() == pytest.approx(4.0)


def test_scales_have_zero_exactly() -> None:
    for low, high in [(-1, 1), (2, 5), (-5, -2), (0, 0), (-1e-3, 7)]:
        step, zero = quantize.Range(low, high).scale()
        assert -128 <= zero <= 127
        assert step > 0
        ends = (np.array([-128, 127]) - zero) * step
        assert ends[0] <= min(low, 0) + step
        assert ends[1] >= max(high, 0) - step


def test_concat_stays_in_bytes_with_the_scale_of_its_result() -> None:
    draw = np.random.default_rng(0)
    samples = [{"x": draw.standard_normal((1, 8, 8, 3)).astype("f")} for _ in range(4)]
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [1, 8, 8, 3], name="x")
        small, number = wf.tanh(x), wf.constant(np.full([1, 8, 8, 1], 0.5, "f"))
        y = wf.nn.relu(wf.concat([small, 3.0 * x, number], 3), name="y")
        converter = Converter(x.graph, [x], [y])
        content = converter.convert(calibration=samples)
        int16 = converter.convert(calibration=samples, activations="int16")
    assert kinds(content, DataType.FLOAT32) == [OpKind.Dequantize]
    assert OpKind.Concat in kinds(content, DataType.INT8)
    assert OpKind.Concat in kinds(int16, DataType.INT16)


def test_concat_gives_its_scale_to_what_only_it_reads() -> None:
    """Operands with one reader need no Quantize, nor do operands that have the same scale."""
    value = np.random.default_rng(0).standard_normal((1, 6, 4)).astype("f")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [1, 6, 4], name="x")
        h = wf.nn.relu(x)
        moved = wf.transpose(wf.square(h), [0, 2, 1])
        computed = wf.concat([wf.tanh(h), 3.0 * h, wf.transpose(moved, [0, 2, 1])], 1)
        same = wf.stack([h[:, :2], h[:, 2:4]])
        outputs = [wf.nn.relu(computed), wf.tanh(same)]
        converter = Converter(x.graph, [x], outputs)
        content = converter.convert(calibration=[{"x": value}], limit=0.02)
    assert OpKind.Concat in kinds(content, DataType.INT8)
    assert OpKind.Pack in kinds(content, DataType.INT8)
    assert kinds(content, DataType.INT8).count(OpKind.Quantize) == 1  # that of x
    assert kinds(content, DataType.INT8).count(OpKind.Lookup) == 1  # that of 3.0 * h


def tabular() -> tuple[Converter, list[dict[str, Array]]]:
    """Return a converter of columns that look up rows, and samples that see few of them."""
    random = np.random.default_rng(0)
    tables = [random.normal(size=(60, 4)).astype("f") for _ in range(3)]
    tables[0][59] = 9.0  # a row that no sample looks up
    with wf.Graph().as_default():
        ids = [wf.placeholder(wf.int32, [2], name=f"id{i}") for i in range(3)]
        numbers = wf.placeholder(wf.float32, [2, 3], name="numbers")
        rows = [wf.gather(table, i) for table, i in zip(tables, ids, strict=True)]
        joined = wf.concat([numbers, *rows], 1, name="joined")
        y = wf.matmul(joined, random.normal(size=(15, 2)).astype("f"), name="y")
        converter = Converter(y.graph, [*ids, numbers], [y, joined])
    samples = [
        {
            **{f"id{i}": random.integers(0, 50, 2).astype("i4") for i in range(3)},
            "numbers": random.normal(size=(2, 3)).astype("f"),
        }
        for _ in range(20)
    ]
    return converter, samples


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_tables_are_quantized_with_the_range_of_all_rows(activations: str) -> None:
    converter, samples = tabular()
    content = converter.convert(calibration=samples, activations=activations)
    dtype = DataType[activations.upper()]
    assert kinds(content, dtype).count(OpKind.Gather) == 3
    assert kinds(content, dtype).count(OpKind.Quantize) == 1  # that of the numbers
    assert set(kinds(content, DataType.FLOAT32)) == {OpKind.Dequantize}
    sizes = [len(decode(file).weights) for file in (content, converter.convert())]
    assert sizes[0] < (0.3 if activations == "int8" else 0.6) * sizes[1]
    unseen = [
        np.array([59, 59], "i4"),
        *(np.array([1, 2], "i4") for _ in range(2)),
        samples[0]["numbers"],
    ]
    exact, close = (agreement.run(file, unseen)[1] for file in (converter.convert(), content))
    assert exact.max() == 9.0
    np.testing.assert_allclose(close, exact, atol=0.03 if activations == "int8" else 2e-4)


def test_a_table_can_stay_in_float() -> None:
    converter, samples = tabular()
    names = {each.name for each in converter.noise(samples)}
    assert {"GatherV2", "GatherV2_1", "joined"} <= names
    content = converter.convert(calibration=samples, keep_float=["GatherV2"])
    assert kinds(content, DataType.FLOAT32).count(OpKind.Gather) == 1
    assert kinds(content, DataType.INT8).count(OpKind.Gather) == 2


def test_a_table_whose_readers_are_in_float_has_a_scale_per_column() -> None:
    random = np.random.default_rng(0)
    table = (random.normal(size=(90, 4)) * [1e-3, 1, 10, 0]).astype("f")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.int32, [5], name="x")
        rows = wf.gather(table, x, name="rows")
        converter = Converter(x.graph, [x], [wf.identity(wf.exp(rows * 0.1), name="y")])
        samples = [{"x": random.integers(0, 90, 5).astype("i4")} for _ in range(4)]
        content = converter.convert(calibration=samples, limit=0.02, keep_float=["mul"])
        found = {each.name: each.form for each in converter.noise(samples, keep_float=["mul"])}
    model = decode(content).model
    (lookup,) = [op for op in model.ops if op.kind == OpKind.Gather]
    quantization = model.tensors[lookup.outputs[0]].quantization
    assert quantization is not None
    assert len(quantization.scales) == 4
    assert found == {"rows": "hybrid"}


@pytest.mark.parametrize("form", ["int8", "float16", "dynamic"])
def test_rows_of_smaller_tables_are_looked_up_before_they_are_converted(form: str) -> None:
    """A table of 4000 rows would take as long as the float one to convert, and as much memory."""
    random = np.random.default_rng(0)
    table = random.normal(size=(4000, 8)).astype("f")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.int32, [3], name="x")
        y = wf.identity(wf.gather(table, x) * 2.0, name="y")
        content = Converter(x.graph, [x], [y]).convert(weights=form)
    model = decode(content).model
    assert model.arena_size < 2000
    assert len(content) < table.nbytes * (0.55 if form == "float16" else 0.3)
    rows = np.array([0, 3999, 7], "i4")
    np.testing.assert_allclose(agreement.run(content, [rows])[0], table[rows] * 2, atol=0.05)


def test_a_graph_that_int8_makes_slower_or_larger_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    value = np.linspace(-2, 2, 4096, dtype="f").reshape(1, 4096)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [1, 4096], name="x")
        weights = np.random.default_rng(0).normal(size=(4096, 64)).astype("f")
        for y, warned in ((wf.abs(x, name="magnitude"), True), (wf.matmul(x, weights), False)):
            caplog.clear()
            Converter(x.graph, [x], [y]).convert(calibration=[{"x": value}])
            assert ("times as long as in float" in caplog.text) == warned
            assert ("x/quantize" in caplog.text) == warned
            assert ("bytes, and" in caplog.text) == warned
