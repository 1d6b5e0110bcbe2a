"""Imported models with fewer nodes than one-to-one translation would create."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import weft as wf  # noqa: E402
from weft_tensor import errors  # noqa: E402

rng = np.random.default_rng(5)


def _value(name: str, *shape: int | str, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(nodes: Any, inputs: Any, outputs: Any, weights: Any) -> Any:
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _both(model: Any, feeds: dict[str, Any], **more: Any) -> Counter[str]:
    """Check the results of a model; return its number of nodes of each op."""
    expected = ReferenceEvaluator(model).run(None, feeds)
    with wf.Graph().as_default() as graph:
        found = wf.onnx.import_model(model, **more)
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            got = session.run(
                list(found.outputs.values()), {found.inputs[k]: v for k, v in feeds.items()}
            )
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return Counter(node.type for node in graph.nodes)


def _normalized(group: int = 1, bias: bool = True, **attributes: Any) -> Any:
    """A convolution and a batch normalization."""
    weights = {
        "w": rng.standard_normal([4, 4 // group, 3, 3]).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        **{name: rng.uniform(0.5, 2, 4).astype(np.float32) for name in "stmv"},
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["h"], group=group),
        helper.make_node("BatchNormalization", ["h", *"stmv"], ["y"], **attributes),
    ]
    outputs = [_value("y", 2, 4, "a", "b")]
    return _model(nodes, [_value("x", 2, 4, 6, 6)], outputs, weights)


FEEDS = {"x": rng.standard_normal([2, 4, 6, 6]).astype(np.float32)}


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_a_batch_normalization_is_weights_of_the_convolution(group: int, bias: bool) -> None:
    nodes = _both(_normalized(group, bias, epsilon=0.1), FEEDS)
    assert nodes["Mul"] == nodes["Rsqrt"] == 0 and nodes["Add"] + nodes["AddV2"] == 1


def test_weights_of_constant_nodes_take_it_too() -> None:
    model = _normalized()
    for tensor in model.graph.initializer:
        node = helper.make_node("Constant", [], [tensor.name], value=tensor)
        model.graph.node.insert(0, node)
    del model.graph.initializer[:]
    assert _both(model, FEEDS)["Mul"] == 0


def test_weights_that_train_or_are_given_stay_apart() -> None:
    model = _normalized()
    assert _both(model, FEEDS, trainable=True)["Mul"] > 0
    with wf.Graph().as_default(), wf.Session() as session:
        given = {"x": FEEDS["x"], "s": np.zeros(4, np.float32)}
        model.graph.input.append(_value("s", 4))
        found = wf.onnx.import_model(model, inputs=given)
        offsets = numpy_helper.to_array(model.graph.initializer[3])
        y = session.run(found.outputs["y"])
    np.testing.assert_allclose(y, np.broadcast_to(offsets[:, None, None], y.shape), rtol=1e-5)


def test_a_convolution_that_others_see_stays() -> None:
    model = _normalized()
    model.graph.output.append(_value("h", 2, 4, "a", "b"))
    assert _both(model, FEEDS)["Mul"] > 0
    model = _normalized()
    model.graph.node.append(helper.make_node("Relu", ["h"], ["z"]))
    model.graph.output.append(_value("z", 2, 4, "a", "b"))
    nodes = _both(model, FEEDS)
    assert nodes["Mul"] > 0 and nodes["Conv2D"] == 1


def test_what_does_not_fit_is_named() -> None:
    model = _normalized()
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "s"))
    with wf.Graph().as_default(), pytest.raises(errors.OpError, match="BatchNormalization"):
        wf.onnx.import_model(model)


X = rng.standard_normal([4, 5, 6]).astype(np.float32)


@pytest.mark.parametrize(
    ("axes", "starts", "ends", "steps"),
    [
        ([1], [1], [4], None),
        ([2, 0], [1, -3], [2**62, 4], None),
        ([-1, -3], [5, 0], [-(2**62), 3], [-2, 1]),
        ([0, 1, 2], [0, 1, 2], [3, 4, 5], [1, 2, 3]),
        ([1], [3], [1], [-1]),
    ],
)
@pytest.mark.parametrize("kind", ["constant", "fed", "unknown rank"])
def test_slices_of_known_axes_scatter_nothing(
    axes: Any, starts: Any, ends: Any, steps: Any, kind: str
) -> None:
    given = {"starts": starts, "ends": ends, "axes": axes, "steps": steps or [1] * len(axes)}
    given = {name: np.array(each, np.int64) for name, each in given.items()}
    fed = ["starts", "ends", "steps"] if kind == "fed" else []
    node = helper.make_node("Slice", ["h", "starts", "ends", "axes", "steps"], ["y"])
    inputs = [_value("x", 4, 5, 6), *(_value(name, len(axes), dtype=7) for name in fed)]
    first = helper.make_node("Identity", ["x"], ["h"])
    if kind == "unknown rank":
        given["sizes"] = np.array(X.shape)
        inputs.append(_value("sizes", "n", dtype=7))
        fed = ["sizes"]
        first = helper.make_node("Reshape", ["x", "sizes"], ["h"])
    weights = {name: each for name, each in given.items() if name not in fed}
    model = _model([first, node], inputs, [_value("y", "a", "b", "c")], weights)
    nodes = _both(model, {"x": X, **{name: given[name] for name in fed}})
    assert nodes["TensorScatterUpdate"] == 0


def test_slices_of_computed_axes() -> None:
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["y"])
    inputs = [_value("x", 4, 5, 6), _value("axes", 2, dtype=7)]
    weights = {"starts": np.array([1, 2]), "ends": np.array([3, 4])}
    model = _model([node], inputs, [_value("y", "a", "b", "c")], weights)
    _both(model, {"x": X, "axes": np.array([-1, 0])})


@pytest.mark.parametrize("axes", [[0], [-1], [1, 3], [-1, -3], [0, -1]])
def test_axes_are_inserted_whatever_the_rank_is(axes: list[int]) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "sizes"], ["h"]),
        helper.make_node("Unsqueeze", ["h", "axes"], ["y"]),
    ]
    inputs = [_value("x", 4, 5, 6), _value("sizes", "n", dtype=7)]
    model = _model(
        nodes, inputs, [_value("y", *"abcde"[: 3 + len(axes)])], {"axes": np.array(axes)}
    )
    found = _both(model, {"x": X, "sizes": np.array([4, 30])})
    assert found["ListDiff"] == (0 if axes != [0, -1] else 1)


def test_n_grams_are_columns_of_one_matrix() -> None:
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=2,
        max_skip_count=10**9, ngram_counts=[0, 3], ngram_indexes=[6, 0, 2, 5, 4],
        pool_int64s=[1, 2, 3, 1, 2, 3, 3],
    )  # fmt: skip
    model = _model([node], [_value("x", 2, 4, dtype=7)], [_value("y", 2, 7)], {})
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        y = session.run(found.outputs["y"], {found.inputs["x"]: [[1, 2, 3, 3], [3, 1, 1, 1]]})
    assert y.tolist() == [[1, 0, 2, 0, 1, 1, 1], [0, 0, 1, 0, 0, 0, 3]]
    for name, value in (("max_skip_count", -1), ("ngram_indexes", [0, 1, 2, 10**9])):
        wrong = onnx.ModelProto()
        wrong.CopyFrom(model)
        (attribute,) = (each for each in wrong.graph.node[0].attribute if each.name == name)
        attribute.CopyFrom(helper.make_attribute(name, value))
        with wf.Graph().as_default(), pytest.raises(errors.OpError, match=name):
            wf.onnx.import_model(wrong)


def test_quantized_convolutions_are_those_of_bytes() -> None:
    """Quantized, convolved by the op of integers, and taken out again at once."""
    own = np.random.default_rng(8)
    weights = {"w": own.integers(-128, 128, (4, 3, 3, 3), np.int8), "s": np.float32(0.01)}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "scale", "zero"]),
        helper.make_node("ConvInteger", ["q", "w", "zero"], ["c"]),
        helper.make_node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["scale", "s"], ["factor"]),
        helper.make_node("Mul", ["f", "factor"], ["y"]),
    ]
    weights["v"] = own.standard_normal((3, 2, 3, 3)).astype(np.float32)
    model = _model(nodes, [_value("x", 1, 2, 6, 6)], [_value("y", 1, 4, 4, 4)], weights)
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        metadata = wf.RunMetadata()
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        feeds = {found.inputs["x"]: own.standard_normal((1, 2, 6, 6)).astype(np.float32)}
        session.run(found.outputs["y"], feeds, options=options, run_metadata=metadata)
        labels = [n.timeline_label for d in metadata.step_stats.dev_stats for n in d.node_stats]
    ops = Counter(label.partition(" = ")[2].partition("(")[0] for label in labels)
    assert (ops["Conv2D"], ops["Conv2DInteger"]) == (1, 1)
    _both(model, {"x": own.standard_normal((1, 2, 6, 6)).astype(np.float32)})


@pytest.mark.parametrize("saturate", [0, 1])
def test_what_is_too_large_for_8_bits_is_infinite_or_the_largest(saturate: int) -> None:
    weights = {"s": np.float32(0.5)}
    node = helper.make_node(
        "QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.FLOAT8E5M2, saturate=saturate
    )
    outputs = [_value("y", 2, dtype=TensorProto.FLOAT8E5M2)]
    model = _model([node], [_value("x", 2)], outputs, weights)
    model.opset_import[0].version = 21
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        y = wf.cast(found.outputs["y"], wf.float32)
        got = session.run(y, {found.inputs["x"]: np.float32([1.0, 1e9])})
    assert got.tolist() == [2.0, 57344.0 if saturate else np.inf]


@pytest.mark.parametrize(
    ("low", "high", "nodes"),
    [
        (-0.5, 0.5, {"ClipByValue": 1}),
        (0.25, 0.25, {"ClipByValue": 1}),
        (0.5, -0.5, {"Maximum": 1, "Minimum": 1}),
        (np.nan, 0.5, {"Maximum": 1, "Minimum": 1}),
        (-0.5, None, {"Maximum": 1}),
        (None, 0.5, {"Minimum": 1}),
        (None, None, {}),
    ],
)
def test_bounds_that_are_known_are_one_op(
    low: float | None, high: float | None, nodes: dict[str, int]
) -> None:
    weights = {k: np.float32(v) for k, v in {"low": low, "high": high}.items() if v is not None}
    names = ["x", *[name if name in weights else "" for name in ("low", "high")]]
    clip = helper.make_node("Clip", names, ["y"])
    x = np.array([*rng.standard_normal(20_000), np.nan, np.inf, -np.inf], np.float32)
    found = _both(_model([clip], [_value("x", "n")], [_value("y", "n")], weights), {"x": x})
    ops = ("ClipByValue", "Maximum", "Minimum")
    assert {op: found[op] for op in ops if found[op]} == nodes


def _unrolled(axis: int = 0, steps: int = 3, bias: bool = True, **attributes: Any) -> Any:
    """A network whose steps multiply slices of one input by the same weights."""
    turned = attributes.get("transB", 0)
    weights = {
        "w": rng.standard_normal([4, 5] if turned else [5, 4]).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        **{f"i{k}": np.int64(-k) for k in range(steps)},
    }
    nodes, last = [], ""
    for k in range(steps):
        given = [f"x{k}", "w", "b"] if bias else [f"x{k}", "w"]
        nodes.append(helper.make_node("Gather", ["x", f"i{k}"], [f"x{k}"], axis=axis))
        nodes.append(helper.make_node("Gemm", given, [f"h{k}"], f"cell{k}", **attributes))
        nodes.append(helper.make_node("Tanh", [f"h{k}"], [f"t{k}"]))
        if last:
            nodes.append(helper.make_node("Sub", [last, f"t{k}"], [f"s{k}"]))
        last = f"s{k}" if last else f"t{k}"
    outputs = [_value(last, "a", "b"), _value("h0", "a", "b")]
    return _model(nodes, [_value("x", "n", "m", 5)], outputs, weights)


ROWS = {"x": rng.standard_normal([3, 3, 5]).astype(np.float32)}


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize(
    "more", [{}, {"transB": 1}, {"bias": False}, {"alpha": 1.0, "beta": 1.0, "transA": 0}]
)
def test_products_of_slices_with_the_same_weights_are_one(axis: int, more: Any) -> None:
    nodes = _both(_unrolled(axis, **more), ROWS)
    assert nodes["BatchMatMulV2"] == 1 and nodes["MatMul"] == 1  # the latter is not computed


@pytest.mark.parametrize("more", [{"alpha": 2.0}, {"beta": 0.5}, {"transA": 1, "axis": 1}])
def test_products_that_do_more_stay_as_they_are(more: Any) -> None:
    model = _unrolled(**more)
    if more.get("transA"):
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((3, 4), "f4"), "w"))
    assert _both(model, ROWS)["BatchMatMulV2"] == 0


def test_slices_that_no_product_takes_are_refused_as_before() -> None:
    model = _unrolled()
    del model.graph.input[0].type.tensor_type.shape.dim[0]  # slices are vectors
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="cell0"):
        wf.onnx.import_model(model)


def test_weights_that_train_are_multiplied_step_by_step() -> None:
    assert _both(_unrolled(), ROWS, trainable=True)["BatchMatMulV2"] == 0
