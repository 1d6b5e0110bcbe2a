"""Real lack of space: a file system of two megabytes, and a limit on the size of files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from weft_exec import Session
from weft_graph import Graph
from weft_graph.variables.reference import Variable
from weft_io import Saver, get_checkpoint_state, latest_checkpoint
from weft_io.checkpoint.journal import names_of
from weft_tensor import errors

SIZE = 100_000  # float32 elements
ROOM = 2 << 20


class Training:
    def __init__(self, directory: Path, asynchronous: bool) -> None:
        self.directory = directory
        with Graph().as_default():
            self.v = Variable(np.zeros(SIZE, np.float32), name="v")
            self.saver = Saver(max_to_keep=2, asynchronous=asynchronous)
            self.session = Session()

    def save(self, step: int, overwrite: bool = False) -> None:
        self.v.load(np.full(SIZE, step, np.float32), self.session)
        self.saver.save(self.session, str(self.directory / "m"), None if overwrite else step)
        self.saver.close()

    def restored(self) -> int:
        self.v.load(np.full(SIZE, -1, np.float32), self.session)
        latest = latest_checkpoint(str(self.directory))
        assert latest is not None
        self.saver.restore(self.session, latest)
        (value,) = set(self.session.run(self.v).tolist())
        return int(value)

    def check_files(self, *others: str) -> None:
        state = get_checkpoint_state(str(self.directory))
        assert state is not None
        expected = {"checkpoint", *others}
        for path in state.all_model_checkpoint_paths:
            expected |= {os.path.basename(path) + ".index"} | names_of(path)
        wrong = expected ^ set(os.listdir(self.directory))
        # Between the checkpoint and its graph a save may fail, too.
        assert not {name for name in wrong if name not in expected or ".meta" not in name}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room, where this process may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount(8)")
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def leave(place: Path, room: int) -> None:
    """Fill a file system until so many bytes are left."""
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize - room
    (place / "filler").write_bytes(bytes(max(0, free)))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["plain", "asynchronous"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_a_disk_that_fills_up(small: Path, overwrite: bool, asynchronous: bool) -> None:
    training = Training(small, asynchronous)
    training.save(1)
    training.save(2, overwrite)
    step, failed = 2, 0
    page = 4096
    for room in (0, page, 2 * page, 3 * page, 200_000, 4 * SIZE, 4 * SIZE + 4 * page, ROOM):
        old = training.restored()
        step += 1
        leave(small, room)
        try:
            training.save(step, overwrite)
        except errors.ResourceExhaustedError as error:
            assert "No space left" in str(error)
            failed += 1
        assert training.restored() in (old, step), room
        (small / "filler").unlink()
        training.save(step + 1, overwrite)
        step += 1
        assert training.restored() == step
        training.save(step, overwrite)
        training.check_files()
    assert 3 <= failed < 8


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["plain", "asynchronous"])
def test_files_that_may_not_grow(tmp_path: Path, asynchronous: bool) -> None:
    training = Training(tmp_path, asynchronous)
    training.save(1)
    for step, limit in enumerate((0, 10, 100, 1000, 300_000, 4 * SIZE), 2):
        with files_up_to(limit), pytest.raises(errors.ResourceExhaustedError, match="too large"):
            training.save(step)
        assert training.restored() == 1
    training.save(9)
    training.save(10)
    assert training.restored() == 10
    training.check_files()
