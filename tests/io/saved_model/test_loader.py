"""SavedModels that TensorFlow wrote."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft_testing.recorded import SAVED_MODELS, expected

from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.ir.builder import constant
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.indexed_slices import SparseTensor
from weft_io.files.message_files import pack, write_message
from weft_io.saved_model import constants, tag_constants
from weft_io.saved_model.files import read_saved_model
from weft_io.saved_model.loader import (
    SavedModelLoader,
    contains_saved_model,
    load,
    maybe_saved_model_directory,
)
from weft_io.saved_model.signature_def_utils import is_valid_signature
from weft_io.saved_model.utils import get_tensor_from_tensor_info
from weft_tensor import errors

SIMPLE = SAVED_MODELS / "simple"
RICH = SAVED_MODELS / "rich"


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as made:
        yield made
    made.check_integrity()


@pytest.mark.parametrize("scope", [None, "a/b"])
def test_a_simple_one(scope: str | None) -> None:
    wanted = expected()["simple"]
    with Session() as session:
        message = load(session, [tag_constants.SERVING], SIMPLE, scope)
        signature = message.signature_def["serving_default"]
        x = get_tensor_from_tensor_info(signature.inputs["x"], import_scope=scope)
        y = get_tensor_from_tensor_info(signature.outputs["y"], import_scope=scope)
        assert session.run(y, {x: wanted["x"]}).tolist() == wanted["y"]


def test_one_as_text_with_assets_and_a_main_op(graph: Graph) -> None:
    with Session() as session:
        message = load(session, {"serve"}, str(RICH))
        path = session.run("path:0").decode()
        assert path == str(RICH / "assets" / "words.txt_1")
        assert Path(path).read_text() == "three\n"
        scores = session.run("scores:0", {"examples:0": [b"", b""]})
        assert scores.tolist() == [[1.0, 2.0], [1.0, 2.0]]
        signatures = message.signature_def
        assert {name: is_valid_signature(s) for name, s in signatures.items()} == {
            "serving_default": True,
            "regress": True,
            "sparse": True,
        }
        sparse = get_tensor_from_tensor_info(signatures["sparse"].inputs["s"])
        assert isinstance(sparse, SparseTensor)
        total = get_tensor_from_tensor_info(signatures["sparse"].outputs["total"])
        value = ([[0, 0], [1, 2]], [1.5, 2.0], [3, 3])
        feeds = dict(zip((sparse.indices, sparse.values, sparse.dense_shape), value, strict=True))
        assert session.run(total, feeds) == 3.5


def test_several_graphs_in_one_session(graph: Graph) -> None:
    with Session() as session:
        load(session, ["serve"], RICH, import_scope="a")
        load(session, ["gpu", "train"], RICH, import_scope="a")
        load(session, ["serve"], SIMPLE)
        assert session.run("a/path:0").endswith(b"words.txt_1")
        (plus,) = graph.get_collection("outputs")
        assert plus.name == "a_1/plus:0" and session.run(plus).tolist() == [2.0, 3.0]
        names = {v.name for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)}
        assert names == {"a/v:0", "a_1/v:0", "w:0"}


def test_arguments_of_the_import_are_passed_on(graph: Graph) -> None:
    with Session() as session:
        x = constant([[2.0, 0.0]])
        load(session, ["serve"], SIMPLE, "m", input_map={"x:0": x}, clear_devices=True)
        assert session.run("m/y:0").tolist() == [[2.0, 4.0]]


def test_step_by_step(graph: Graph) -> None:
    loader = SavedModelLoader(SIMPLE)
    assert loader.export_dir == str(SIMPLE)
    assert loader.variables_path == str(SIMPLE / "variables" / "variables")
    assert len(loader.saved_model.meta_graphs) == 1
    saver, elements = loader.load_graph(graph, ["serve"], return_elements=["y:0"])
    with Session() as session:
        loader.restore_variables(session, saver)
        loader.run_init_ops(session, ["serve"])
        assert session.run(elements[0], {"x:0": [[1.0, 0.0]]}).tolist() == [[1.0, 2.0]]
        with pytest.raises(errors.InvalidArgumentError, match="a saver is required"):
            loader.restore_variables(session, None)


def test_whether_there_is_one(tmp_path: Path) -> None:
    assert maybe_saved_model_directory(SIMPLE) and contains_saved_model(str(RICH))
    assert not maybe_saved_model_directory(tmp_path)
    assert not contains_saved_model(tmp_path / "nothing")
    with pytest.raises(errors.NotFoundError, match="there is no SavedModel in") as caught:
        load(None, ["serve"], tmp_path)
    assert isinstance(caught.value, OSError)  # what programs for TensorFlow catch


def test_other_tags() -> None:
    with Session() as session:
        text = r"no graph with the tags \['gpu'\]; there are \[\['serve'\], \['gpu', 'train'\]\]"
        with pytest.raises(errors.NotFoundError, match=text):
            load(session, ["gpu"], RICH)
        with pytest.raises(RuntimeError):
            load(session, [], RICH)


class TestDamage:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        shutil.copytree(RICH, tmp_path / "model")
        return tmp_path / "model"

    def test_the_message(self, model: Path) -> None:
        path = model / constants.SAVED_MODEL_FILENAME_PBTXT
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(errors.DataLossError, match="is not a SavedModel: as text"):
            SavedModelLoader(model)
        (model / constants.SAVED_MODEL_FILENAME_PB).write_bytes(b"\xff")
        with pytest.raises(errors.DataLossError, match="is not a SavedModel: as a binary"):
            SavedModelLoader(model)

    def test_the_variables(self, model: Path) -> None:
        path = model / "variables" / "variables.data-00000-of-00001"
        path.write_bytes(path.read_bytes()[:-1])
        with Session() as session, pytest.raises(errors.DataLossError, match=r"variables\.data"):
            load(session, ["serve"], model)
        (model / "variables" / "variables.index").unlink()
        with Graph().as_default(), Session() as session, pytest.raises(errors.NotFoundError):
            load(session, ["serve"], model)

    @pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "", "..\\b"])
    def test_assets_that_lead_elsewhere(self, model: Path, name: str) -> None:
        message, _ = read_saved_model(str(model))
        asset = proto.AssetFileDef(filename=name, tensor_info=proto.TensorInfo(name="first:0"))
        items = message.meta_graphs[0].collection_def[constants.ASSETS_KEY].any_list.value
        items.append(pack(asset))
        write_message(str(model / constants.SAVED_MODEL_FILENAME_PB), message)
        with (
            Session() as session,
            pytest.raises(errors.InvalidArgumentError, match="the name of an asset"),
        ):
            load(session, ["serve"], model)

    def test_two_main_ops(self, model: Path) -> None:
        message, _ = read_saved_model(str(model))
        names = message.meta_graphs[0].collection_def[constants.MAIN_OP_KEY].node_list.value
        names.append("v")
        write_message(str(model / constants.SAVED_MODEL_FILENAME_PB), message)
        with (
            Session() as session,
            pytest.raises(errors.InvalidArgumentError, match="one main op at most"),
        ):
            load(session, ["serve"], model)
