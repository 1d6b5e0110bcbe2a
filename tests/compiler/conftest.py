"""Compiled programs are cached for the test session, not in the user's home directory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from weft_compiler.native import cache


@pytest.fixture(autouse=True, scope="session")
def kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            folder = folder.parent  # what one worker has compiled, the others do not compile again
        patch.setenv("WEFT_CACHE", str(folder / "objects"))
        cache.directory.cache_clear()
        yield
    cache.directory.cache_clear()
