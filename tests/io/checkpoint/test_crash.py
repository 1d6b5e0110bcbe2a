"""Death while saving, at every boundary and at any moment: the old checkpoint or the new one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "saving.py"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: a killed process needs no disk to lose its data."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def run(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")


KINDS = {"plain": (), "asynchronous": ("asynchronous",), "bundles": ("bundles",)}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
class TestDeath:
    def test_at_every_boundary(self, directory: Path, kind: tuple[str, ...]) -> None:
        run("boundaries", directory, 6, *kind)

    @pytest.mark.long
    def test_at_every_boundary_of_any_save(self, directory: Path, kind: tuple[str, ...]) -> None:
        run("boundaries", directory, 1, *kind)

    def test_killed_at_seeded_moments(self, directory: Path, kind: tuple[str, ...]) -> None:
        run("kill", directory, 10, 1, *kind)

    @pytest.mark.long
    def test_killed_at_many_moments(self, directory: Path, kind: tuple[str, ...]) -> None:
        run("kill", directory, 1000, 2, *kind)
