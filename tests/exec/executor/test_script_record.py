"""Steps by kernels of a script that ends early count for its next run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft_exec.executor.native import script_record
from weft_graph.ir import user_cache

SCRIPT = """
import sys
import numpy as np
import weft as wf
from weft_exec.executor.native import script_record, warm_up

script_record._WORTH_WRITING = 0.0
x = wf.placeholder(wf.float32, [300, 300])
y = wf.reduce_sum(wf.tanh(x) * 2.0)
with wf.Session() as session:
    for _ in range(20):
        session.run(y, {x: np.ones((300, 300))})
    if sys.argv[1:]:  # as if importing the compiler and choosing took no longer than that
        warm_up._IMPORT_SECONDS = 1e-9
        warm_up.OVERHEAD = 0.0
        for _ in range(2000):
            session.run(y, {x: np.ones((300, 300))})
print("weft_compiler.generator" in sys.modules)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE", str(folder))
    user_cache.directory.cache_clear()
    main = str(tmp_path / "main.py")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", main, raising=False)
    yield folder
    user_cache.directory.cache_clear()
    script_record.earlier_seconds.cache_clear()


def _run(script: Path, cache: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "WEFT_JIT": "", "WEFT_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


def test_the_next_run_chooses_regions(tmp_path: Path) -> None:
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(SCRIPT)
    assert _run(script, cache, "long") == "False", "the first run has nothing to rely on"
    assert [path.suffix for path in cache.iterdir()] == [".script"]
    assert _run(script, cache, "long") == "True"
    other = tmp_path / "other.py"
    other.write_text(SCRIPT)
    assert _run(other, cache, "long") == "False", "another script has a record of its own"


def test_seconds_add_up(cache: Path) -> None:
    path = script_record._path()
    assert path is not None
    for total in (1.5, 3.0):
        script_record._write(path, lambda: 1.5)
        script_record.earlier_seconds.cache_clear()
        assert script_record.earlier_seconds() == total
    script_record._write(path, lambda: 0.1)
    script_record.earlier_seconds.cache_clear()
    assert script_record.earlier_seconds() == 3.0
    script_record.earlier_seconds.cache_clear()


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"seconds": "x"}', b'{"seconds": -4}', b"\xff"])
def test_other_contents_count_for_nothing(cache: Path, content: bytes) -> None:
    path = script_record._path()
    assert path is not None
    user_cache.write_file(path, content)
    assert script_record._read(path) == 0.0
    path.write_bytes(content)
    assert script_record._read(path) == 0.0


def test_without_a_cache_there_is_no_record(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", "off")
    user_cache.directory.cache_clear()
    assert script_record._path() is None
    script_record.earlier_seconds.cache_clear()
    assert script_record.earlier_seconds() == 0.0
    assert not cache.exists()
