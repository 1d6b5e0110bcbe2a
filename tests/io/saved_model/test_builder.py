"""SavedModels that are written here, loaded here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.ir.builder import constant
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ops.array import placeholder
from weft_graph.ops.control import group, no_op
from weft_graph.ops.matmul import matmul
from weft_graph.ops.state import assign
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_graph.variables.scope import get_variable
from weft_io import CheckpointReader, Saver
from weft_io.files.message_files import unpack
from weft_io.saved_model import constants, main_op
from weft_io.saved_model.builder import SavedModelBuilder, simple_save
from weft_io.saved_model.files import read_saved_model
from weft_io.saved_model.loader import load
from weft_io.saved_model.method_name_updater import MethodNameUpdater
from weft_io.saved_model.signature_def_utils import (
    build_signature_def,
    op_signature_def,
    predict_signature_def,
)
from weft_io.saved_model.utils import get_tensor_from_tensor_info
from weft_io.saving.bundle_saver_builder import BundleSaverBuilder
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as made:
        yield made


def names(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


VARIABLES = ["variables/variables.data-00000-of-00001", "variables/variables.index"]


class Model:
    """A product of an input and two variables, one of them partitioned; initialized."""

    def __init__(self, session: Session) -> None:
        self.x = placeholder(dtypes.float32, (None, 4), name="x")
        self.w = get_variable("w", (4, 3), partitioner=fixed_size_partitioner(2))
        self.v = get_variable("v", (3, 2), use_resource=True)
        self.y = matmul(matmul(self.x, self.w.as_tensor()), self.v, name="y")
        session.run(global_variables_initializer())
        self.feed = np.arange(8, dtype=np.float32).reshape(2, 4)
        self.wanted = session.run(self.y, {self.x: self.feed})


def test_simple_save(tmp_path: Path) -> None:
    export = tmp_path / "a" / "b"
    with Session() as session:
        model = Model(session)
        simple_save(session, export, {"in": model.x}, {"out": model.y})
    assert names(export) == ["saved_model.pb", *VARIABLES]
    assert set(CheckpointReader(str(export / "variables" / "variables"))._index.tensors) == {
        "w",
        "v",
    }
    with Graph().as_default(), Session() as session:
        message = load(session, ["serve"], export)
        signature = message.signature_def["serving_default"]
        assert signature.method_name == "tensorflow/serving/predict"
        x = get_tensor_from_tensor_info(signature.inputs["in"])
        y = get_tensor_from_tensor_info(signature.outputs["out"])
        assert np.array_equal(session.run(y, {x: model.feed}), model.wanted)


@pytest.mark.parametrize("as_text", [False, True])
def test_all_of_it(tmp_path: Path, graph: Graph, as_text: bool) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.txt").write_text(name)
    (tmp_path / "two" / "same.txt").write_text("one")
    paths = [tmp_path / "one/words.txt", tmp_path / "two/words.txt", tmp_path / "one/words.txt"]
    export = tmp_path / "model"
    with Session() as session, graph.device("/cpu:0"):
        model = Model(session)
        assets = [constant(str(path), name=f"asset_{i}") for i, path in enumerate(paths)]
        found = Variable(["", ""], name="found", collections=[GraphKeys.LOCAL_VARIABLES])
        start = group(assign(found, [assets[1], assets[2]]), name="start")
        builder = SavedModelBuilder(str(export))
        builder.add_meta_graph_and_variables(
            session,
            ["train"],
            {"sig": predict_signature_def({"x": model.x}, {"y": model.y})},
            assets_collection=assets,
            main_op=start,
            clear_devices=True,
            strip_default_attrs=True,
        )
        with Graph().as_default():
            get_variable("v", (3, 2), use_resource=True, initializer=None)
            builder.add_meta_graph(["serve", "gpu"], legacy_init_op=no_op(name="nothing"))
        path = builder.save(as_text)
    assert path == str(export / f"saved_model.pb{'txt' if as_text else ''}").encode()
    files = ["assets/words.txt", "assets/words.txt_1", Path(path.decode()).name, *VARIABLES]
    assert names(export) == sorted(files)
    assert (export / "assets" / "words.txt_1").read_text() == "two"
    message, text = read_saved_model(str(export))
    assert text == as_text and message.saved_model_schema_version == 1
    first, second = message.meta_graphs
    assert list(first.meta_info_def.tags) == ["train"]
    assert first.meta_info_def.stripped_default_attrs
    assert not second.meta_info_def.stripped_default_attrs
    assert not any(node.device for node in first.graph_def.node)
    assert list(second.collection_def[constants.MAIN_OP_KEY].node_list.value) == ["nothing"]
    with Graph().as_default(), Session() as session:
        loaded = load(session, ["train"], export)
        told = [
            ["shared_name" in n.attr for n in each.graph_def.node if n.op == "VariableV2"]
            for each in (first, loaded)
        ]
        assert told[0] and not any(told[0]) and all(told[1])
        assert np.array_equal(session.run("y:0", {"x:0": model.feed}), model.wanted)
        files = [str(export / "assets" / name).encode() for name in ("words.txt_1", "words.txt")]
        assert session.run("found:0").tolist() == files
        load(session, ["gpu", "serve"], export, import_scope="other")
        assert session.run("other/v/Read/ReadVariableOp:0").shape == (3, 2)


def test_assets_of_equal_content_are_one_file(tmp_path: Path) -> None:
    export, items = tmp_path / "model", []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.txt").write_text("same")
        items.append(constant(str(tmp_path / name / "words.txt")))
    with Session() as session:
        builder = SavedModelBuilder(export)
        builder.add_meta_graph_and_variables(session, ["t"], assets_collection=items)
        builder.save()
    assert [name for name in names(export) if "assets" in name] == ["assets/words.txt"]
    message, _ = read_saved_model(str(export))
    stored = message.meta_graphs[0].collection_def[constants.ASSETS_KEY].any_list.value
    found = [unpack(item, proto.AssetFileDef) for item in stored]
    assert [asset.filename for asset in found if asset] == ["words.txt"] * 2
    assert {item.type_url for item in stored} == {"type.googleapis.com/tensorflow.AssetFileDef"}


def test_behind_a_url(tmp_path: Path) -> None:
    store = pytest.importorskip("fsspec").filesystem("memory")
    store.pipe_file(f"/{tmp_path.name}/words.txt", b"one")
    asset = constant(f"memory://{tmp_path.name}/words.txt")
    export = f"memory://{tmp_path.name}/model"
    with Session() as session:
        model = Model(session)
        builder = SavedModelBuilder(export)
        builder.add_meta_graph_and_variables(session, ["t"], assets_collection=[asset])
        builder.save()
    assert store.cat_file(f"/{tmp_path.name}/model/assets/words.txt") == b"one"
    with Graph().as_default(), Session() as session:
        load(session, ["t"], export)
        assert np.array_equal(session.run("y:0", {"x:0": model.feed}), model.wanted)


def test_no_variables(tmp_path: Path) -> None:
    with Session() as session:
        y = constant(3.0, name="y")
        simple_save(session, tmp_path / "m", {"x": y}, {"y": y})
    assert names(tmp_path / "m") == ["saved_model.pb"]
    with Graph().as_default(), Session() as session:
        load(session, ["serve"], tmp_path / "m")
        assert session.run("y:0") == 3.0


def test_main_ops(tmp_path: Path, graph: Graph) -> None:
    v = Variable(1.0, name="v")
    local = Variable(2.0, collections=[GraphKeys.LOCAL_VARIABLES])
    again = no_op(name="again")
    with Session() as session:
        session.run(main_op.main_op())
        assert session.run([v, local]) == [1.0, 2.0]
        node = main_op.main_op_with_restore("again")
        assert again in node.control_inputs or again in {
            c for other in node.control_inputs for c in other.control_inputs
        }
        session.run(node)


class TestRefusals:
    def test_a_directory_with_something_in_it(self, tmp_path: Path) -> None:
        SavedModelBuilder(tmp_path)
        (tmp_path / "mine").write_text("")
        with pytest.raises(AssertionError, match="is not empty"):
            SavedModelBuilder(tmp_path)

    def test_the_order_of_calls(self, tmp_path: Path) -> None:
        builder = SavedModelBuilder(tmp_path)
        with pytest.raises(errors.FailedPreconditionError, match="no variables were saved yet"):
            builder.add_meta_graph(["t"])
        with Session() as session:
            Variable(1.0, name="v")
            with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
                builder.add_meta_graph_and_variables(session, ["t"])
            assert not list(tmp_path.iterdir())  # so that the next export is not in its own way
            session.run(global_variables_initializer())
            builder.add_meta_graph_and_variables(session, ["t"])
            with pytest.raises(AssertionError, match="are already saved"):
                builder.add_meta_graph_and_variables(session, ["t"])

    @pytest.mark.parametrize(
        ("signature", "text"),
        [
            (lambda y: {constants.INIT_OP_SIGNATURE_KEY: op_signature_def(y, "k")}, "is reserved"),
            (lambda y: {constants.TRAIN_OP_SIGNATURE_KEY: op_signature_def(y, "k")}, "is reserved"),
            (lambda y: {"s": op_signature_def(y, "k")}, "output 'k' of .* has no element type"),
            (
                lambda y: {"s": build_signature_def({"i": proto.TensorInfo()})},
                "the input 'i' of the signature 's' does not name a tensor",
            ),
        ],
    )
    def test_signatures(self, tmp_path: Path, signature: Any, text: str) -> None:
        y = constant(1.0)
        with Session() as session, pytest.raises(errors.InvalidArgumentError, match=text):
            SavedModelBuilder(tmp_path).add_meta_graph_and_variables(session, [], signature(y))

    def test_assets(self, tmp_path: Path) -> None:
        wrong: list[tuple[Any, Any, str]] = [
            ("path", errors.InvalidTypeError, "must be a tensor with its path"),
            (placeholder(dtypes.string), errors.InvalidTypeError, "of a Placeholder"),
            (constant(1.0), errors.InvalidTypeError, "a string constant"),
            (constant(["a", "b"]), errors.InvalidTypeError, "of one element"),
            (constant(""), errors.InvalidArgumentError, "an empty path"),
            (constant(str(tmp_path / "none")), errors.NotFoundError, "none"),
        ]
        for asset, kind, text in wrong:
            with Session() as session, pytest.raises(kind, match=text):
                SavedModelBuilder(tmp_path / "m").add_meta_graph_and_variables(
                    session, [], assets_collection=[asset]
                )

    def test_main_ops(self, tmp_path: Path, graph: Graph) -> None:
        builder = SavedModelBuilder(tmp_path)
        with Session() as session:
            wrong: Any = constant(1.0)
            with pytest.raises(errors.InvalidTypeError, match="must be an operation"):
                builder.add_meta_graph_and_variables(session, [], main_op=wrong)
            graph.add_to_collection(constants.LEGACY_INIT_OP_KEY, no_op())
            with pytest.raises(errors.InvalidArgumentError, match="already has a main op"):
                builder.add_meta_graph_and_variables(session, [], main_op=no_op())

    def test_savers_of_other_formats(self, tmp_path: Path) -> None:
        v = Variable(1.0, name="v")
        saver = Saver([v], builder=BundleSaverBuilder())
        with Session() as session:
            session.run(v.initializer)
            with pytest.raises(errors.InvalidArgumentError, match="must write bundles"):
                SavedModelBuilder(tmp_path / "a").add_meta_graph_and_variables(
                    session, ["t"], saver=Saver([v])
                )
            builder = SavedModelBuilder(tmp_path / "b")
            builder.add_meta_graph_and_variables(session, ["t"], saver=saver)
            builder.save()
        assert len(names(tmp_path / "b")) == 3


class TestMethodNames:
    @pytest.mark.parametrize("as_text", [False, True])
    def test_they_are_changed(self, tmp_path: Path, as_text: bool) -> None:
        y = constant(1.0)
        with Session() as session:
            builder = SavedModelBuilder(tmp_path)
            signatures = {"s": predict_signature_def({"x": y}, {"y": y})}
            builder.add_meta_graph_and_variables(session, ["a"], signatures)
            builder.add_meta_graph(["a", "b"], signatures)
            builder.save(as_text)
        updater = MethodNameUpdater(str(tmp_path))
        updater.replace_method_name("s", "one")
        updater.replace_method_name("s", "two", ["b", "a"])
        updater.save()
        updater.save(str(tmp_path / "new"))
        for folder in (tmp_path, tmp_path / "new"):
            message, text = read_saved_model(str(folder))
            methods = [graph.signature_def["s"].method_name for graph in message.meta_graphs]
            assert (methods, text) == (["one", "two"], as_text)
        for key, method, tags, reason in (
            ("", "m", None, "are required"),
            ("t", "m", "a", "has no signature 't'"),
            ("s", "m", "c", "no graph of the SavedModel has the tags"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=reason):
                updater.replace_method_name(key, method, tags)


def test_text_is_readable_by_protobuf_alone(tmp_path: Path) -> None:
    with Session() as session:
        y = constant(1.0)
        builder = SavedModelBuilder(tmp_path)
        builder.add_meta_graph_and_variables(session, ["a"])
        builder.save(as_text=True)
    text = (tmp_path / "saved_model.pbtxt").read_text()
    assert text_format.Parse(text, proto.SavedModel()) == read_saved_model(str(tmp_path))[0]
    assert y.name == "Const:0"
