"""Products of integers of 8 bits are exact, whatever floats they are computed in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

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
    """Whose weights of uint8 are int8 without their zero point, and which gives what ONNX says."""
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
