"""Graphs with their collections and savers, as MetaGraphs: TensorFlow's and ours."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from weft_testing.recorded import BUNDLES, GRAPHS, expected, same, script

from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.optimizers.moving_averages import ExponentialMovingAverage
from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.control_flow.conditional import cond
from weft_graph.control_flow.loop import while_loop
from weft_graph.ir.builder import constant
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node
from weft_graph.messages import collection_items
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.ops.arithmetic import add, multiply
from weft_graph.ops.array import placeholder
from weft_graph.ops.identity import identity
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_graph.variables.scope import get_variable
from weft_io import Saver, export_meta_graph
from weft_io.meta_graphs.scoped_import import import_scoped_meta_graph, read_meta_graph_file
from weft_io.saving.meta_graph import import_meta_graph
from weft_tensor import dtypes, errors

TRAIN = str(GRAPHS / "train.meta")


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as made:
        yield made
    made.check_integrity()


def message_of(name: str) -> proto.MetaGraphDef:
    return proto.MetaGraphDef.FromString((GRAPHS / name).read_bytes())


class TestFromTensorFlow:
    def test_training_goes_on(self, graph: Graph) -> None:
        wanted = expected()["train"]
        saver = import_meta_graph(TRAIN)
        feed = {f"{name}:0": value for name, value in wanted["feed"].items()}
        fetches = {"loss": "loss:0", "logits": "logits:0", "w": "net/w:0"}
        with Session() as session:
            saver.restore(session, str(GRAPHS / "train"))
            for step, values in enumerate(wanted["values"]):
                if step:
                    session.run("train", feed)
                found = session.run(fetches, feed)
                for name, value in values.items():
                    np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
        assert saver.saver_def.max_to_keep == 7

    def test_collections(self, graph: Graph) -> None:
        import_meta_graph(TRAIN)
        variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        assert [v.name for v in variables] == expected()["train"]["variables"]
        assert all(isinstance(v, Variable) for v in variables)
        trainable = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        assert all(any(v is other for other in variables) for v in trainable)
        averaged = graph.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES)
        assert [v.name for v in averaged] == ["net/w:0", "net/b:0"]
        (step,) = graph.get_collection(GraphKeys.GLOBAL_STEP)
        assert step.dtype.base_dtype is dtypes.int64
        ops = graph.get_collection("train_op")
        assert [op.name for op in ops] == ["minimize", "train"]
        assert [t.name for t in graph.get_collection("losses")] == ["loss:0"]
        assert graph.get_collection("mine") == [b"text"]
        assert graph.get_collection("n") == [3] and graph.get_collection("floats") == [0.5]

    def test_variables_in_a_collection_of_the_users(self, graph: Graph, tmp_path: Path) -> None:
        """The collection has no item type, so its items are restored as graph elements."""
        v = get_variable("v", initializer=1.0)
        for item in (v, v.op, "text"):
            graph.add_to_collection("mixed" if item == "text" else "own", item)
        export_meta_graph(str(tmp_path / "m.meta"))
        with Graph().as_default() as imported:
            import_meta_graph(str(tmp_path / "m.meta"))
            assert [item.name for item in imported.get_collection("own")] == ["v:0", "v"]
            assert imported.get_collection("mixed") == [b"text"]

    def test_new_gradients_through_it(self, graph: Graph) -> None:
        saver = import_meta_graph(TRAIN)
        w = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)[-2]
        (grad,) = gradients(graph.get_tensor_by_name("loss:0"), [w])
        feed = {f"{name}:0": value for name, value in expected()["train"]["feed"].items()}
        with Session() as session:
            saver.restore(session, str(GRAPHS / "train"))
            assert np.abs(session.run(grad, feed)).max() > 0

    @pytest.mark.parametrize("scope", [None, "inner"])
    def test_loops_and_conditionals(self, graph: Graph, scope: str | None) -> None:
        import_meta_graph(str(GRAPHS / "control.meta"), import_scope=scope)
        prefix = f"{scope}/" if scope else ""
        names = [f"{prefix}{name}" for name in ("total:0", "gradient:0", "choice/Merge:0")]
        with Session() as session:
            session.run(global_variables_initializer())
            for n, values in expected()["control"].items():
                assert session.run(names, {f"{prefix}n:0": int(n)}) == pytest.approx(values)

    def test_gradients_through_its_loops(self, graph: Graph) -> None:
        for scope in (None, "again"):
            found = import_scoped_meta_graph(str(GRAPHS / "control.meta"), import_scope=scope)
            lead = f"{scope}/" if scope else ""
            total = graph.get_tensor_by_name(f"{lead}total:0")
            (grad,) = gradients(total, [found.variables["v:0"]])
            choice = graph.get_tensor_by_name(f"{lead}choice/Merge:0")
            (twice,) = gradients(choice, [found.variables["v:0"]])
            with Session() as session:
                session.run(found.variables["v:0"].initializer)
                for n, values in expected()["control"].items():
                    feed = {f"{lead}n:0": int(n)}
                    assert session.run(grad, feed) == pytest.approx(values[1])
                    assert session.run(twice, feed) == (2.0 if int(n) > 2 else 1.0)
        frames = {n.attrs["frame_name"] for n in graph.nodes if n.type == "Enter"}
        assert {"loop/while_context", "again/loop/while_context"} <= frames

    @pytest.mark.parametrize("name", ["model-3.meta", "model.pbtxt"])
    def test_sharded_savers(self, graph: Graph, tmp_path: Path, name: str) -> None:
        saver = import_meta_graph(str(BUNDLES / name), clear_devices=True, import_scope="a/b")
        table = [v for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES) if "table" in v.name]
        with Session() as session:
            saver.restore(session, str(BUNDLES / "model-3"))
            assert same(np.concatenate(session.run(table)), script().grid())
            again = saver.save(session, str(tmp_path / "m"))
            session.run([v.assign(v * 0.0) for v in table])
            saver.restore(session, again)
            assert same(np.concatenate(session.run(table)), script().grid())
        assert sorted(path.suffix for path in tmp_path.iterdir())[-2:] == [".index", ".meta"]

    def test_devices(self, graph: Graph) -> None:
        import_meta_graph(str(BUNDLES / "model-3.meta"))
        assert graph.get_operation_by_name("on1").device == "/device:CPU:1"
        with Graph().as_default() as other:
            import_meta_graph(str(BUNDLES / "model-3.meta"), clear_devices=True)
            assert not any(node.device for node in other.nodes)


class TestGraphDefsFromTensorFlow:
    @pytest.mark.parametrize("name", ["frozen.pb", "frozen.pbtxt"])
    def test_a_frozen_graph(self, name: str) -> None:
        data = (GRAPHS / name).read_bytes()
        if name.endswith("txt"):
            graph_def = text_format.Parse(data.decode(), proto.GraphDef())
        else:
            graph_def = proto.GraphDef.FromString(data)
        (found,) = import_graph_def(graph_def, return_elements=["probabilities:0"], name="") or ()
        image = (np.arange(64).reshape(1, 8, 8, 1) / 64).astype(np.float32)
        with Session() as session:
            value = session.run(found, {"image:0": image})
        np.testing.assert_allclose(value, expected()["frozen"]["probabilities"], atol=1e-6)

    def test_functions_are_kept_and_called(self, graph: Graph) -> None:
        graph_def = proto.GraphDef.FromString((GRAPHS / "function.pb").read_bytes())
        import_graph_def(graph_def, name="")
        assert list(graph.functions) == ["weighted"]
        assert graph.as_graph_def().library == graph_def.library
        with Session() as session:
            found = session.run("y:0", {"x:0": [0.5, -1.0]})
        np.testing.assert_allclose(found, expected()["function"]["y"], rtol=1e-6)
        message = export_meta_graph(strip_default_attrs=True)
        assert [f.signature.name for f in message.graph_def.library.function] == ["weighted"]

    def test_all_unknown_ops_are_named(self, graph: Graph) -> None:
        graph_def = proto.GraphDef()
        for name, op in (("a", "Zork"), ("b", "NoOp"), ("c", "Bork"), ("d", "Zork")):
            graph_def.node.add(name=name, op=op)
        text = r"2 op types are not declared: Bork \(node 'c'\), Zork \(node 'a' and 1 more\)"
        with pytest.raises(errors.NotFoundError, match=text) as caught:
            import_graph_def(graph_def)
        assert caught.value.details["ops"] == ["Bork", "Zork"]
        assert graph.nodes == []


# --------------------------------------------------------------------------- our own


def small_model() -> tuple[Any, Saver]:
    x = placeholder(dtypes.float32, (None,), name="x")
    w = Variable([1.0, 2.0], name="w")
    h = Variable([3.0, 4.0], name="h", use_resource=True)
    parts = get_variable("parts", (4, 2), partitioner=fixed_size_partitioner(2))
    y = add(multiply(x, w), h, name="y")
    graph = y.graph
    graph.add_to_collection("outputs", y)
    graph.add_to_collection("nodes", y.node)
    graph.add_to_collection("words", "one")
    graph.add_to_collection("numbers", 7)
    graph.add_to_collection("floats", 0.25)
    graph.add_to_collection("mixed", "text")
    graph.add_to_collection("mixed", 3)
    graph.add_to_collection("__hidden", 3)
    graph.add_to_collection(("no", "name"), 3)
    saver = Saver(max_to_keep=3)
    graph.add_to_collection(GraphKeys.SAVERS, saver)
    return parts, saver


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("scope", [None, "a", "a/b"])
def test_what_was_exported_comes_back(tmp_path: Path, as_text: bool, scope: str | None) -> None:
    parts, saver = small_model()
    path = str(tmp_path / "sub" / "m.meta")
    with Session() as session:
        session.run(global_variables_initializer())
        prefix = saver.save(session, str(tmp_path / "m"), write_meta_graph=False)
        wanted = session.run(["y:0", parts.as_tensor()], {"x:0": [1.0, 1.0]})
    saver.export_meta_graph(path, as_text=as_text)
    with Graph().as_default() as other, Session() as session:
        again = import_meta_graph(path, import_scope=scope)
        again.restore(session, prefix)
        (y,) = other.get_collection("outputs")
        lead = f"{scope}/" if scope else ""
        assert y.name == f"{lead}y:0" and other.get_collection("nodes") == [y.node]
        named = [v for v in other.get_collection(GraphKeys.GLOBAL_VARIABLES) if "parts" in v.name]
        assert all(list(v._get_save_slice_info().full_shape) == [4, 2] for v in named)
        found = session.run([y, *named], {f"{lead}x:0": [1.0, 1.0]})
        assert same(found[0], wanted[0]) and same(np.concatenate(found[1:]), wanted[1])
        assert other.get_collection("words") == [b"one"]
        assert other.get_collection("numbers") == [7] and other.get_collection("floats") == [0.25]
        assert {"mixed", "__hidden"}.isdisjoint(other.collections)
        (saved,) = other.get_collection(GraphKeys.SAVERS)
        assert saved.saver_def.restore_op_name == again.saver_def.restore_op_name
        assert again.saver_def.max_to_keep == 3
        other.check_integrity()


def test_the_message(graph: Graph) -> None:
    small_model()
    info = proto.MetaGraphDef.MetaInfoDef(meta_graph_version="v7", tags=["t"])
    message = export_meta_graph(meta_info_def=info, collection_list=["words"])
    assert message.meta_info_def.meta_graph_version == "v7"
    assert list(message.collection_def) == ["words"]
    ops = {op.name: op for op in message.meta_info_def.stripped_op_list.op}
    assert set(ops) == {node.type for node in graph.nodes}
    assert [arg.name for arg in ops["MatMul" if "MatMul" in ops else "Mul"].input_arg] == ["x", "y"]
    assert ops["VariableV2"].is_stateful and ops["VariableV2"].output_arg[0].is_ref
    assert message.graph_def.node[0].attr["_output_shapes"].list.shape
    assert not message.HasField("saver_def")


def test_without_a_saver(graph: Graph) -> None:
    Variable([1.0], name="v")
    message = export_meta_graph()
    with Graph().as_default():
        assert isinstance(import_meta_graph(message), Saver)
    with Graph().as_default():
        constant(1.0)
        message = export_meta_graph()
    with Graph().as_default():
        assert import_meta_graph(message) is None


def test_default_attributes_are_stripped(graph: Graph) -> None:
    placeholder(dtypes.float32, name="p")
    multiply(constant([1.0]), constant([2.0]))
    Variable(constant([1.0]), name="v")
    before = export_meta_graph(graph_def=graph.as_graph_def())
    after = export_meta_graph(strip_default_attrs=True)
    assert after.meta_info_def.stripped_default_attrs
    attrs = {node.name: set(node.attr) for node in after.graph_def.node}
    assert "container" not in attrs["v"] and "dtype" in attrs["v"]
    assert len(after.graph_def.node) == len(before.graph_def.node)
    with Graph().as_default() as other:
        import_meta_graph(after)
        assert other.get_operation_by_name("v").attrs["container"] == ""


class TestControlFlow:
    @staticmethod
    def program() -> Any:
        n = placeholder(dtypes.int32, (), name="n")
        v = Variable(1.5, name="v")

        def body(i: Any, total: Any) -> Any:
            _, inner = while_loop(
                lambda j, _: j < i, lambda j, s: (j + 1, s * v), (0, total), maximum_iterations=7
            )
            return i + 1, cond(i % 2 > 0, lambda: inner + v, lambda: inner - 1.0)

        _, total = while_loop(lambda i, _: i < n, body, (0, 1.0), name="loop")
        return identity(total, name="total")

    @pytest.mark.parametrize("scope", [None, "a/b"])
    @pytest.mark.parametrize("differentiated", [False, True])
    def test_contexts_come_back(
        self, graph: Graph, scope: str | None, differentiated: bool
    ) -> None:
        total = self.program()
        v = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)[0]
        message = export_meta_graph()
        (grad,) = gradients(total, [v])
        if differentiated:
            message = export_meta_graph()
        assert len(message.collection_def[GraphKeys.WHILE_CONTEXT].bytes_list.value) == 1
        with Session() as session:
            session.run(v.initializer)
            wanted = [session.run([total, grad], {"n:0": n}) for n in range(5)]
        with Graph().as_default() as other:
            found = import_scoped_meta_graph(message, import_scope=scope)
            lead = f"{scope}/" if scope else ""
            (again,) = gradients(
                other.get_tensor_by_name(f"{lead}total:0"), [found.variables["v:0"]]
            )
            with Session() as session:
                session.run(found.variables["v:0"].initializer)
                for n, values in enumerate(wanted):
                    got = session.run([f"{lead}total:0", again], {f"{lead}n:0": n})
                    assert got == pytest.approx(values)
            kinds = [type(context).__name__ for context in other.contexts.values()]
            assert kinds[:4] == ["WhileContext", "WhileContext", "CondContext", "CondContext"]
            other.check_integrity()

    def test_scopes_of_contexts(self, graph: Graph) -> None:
        with graph.name_scope("part"):
            self.program()
        message = export_meta_graph(export_scope="part")
        assert len(message.collection_def[GraphKeys.WHILE_CONTEXT].bytes_list.value) == 1
        assert (
            not export_meta_graph(export_scope="other")
            .collection_def[GraphKeys.WHILE_CONTEXT]
            .bytes_list.value
        )
        with Graph().as_default() as other:
            found = import_scoped_meta_graph(message)
            (grad,) = gradients(other.get_tensor_by_name("total:0"), [found.variables["v:0"]])
            with Session() as session:
                session.run(found.variables["v:0"].initializer)
                assert session.run(grad, {"n:0": 3}) == pytest.approx(6.75)

    def test_contexts_that_cannot_be(self, graph: Graph) -> None:
        self.program()
        cond(constant(True), lambda: constant(1.0), lambda: constant(2.0))
        for key, kind, change in (
            ("cond_context", proto.CondContextDef, lambda m: setattr(m, "branch", 1)),
            ("cond_context", proto.CondContextDef, lambda m: setattr(m, "pivot_name", "no:0")),
            ("while_context", proto.WhileContextDef, lambda m: m.loop_exit_names.clear()),
            ("while_context", proto.WhileContextDef, lambda m: m.loop_exit_names.append("n:0")),
        ):
            message = export_meta_graph()
            items = message.collection_def[key].bytes_list.value
            item = kind.FromString(items[0])
            change(item)
            items[0] = item.SerializeToString()
            with Graph().as_default() as other:
                with pytest.raises(errors.OpError):
                    import_meta_graph(message)
                assert other.nodes == [] and not other.contexts and not other.has_contexts


class TestScopes:
    def test_only_what_is_in_a_scope(self, graph: Graph) -> None:
        outside = identity(constant([1.0, 1.0]), name="outside")
        with graph.name_scope("part"), graph.control_dependencies([outside]):
            v = Variable([1.0, 2.0], name="v")
            with graph.colocate_with(v.op):
                y = add(v, outside, name="y")
            identity(v, name="waits")
        graph.add_to_collection("ys", y)
        graph.add_to_collection("ys", outside)
        message = export_meta_graph(export_scope="part")
        names = [node.name for node in message.graph_def.node]
        assert "y" in names and "v" in names and not any("part" in name for name in names)
        assert list(message.collection_def["ys"].node_list.value) == ["y:0"]
        unbound = message.collection_def["unbound_inputs"].bytes_list.value
        assert b"$unbound_inputs_outside" in unbound and b"^$unbound_inputs_outside" in unbound
        with Graph().as_default() as other:
            with pytest.raises(errors.InvalidArgumentError, match="map them in input_map"):
                import_meta_graph(message)
            value = constant([5.0, 5.0])
            found = import_scoped_meta_graph(
                message,
                import_scope="new",
                input_map={
                    "$unbound_inputs_outside:0": value,
                    "^$unbound_inputs_outside": value.node,
                },
            )
            assert list(found.variables) == ["v:0"] and found.scope == "new"
            with Session() as session:
                session.run(found.variables["v:0"].initializer)
                assert session.run("new/y:0").tolist() == [6.0, 7.0]
            assert "unbound_inputs" not in other.collections

    def test_a_saver_of_the_scope(self, graph: Graph, tmp_path: Path) -> None:
        with graph.name_scope("part"):
            v = Variable([1.0, 2.0], name="v")
            saver = Saver({"v": v})
        with Session() as session:
            session.run(v.initializer)
            prefix = saver.save(session, str(tmp_path / "m"))
        message = saver.export_meta_graph(export_scope="part")
        assert message.saver_def.restore_op_name == "save/restore_all"
        with Graph().as_default() as other, Session() as session:
            import_meta_graph(message).restore(session, prefix)
            assert session.run("v:0").tolist() == [1.0, 2.0]
            assert other.find_node("part/v") is None
        assert not saver.export_meta_graph(export_scope="par").HasField("saver_def")

    def test_taken_scopes_get_a_number(self, graph: Graph) -> None:
        small_model()
        message = export_meta_graph()
        with Graph().as_default() as other:
            for _ in range(2):
                import_meta_graph(message, import_scope="a")
            names = [v.name for v in other.get_collection(GraphKeys.GLOBAL_VARIABLES)]
            assert "a/w:0" in names and "a_1/w:0" in names
            with other.name_scope("outer"):
                found = import_scoped_meta_graph(message)
            assert found.scope == "outer" and found.variables["w:0"].name == "outer/w:0"

    def test_taken_names(self, graph: Graph) -> None:
        small_model()
        message = export_meta_graph()
        with pytest.raises(errors.InvalidArgumentError, match="which already exists in the graph"):
            import_meta_graph(message)
        count = len(graph.nodes)
        with Graph().as_default() as other:
            constant(1.0, name="x")  # a name that no collection refers to
            import_meta_graph(message)
            assert other.get_operation_by_name("x_1").type == "Placeholder"
        assert len(graph.nodes) == count

    def test_elements_and_maps(self, graph: Graph) -> None:
        small_model()
        message = export_meta_graph(collection_list=[])
        with Graph().as_default():
            value = constant([2.0, 2.0])
            saver, (y, node) = import_meta_graph(
                message, input_map={"x:0": value}, return_elements=["y:0", "w"], import_scope="s"
            )
            assert saver is None
            assert y.name == "s/y:0" and isinstance(node, Node) and node.name == "s/w"

    def test_only_some_collections(self, graph: Graph) -> None:
        small_model()
        message = export_meta_graph()
        with Graph().as_default() as other:
            import_scoped_meta_graph(
                message, restore_collections_predicate=lambda key: key == "words"
            )
            assert other.collections == ["words"]


def test_collections_of_what_is_elsewhere_in_the_graph(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Item:
        def to_proto(self, export_scope: str | None = None) -> Any:
            return None if export_scope == "none/" else proto.ValuesDef(values=["x"])

    def from_protos(messages: Sequence[Any], import_scope: str | None) -> list[None]:
        (message,) = messages
        seen.append((list(message.values), import_scope, get_default_graph()))
        return [None]

    entry = collection_items.ItemFunctions("ValuesDef", from_protos, lambda _: [Item()])
    monkeypatch.setitem(collection_items._registry._table, "contexts", entry)
    message = export_meta_graph()
    assert not export_meta_graph(export_scope="none").collection_def["contexts"].bytes_list.value
    with Graph().as_default() as other:
        import_meta_graph(message, import_scope="a")
        assert seen == [(["x"], "a", other)] and other.collections == []


def test_queue_runners_are_known_to_who_has_not_loaded_them() -> None:
    program = (
        "import sys; from weft_graph.messages.collection_items import item_functions;"
        "assert 'weft_io' not in sys.modules; print(item_functions('queue_runners').message)"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "QueueRunnerDef"


def test_other_savers_are_left_out(graph: Graph) -> None:
    v = Variable([1.0], name="v")
    w = Variable([1.0], name="w", use_resource=True)
    y = add(v, w, name="y")
    first = Saver([v], name="first")
    kept = Saver([v, w], name="second")
    for saver in (first, kept):
        graph.add_to_collection(GraphKeys.SAVERS, saver)
    assert len(kept.export_meta_graph().collection_def["savers"].bytes_list.value) == 2
    message = kept.export_meta_graph(clear_extraneous_savers=True)
    names = {node.name for node in message.graph_def.node}
    assert not any(name.startswith("first") for name in names)
    assert {"second/SaveV2", "second/restore_all", "v/Assign", "w", y.node.name} <= names
    assert list(message.collection_def["savers"].bytes_list.value) == [
        message.saver_def.SerializeToString()
    ]
    bare = export_meta_graph(clear_extraneous_savers=True)
    assert "savers" not in bare.collection_def
    assert not any(node.op in ("SaveV2", "RestoreV2") for node in bare.graph_def.node)
    assert {node.name for node in bare.graph_def.node} >= {"v", "v/Assign", "w", "y"}
    with Graph().as_default() as other:
        import_meta_graph(message)
        other.check_integrity()


def test_only_ops_of_tensorflow(graph: Graph, tmp_path: Path) -> None:
    v = Variable([1.0, 2.0], name="v")
    r = Variable([3.0, 4.0], name="r", use_resource=True)
    twice = [Variable(each.initialized_value() * 2.0) for each in (v, r)]
    ExponentialMovingAverage(0.5).apply([v, r])
    Saver(asynchronous=True)
    own = {"InitializedValue", "ResourceInitializedValue", "HoldForSave"}
    assert own <= {node.type for node in graph.nodes}
    message = export_meta_graph()
    assert not own & {node.op for node in message.graph_def.node}
    with Graph().as_default() as other, Session() as session:
        import_meta_graph(message)
        names = [each.name for each in twice]
        session.run(global_variables_initializer())
        assert [x.tolist() for x in session.run(names)] == [[2.0, 4.0], [6.0, 8.0]]
        session.run([f"{name}/Assign" for name in ("v", "r")], {"v/initial_value:0": [0.5, 0.5]})
        session.run([f"{name[:-2]}/Assign" for name in names])
        assert [x.tolist() for x in session.run(names)] == [[1.0, 1.0], [6.0, 8.0]]
        other.check_integrity()


class TestRefusals:
    def test_files(self, tmp_path: Path) -> None:
        with pytest.raises(errors.NotFoundError, match=r"nothing\.meta"):
            read_meta_graph_file(str(tmp_path / "nothing.meta"))
        path = tmp_path / "m.meta"
        for data in (b"\xff\xff", b"graph_def { nod", (GRAPHS / "train.meta").read_bytes()[:-9]):
            path.write_bytes(data)
            with pytest.raises(errors.DataLossError, match="is not a MetaGraphDef: as a binary"):
                read_meta_graph_file(str(path))
        with pytest.raises(errors.InvalidTypeError, match="path of a file is required"):
            import_meta_graph(3)

    @pytest.mark.parametrize(
        ("change", "kind", "text"),
        [
            (
                lambda m: m.collection_def["variables"].bytes_list.value.append(b"\xff"),
                errors.DataLossError,
                "collection 'variables' is not a VariableDef",
            ),
            (
                lambda m: m.collection_def["outputs"].node_list.value.append("nope:0"),
                errors.NotFoundError,
                "nope",
            ),
            (
                lambda m: m.collection_def["variables"].bytes_list.value.append(
                    proto.VariableDef(initializer_name="nope").SerializeToString()
                ),
                errors.NotFoundError,
                "nope",
            ),
            (
                lambda m: m.graph_def.node.add(name="z", op="Zork"),
                errors.NotFoundError,
                "'Zork' of node 'z' is not declared",
            ),
        ],
    )
    def test_the_graph_stays_as_it_was(self, change: Any, kind: Any, text: str) -> None:
        small_model()
        message = export_meta_graph()
        change(message)
        with Graph().as_default() as other:
            mine = constant(1.0, name="mine")
            with pytest.raises(kind, match=text):
                import_meta_graph(message)
            assert other.nodes == [mine.node] and other.collections == []
            other.check_integrity()


class TestContradictions:
    """Messages that protobuf takes and that make no sense: a named error, and no graph in part."""

    @staticmethod
    def change(message: proto.MetaGraphDef, rng: random.Random) -> None:
        node, other = rng.choice(message.graph_def.node), rng.choice(message.graph_def.node)
        name = rng.choice(["T", "N", "dtype", "value", "_class", "_output_shapes", "frame_name"])
        attr = node.attr[name] if rng.random() < 0.5 else proto.AttrValue()
        tensor = attr.tensor if rng.random() < 0.1 else proto.TensorProto()
        where = rng.randrange(9)
        inputs, values = node.input, message.collection_def["variables"].bytes_list.value
        position = rng.randrange(len(inputs) or 1)
        data = bytearray(rng.choice(values) if values else b"-")
        data[rng.randrange(len(data))] = rng.randrange(256)
        (
            lambda: setattr(node, "op", other.op),
            lambda: inputs.insert(position, other.name + rng.choice(["", ":1", ":7"])),
            lambda: inputs.append("^" + other.name),
            lambda: inputs.__delitem__(slice(position, position + 1)),
            lambda: setattr(node, "name", rng.choice([other.name, "x y", "", "a/b"])),
            lambda: setattr(attr, *rng.choice([("i", 2**62), ("s", b"\xff"), ("type", 23)])),
            lambda: tensor.tensor_shape.dim.add(size=2**40),
            lambda: values.append(bytes(data)),
            lambda: setattr(message.saver_def, "restore_op_name", rng.choice(["", other.name])),
        )[where]()

    def attack(self, number: int, seed: int) -> int:
        rng = random.Random(seed)
        caught = 0
        files = [(GRAPHS / "control.meta").read_bytes(), (BUNDLES / "model-3.meta").read_bytes()]
        for _ in range(number):
            message = proto.MetaGraphDef.FromString(rng.choice(files))
            for _ in range(rng.randrange(1, 4)):
                self.change(message, rng)
            with Graph().as_default() as other:
                try:
                    import_scoped_meta_graph(message)
                except errors.OpError:
                    caught += 1
                    assert other.nodes == [] and other.collections == []
                other.check_integrity()
        return caught

    def test_some(self) -> None:
        assert self.attack(60, 1) > 25

    @pytest.mark.long
    def test_many(self) -> None:
        assert self.attack(5000, 2) > 2000
