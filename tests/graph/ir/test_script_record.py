"""Records of the time that scripts took by kernels."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft_graph.ir import script_record, user_cache
from weft_graph.ir.script_record import ScriptRecord


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache directory, in a process that runs a script."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE", str(folder))
    main = str(tmp_path / "main.py")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", main, raising=False)
    _forget()
    yield folder
    _forget()


def _forget() -> None:
    user_cache.directory.cache_clear()
    script_record.script_record.cache_clear()


def _expected() -> float:
    script_record.script_record.cache_clear()
    return script_record.script_record().seconds


def test_the_longest_run_counts(cache: Path, tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    assert _expected() == 0.0
    for seconds, expected in ((0.1, 0.0), (1.5, 1.5), (0.5, 1.5), (1.6, 1.5), (3.0, 3.0)):
        script_record.record(main, ScriptRecord(seconds))
        assert _expected() == expected
    script_record.record(tmp_path / "other.py", ScriptRecord(9.0))
    assert _expected() == 3.0


def test_the_last_run_says_if_there_is_code(cache: Path, tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    script_record.record(main, ScriptRecord(0.01, has_code=True))
    assert not list(cache.iterdir()), "a short run is not recorded"
    for run in (ScriptRecord(2.0), ScriptRecord(0.5, has_code=True), ScriptRecord(0.1)):
        script_record.record(main, run)
        assert _expected() == 2.0
        assert script_record.script_record().has_code == run.has_code


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"seconds": "x"}', b'{"seconds": -4}', b"\xff"])
def test_other_contents_count_for_nothing(cache: Path, tmp_path: Path, content: bytes) -> None:
    script_record.record(tmp_path / "main.py", ScriptRecord(2.0))
    (path,) = cache.iterdir()
    user_cache.write_file(path, content)
    assert _expected() == 0.0
    path.write_bytes(content)
    assert _expected() == 0.0


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="other users may not write here anyway")
def test_a_file_that_others_may_write_to_is_not_read(cache: Path, tmp_path: Path) -> None:
    script_record.record(tmp_path / "main.py", ScriptRecord(2.0))
    (path,) = cache.iterdir()
    path.chmod(0o666)
    assert _expected() == 0.0


def test_without_a_cache_there_is_no_record(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "off")
    user_cache.directory.cache_clear()
    script_record.record(tmp_path / "main.py", ScriptRecord(9.0))
    assert _expected() == 0.0
    assert not cache.exists()


def test_an_interactive_program_has_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    script_record.record_at_exit(lambda: ScriptRecord(5.0))
    assert _expected() == 0.0
