"""Parts of graphs, frozen and shortened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors, graph_util

BOTH = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def graph() -> Any:
    with wf.Graph().as_default() as made:
        yield made


def model(use_resource: bool) -> None:
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    v = wf.get_variable("v", initializer=[[1.0, 2.0], [3.0, 4.0]], use_resource=use_resource)
    wf.get_variable("unused", [3])
    hidden = wf.identity(x, name="hidden")
    wf.identity(wf.nn.relu(wf.matmul(hidden, v)), name="y")
    wf.identity(wf.gather(v, [1]), name="row")


def named(graph_def: wf.GraphDef) -> dict[str, Any]:
    return {node.name: node for node in graph_def.node}


def run(graph_def: wf.GraphDef, fetches: Any, feeds: Any = None) -> Any:
    with wf.Graph().as_default() as imported, wf.Session() as session:
        wf.import_graph_def(graph_def, name="")
        assert not imported.get_collection(wf.GraphKeys.GLOBAL_VARIABLES)
        return session.run(fetches, feeds)


@BOTH
def test_the_part_that_a_node_needs(use_resource: bool, graph: wf.Graph) -> None:
    model(use_resource)
    whole = graph.as_graph_def()
    part = graph_util.extract_sub_graph(whole, ["hidden", "x"])
    assert [node.name for node in part.node] == ["x", "hidden"]
    assert part.versions == whole.versions
    names = [node.name for node in graph_util.extract_sub_graph(whole, ["y"]).node]
    assert "v" in names and "row" not in names and "unused" not in names
    assert names == [node.name for node in whole.node if node.name in names]


def test_a_part_keeps_what_it_waits_for(graph: wf.Graph) -> None:
    with wf.control_dependencies([wf.no_op(name="first")]):
        wf.constant(1.0, name="a")
    part = graph_util.extract_sub_graph(graph.as_graph_def(), ["a"])
    assert set(named(part)) == {"first", "a"}


def test_a_part_drops_colocation_with_nodes_outside_of_it(graph: wf.Graph) -> None:
    a, b = wf.constant(1.0, name="a"), wf.constant(2.0, name="b")
    with graph.colocate_with(a.op), graph.colocate_with(b.op):
        wf.negative(b, name="c")
    with graph.colocate_with(a.op):
        wf.negative(b, name="d")
    part = wf.graph_util.extract_sub_graph(graph.as_graph_def(), ["c", "d"])
    assert ["_class" in node.attr for node in part.node] == [False, True, False]
    assert list(part.node[1].attr["_class"].list.s) == [b"loc:@b"]
    with wf.Graph().as_default() as copy:
        wf.import_graph_def(part, name="")
    assert copy.get_operation_by_name("c").colocation_groups() == [b"loc:@b"]


def test_parts_that_are_refused(graph: wf.Graph) -> None:
    with pytest.raises(errors.NotFoundError, match="no node named 'absent'"):
        graph_util.extract_sub_graph(graph.as_graph_def(), ["absent"])
    with pytest.raises(TypeError, match="list of names"):
        graph_util.extract_sub_graph(graph.as_graph_def(), "y")  # type: ignore[arg-type]


@BOTH
def test_frozen_variables(use_resource: bool, graph: wf.Graph) -> None:
    model(use_resource)
    feeds = {"x:0": [[1.0, -1.0]]}
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        expected = session.run(["y:0", "row:0"], feeds)
        whole = graph.as_graph_def()
        frozen = graph_util.convert_variables_to_constants(session, whole, ["y", "row"])
    nodes = named(frozen)
    types = {node.op for node in nodes.values()}
    assert nodes["v"].op == "Const" and "GatherV2" in types
    assert not [name for name in types if "Variable" in name or "Resource" in name]
    for got, want in zip(run(frozen, ["y:0", "row:0"], feeds), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@BOTH
def test_variables_that_are_not_to_be_frozen(use_resource: bool, graph: wf.Graph) -> None:
    model(use_resource)
    variable = {False: "VariableV2", True: "VarHandleOp"}[use_resource]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        whole = graph.as_graph_def()
        freeze = graph_util.convert_variables_to_constants
        kept = freeze(session, whole, ["y"], variable_names_whitelist=["unused"])
        assert named(kept)["v"].op == variable
        kept = freeze(session, whole, ["y"], variable_names_blacklist=["v"])
        assert named(kept)["v"].op == variable
        assert named(freeze(session, whole, ["y"], ["v"]))["v"].op == "Const"


@BOTH
def test_freezing_needs_values(use_resource: bool, graph: wf.Graph) -> None:
    model(use_resource)
    with wf.Session() as session, pytest.raises(errors.FailedPreconditionError, match="v"):
        graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])


def test_a_variable_that_is_written_cannot_be_frozen(graph: wf.Graph) -> None:
    variable = wf.get_variable("v", initializer=[1.0], use_resource=True)
    with wf.Session() as session:
        session.run(variable.initializer)
        written = variable.assign_add([1.0], read_value=False)
        with pytest.raises(errors.UnimplementedError, match="supports only reads"):
            graph_util.convert_variables_to_constants(session, graph.as_graph_def(), [written.name])


@BOTH
@pytest.mark.parametrize("output", ["f", "y"])
def test_variables_that_functions_use(use_resource: bool, output: str, graph: wf.Graph) -> None:
    """Function bodies replace calls, even if a call is the requested output."""
    x = wf.placeholder(wf.float32, [2], name="x")
    v = wf.get_variable("v", initializer=3.0, use_resource=use_resource)

    @wf.function(name="f")
    def call(x: Any) -> Any:
        return wf.cond(wf.reduce_sum(x) > 0.0, lambda: x * v, lambda: x + v)

    wf.identity(call(x), name="y")
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), [output])
    assert not frozen.library.function
    assert run(frozen, f"{output}:0", {"x:0": [1, 2]}).tolist() == [3, 6]
    assert run(frozen, f"{output}:0", {"x:0": [-1, -2]}).tolist() == [2, 1]


def test_a_recursive_function_keeps_its_variables(graph: wf.Graph) -> None:
    declared = wf.Declare("f", [("n", wf.int32), ("v", wf.resource)], [("r", wf.float32)])

    @wf.Defun(wf.int32, wf.resource, func_name="f")
    def f(n: Any, handle: Any) -> Any:
        read = lambda: wf.raw_ops.ReadVariableOp(resource=handle, dtype=wf.float32)  # noqa: E731
        return wf.cond(n < 1, read, lambda: declared(n - 1, handle) * 2.0)

    v = wf.get_variable("v", initializer=3.0, use_resource=True)
    wf.identity(f(3, v.handle), name="y")
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert session.run("y:0") == 24
        with pytest.raises(errors.UnimplementedError, match="supports only reads"):
            graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])


def test_nodes_that_only_hand_on_are_left_out(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [2], name="x")
    checked = wf.check_numerics(wf.identity(x, name="a"), "x", name="b")
    with wf.control_dependencies([wf.identity(x, name="waited_for")]):
        waits = wf.identity(checked, name="waits")
    first, second = wf.split(waits, 2)
    wf.add(first, wf.identity(second, name="c"), name="sum")
    wf.identity(first, name="out")
    whole = graph.as_graph_def()
    short = named(graph_util.remove_training_nodes(whole, protected_nodes=["out"]))
    assert not {"a", "b", "c"} & set(short)
    assert {"waited_for", "waits", "out"} <= set(short)
    assert list(short["waits"].input) == ["x", "^waited_for"]
    assert list(short["sum"].input) == ["split", "split:1"]
    assert list(named(whole)["sum"].input) == ["split", "c"]


def test_a_cycle_of_identities_is_refused() -> None:
    loop = wf.GraphDef()
    loop.node.add(name="a", op="Identity", input=["b"])
    loop.node.add(name="b", op="Identity", input=["a"])
    loop.node.add(name="c", op="Neg", input=["a"])
    with pytest.raises(errors.InvalidArgumentError, match="cycle"):
        graph_util.remove_training_nodes(loop)


def test_shapes_by_the_names_of_messages(graph: wf.Graph) -> None:
    wf.split(wf.zeros([4, 3]), 2)
    shape = graph_util.tensor_shape_from_node_def_name
    assert shape(graph, "split").as_list() == shape(graph, "split:1").as_list() == [2, 3]
