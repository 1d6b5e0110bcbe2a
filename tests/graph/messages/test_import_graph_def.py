"""`import_graph_def`: names, maps, scopes and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from weft_testing.graphs import declared, sample_graph, source

from weft_graph import proto
from weft_graph.ir.builder import create, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.messages.tensor_proto import Budget
from weft_tensor import dtypes, errors


@pytest.fixture
def graph_def() -> proto.GraphDef:
    """Nodes a, b = same(a), c = a + b after ^b, colocated with a."""
    graph = Graph()
    with graph.as_default():
        a = source(name="a")
        b = out("SerSame", [a], name="b")
        with graph.control_dependencies([b.node]), graph.colocate_with(a.node):
            out("SerAdd", [a, a], name="c")
    return graph.as_graph_def()


@pytest.fixture
def graph() -> Any:
    graph = Graph()
    with graph.as_default():
        yield graph
    graph.check_integrity()


def _names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_names(graph: Graph, graph_def: proto.GraphDef) -> None:
    assert import_graph_def(graph_def) is None
    import_graph_def(graph_def)
    import_graph_def(graph_def, name="")
    import_graph_def(graph_def, name="")
    with graph.name_scope("outer"):
        import_graph_def(graph_def, name="inner")
    assert _names(graph) == [
        *("import/a", "import/b", "import/c"),
        *("import_1/a", "import_1/b", "import_1/c"),
        *("a", "b", "c"),
        *("a_1", "b_1", "c_1"),
        *("outer/inner/a", "outer/inner/b", "outer/inner/c"),
    ]
    last = graph.get_operation_by_name("c_1")
    assert [s.name for s in last.inputs] == ["a_1:0", "a_1:0"]
    assert [c.name for c in last.control_inputs] == ["b_1"]
    assert last.colocation_groups() == [b"loc:@a_1"]


def test_return_elements(graph: Graph, graph_def: proto.GraphDef) -> None:
    c, a, b = import_graph_def(graph_def, return_elements=["c", "a:0", b"b"]) or ()
    assert isinstance(c, Node) and isinstance(a, Output) and isinstance(b, Node)
    assert (c.name, a.name, b.name) == ("import/c", "import/a:0", "import/b")
    for wrong, text in (("nope", "is not in graph_def"), ("a:7", "has 1 outputs")):
        with pytest.raises(errors.InvalidArgumentError, match=text):
            import_graph_def(graph_def, return_elements=[wrong])


def test_input_map(graph: Graph, graph_def: proto.GraphDef) -> None:
    p = source(shape=(2, 3), name="p")
    found = import_graph_def(graph_def, input_map={"a": p}, return_elements=["c", "a:0", "a"])
    assert found is not None
    c, tensor, a = found
    assert isinstance(c, Node)
    assert list(c.inputs) == [p, p] and c.outputs[0].dims == (2, 3)
    assert tensor is p
    assert isinstance(a, Node) and a.name == "import/a"
    import_graph_def(graph_def, input_map={"c:0": p}, name="unused_but_there")
    with pytest.raises(errors.InvalidArgumentError, match="not in graph_def: zz:0"):
        import_graph_def(graph_def, input_map={"a:0": p, "zz": p})


def test_input_map_of_control_inputs(graph: Graph, graph_def: proto.GraphDef) -> None:
    p = source(name="p")
    found = import_graph_def(graph_def, input_map={"^b": p.op}, return_elements=["c"])
    assert found is not None and isinstance(found[0], Node)
    assert found[0].control_inputs == [p.op]
    with pytest.raises(errors.InvalidTypeError, match="must map to an operation"):
        import_graph_def(graph_def, input_map={"^b": 3})


def test_input_map_of_values(graph: Graph, graph_def: proto.GraphDef) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="without a name scope"):
        import_graph_def(graph_def, input_map={"a": 3.0}, name="")
    with pytest.raises(errors.InvalidTypeError, match="must be float32"):
        import_graph_def(graph_def, input_map={"a": source(dtypes.int32)})


def test_scopes_around_the_import(graph: Graph, graph_def: proto.GraphDef) -> None:
    p = source(name="p")
    graph_def.node[1].device = "/job:worker"
    with (
        graph.device("/cpu:0"),
        graph.control_dependencies([p.op]),
        graph.colocate_with(p.op),
        graph.gradient_override_map({"SerSame": "Other"}),
    ):
        import_graph_def(graph_def)
    b = graph.get_operation_by_name("import/b")
    assert b.colocation == () and "_gradient_op_type" not in b.attrs
    assert p.op in graph.get_operation_by_name("import/a").control_inputs
    assert "PARENT" not in b.device and b.device.startswith("/job:worker")


def test_device_scope_fills_in(graph: Graph, graph_def: proto.GraphDef) -> None:
    graph_def.node[1].device = "/job:worker"
    with graph.device("/job:ps/device:CPU:0"):
        import_graph_def(graph_def)
    devices = {node.name: node.device for node in graph.nodes}
    assert devices["import/b"] == "/job:worker/device:CPU:0"
    assert devices["import/a"] == devices["import/c"] == "/job:ps/device:CPU:0"


def test_nodes_in_any_order(graph: Graph, graph_def: proto.GraphDef) -> None:
    nodes = list(graph_def.node)[::-1]
    del graph_def.node[:]
    graph_def.node.extend(nodes)
    import_graph_def(graph_def, name="")
    assert _names(graph) == ["a", "b", "c"]


def test_loops(graph: Graph) -> None:
    a = source(name="a")
    merge = create("Merge", [[a, a]], name="merge")
    graph.replace_input(
        merge, 1, out("NextIteration", [merge.outputs[0]], name="next"), reason="loop"
    )
    graph_def = graph.as_graph_def()
    found = import_graph_def(graph_def, return_elements=["merge", "next:0"])
    assert found is not None and isinstance(found[0], Node)
    assert [s.name for s in found[0].inputs] == ["import/a:0", "import/next:0"]
    assert isinstance(found[1], Output) and found[1].consumers() == [found[0]]


def test_defaults(graph: Graph, graph_def: proto.GraphDef) -> None:
    del graph_def.node[2].attr["mode"]
    import_graph_def(graph_def)
    assert graph.get_operation_by_name("import/c").attrs["mode"] == 3


def test_attributes_of_newer_programs(graph: Graph, graph_def: proto.GraphDef) -> None:
    node = graph_def.node[1]
    node.attr["flag"].b = False
    node.attr["later"].list.SetInParent()
    node.attr["incompatible_shape_error"].b = True
    node.attr["index_type"].type = proto.DT_INT32
    import_graph_def(graph_def)
    assert "flag" not in graph.get_operation_by_name("import/b").attrs
    node.attr["flag"].b = True
    with pytest.raises(errors.InvalidArgumentError, match="SerSame has no attribute 'flag'"):
        import_graph_def(graph_def)
    producer = proto.OpList()
    attr = producer.op.add(name="SerSame").attr.add(name="flag", type="bool")
    attr.default_value.b = True
    import_graph_def(graph_def, producer_op_list=producer)
    node.attr["flag"].b = False
    with pytest.raises(errors.InvalidArgumentError, match="flag"):
        import_graph_def(graph_def, producer_op_list=producer)


def _node(index: int, **fields: Any) -> Callable[[proto.GraphDef], None]:
    def change(graph_def: proto.GraphDef) -> None:
        for name, value in fields.items():
            setattr(graph_def.node[index], name, value)

    return change


def _inputs(index: int, *inputs: str) -> Callable[[proto.GraphDef], None]:
    def change(graph_def: proto.GraphDef) -> None:
        graph_def.node[index].input[:] = inputs

    return change


def _attr(index: int, name: str, **fields: Any) -> Callable[[proto.GraphDef], None]:
    def change(graph_def: proto.GraphDef) -> None:
        graph_def.node[index].attr[name].CopyFrom(proto.AttrValue(**fields))

    return change


def _shapes(index: int, *shapes: int | tuple[int, ...]) -> Callable[[proto.GraphDef], None]:
    def change(graph_def: proto.GraphDef) -> None:
        for sizes in shapes:
            shape = graph_def.node[index].attr["_output_shapes"].list.shape.add()
            for size in sizes if isinstance(sizes, tuple) else (sizes,):
                shape.dim.add(size=size)

    return change


def _colocate(name: str) -> Callable[[proto.GraphDef], None]:
    groups = proto.AttrValue.ListValue(s=[f"loc:@{name}".encode()])
    return _attr(2, "_class", list=groups)


def _class_of_bytes(graph_def: proto.GraphDef) -> None:
    graph_def.node[2].attr["_class"].list.s[:] = [b"loc:@\xff"]


def _control_back_edge(graph_def: proto.GraphDef) -> None:
    graph_def.node[1].op = "NextIteration"
    graph_def.node[2].op = "Merge"
    graph_def.node[2].attr["N"].i = 2
    del graph_def.node[2].attr["mode"]
    graph_def.node[1].input[:] = ["c"]
    graph_def.node[2].input[:] = ["a", "a", "^b"]


def _versions(**fields: Any) -> Callable[[proto.GraphDef], None]:
    def change(graph_def: proto.GraphDef) -> None:
        graph_def.versions.CopyFrom(proto.VersionDef(**fields))

    return change


def _contradiction(graph_def: proto.GraphDef) -> None:
    _shapes(1, 2)(graph_def)
    _shapes(2, 9)(graph_def)
    graph_def.node[2].input[0] = "b"


def _without_type(graph_def: proto.GraphDef) -> None:
    del graph_def.node[1].attr["T"]


@pytest.mark.parametrize(
    ("change", "kind", "text", "where"),
    [
        (_node(1, op="Zork"), errors.NotFoundError, "'Zork' of node 'b' is not declared", "b"),
        (_node(1, name="a"), errors.InvalidArgumentError, "'a' is not unique", "a"),
        (_node(1, name="_b"), errors.InvalidArgumentError, "not a valid name", "_b"),
        (_node(1, name=""), errors.InvalidArgumentError, "not a valid name", None),
        (_node(1, device="/bad:x"), errors.InvalidArgumentError, "/bad:x", "b"),
        (_inputs(1, "zzz"), errors.InvalidArgumentError, "'zzz' of node 'b'", "b"),
        (_inputs(1, "c"), errors.InvalidArgumentError, "2 nodes are on or after a cycle", None),
        (_inputs(1, "b"), errors.InvalidArgumentError, "on or after a cycle.*: b, c", None),
        (_inputs(1, "a:3"), errors.InvalidArgumentError, "a:3 does not exist", "b"),
        (_inputs(1, "a:-1"), errors.InvalidArgumentError, "does not name a tensor", "b"),
        (_inputs(1, "a", "a"), errors.InvalidArgumentError, "takes 1 inputs", "b"),
        (_inputs(2, "a"), errors.InvalidArgumentError, "takes 2 inputs", "c"),
        (_inputs(2, "^b", "a"), errors.InvalidArgumentError, "after a control input", "c"),
        (_inputs(2, "a", "a", "^q"), errors.InvalidArgumentError, "'q' of node 'c'", "c"),
        (_attr(1, "T", type=3), errors.InvalidArgumentError, "must be int32, got", "b"),
        (_attr(1, "T", i=3), errors.InvalidArgumentError, "must be of type type, got 'i'", "b"),
        (_attr(1, "T", type=34), errors.InvalidTypeError, "34 is unknown", "b"),
        (_attr(2, "T", type=2), errors.InvalidTypeError, "must be one of", "c"),
        (_attr(1, "T"), errors.InvalidArgumentError, "a value is required", "b"),
        (_attr(1, "T", placeholder="x"), errors.InvalidArgumentError, "got placeholder", "b"),
        (_colocate("q"), errors.InvalidArgumentError, "colocated with 'loc:@q'", "c"),
        (_shapes(0, 2, 2), errors.InvalidArgumentError, "has 2 shapes for 1 outputs", "a"),
        (_class_of_bytes, errors.InvalidArgumentError, "_class must be a list", "c"),
        (
            _attr(2, "_class", i=3),
            errors.InvalidArgumentError,
            "_class must be a list of names",
            "c",
        ),
        (_attr(0, "_output_shapes", b=True), errors.InvalidArgumentError, "a list of sh", "a"),
        (_control_back_edge, errors.InvalidArgumentError, "2 nodes are on or after a cycle", None),
        (_contradiction, errors.InvalidArgumentError, r"_output_shapes has \[9\]", "c"),
        (_shapes(1, -2), errors.InvalidArgumentError, "-1 or more", "b"),
        (_versions(min_consumer=9999), errors.InvalidArgumentError, "needs a reader of", None),
        (_versions(bad_consumers=[134]), errors.InvalidArgumentError, "excludes readers", None),
        (_without_type, errors.InvalidArgumentError, "requires the attribute T", "b"),
    ],
)
def test_refusals(
    graph: Graph,
    graph_def: proto.GraphDef,
    change: Callable[[proto.GraphDef], None],
    kind: type[errors.OpError],
    text: str,
    where: str | None,
) -> None:
    kept = source(name="kept")
    names = dict(graph._names)
    change(graph_def)
    with pytest.raises(kind, match=text) as caught:
        import_graph_def(graph_def, name="")
    assert (caught.value.node or None) == where
    assert _names(graph) == ["kept"] and kept.consumers() == [] and graph._names == names


def test_only_our_messages(graph: Graph) -> None:
    with pytest.raises(errors.InvalidTypeError, match="must be a GraphDef"):
        import_graph_def("graph")


def test_output_shapes_refine(graph: Graph, graph_def: proto.GraphDef) -> None:
    _shapes(1, (2, 5))(graph_def)
    import_graph_def(graph_def, name="")
    b = graph.get_operation_by_name("b")
    assert b.outputs[0].dims == (2, 5) and "_output_shapes" not in b.attrs


def test_shapes_of_handles_are_not_compared(graph: Graph) -> None:
    handle = create("VarHandleOp", (), {"dtype": dtypes.float32, "shape": (2,)}, name="v")
    graph_def = graph.as_graph_def()
    _shapes(0, (2,))(graph_def)
    import_graph_def(graph_def, name="again")
    assert graph.get_operation_by_name("again/v").outputs[0].dims == handle.outputs[0].dims


def test_attributes_that_only_inform(graph: Graph) -> None:
    create("VarHandleOp", (), {"dtype": dtypes.float32, "shape": (2,)}, name="v")
    graph_def = graph.as_graph_def()
    graph_def.node[0].attr["debug_name"].s = b"anything"
    producer = proto.OpList()
    producer.op.add(name="VarHandleOp").attr.add(
        name="debug_name", type="string"
    ).default_value.s = b""
    for known in (None, producer):
        import_graph_def(graph_def, producer_op_list=known)


def test_huge_claims(graph: Graph) -> None:
    graph_def = proto.GraphDef()
    node = graph_def.node.add(name="m", op="SerMany")
    node.attr["T"].type = proto.DT_FLOAT
    node.attr["N"].i = 2**62
    with pytest.raises(errors.InvalidArgumentError, match="must be from 0 to"):
        import_graph_def(graph_def)


def test_repeated_values_share_a_budget(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_graph.messages.node_reader.Budget", lambda **_: Budget(1000))
    graph_def = proto.GraphDef()
    for i in range(5):
        node = graph_def.node.add(name=f"v{i}", op="SerValue")
        node.attr["dtype"].type = proto.DT_INT8
        node.attr["value"].tensor.dtype = proto.DT_INT8
        node.attr["value"].tensor.tensor_shape.dim.add(size=400)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"v2 would expand to 400 .* 200 bytes remain"
    ):
        import_graph_def(graph_def)


@pytest.mark.parametrize("text", [b"", b"x" * 500], ids=["empty", "long"])
def test_repeated_strings_are_tied_to_the_size_of_the_file(graph: Graph, text: bytes) -> None:
    def with_shape(count: int) -> proto.GraphDef:
        graph_def = proto.GraphDef()
        node = graph_def.node.add(name="s", op="Const")
        node.attr["dtype"].type = proto.DT_STRING
        node.attr["value"].tensor.dtype = proto.DT_STRING
        node.attr["value"].tensor.tensor_shape.dim.add(size=count)
        node.attr["value"].tensor.string_val.append(text)
        return graph_def

    for count in (2**22, 2**27, 2**40):
        with pytest.raises(errors.InvalidArgumentError, match="would repeat a string"):
            import_graph_def(with_shape(count))
    import_graph_def(with_shape(10_000))
    assert graph.nodes[0].outputs[0].dims == (10_000,)


def test_nested_functions_end_somewhere(graph: Graph) -> None:
    graph_def = proto.GraphDef()
    func = graph_def.node.add(name="k", op="SerKinds").attr["a_func"].func
    for _ in range(50):
        func = func.attr["f"].func
    func.name = "innermost"
    with pytest.raises(errors.InvalidArgumentError, match="nested too deeply"):
        import_graph_def(graph_def)


@pytest.fixture(scope="module")
def sample_bytes() -> bytes:
    with declared():
        return sample_graph().as_graph_def(add_shapes=True).SerializeToString()


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes(sample_bytes: bytes, changes: list[tuple[int, int]]) -> None:
    from google.protobuf.message import DecodeError

    damaged = bytearray(sample_bytes)
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    graph = Graph()
    try:
        with graph.as_default():
            import_graph_def(proto.GraphDef.FromString(bytes(damaged)), name="")
    except (DecodeError, errors.OpError):
        assert graph.nodes == []
    graph.check_integrity()
