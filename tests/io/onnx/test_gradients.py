"""Gradients of imported branches and loops are those of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import weft as wf  # noqa: E402

SIZE = 3


def _double(name: str, *sizes: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.DOUBLE, list(sizes))


def _branch(op: str) -> Any:
    """`op` of `x * w`, both of the graph around."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node(op, ["p"], ["b"])]
    return helper.make_graph(nodes, op, [], [_double("b", SIZE)])


def _if() -> list[Any]:
    branches = {"then_branch": _branch("Tanh"), "else_branch": _branch("Sin")}
    return [helper.make_node("If", ["flag"], ["y"], **branches)]


def _loop() -> list[Any]:
    """Three iterations of `s = tanh(s * w + x)`, each of which is also an output."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "w"], ["p"]),
            helper.make_node("Add", ["p", "x"], ["q"]),
            helper.make_node("Tanh", ["q"], ["t"]),
            helper.make_node("Identity", ["t"], ["each"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            _double("s", SIZE),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            _double("t", SIZE),
            _double("each", SIZE),
        ],
    )
    return [
        helper.make_node("Loop", ["three", "flag", "x"], ["last", "all"], body=body),
        helper.make_node("ReduceSum", ["all", "zero"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["last", "sum"], ["y"]),
    ]


def _scan() -> list[Any]:
    """Running sums of the rows of `x` times the mean of `w`, from the last row on."""
    body = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["w", "zero"], ["mean"], keepdims=0),
            helper.make_node("Mul", ["row", "mean"], ["p"]),
            helper.make_node("Add", ["s", "p"], ["t"]),
            helper.make_node("Sin", ["t"], ["each"]),
        ],
        "body",
        [_double("s"), _double("row")],
        [_double("t"), _double("each")],
    )
    return [
        helper.make_node("ReduceSum", ["w", "zero"], ["start"], keepdims=0),
        helper.make_node(
            "Scan",
            ["start", "x"],
            ["last", "all"],
            body=body,
            num_scan_inputs=1,
            scan_input_directions=[1],
        ),
        helper.make_node("Mul", ["last", "all"], ["y"]),
    ]


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("form", [_if, _loop, _scan])
def test_gradients_are_those_of_differences(form: Any, flag: bool) -> None:
    weights = {
        "w": np.array([0.3, -0.7, 1.1]),
        "three": np.int64(3),
        "zero": np.array([0], np.int64),
    }
    graph = helper.make_graph(
        form(),
        "g",
        [_double("x", SIZE), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [_double("y", SIZE)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant(np.array([0.5, -0.2, 0.9]))
        given = {"x": x, "flag": wf.placeholder_with_default(flag, [])}
        found = wf.onnx.import_model(model, inputs=given, trainable=True)
        session.run(wf.global_variables_initializer())
        y, w = found.outputs["y"], found.variables["w"]
        for value in (x, w):
            assert wf.test.compute_gradient_error(value, [SIZE], y, [SIZE], delta=1e-5) < 1e-8
        for value, slope in zip((x, w), wf.gradients(wf.sin(y), [x, w]), strict=True):
            assert slope is not None
            error = wf.test.compute_gradient_error(value, [SIZE], slope, [SIZE], delta=1e-6)
            assert error < 1e-8
