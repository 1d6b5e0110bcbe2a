"""Checkpoints at URLs: the same promises, by other means."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from weft_testing.object_store import Died, MovingStore, ObjectStore, register

from weft_exec import Session
from weft_graph import Graph
from weft_graph.variables.reference import Variable
from weft_io import (
    Saver,
    checkpoint_exists,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
    remove_checkpoint,
)
from weft_io.checkpoint import writer
from weft_io.checkpoint.reader import CheckpointReader, TensorRequest, read_tensors
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_io.files import remote_storage
from weft_tensor import dtypes, errors

SCHEMES = ["memory", "objects", "moving"]


@pytest.fixture(autouse=True)
def stores(tmp_path: Path) -> Iterator[None]:
    register()
    ObjectStore.reset(tmp_path)
    remote_storage._own.clear()
    yield
    ObjectStore.reset(tmp_path)
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return request.param


def names(url: str) -> list[str]:
    fs, inner = fsspec.core.url_to_fs(url)
    return sorted(path.rpartition("/")[2] for path in fs.ls(inner, detail=False))


class Training:
    def __init__(self, url: str, asynchronous: bool = False) -> None:
        self.url = url
        self.graph = Graph()
        with self.graph.as_default():
            self._build(asynchronous)

    def _build(self, asynchronous: bool) -> None:
        self.v = Variable(np.zeros(70_000, np.float32), name="v")
        self.w = Variable(0, name="w", use_resource=True)
        self.saver = Saver(max_to_keep=2, asynchronous=asynchronous)
        self.session = Session()

    def load(self, step: int) -> None:
        self.v.load(np.full(70_000, step, np.float32), self.session)
        self.w.load(step, self.session)

    def save(self, step: int) -> None:
        self.load(step)
        self.saver.save(self.session, f"{self.url}/m", step)
        self.saver.close()

    def restored(self) -> int:
        self.load(-1)
        latest = latest_checkpoint(self.url)
        assert latest is not None
        self.saver.restore(self.session, latest)
        v, w = self.session.run([self.v, self.w])
        assert (v == w).all()
        return int(w)

    def check_names(self, *others: str) -> None:
        state = get_checkpoint_state(self.url)
        assert state is not None
        prefixes = [path.rpartition("/")[2] for path in state.all_model_checkpoint_paths]
        found = [name for name in names(self.url) if not name.endswith(".meta")]
        expected = {f"{prefix}.index" for prefix in prefixes} | {"checkpoint", *others}
        shards = {name for name in found if name.endswith(".safetensors")}
        assert set(found) - shards == expected
        assert sorted(name.partition(".")[0] for name in shards) == sorted(prefixes)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_saving_and_restoring(scheme: str, asynchronous: bool) -> None:
    url = f"{scheme}://bucket/run 1/deep"
    training = Training(url, asynchronous)
    for step in range(4):
        training.save(step)
    assert training.saver.last_checkpoints == [f"{url}/m-2", f"{url}/m-3"]
    assert latest_checkpoint(url) == f"{url}/m-3"
    assert training.restored() == 3
    assert list_variables(url) == [("v", [70_000]), ("w", [])]
    assert load_variable(f"{url}/m-2", "w") == 2
    load_checkpoint(url).verify()
    assert abs(get_checkpoint_mtimes([f"{url}/m-3"])[0] - time.time()) < 3600
    assert checkpoint_exists(f"{url}/m-3") and not checkpoint_exists(f"{url}/m-1")
    training.check_names()
    assert {"m-2.meta", "m-3.meta"} <= set(names(url))
    remove_checkpoint(f"{url}/m-3")
    assert not checkpoint_exists(f"{url}/m-3")
    assert latest_checkpoint(url) == f"{url}/m-2"
    training.session.close()


def test_overwriting_and_relative_paths(scheme: str) -> None:
    url = f"{scheme}://top"
    with Graph().as_default(), Session() as session:
        step = Variable(0, name="step")
        saver = Saver(save_relative_paths=True)
        for value in range(3):
            step.load(value, session)
            assert saver.save(session, f"{url}/m") == f"{url}/m"
        state = get_checkpoint_state(url)
        assert state is not None and state.model_checkpoint_path == f"{url}/m"
        saver.restore(session, f"{url}/m")
        assert session.run(step) == 2
    fs, inner = fsspec.core.url_to_fs(url)
    assert b'model_checkpoint_path: "m"' in fs.cat_file(f"{inner}/checkpoint")
    assert len(names(url)) == 4


def test_a_path_right_below_the_scheme() -> None:
    write_checkpoint("memory://m", [Item("a", dtypes.int32, np.int32(4))])
    assert CheckpointReader("memory://m").get_tensor("a") == 4
    write_checkpoint("memory://d/", [Item("a", dtypes.int32, np.int32(5))])
    assert CheckpointReader("memory://d/").get_tensor("a") == 5


def test_large_tensors_come_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_storage, "_RANGE", 1000)
    monkeypatch.setattr(remote_storage.RemoteOpenedFile, "chunk", 8000)
    value = np.arange(20_011, dtype=np.int16)
    write_checkpoint("objects://b/m", [Item("a", dtypes.int16, value)])
    (found,) = read_tensors("objects://b/m", [TensorRequest("a")])
    assert np.array_equal(found, value)


def test_damage_is_found(tmp_path: Path) -> None:
    write_checkpoint("objects://b/m", [Item("a", dtypes.int32, np.arange(1000, dtype=np.int32))])
    (shard,) = (tmp_path / "b").glob("*.safetensors")
    data = shard.read_bytes()
    shard.write_bytes(data[:-3] + b"\xff" + data[-2:])
    with pytest.raises(errors.DataLossError, match=r"'a' in objects://b/m.*checksum"):
        CheckpointReader("objects://b/m").get_tensor("a")
    shard.write_bytes(data[:-1])
    with pytest.raises(errors.DataLossError, match="must have"):
        CheckpointReader("objects://b/m").get_tensor("a")
    shard.unlink()
    with pytest.raises(errors.NotFoundError, match=r"safetensors is missing"):
        CheckpointReader("objects://b/m").get_tensor("a")


def test_unknown_schemes_and_missing_checkpoints() -> None:
    with pytest.raises(errors.UnimplementedError, match="nosuch"):
        write_checkpoint("nosuch://b/m", [])
    with pytest.raises(errors.NotFoundError):
        CheckpointReader("memory://b/none")
    assert latest_checkpoint("memory://b") is None


def test_file_urls_are_local(tmp_path: Path) -> None:
    write_checkpoint(f"file://{tmp_path}/m", [Item("a", dtypes.int32, np.int32(4))])
    assert len(list(tmp_path.iterdir())) == 2
    assert CheckpointReader(f"file://{tmp_path}/m").get_tensor("a") == 4
    assert load_variable(f"file://{tmp_path}/m", "a") == 4


@pytest.mark.parametrize("scheme", ["objects", "moving"])
class TestFailures:
    def prepared(self, scheme: str) -> Training:
        training = Training(f"{scheme}://b")
        for step in (1, 2):
            training.save(step)
        return training

    def test_any_request_may_fail(self, scheme: str, tmp_path: Path) -> None:
        training = self.prepared(scheme)
        (tmp_path / "b" / "notes.txt").write_text("not the saver's")
        step = 10
        for at in range(1, 200):
            step += 2
            old = training.restored()
            ObjectStore.reset(tmp_path, at)
            try:
                training.save(step)
            except errors.UnavailableError as error:
                assert f"refused request {at}," in str(error)
            calls = len(ObjectStore.calls)
            ObjectStore.reset(tmp_path)
            assert training.restored() in (old, step), at
            training.save(step + 1)
            assert training.restored() == step + 1
            training.save(step + 1)
            training.check_names("notes.txt")
            if calls < at:
                assert at > 20
                return
        pytest.fail("the save never ended")

    def test_death_at_any_request(self, scheme: str, tmp_path: Path) -> None:
        training = self.prepared(scheme)
        step = 10
        for at in range(1, 200, 3):
            step += 2
            old = training.restored()
            ObjectStore.reset(tmp_path, at, dies=True)
            died = False
            try:
                training.save(step)
            except Died:
                died = True
            ObjectStore.reset(tmp_path)
            remote_storage._own.clear()  # as the next process finds it
            training = Training(f"{scheme}://b")
            assert training.restored() in (old, step), at
            state = get_checkpoint_state(f"{scheme}://b")
            assert state is not None
            training.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
            for path in (tmp_path / "b").iterdir():
                os.utime(path, (time.time(), time.time() - 2 * remote_storage.ABANDONED_AFTER))
            training.save(step + 1)
            training.save(step + 1)
            training.save(step + 2)
            training.check_names()
            if not died:
                assert at > 20
                return
        pytest.fail("the save never ended")


def test_others_may_be_at_work(tmp_path: Path) -> None:
    write_checkpoint("objects://b/m", [Item("a", dtypes.int32, np.int32(1))])
    note = tmp_path / "b" / ".m.0123456789abcdef.saving"
    note.write_bytes(b"weft checkpoint journal 1\n[]\n")
    write_checkpoint("objects://b/m", [Item("a", dtypes.int32, np.int32(2))])
    assert note.exists()
    os.utime(note, (0, time.time() - 1.1 * remote_storage.ABANDONED_AFTER))
    write_checkpoint("objects://b/m", [Item("a", dtypes.int32, np.int32(3))])
    assert not note.exists()


def test_an_index_is_replaced_at_once(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the index is being written, readers find the old checkpoint complete."""
    url = f"{scheme}://b/m"
    write_checkpoint(url, [Item("a", dtypes.int32, np.int32(1))])
    seen: list[Any] = []
    real = writer.journal.Journal.add

    def add(self: Any, replaced: Any) -> None:
        real(self, replaced)
        seen.append(CheckpointReader(url).get_tensor("a"))

    monkeypatch.setattr(writer.journal.Journal, "add", add)
    write_checkpoint(url, [Item("a", dtypes.int32, np.int32(2))])
    assert seen == [1, 1] and CheckpointReader(url).get_tensor("a") == 2
    kinds = [call for call in ObjectStore.calls if call in ("put", "mv")]
    assert ("mv" in kinds) == (scheme == "moving")
    assert issubclass(MovingStore, ObjectStore)
