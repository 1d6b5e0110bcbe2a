"""Bundles that are written: byte by byte TensorFlow's, whole or not there, merged, removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.recorded import BUNDLES, same, script, tensors

from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.ir.builder import constant
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_graph.variables.scope import get_variable
from weft_io import CheckpointReader, Saver, latest_checkpoint, list_variables, remove_checkpoint
from weft_io.bundle import writer
from weft_io.bundle.merging import merge_bundles
from weft_io.bundle.writer import write_bundle
from weft_io.checkpoint.save_items import Item
from weft_io.files.storage import SAVING
from weft_io.ops.bundle import merge_v2_checkpoints, sharded_filename, sharded_filespec
from weft_io.saving.bundle_saver_builder import BundleSaverBuilder
from weft_tensor import dtypes, errors


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def items() -> list[Item]:
    return [Item(name, dtype, value) for name, (dtype, value) in tensors().items()]


def test_the_files_are_those_of_tensorflow(tmp_path: Path) -> None:
    write_bundle(str(tmp_path / "types"), items())
    assert names(tmp_path) == ["types.data-00000-of-00001", "types.index"]
    for name in names(tmp_path):
        assert (tmp_path / name).read_bytes() == (BUNDLES / name).read_bytes()


def test_slices_in_several_files(tmp_path: Path) -> None:
    grid = script().grid()
    parts = [
        Item("grid", dtypes.float32, script().box(grid, spec), spec, shard)
        for shard, spec in enumerate(script().GRID)
    ]
    write_bundle(str(tmp_path / "m"), [*parts, Item("one", dtypes.int64, np.int64(1), "", 9)])
    assert len(names(tmp_path)) == 6
    reader = CheckpointReader(str(tmp_path / "m"))
    assert same(reader.get_tensor("grid"), grid) and reader.get_tensor("one") == 1


def test_only_some_slices(tmp_path: Path) -> None:
    write_bundle(str(tmp_path / "m"), [Item("v", dtypes.int32, np.int32([5, 6]), "9 3,2")])
    assert list_variables(str(tmp_path / "m")) == [("v", [9])]


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
            st.sampled_from(["float32", "string", "int8", "complex128"]),
            st.lists(st.integers(0, 4), max_size=3),
            st.integers(0, 2),
        ),
        max_size=8,
        unique_by=lambda item: item[0],
    )
)
def test_anything_comes_back(tmp_path_factory: pytest.TempPathFactory, drawn: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    made = []
    for i, (name, kind, shape, shard) in enumerate(drawn):
        rng, dtype = np.random.default_rng(i), dtypes.as_dtype(kind)
        value: Any = rng.integers(0, 100, shape).astype(dtype.numpy)
        if dtype is dtypes.string:
            value = np.empty(shape, object)
            for place in np.ndindex(*shape):
                value[place] = rng.bytes(int(rng.integers(0, 200)))
        made.append(Item(name, dtype, value, "", shard))
    write_bundle(str(folder / "m"), made)
    reader = CheckpointReader(str(folder / "m"))
    assert set(reader.get_variable_to_shape_map()) == {item.name for item in made}
    assert all(same(reader.get_tensor(item.name), item.value) for item in made)
    reader.verify()
    shutil.rmtree(folder)


V = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("made", "kind", "text"),
    [
        ([Item("v", dtypes.float32, V)] * 2, errors.InvalidArgumentError, "written twice"),
        (
            [Item("v", dtypes.float32, V, "4 3 0,2:-"), Item("v", dtypes.float32, V, "4 3 1,2:-")],
            errors.InvalidArgumentError,
            "written twice",
        ),
        ([Item("v", dtypes.float32, V, "4 3 0,3:-")], errors.InvalidArgumentError, "has shape"),
        (
            [Item("v", dtypes.float32, V, "4 3 0,2:-"), Item("v", dtypes.float32, V, "5 3 2,2:-")],
            errors.InvalidArgumentError,
            "parts of different tensors",
        ),
        ([Item("", dtypes.float32, V)], errors.InvalidArgumentError, "without NUL"),
        ([Item("a\0b", dtypes.float32, V)], errors.InvalidArgumentError, "without NUL"),
        ([Item("a\ud800", dtypes.float32, V)], errors.InvalidArgumentError, "UTF-8"),
        ([Item("v", dtypes.resource, V)], errors.InvalidTypeError, "cannot be saved"),
        (
            [Item("v", dtypes.string, np.array(["text"], object))],
            errors.InvalidTypeError,
            "must hold bytes",
        ),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, made: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        write_bundle(str(tmp_path / "m"), made)
    assert names(tmp_path) == []


def test_a_bundle_replaces_another(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    for value, shards in ((1.0, 1), (2.0, 2), (3.0, 1)):
        write_bundle(prefix, [Item("v", dtypes.float32, np.float32(value))])
        assert CheckpointReader(prefix).get_tensor("v") == value
        # The names of the shards are never those of the bundle that is replaced.
        files = [f"m.data-{i:05d}-of-{shards:05d}" for i in range(shards)]
        assert names(tmp_path) == [*files, "m.index"]


def test_a_failed_write_leaves_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "_write_tensor", fail)
    with pytest.raises(errors.ResourceExhaustedError, match="No space left"):
        write_bundle(str(tmp_path / "m"), items())
    assert names(tmp_path) == []


def test_behind_a_url(tmp_path: Path) -> None:
    store = pytest.importorskip("fsspec").filesystem("memory")
    folder = f"memory://{tmp_path.name}"
    v = Variable([1.0, 2.0], name="v")
    saver = Saver(builder=BundleSaverBuilder())
    with Graph.as_default(v.graph), Session() as session:
        session.run(v.initializer)
        saver.save(session, f"{folder}/m", 3)
        session.run(v.assign([0.0, 0.0]))
        latest = latest_checkpoint(folder)
        assert latest == f"{folder}/m-3"
        saver.restore(session, latest)
        assert session.run(v).tolist() == [1.0, 2.0]
    found = {path.rpartition("/")[2] for path in store.find(f"/{tmp_path.name}")}
    assert found == {"checkpoint", "m-3.data-00000-of-00001", "m-3.index", "m-3.meta"}
    CheckpointReader(latest).verify()
    remove_checkpoint(latest)
    assert len(store.find(f"/{tmp_path.name}")) == 1


class TestMerging:
    @staticmethod
    def parts(tmp_path: Path) -> list[str]:
        prefixes = [str(tmp_path / "aside" / f"part-{i}") for i in range(2)]
        for i, prefix in enumerate(prefixes):
            spec = script().ROWS[i]
            row = script().box(script().grid(), spec)
            own = Item(f"own{i}", dtypes.int32, np.int32(i))
            write_bundle(prefix, [own, Item("rows", dtypes.float32, row, spec)])
        return prefixes

    def test_several_become_one(self, tmp_path: Path) -> None:
        merge_bundles(self.parts(tmp_path), str(tmp_path / "m"))
        assert names(tmp_path) == [
            "m.data-00000-of-00002",
            "m.data-00001-of-00002",
            "m.index",
        ]
        reader = CheckpointReader(str(tmp_path / "m"))
        assert (reader.get_tensor("own0"), reader.get_tensor("own1")) == (0, 1)
        assert reader.get_variable_to_shape_map()["rows"] == [5, 7]
        reader.verify()

    def test_directories_stay_if_they_should_or_if_something_is_in_them(
        self, tmp_path: Path
    ) -> None:
        merge_bundles(self.parts(tmp_path), str(tmp_path / "m"), delete_old_dirs=False)
        assert names(tmp_path / "aside") == []
        (tmp_path / "aside" / "mine").write_text("")
        merge_bundles(self.parts(tmp_path), str(tmp_path / "m"))
        assert names(tmp_path / "aside") == ["mine"]

    def test_missing_ones(self, tmp_path: Path) -> None:
        prefixes = [*self.parts(tmp_path), str(tmp_path / "none")]
        with pytest.raises(errors.NotFoundError, match=r"none\.index"):
            merge_bundles(prefixes, str(tmp_path / "m"))
        merge_bundles(prefixes, str(tmp_path / "m"), allow_missing_files=True)
        CheckpointReader(str(tmp_path / "m")).verify()

    def test_the_same_tensor_twice(self, tmp_path: Path) -> None:
        prefixes = self.parts(tmp_path)
        before = names(tmp_path / "aside")
        with pytest.raises(errors.InvalidArgumentError, match="'own0'"):
            merge_bundles([prefixes[0], prefixes[0]], str(tmp_path / "m"))
        assert names(tmp_path / "aside") == before and names(tmp_path) == ["aside"]

    def test_one_onto_itself(self, tmp_path: Path) -> None:
        prefix = self.parts(tmp_path)[0]
        merge_bundles([prefix], prefix)
        CheckpointReader(prefix).verify()

    def test_the_ops(self, tmp_path: Path) -> None:
        prefixes = self.parts(tmp_path)
        with Graph().as_default(), Session() as session:
            session.run(merge_v2_checkpoints(prefixes, str(tmp_path / "m")))
            assert session.run(sharded_filename("a/b", 3, 12)) == b"a/b-00003-of-00012"
            assert session.run(sharded_filespec("a/b", 12)) == b"a/b-?????-of-00012"
            with pytest.raises(errors.InvalidArgumentError):
                sharded_filename(["a"], 3, 12)
            with pytest.raises(errors.InvalidArgumentError):
                merge_v2_checkpoints("a", "b")
        CheckpointReader(str(tmp_path / "m")).verify()


class TestSaver:
    @pytest.fixture(autouse=True)
    def graph(self) -> Iterator[Graph]:
        with Graph().as_default() as made:
            yield made

    @pytest.mark.parametrize("sharded", [False, True])
    def test_a_saver_of_bundles(self, tmp_path: Path, sharded: bool) -> None:
        table = get_variable("table", (5, 7), partitioner=fixed_size_partitioner(2))
        word = Variable(b"one", name="word", use_resource=True)
        devices = proto.ConfigProto(device_count={"CPU": 2})
        with Graph.device(word.graph, "/cpu:1"):
            number = Variable(3, name="number")
        saver = Saver(sharded=sharded, max_to_keep=2, builder=BundleSaverBuilder())
        with Session(config=devices) as session:
            session.run(global_variables_initializer())
            value = session.run(table.as_tensor())
            for step in (1, 2, 3):
                saver.save(session, str(tmp_path / "m"), step)
            shards = 2 if sharded else 1
            files = [f"m-{n}.data-{i:05d}-of-{shards:05d}" for n in (2, 3) for i in range(shards)]
            rest = [f"m-{n}.{kind}" for n in (2, 3) for kind in ("index", "meta")]
            assert names(tmp_path) == sorted(["checkpoint", *files, *rest])
            session.run([number.assign(0), word.assign(b"two")])
            latest = latest_checkpoint(str(tmp_path))
            assert latest is not None
            saver.restore(session, latest)
            assert session.run([number, word]) == [3, b"one"]
        assert same(CheckpointReader(latest).get_tensor("table"), value)

    def test_ours_replaces_a_bundle_and_removes_its_files(self, tmp_path: Path) -> None:
        shutil.copytree(BUNDLES, tmp_path / "run")
        prefix = str(tmp_path / "run" / "model-3")
        Variable([0.0] * 3, name="on0")
        saver = Saver()
        with Session() as session:
            saver.restore(session, prefix)
            saver.save(session, prefix, write_meta_graph=False, write_state=False)
        left = [name for name in names(tmp_path / "run") if name.startswith("model-3.")]
        assert left[0].endswith(".safetensors") and left[1:] == ["model-3.index", "model-3.meta"]

    def test_bundles_are_removed_whole(self, tmp_path: Path) -> None:
        shutil.copytree(BUNDLES, tmp_path / "run")
        remove_checkpoint(str(tmp_path / "run" / "model-3"))
        assert not [name for name in names(tmp_path / "run") if name.startswith("model-3")]
        assert len([name for name in names(tmp_path / "run") if name.startswith("model-2")]) == 4

    def test_nothing_stays_aside(self, tmp_path: Path) -> None:
        v = Variable(constant([1.0, 2.0]), name="v")
        saver = Saver(builder=BundleSaverBuilder())
        with Session() as session:
            with pytest.raises(errors.FailedPreconditionError):
                saver.save(session, str(tmp_path / "m"))
            session.run(v.initializer)
            saver.save(session, str(tmp_path / "m"))
        assert not [name for name in os.listdir(tmp_path) if SAVING.match(name) or "_temp_" in name]

    def test_places_of_killed_savers(self, tmp_path: Path) -> None:
        """The next save removes the leftovers of this checkpoint, and nothing else."""
        left = {"m-7_temp_": True, "m_temp_": True, "mm-7_temp_": False, "m-7-other_temp_": False}
        for name in left:
            (tmp_path / (name + "0" * 32)).mkdir()
            (tmp_path / (name + "0" * 32) / "part-00000-of-00001.index").write_text("")
        (tmp_path / ("m-8_temp_" + "0" * 32)).mkdir()
        (tmp_path / ("m-8_temp_" + "0" * 32) / "mine").write_text("")
        (tmp_path / "m-8_temp_0").mkdir()
        v = Variable(1.0, name="v")
        with Session() as session:
            session.run(v.initializer)
            Saver(builder=BundleSaverBuilder()).save(session, str(tmp_path / "m"), 9)
        found = {name.rstrip("0") for name in names(tmp_path) if "_temp_" in name}
        assert found == {"m-8_temp_", *(name for name, goes in left.items() if not goes)}
