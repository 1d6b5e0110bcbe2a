"""Every kernel over random valid shapes, under the sanitizers, on the fuzzer's corpora."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from weft_testing.loading import load

run: Any = load(Path(__file__).parents[1] / "fuzz" / "run.py")


def has_sanitizers() -> bool:
    """Return True if gcc and its sanitizer library are available."""
    found = (
        shutil.which("gcc")
        and subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    return bool(found) and Path(found).is_absolute()


pytestmark = pytest.mark.skipif(not has_sanitizers(), reason="no gcc with its sanitizers")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = run.build(tmp_path_factory.mktemp("built"), "replay", run.SANITIZERS, "gcc")
    return made


def unpacked(folder: Path, archive: Path) -> Path:
    run.seeds.write(folder / "files", run.seeds.kept(archive))
    return folder / "files"


def test_every_kernel_runs_over_random_shapes(program: Path, tmp_path: Path) -> None:
    assert run.shapes(program, unpacked(tmp_path, run.seeds.SHAPES), turns=3) == []


def test_what_fuzzing_found_does_no_harm_under_the_sanitizers(
    program: Path, tmp_path: Path
) -> None:
    run.shapes(program, unpacked(tmp_path, run.seeds.CORPUS), turns=1)


@pytest.mark.long
def test_every_kernel_runs_over_many_random_shapes(program: Path, tmp_path: Path) -> None:
    run.seeds.write_seeds(tmp_path)
    assert run.shapes(program, tmp_path / "open", turns=200) == []


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
@pytest.mark.skipif(not shutil.which("clang"), reason="no clang for libFuzzer")
def test_ten_million_executions(tmp_path: Path) -> None:
    run.seeds.write_seeds(tmp_path)
    assert run.fuzz(tmp_path, ["-runs=10000000"]) == 0
