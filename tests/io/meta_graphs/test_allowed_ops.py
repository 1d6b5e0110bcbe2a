"""Restrictions of untrusted graphs: `allowed_ops` of all importing functions, and `safe_ops`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph import proto
from weft_graph.ir.op_def import lookup_op
from weft_io.meta_graphs.scoped_import import import_scoped_meta_graph
from weft_tensor import errors

FORBIDDEN = [
    *("CacheDataset", "FixedLengthRecordDatasetV2", "HoldForSave", "MatchingFiles"),
    *("MergeV2Checkpoints", "PrintV2", "PyFunc", "PyFuncStateless", "PythonGeneratorDataset"),
    *("ReadFile", "ReaderReadUpToV2", "ReaderReadV2", "RestoreV2", "SaveV2", "TFRecordDataset"),
    *("TextLineDataset", "WriteFile", "_Recv", "_Send"),
]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made
    made.check_integrity()


def built(build: Callable[[], Any]) -> proto.GraphDef:
    with wf.Graph().as_default() as strange:
        build()
    return strange.as_graph_def()


def refused(message: proto.GraphDef, text: str, allowed: Any = None) -> errors.OpError:
    """The error, after which the graph must be as before."""
    graph = wf.get_default_graph()
    before = list(graph.nodes), dict(graph.functions), graph.version
    with pytest.raises(errors.PermissionDeniedError, match=text) as raised:
        wf.import_graph_def(message, allowed_ops=wf.safe_ops() if allowed is None else allowed)
    assert (list(graph.nodes), dict(graph.functions), graph.version) == before
    return raised.value


# ------------------------------------------------------------------------------- GraphDefs


def test_the_safe_ops_touch_no_files_and_run_no_code() -> None:
    safe = wf.safe_ops()
    assert safe.isdisjoint(FORBIDDEN)
    assert {"MatMul", "MapDataset", "QueueDequeueV2", "StatefulPartitionedCall", "While"} <= safe
    for op in FORBIDDEN[:-2]:
        known = lookup_op(op).traits
        assert known.reads_files or known.writes_files or known.host_code


def test_all_that_is_not_allowed_is_named() -> None:
    def build() -> None:
        for i in range(12):
            wf.read_file("/etc/hostname", name=f"read_{i}")
        wf.py_func(lambda: 1, [], wf.int32, name="call")

    error = refused(
        built(build), r"PyFunc \(node 'call'\), ReadFile \(node 'read_0', .* and 2 more"
    )
    assert error.details["ops"] == ["PyFunc", "ReadFile"]
    assert len(error.details["nodes"]) == 13 and "node 'read_11'" in error.details["nodes"]


def test_what_is_allowed_besides_is_imported() -> None:
    message = built(lambda: wf.read_file(wf.constant(__file__), name="read"))
    allowed = wf.safe_ops() | {"ReadFile"}
    (read,) = wf.import_graph_def(message, return_elements=["read:0"], allowed_ops=allowed)
    assert wf.Session().run(read) == Path(__file__).read_bytes()
    refused(message, r"not in allowed_ops: Const \(node 'Const'\)$", ["ReadFile"])


def in_a_call() -> None:
    @wf.function
    def inner(x: Any) -> Any:
        return wf.read_file(x)

    @wf.function
    def outer(x: Any) -> Any:
        return inner(x)

    outer(wf.constant("/etc/hostname"))


def in_a_dataset() -> None:
    names = wf.data.Dataset.from_tensors("/etc/hostname")
    wf.data.make_one_shot_iterator(names.map(wf.read_file)).get_next()


def in_a_flat_map() -> None:
    names = wf.data.Dataset.from_tensors("/etc/hostname")
    wf.data.make_initializable_iterator(names.flat_map(wf.data.TextLineDataset))


def in_a_cond() -> None:
    wf.cond(wf.placeholder(wf.bool, []), lambda: wf.read_file("a"), lambda: wf.constant("b"))


@pytest.mark.parametrize("build", [in_a_call, in_a_dataset, in_a_flat_map, in_a_cond])
def test_functions_and_branches_are_checked(build: Callable[[], None]) -> None:
    refused(built(build), "TextLineDataset" if build is in_a_flat_map else "ReadFile")


def test_a_graph_calls_its_own_functions_alone(graph: wf.Graph) -> None:
    in_a_call()
    (name,) = [name for name in graph.functions if "outer" in name]
    called = proto.GraphDef()
    node = called.node.add(name="mine", op="StatefulPartitionedCall")
    node.attr["f"].func.name = name
    refused(called, rf"functions that it does not define: {name} \(node 'mine'\)")
    nested = proto.GraphDef()
    each = nested.node.add(name="cases", op="Case").attr["branches"].list.func.add(name="")
    each.attr["g"].func.name = name
    refused(nested, f"does not define: {name}")
    gradient = proto.GraphDef()
    gradient.library.gradient.add(function_name="f", gradient_func=name)
    refused(gradient, rf"does not define: {name} \(the gradient of 'f'\)")
    old = proto.GraphDef()
    old.node.add(name="mine", op=name)
    refused(old, rf"not in allowed_ops: {name} \(node 'mine'\)")


@pytest.mark.parametrize("allowed", ["MatMul", b"MatMul", 3, {1}])
def test_what_is_no_list_of_ops(allowed: Any) -> None:
    with pytest.raises(errors.InvalidTypeError, match="names of op types, got"):
        wf.import_graph_def(proto.GraphDef(), allowed_ops=allowed)


# ----------------------------------------------------------------------------- MetaGraphs


def meta_graph(build: Callable[[], Any], saver: Any = None) -> proto.MetaGraphDef:
    with wf.Graph().as_default():
        build()
        return wf.train.export_meta_graph(saver_def=saver and saver().as_saver_def())


def own(name: str) -> Callable[[proto.MetaGraphDef], None]:
    def change(message: proto.MetaGraphDef) -> None:
        if name == "the saver":
            message.saver_def.restore_op_name = "mine"
        elif name == "the signature 's'":
            message.signature_def["s"].outputs["y"].name = "mine:0"
        elif name == "the collection 'train_op'":
            message.collection_def["train_op"].node_list.value.append("mine")
        else:
            runner = proto.QueueRunnerDef(queue_name="x", enqueue_op_name=["mine"])
            data = runner.SerializeToString()
            message.collection_def["queue_runners"].bytes_list.value.append(data)

    change.__name__ = name
    return change


WHERE = ["the saver", "the signature 's'", "the collection 'train_op'", "'queue_runners'"]


@pytest.mark.parametrize("where", WHERE)
def test_nothing_names_a_node_that_was_there(graph: wf.Graph, where: str) -> None:
    message = meta_graph(lambda: wf.constant(1.0, name="x"))
    message.graph_def.library.function.add().signature.name = "f"
    own(where)(message)
    wf.write_file("a", "b", name="mine")
    before = list(graph.nodes)
    with pytest.raises(errors.PermissionDeniedError, match=f"{where} names 'mine', a node of the"):
        wf.train.import_meta_graph(message, allowed_ops=wf.safe_ops())
    assert list(graph.nodes) == before and "f" not in graph.functions


def variables() -> None:
    wf.get_variable("v", initializer=2.0)
    wf.get_variable("r", initializer=3.0, use_resource=True)
    parts = wf.fixed_size_partitioner(2)
    whole = wf.get_variable("p", initializer=wf.constant([4.0, 5.0, 6.0]), partitioner=parts)
    wf.identity(wf.convert_to_tensor(whole), name="whole")


def by_own_names() -> Any:
    return wf.train.Saver()


def by_others() -> Any:
    v, r, *parts = wf.global_variables()
    return wf.train.Saver({"a/v": v, "b": r, "c": parts})


def sharded() -> Any:
    return wf.train.Saver(sharded=True, builder=wf.train.BundleSaverBuilder())


@pytest.mark.parametrize("scope", ["", "under"])
@pytest.mark.parametrize("saver", [by_own_names, by_others, sharded])
def test_variables_are_restored_without_the_strangers_saver(
    tmp_path: Path, saver: Callable[[], Any], scope: str
) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        variables()
        wf.train.Saver(name="forgotten").as_saver_def()
        session.run(wf.global_variables_initializer())
        path = saver().save(session, str(tmp_path / "m"))
    prefix = f"{scope}/" if scope else ""
    again = wf.train.import_meta_graph(
        path + ".meta", import_scope=scope or None, allowed_ops=wf.safe_ops()
    )
    types = [node.type for node in wf.get_default_graph().nodes]
    assert types.count("SaveV2") == types.count("RestoreV2") == 1, "those of the new saver"
    with wf.Session() as session:
        again.restore(session, path)
        assert session.run([f"{prefix}v:0", f"{prefix}r/Read/ReadVariableOp:0"]) == [2.0, 3.0]
        np.testing.assert_array_equal(session.run(f"{prefix}whole:0"), [4.0, 5.0, 6.0])


def test_a_saver_whose_ops_are_allowed_is_kept() -> None:
    message = meta_graph(variables, by_own_names)
    allowed = wf.safe_ops() | {"RestoreV2", "SaveV2"}
    found = import_scoped_meta_graph(message, allowed_ops=allowed)
    assert found.saver_def == message.saver_def and not found.restorable


def used_by_others(message: proto.MetaGraphDef) -> None:
    message.graph_def.node.add(name="y", op="Sqrt", input=["save/RestoreV2"]).attr["T"].type = 1


def named_by_others(message: proto.MetaGraphDef) -> None:
    message.collection_def["saved_model_main_op"].node_list.value.append("save/restore_all")


def assigned_to_nothing(message: proto.MetaGraphDef) -> None:
    for node in message.graph_def.node:
        if node.op == "AssignVariableOp" and node.name.startswith("save/"):
            node.input[0] = "nothing"


def keys_of(message: proto.MetaGraphDef) -> Any:
    (node,) = [n for n in message.graph_def.node if n.name == "save/RestoreV2/tensor_names"]
    return node.attr["value"].tensor.string_val


def key_that_is_no_text(message: proto.MetaGraphDef) -> None:
    keys_of(message)[0] = b"\xff"


REFUSED = [used_by_others, named_by_others, assigned_to_nothing, key_that_is_no_text]


@pytest.mark.parametrize("change", REFUSED)
def test_nodes_of_savers_that_do_more_are_refused(
    graph: wf.Graph, change: Callable[[proto.MetaGraphDef], None]
) -> None:
    message = meta_graph(variables, by_own_names)
    change(message)
    with pytest.raises(errors.PermissionDeniedError, match=r"RestoreV2 \(node 'save/RestoreV2'\)"):
        wf.train.import_meta_graph(message, allowed_ops=wf.safe_ops())
    assert not graph.nodes


def test_one_tensor_restores_one_variable(graph: wf.Graph) -> None:
    message = meta_graph(variables, by_own_names)
    keys = keys_of(message)
    keys[-1] = keys[-2]
    with pytest.raises(errors.InvalidArgumentError, match="another variable are both restored"):
        wf.train.import_meta_graph(message, allowed_ops=wf.safe_ops())
    assert not graph.nodes and not wf.global_variables()


def test_a_saver_of_other_state_is_refused() -> None:
    def iterators() -> None:
        iterator = wf.data.make_initializable_iterator(wf.data.Dataset.range(3))
        saveable = wf.data.experimental.make_saveable_from_iterator(iterator)
        wf.add_to_collection(wf.GraphKeys.SAVEABLE_OBJECTS, saveable)

    message = meta_graph(iterators, by_own_names)
    with pytest.raises(errors.PermissionDeniedError, match="RestoreV2"):
        wf.train.import_meta_graph(message, allowed_ops=wf.safe_ops())


def test_saved_models(tmp_path: Path) -> None:
    def export(name: str, main_op: Callable[[], Any]) -> str:
        with wf.Graph().as_default(), wf.Session() as session:
            v = wf.get_variable("v", initializer=2.0)
            y = wf.multiply(v, 3.0, name="y")
            session.run(wf.global_variables_initializer())
            path = str(tmp_path / name)
            wf.saved_model.simple_save(session, path, {"y": y}, {"y": y}, main_op())
        return path

    good = export("good", lambda: None)
    bad = export("bad", lambda: wf.write_file(str(tmp_path / "written"), "x", name="main"))
    with wf.Session() as session:
        wf.saved_model.load(session, ["serve"], good, allowed_ops=wf.safe_ops())
        assert session.run("y:0") == 6.0
        with pytest.raises(errors.PermissionDeniedError, match=r"WriteFile \(node 'main'\)"):
            wf.saved_model.load(session, ["serve"], bad, "again", allowed_ops=wf.safe_ops())
    assert not (tmp_path / "written").exists()
