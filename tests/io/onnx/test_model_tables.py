"""The walk over a model before its translation: tables, and models that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import weft as wf  # noqa: E402
from weft_io.onnx.model_tables import Survey  # noqa: E402
from weft_tensor import errors  # noqa: E402

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]


def _value(name: str, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(nodes: Any, functions: Any = ()) -> Any:
    graph = helper.make_graph(nodes, "net", [_value("x", 2)], [_value("y", 2)])
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS)


def _branches(*ops: str, domain: str = "") -> Any:
    """An If whose branches apply ops to x."""
    graphs = []
    for op in ops:
        node = helper.make_node(op, ["x"], [f"{op}_result"], domain=domain)
        graphs.append(helper.make_graph([node], op, [], [_value(f"{op}_result", 2)]))
    return helper.make_node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[-1])


def _function(name: str, *calls: str) -> Any:
    nodes = [helper.make_node(op, ["x"], [f"y{i}"], domain="local") for i, op in enumerate(calls)]
    nodes.append(helper.make_node("Relu", ["x"], ["y"]))
    return helper.make_function("local", name, ["x"], ["y"], nodes, OPSETS)


def test_tables_hold_the_nodes_of_the_main_graph_and_its_subgraphs() -> None:
    condition = helper.make_node("IsInf", ["x"], ["c"])
    call = helper.make_node("Outer", ["x"], ["z"], domain="local")
    model = _model(
        [condition, call, _branches("Relu", "Abs")],
        [_function("Outer", "Inner", "Inner"), _function("Inner")],
    )
    survey = Survey(model)
    assert survey.num_nodes == 5 + 3 + 1
    assert {op: len(nodes) for op, nodes in survey.nodes.items()} == {
        "IsInf": 1,
        "Outer": 1,
        "If": 1,
        "Relu": 1,
        "Abs": 1,
    }
    assert dict(survey.positions) == {"IsInf": [0], "If": [2]}  # of the standard domain
    assert survey.producers == {"c": 0, "z": 1, "y": 2}
    assert survey.num_uses == {"x": 4, "c": 1, "y": 2, "Relu_result": 2, "Abs_result": 2}
    assert survey.node_extents[1].calls == [("local", "Outer")]
    assert survey.node_extents[2].num_nodes == 3
    assert survey.extents["local", "Outer"].calls == [("local", "Inner")] * 2


def test_unknown_ops_of_subgraphs_and_functions_are_listed_together() -> None:
    node = helper.make_node("Odd", ["x"], ["y"], name="inner", domain="other")
    function = helper.make_function("local", "F", ["x"], ["y"], [node], OPSETS)
    model = _model(
        [
            helper.make_node("Strange", ["x"], ["c"], name="first"),
            _branches("Rare", "Rare", domain="other"),
        ],
        [function],
    )
    assert Survey(model).unknown_ops == {
        "Strange": ["first"],
        "other.Rare": ["Rare_result"] * 2,
        "other.Odd": ["inner"],
    }
    with (
        wf.Graph().as_default() as graph,
        pytest.raises(
            errors.UnimplementedError, match=r"(?s)Strange \('first'\).*other\.Odd.*Rare"
        ),
    ):
        wf.onnx.import_model(model)
    assert not graph.get_operations()


@pytest.mark.parametrize("as_bytes", [True, False])
def test_names_that_are_not_utf_8_are_refused(as_bytes: bool) -> None:
    data = _model([helper.make_node("Relu", ["x"], ["y"], name="named")]).SerializeToString()
    data = data.replace(b"named", b"nam\xff\xfe")
    model = data if as_bytes else onnx.load_model_from_string(data)
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="not UTF-8"):
        wf.onnx.import_model(model)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Gemm", [], ["y"], name="bare"),
        helper.make_node("BatchNormalization", ["h", "w", "w", "w", "w"], [], name="bare"),
    ],
    ids=["Gemm", "BatchNormalization"],
)
def test_nodes_without_inputs_or_outputs_are_named(node: Any) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), node]
    if node.op_type == "Gemm":
        nodes = [node]
    model = _model(nodes)
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 1], [1.0])
    model.graph.initializer.append(weights)
    model.graph.input[0].CopyFrom(_value("x", 1, 1, 4))
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError):
        wf.onnx.import_model(model)
