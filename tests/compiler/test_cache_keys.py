"""Keys of cached code: they change with the sources of the packages that the code depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft_compiler.native import cache


def test_sources_change_with_the_python_files_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "edited_package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/module.py", "notes.txt"):
        (package / name).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    def current() -> str:
        cache.sources.cache_clear()
        try:
            return cache.sources("edited_package")
        finally:
            cache.sources.cache_clear()

    before = current()
    (package / "notes.txt").write_text("no code")
    assert current() == before
    (package / "inner" / "module.py").write_text("x = 1\n")
    after = current()
    assert after != before
    (package / "inner" / "other.py").write_text("")
    assert current() not in (before, after)
