"""The thread pool of the runtime without memory or threads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft_lite import Interpreter, compiling, errors, library

CHANGED = {
    "calloc": "test_calloc", "free": "test_free", "pthread_create": "test_create",
    "pthread_join": "test_join", "pthread_mutex_init": "test_mutex_init",
    "pthread_mutex_destroy": "test_mutex_destroy", "pthread_cond_init": "test_cond_init",
    "pthread_cond_destroy": "test_cond_destroy",
}  # fmt: skip
MODEL = Path(__file__).parent / "corpus" / "convnet.weftlite"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    if sys.platform == "win32" or not shutil.which("gcc"):
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("pool")
    common = ["gcc", "-std=c11", "-g", "-D_POSIX_C_SOURCE=200809L", "-I", str(compiling.RUNTIME)]
    objects = []
    for source, flags in (
        (compiling.RUNTIME / "threads.c", [f"-D{old}={new}" for old, new in CHANGED.items()]),
        (Path(__file__).with_name("pool.c"), []),
    ):
        objects.append(str(folder / f"{source.stem}.o"))
        subprocess.run([*common, *flags, "-c", str(source), "-o", objects[-1]], check=True)
    linked = str(folder / "pool")
    subprocess.run(["gcc", *objects, "-o", linked, "-lpthread"], check=True)
    return linked


def test_each_failure_in_turn_leaves_fewer_threads_or_no_pool(program: str) -> None:
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    assert [int(word) for word in done.stdout.split()] == [0, 0, 0, 1, 2, 3, 4]


def test_tasks_do_not_wait_for_threads_that_have_not_begun(program: str) -> None:
    command = [program, "late"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="the pool has no threads there")
def test_no_memory_for_a_pool_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.load(), "wl_pool_create", lambda threads: None)
    with pytest.raises(errors.ResourceExhaustedError, match="no memory for a pool of 3 threads"):
        Interpreter(MODEL, num_threads=3)
    assert Interpreter(MODEL, num_threads=1)
