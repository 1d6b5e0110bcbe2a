"""Products of 8-bit integers are exact in every floating-point type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from weft_testing.onnx_evaluators import answers

import weft as wf


def _run(op: str, values: dict[str, Any], constants: tuple[str, ...]) -> Any:
    """The one result of an op, some of whose inputs are constants of the model."""
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in values.items()
        if name not in constants
    ]
    graph = helper.make_graph(
        [helper.make_node(op, list(values), ["y"])],
        "net",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(values[name], name) for name in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    feeds = {name: value for name, value in values.items() if name not in constants}
    return wf.onnx.Backend.run_model(model, feeds)[0]


@pytest.mark.parametrize("constants", [(), ("w",), ("w", "x_zero", "w_zero")])
@pytest.mark.parametrize("depth", [3, 258, 259, 20_000])
def test_products_of_extremes_are_exact(depth: int, constants: tuple[str, ...]) -> None:
    rng = np.random.default_rng(depth)
    x = rng.choice(np.uint8([0, 254, 255]), (2, depth))
    w = rng.choice(np.int8([-128, 126, 127]), (depth, 3))
    zeros = np.uint8(0), np.int8([-128, 127, 3])
    x[0], w[:, 0] = 255, 127  # sums are odd, and their bits reach as far as can be
    w[-1, 0] = 126
    values = {"x": x, "w": w, "x_zero": zeros[0], "w_zero": zeros[1]}
    expected = (x.astype(np.int64) - zeros[0]) @ (w.astype(np.int64) - zeros[1])
    assert (np.abs(expected).max() > 2**24) == (depth >= 259)
    np.testing.assert_array_equal(_run("MatMulInteger", values, constants), expected)


@pytest.mark.parametrize("constants", [(), ("w", "w_zero")])
def test_convolutions_are_exact(constants: tuple[str, ...]) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (1, 300, 1, 1), np.uint8)
    w = rng.integers(-128, 128, (2, 300, 1, 1), np.int8)
    values = {"x": x, "w": w, "x_zero": np.uint8(255), "w_zero": np.int8(-128)}
    rows = (x.astype(np.int64) - 255).reshape(300)
    expected = (w.astype(np.int64) + 128).reshape(2, 300) @ rows
    found = _run("ConvInteger", values, constants)
    np.testing.assert_array_equal(found.reshape(2), expected)


def test_products_are_one_op_where_there_is_a_kernel() -> None:
    """Weights of uint8 become int8 without their zero point; results follow ONNX's definition."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (2, 3, 5), np.uint8)
    w = rng.integers(0, 256, (5, 4), np.uint8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "x_zero", "w_zero"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [
            numpy_helper.from_array(value, name)
            for name, value in {"w": w, "x_zero": np.uint8(9), "w_zero": np.uint8(128)}.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        metadata = wf.RunMetadata()
        feeds = {found.inputs["x"]: x}
        y = session.run(found.outputs["y"], feeds, options=options, run_metadata=metadata)
        labels = [n.timeline_label for d in metadata.step_stats.dev_stats for n in d.node_stats]
    np.testing.assert_array_equal(y, (x.astype(int) - 9) @ (w.astype(int) - 128))
    assert sum("= MatMulInteger(" in label for label in labels) == 1


def _convolution(x: Any, constants: dict[str, Any], **attributes: Any) -> Any:
    """A model of ConvInteger, of which all but `x` is constant."""
    node = helper.make_node("ConvInteger", ["x", *constants], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [None] * x.ndim)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int, str]] = {
    # the shapes of x and w, the groups, the zero point of w, the op of weft
    "images": ((2, 4, 6, 5), (3, 4, 2, 3), 1, 128, "Conv2DInteger"),
    "lines": ((2, 4, 6), (3, 4, 2), 1, 128, "Conv2DInteger"),
    "groups": ((2, 4, 6, 5), (6, 2, 2, 3), 2, 128, "Conv2DInteger"),
    "channels": ((2, 4, 6, 5), (8, 1, 2, 3), 4, 128, "DepthwiseConv2dInteger"),
    "bytes without sign": ((2, 4, 6, 5), (3, 4, 2, 3), 1, 0, "Conv2DInteger"),
    "weights of 9 bits": ((2, 4, 6, 5), (3, 4, 2, 3), 1, 200, "Conv2D"),
    "volumes": ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), 1, 128, "Conv3D"),
    "nothing": ((0, 4, 6, 5), (3, 4, 2, 3), 1, 128, "Conv2DInteger"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_convolutions_are_one_op_here_and_in_exports(name: str, dtype: Any) -> None:
    shape, filters, group, w_zero, op = CONVOLUTIONS[name]
    rng = np.random.default_rng(1)
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    w = rng.integers(0, 256, filters, np.uint8)
    spatial = len(shape) - 2
    constants = {"w": w, "x_zero": dtype(9), "w_zero": np.uint8(w_zero)}
    model = _convolution(x, constants, group=group, pads=[1, 0] * spatial)
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        metadata = wf.RunMetadata()
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        feeds = {found.inputs["x"]: x}
        y = session.run(found.outputs["y"], feeds, options=options, run_metadata=metadata)
        labels = [n.timeline_label for d in metadata.step_stats.dev_stats for n in d.node_stats]
        assert any(f"= {op}(" in label for label in labels)
        if op.endswith("Integer"):
            again = wf.onnx.export({"y": found.outputs["y"]}, {"x": found.inputs["x"]}, session)
            written = [node.op_type for node in again.graph.node]
            assert written.count("ConvInteger") == (2 if name == "groups" else 1)
            assert "Conv" not in written
            for result in answers(again, {"x": x}):
                np.testing.assert_array_equal(result[0], y)
    np.testing.assert_array_equal(y, _sums(x, w, 9, w_zero, group, spatial))


def _sums(x: Any, w: Any, x_zero: int, w_zero: int, group: int, spatial: int) -> Any:
    """The convolution by its definition, with margins of pads = [1, 0, ...]."""
    pads = np.resize([1, 0], 2 * spatial)
    sides = [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)]
    wide = np.pad(x.astype(int) - x_zero, sides)
    taps = np.lib.stride_tricks.sliding_window_view(
        wide, w.shape[2:], axis=tuple(range(2, 2 + spatial))
    )
    rows, centered = taps.shape[1] // group, w.astype(int) - w_zero
    each = len(w) // group
    parts = []
    for i in range(group):
        mine = centered[i * each : (i + 1) * each].reshape(each, -1)
        part = np.moveaxis(taps[:, i * rows : (i + 1) * rows], 1, 1 + spatial)
        flat = part.reshape(*part.shape[: 1 + spatial], mine.shape[1])
        parts.append(np.moveaxis(flat @ mine.T, -1, 1))
    return np.concatenate(parts, 1)


def test_matrices_of_bytes_are_exported_as_such() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (2, 3, 5), np.uint8), rng.integers(-128, 128, (5, 4), np.int8)
    for zeros, written in (((), 1), ((np.uint8(9), np.int8([1, 2, 3, -4])), 1)):
        constants = {"w": w, **dict(zip(("x_zero", "w_zero"), zeros, strict=False))}
        graph = helper.make_graph(
            [helper.make_node("MatMulInteger", ["x", *constants], ["y"])],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.INT32, [2, 3, 4])],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        with wf.Graph().as_default(), wf.Session() as session:
            found = wf.onnx.import_model(model)
            again = wf.onnx.export({"y": found.outputs["y"]}, {"x": found.inputs["x"]}, session)
        assert [node.op_type for node in again.graph.node].count("MatMulInteger") == written
        centered = w.astype(int) - (zeros[1] if zeros else 0)
        expected = (x.astype(int) - (9 if zeros else 0)) @ centered
        for result in answers(again, {"x": x}):
            np.testing.assert_array_equal(result[0], expected)
