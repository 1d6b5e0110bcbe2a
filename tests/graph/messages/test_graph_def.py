"""Graphs to GraphDef and back."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format
from weft_testing.graphs import assert_same_graph, sample_graph, source, value

from weft_graph import proto
from weft_graph.ir.builder import create, out
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.graph import Graph
from weft_graph.messages.import_graph_def import import_graph_def
from weft_tensor import dtypes, errors


def _imported(graph_def: proto.GraphDef) -> Graph:
    graph = Graph()
    with graph.as_default():
        import_graph_def(graph_def, name="")
    return graph


def test_everything_comes_back() -> None:
    graph = sample_graph()
    back = _imported(graph.as_graph_def(add_shapes=True))
    assert_same_graph(graph, back, float_bits=32, durable=False)


def test_without_shapes_the_rules_give_them() -> None:
    graph = sample_graph()
    back = _imported(graph.as_graph_def())
    assert_same_graph(graph, back, float_bits=32, durable=False, shapes=False)
    assert graph.get_tensor_by_name("layer/SerAdd:0").dims == (2, None)
    assert back.get_tensor_by_name("layer/SerAdd:0").dims is None


@pytest.mark.parametrize("form", ["binary", "text"])
def test_forms(form: str) -> None:
    graph_def = sample_graph().as_graph_def(add_shapes=True)
    if form == "binary":
        back = proto.GraphDef.FromString(graph_def.SerializeToString())
    else:
        back = text_format.Parse(text_format.MessageToString(graph_def), proto.GraphDef())
    assert back == graph_def
    assert_same_graph(_imported(graph_def), _imported(back), durable=False)


def test_form_of_a_node() -> None:
    graph = Graph()
    with graph.as_default(), graph.device("/cpu:0"):
        many = create("SerMany", [[source(name="a"), source(name="b")]], name="m")
        with graph.control_dependencies([graph.nodes[0]]):
            out("SerSame", [many.outputs[1]], name="c")
    node_def = graph.get_operation_by_name("c").node_def
    assert node_def == graph.as_graph_def().node[3]
    assert (node_def.op, list(node_def.input)) == ("SerSame", ["m:1", "^a"])
    assert node_def.device == "/device:CPU:0"
    assert node_def.attr["T"].type == proto.DT_FLOAT
    assert list(graph.get_operation_by_name("m").node_def.input) == ["a", "b"]


def test_from_version_and_shapes() -> None:
    graph = sample_graph()
    tail = graph.as_graph_def(from_version=5)
    assert [n.name for n in tail.node] == [n.name for n in graph.nodes[5:]]
    assert tail.versions.producer == 134
    shapes = graph.as_graph_def(add_shapes=True).node[0].attr["_output_shapes"].list.shape
    assert [d.size for d in shapes[0].dim] == [2, -1]


def test_functions() -> None:
    graph_def = proto.GraphDef()
    graph_def.library.function.add().signature.name = "f"
    graph = _imported(graph_def)
    assert list(graph.functions) == ["f"]
    assert graph.as_graph_def().library == graph_def.library
    graph.functions["g"] = object()
    with pytest.raises(errors.UnimplementedError, match="cannot be serialized"):
        graph.as_graph_def()


def test_what_has_no_form() -> None:
    graph = Graph()
    with graph.as_default():
        node = source().node
    node.attrs["_odd"] = (1, "two")
    with pytest.raises(errors.InvalidArgumentError, match="_odd") as caught:
        graph.as_graph_def()
    assert caught.value.node == "source"


def test_quantized_constants_keep_their_type() -> None:
    graph = Graph()
    with graph.as_default():
        value(np.int8([1, 2]), dtypes.qint8, "q")
    graph_def = graph.as_graph_def()
    assert graph_def.node[0].attr["value"].tensor.dtype == proto.DT_QINT8
    assert _imported(graph_def).nodes[0].attrs["value"].dtype == np.int8


def test_functions_as_attributes() -> None:
    assert NameAttrs("f", {"a": 1}) == NameAttrs("f", {"a": 1})
    assert NameAttrs("f", {"a": 1}) != NameAttrs("f", {"a": 2})
    assert len({NameAttrs("f"), NameAttrs("f")}) == 1
