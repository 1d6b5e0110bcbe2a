"""Compiled programs are kept for the session of tests, not in the home of who runs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft_compiler.native import cache


@pytest.fixture(autouse=True, scope="session")
def kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE", str(tmp_path_factory.mktemp("objects")))
        cache.directory.cache_clear()
        yield
    cache.directory.cache_clear()
