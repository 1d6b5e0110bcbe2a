"""Ops whose rank or sizes are unknown at import: correct values, or errors naming the unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402

import weft as wf  # noqa: E402

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ML = "ai.onnx.ml"


def _run(
    op: str, feeds: dict[str, Any], ranked: bool, domain: str = "", version: int = 21, **attrs: Any
) -> Any:
    """The first result of one op, of inputs with unknown sizes, and maybe unknown ranks."""
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(value.dtype),
            [None] * value.ndim if ranked else None,
        )
        for name, value in arrays.items()
    ]
    results = ["y", *(f"y{i}" for i in range(1, attrs.get("num_outputs", 1)))]
    node = helper.make_node(op, list(arrays), results, domain=domain, **attrs)
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    for output in outputs:
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph([node], "g", inputs, outputs)
    opsets = [helper.make_opsetid("", version), *([helper.make_opsetid(domain, 1)] * bool(domain))]
    model = helper.make_model(graph, opset_imports=opsets)
    with wf.Graph().as_default(), wf.Session() as session:
        imported = wf.onnx.import_model(model)
        fed = {imported.inputs[name]: value for name, value in arrays.items()}
        return session.run(list(imported.outputs.values()), fed)


ranked = pytest.mark.parametrize("ranked", [True, False])


@ranked
@pytest.mark.parametrize(
    "indices, batch, expected",
    [
        ([[-1], [0]], 0, X[[1, 0]]),
        ([[-1, -3], [0, 2]], 0, np.stack([X[1, 0], X[0, 2]])),
        ([[1, 2, -1]], 0, X[[1], [2], [3]]),
        ([[[-1]], [[0]]], 1, np.stack([X[0, [2]], X[1, [0]]])),
        ([[-1, 2], [0, -4]], 1, np.float32([X[0, 2, 2], X[1, 0, 0]])),
        ([[[-1]] * 3] * 2, 2, X[:, :, 3]),
    ],
)
def test_positions_of_unknown_depth_are_gathered(
    indices: Any, batch: int, expected: Any, ranked: bool
) -> None:
    feeds = {"x": X, "i": indices}
    np.testing.assert_array_equal(_run("GatherND", feeds, ranked, batch_dims=batch)[0], expected)


@ranked
@pytest.mark.parametrize(
    "reduction, function",
    [("none", None), ("add", np.add), ("mul", np.multiply), ("max", np.maximum)],
)
@pytest.mark.parametrize("indices", [[[-1], [0]], [[-2, 1], [1, -1]], [[0, 0, -1], [-1, 2, 0]]])
def test_positions_of_unknown_depth_are_scattered(
    indices: Any, reduction: str, function: Any, ranked: bool
) -> None:
    at = tuple(np.array(indices).T)
    updates = X[at] * 0 + np.float32(5)
    expected = X.copy()
    if function is None:
        expected[at] = updates
    else:
        function.at(expected, at, updates)
    feeds = {"x": X, "i": indices, "u": updates}
    found = _run("ScatterND", feeds, ranked, reduction=reduction)[0]
    np.testing.assert_array_equal(found, expected)


@ranked
def test_products_are_scattered_to_rows_without_elements(ranked: bool) -> None:
    feeds = {"x": X[:, :0], "i": [[0], [1]], "u": X[:, :0]}
    assert _run("ScatterND", feeds, ranked, reduction="mul")[0].shape == (2, 0, 4)


@ranked
@pytest.mark.parametrize("axes", [[], [1], [-1, 0]])
@pytest.mark.parametrize("noop", [0, 1])
def test_reductions_over_axes_of_unknown_number(axes: list[int], noop: int, ranked: bool) -> None:
    feeds = {"x": X, "axes": np.array(axes, np.int64)}
    found = _run("ReduceSumSquare", feeds, ranked, noop_with_empty_axes=noop)[0]
    over = tuple(axes) if axes or noop else None
    expected = np.square(X) if over == () else np.square(X).sum(over, keepdims=True)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("count, sizes", [(3, [3, 3, 1]), (5, [2, 2, 2, 1, 0]), (2, [4, 3])])
def test_uneven_pieces_of_an_unknown_size(count: int, sizes: list[int]) -> None:
    found = _run("Split", {"x": np.float32(range(7))}, True, axis=0, num_outputs=count)
    assert [len(each) for each in found] == sizes
    np.testing.assert_array_equal(np.concatenate(found), range(7))


def test_slices_by_starts_of_unknown_number_are_of_the_first_axes() -> None:
    feeds = {"x": X, "starts": [1, -2], "ends": [2, 3]}
    np.testing.assert_array_equal(_run("Slice", feeds, True)[0], X[1:2, -2:3])


# ONNX Runtime crops by the negative margins, and then pads what is left.
PADDED = {
    ("wrap", -1, 2): [2, 3, 4, 2, 3],
    ("wrap", 2, -1): [2, 3, 1, 2, 3],
    ("wrap", 3, -2): [2, 1, 2, 1, 2],
    ("wrap", -1, 7): [2, 3, 4, 2, 3, 4, 2, 3, 4, 2],
    ("wrap", 5, 1): [4, 1, 2, 3, 4, 1, 2, 3, 4, 1],
    ("reflect", -1, 2): [2, 3, 4, 3, 2],
    ("reflect", 2, -1): [3, 2, 1, 2, 3],
    ("reflect", -2, -1): [3],
    ("edge", -1, 2): [2, 3, 4, 4, 4],
    ("edge", 3, -2): [1, 1, 1, 1, 2],
    ("constant", 2, -1): [0, 0, 1, 2, 3],
}


@pytest.mark.parametrize("mode, before, after", PADDED)
def test_negative_margins(mode: str, before: int, after: int) -> None:
    feeds = {"x": np.float32([1, 2, 3, 4]), "pads": [before, after]}
    np.testing.assert_array_equal(
        _run("Pad", feeds, True, mode=mode)[0], PADDED[mode, before, after]
    )


@pytest.mark.parametrize("mode", ["wrap", "edge", "reflect"])
def test_there_is_nothing_to_repeat_of_what_margins_remove(mode: str) -> None:
    with pytest.raises(wf.errors.InvalidArgumentError):
        _run("Pad", {"x": np.float32([1, 2]), "pads": [-2, 1]}, True, mode=mode)


@ranked
@pytest.mark.parametrize("scale", [0.5, [0.5], [0.5, 0.25, 1.0]])
@pytest.mark.parametrize("axis", [1, -2])
def test_scales_along_an_axis(scale: Any, axis: int, ranked: bool) -> None:
    feeds = {"x": X, "scale": np.float32(scale)}
    if np.ndim(scale):
        feeds["zero"] = np.full(np.shape(scale), 3, np.uint8)
    found = _run("QuantizeLinear", feeds, ranked, axis=axis)[0]
    per_row = np.float32(scale).reshape(-1, 1)
    np.testing.assert_array_equal(found, np.clip(np.rint(X / per_row) + 3 * np.ndim(scale), 0, 255))


def test_features_of_unknown_rank_are_rows_of_a_batch() -> None:
    rows = np.float32([[1, 2], [3, 4]])
    found = _run("FeatureVectorizer", {"a": rows, "b": rows[:, :1]}, False, ML)[0]
    np.testing.assert_array_equal(found, [[1, 2, 1], [3, 4, 3]])
    found = _run("FeatureVectorizer", {"a": rows[0], "b": rows[1]}, False, ML)[0]
    np.testing.assert_array_equal(found, [[1, 2, 3, 4]])


@pytest.mark.parametrize("width", [1, 2])
def test_signals_are_real_or_complex(width: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 8, width)).astype(np.float32)
    found = _run("DFT", {"x": x}, True)[0]
    signal = x[..., 0] + (1j * x[..., 1] if width == 2 else 0)
    expected = np.fft.fft(signal, axis=1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-5)


@pytest.mark.parametrize(
    "op, inputs, attrs, words",
    [
        ("Trilu", 1, {}, "input 0 of known rank, got shape <unknown>; declare"),
        ("ConvTranspose", 2, {}, "a kernel of known shape, got shape <unknown>"),
        ("DeformConv", 3, {}, "input 0 of known rank"),
        ("Einsum", 1, {"equation": "...i->..."}, "input 0 of known rank"),
        ("RotaryEmbedding", 3, {}, "known shapes, got <unknown>, <unknown>, <unknown>"),
    ],
)
def test_refusals_name_the_node_the_op_and_what_is_unknown(
    op: str, inputs: int, attrs: dict[str, Any], words: str
) -> None:
    with pytest.raises(wf.errors.UnimplementedError) as caught:
        _run(op, dict.fromkeys("abc"[:inputs], X), False, version=23, **attrs)
    assert f"ONNX node 'y' ({op}): " in str(caught.value)
    assert words in str(caught.value)


def test_a_zero_point_of_unknown_rank_is_refused() -> None:
    a, b = (helper.make_tensor_value_info(n, onnx.TensorProto.UINT8, [2, 2]) for n in "ab")
    zero = helper.make_tensor_value_info("zero", onnx.TensorProto.UINT8, None)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    node = helper.make_node("MatMulInteger", ["a", "b", "zero"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [a, b, zero], [y]))
    with (
        wf.Graph().as_default(),
        pytest.raises(wf.errors.UnimplementedError, match="input 2 of known rank"),
    ):
        wf.onnx.import_model(model)


def test_a_bias_of_unknown_rank_is_a_vector() -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 4])
    bias = helper.make_tensor_value_info("bias", onnx.TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    weights = onnx.numpy_helper.from_array(np.ones((3, 2, 1), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w", "bias"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [x, bias], [y], [weights]))
    with wf.Graph().as_default(), wf.Session() as session:
        imported = wf.onnx.import_model(model)
        feeds = {imported.inputs["x"]: np.ones((1, 2, 4)), imported.inputs["bias"]: [1, 2, 3]}
        found = session.run(imported.outputs["y"], feeds)
    np.testing.assert_array_equal(found, np.float32([3, 4, 5]).reshape(1, 3, 1).repeat(4, 2))
