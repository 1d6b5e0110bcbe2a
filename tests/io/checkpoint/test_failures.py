"""Errors of the operating system: a named error, the old checkpoint intact, no leftovers."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft_exec import Session
from weft_graph import Graph
from weft_graph.variables.reference import Variable
from weft_io import Saver, get_checkpoint_state, latest_checkpoint
from weft_io.checkpoint import journal
from weft_io.checkpoint.journal import names_of
from weft_io.checkpoint.reader import TensorRequest, read_tensors
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_io.files import local_storage
from weft_tensor import dtypes, errors


class Training:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.v = Variable(np.zeros(50_000, np.float32), name="v")
        self.w = Variable(0, name="w", use_resource=True)
        self.saver = Saver(max_to_keep=2)
        self.session = Session()

    def load(self, step: int) -> None:
        self.v.load(np.full(50_000, step, np.float32), self.session)
        self.w.load(step, self.session)

    def save(self, step: int, name: str = "model") -> None:
        self.load(step)
        self.saver.save(self.session, str(self.directory / name), step)

    def restored(self) -> int:
        self.load(-1)
        latest = latest_checkpoint(str(self.directory))
        assert latest is not None
        self.saver.restore(self.session, latest)
        v, w = self.session.run([self.v, self.w])
        assert (v == w).all()
        return int(w)

    def check_files(self) -> None:
        state = get_checkpoint_state(str(self.directory))
        assert state is not None
        expected = {"checkpoint"}
        for path in state.all_model_checkpoint_paths:
            expected |= {os.path.basename(path) + ".index"} | names_of(path)
        wrong = expected ^ set(os.listdir(self.directory))
        # Between the checkpoint and its graph a save may fail, too.
        assert not {name for name in wrong if name not in expected or ".meta" not in name}


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with Graph().as_default():
        made = Training(tmp_path)
        for step in (1, 2):
            made.save(step)
        yield made
        made.session.close()


class FullDisk:
    """A disk with limited space for all writes; the write that exceeds it is partial."""

    def __init__(self, room: int, patch: pytest.MonkeyPatch) -> None:
        self.room = room
        self.real = os.write
        patch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.real(descriptor, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize(
    "room", [0, 1, 30, 100, 300, 500, 1000, 100_000, 200_000, 200_500, 200_900]
)
def test_a_full_disk(training: Training, room: int) -> None:
    before = sorted(training.directory.iterdir())
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            FullDisk(room, patch)
            with pytest.raises(errors.ResourceExhaustedError, match="No space left"):
                training.save(3)
    assert training.restored() == 2
    if room < 200_000:
        assert sorted(training.directory.iterdir()) == before
    training.save(4)
    assert training.restored() == 4
    training.save(5)
    training.check_files()


CALLS = ("open", "write", "fsync", "replace", "unlink", "listdir", "makedirs", "fstat")


class Refusing:
    """The operating system refuses one call, or all from that one on."""

    def __init__(self, at: int, repeated: bool, kind: int, patch: pytest.MonkeyPatch) -> None:
        self.at = at
        self.repeated = repeated
        self.kind = kind
        self.calls = 0
        for name in CALLS:
            patch.setattr(os, name, self.wrapped(getattr(os, name)))

    def wrapped(self, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.at or (self.repeated and self.calls > self.at):
                raise OSError(self.kind, os.strerror(self.kind))
            return real(*args, **kwargs)

        return call


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("kind", [errno.EIO, errno.EACCES, errno.ENOSPC])
def test_any_call_may_fail(training: Training, kind: int, repeated: bool) -> None:
    step = 10
    for at in range(1, 200):
        step += 2
        old = training.restored()
        with pytest.MonkeyPatch.context() as patch:
            refusing = Refusing(at, repeated, kind, patch)
            try:
                training.save(step)
            except errors.OpError as error:
                assert os.strerror(kind) in str(error)
            except OSError as error:
                pytest.fail(f"call {at}: {error!r} is no OpError")
        assert training.restored() in (old, step), at
        training.save(step + 1)
        assert training.restored() == step + 1
        training.save(step + 1)
        training.check_files()
        if refusing.calls < at:
            assert at > 20
            return
    pytest.fail("the save never ended")


def test_short_writes(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[: max(1, len(data) // 2)]))
    training.save(3)
    assert training.restored() == 3


def test_short_reads(training: Training) -> None:
    prefix = latest_checkpoint(str(training.directory))
    assert prefix is not None
    (shard,) = training.directory.glob("model-2.*.safetensors")
    data = shard.read_bytes()
    os.truncate(shard, len(data) - 1)
    with pytest.raises(errors.DataLossError, match=f"must have {len(data)} bytes"):
        read_tensors(prefix, [TensorRequest("v")])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do anything")
def test_a_directory_without_permission(training: Training) -> None:
    training.directory.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(errors.PermissionDeniedError):
            training.save(3)
        assert training.restored() == 2
    finally:
        training.directory.chmod(stat.S_IRWXU)


def test_a_directory_that_is_a_file(training: Training) -> None:
    with pytest.raises(errors.OpError, match="checkpoint"):
        training.save(3, "checkpoint/model")
    assert training.restored() == 2


def test_a_damaged_list_does_not_stop_a_save(training: Training) -> None:
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(200_900, patch)
        with pytest.raises(errors.ResourceExhaustedError):
            training.save(3)
    (training.directory / "checkpoint").write_bytes(b"# damaged")
    training.save(4)
    assert training.restored() == 4
    training.save(5)
    training.check_files()


def test_a_failed_save_keeps_the_list(training: Training) -> None:
    before = training.saver.last_checkpoints
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(1000, patch)
        with pytest.raises(errors.ResourceExhaustedError):
            training.save(3)
    assert training.saver.last_checkpoints == before


class TestLeftovers:
    """The notes of dead and of living writers."""

    def test_a_living_writer_is_left_alone(self, tmp_path: Path) -> None:
        alive = journal.Journal(str(tmp_path), "m", ["m" + SUFFIX])
        (tmp_path / ("m" + SUFFIX)).write_bytes(b"being written")
        write_checkpoint(str(tmp_path / "n"), [Item("a", dtypes.int32, np.int32(1))])
        assert (tmp_path / ("m" + SUFFIX)).exists()
        alive.abandon()
        write_checkpoint(str(tmp_path / "n"), [Item("a", dtypes.int32, np.int32(1))])
        assert len(list(tmp_path.iterdir())) == 2

    def test_a_note_cannot_name_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "precious").write_bytes(b"")
        (tmp_path / "other.meta").write_bytes(b"")
        names = ["precious", "../precious", "other.meta", "", ".", "m/../precious", "m.index"]
        (tmp_path / "m.index").write_bytes(b"x")
        journal.Journal(str(tmp_path), "m", names).abandon()
        journal.Journal(str(tmp_path), "n", names).abandon()
        write_checkpoint(str(tmp_path / "k"), [Item("a", dtypes.int32, np.int32(1))])
        kept = {path.name for path in tmp_path.iterdir()}
        assert {"precious", "other.meta", "m.index"} <= kept

    def test_a_file_that_died_half_written(self, tmp_path: Path) -> None:
        for data in (b"", b"weft check", b'{"format":', b"# crc32", b"\x93\x17\xff\x00" * 25):
            saving = local_storage.LockedFile(str(tmp_path), "m")
            saving.write(data)
            saving.abandon()
        write_checkpoint(str(tmp_path / "k"), [Item("a", dtypes.int32, np.int32(1))])
        assert len(list(tmp_path.iterdir())) == 2

    def test_what_only_looks_alike_is_kept(self, tmp_path: Path) -> None:
        names = [".m.saving", "m.0123456789abcdef.saving", ".m.0123456789ABCDEF.saving", SUFFIX[1:],
                 "k" + SUFFIX, "m" + SUFFIX]  # fmt: skip
        for name in names:
            (tmp_path / name).write_bytes(b"x")
        for _ in range(2):
            write_checkpoint(str(tmp_path / "k"), [Item("a", dtypes.int32, np.int32(1))])
        assert {path.name for path in tmp_path.iterdir()} >= set(names)


SUFFIX = ".data-00000-of-00001-0123456789abcdef.safetensors"
