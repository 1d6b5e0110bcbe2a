"""The programs of the page and the example: compiled as the page says, and run."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

from tests.client.conftest import NODE, call, page_blocks, run

COMPILE_SECONDS = 10


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build_with_installed_library(build: Path, source: Path, folder: Path) -> None:
    installed = f"-DCMAKE_PREFIX_PATH={build}/installed"
    call("cmake", "-S", source, "-B", folder, installed)
    call("cmake", "--build", folder)


def test_the_programs_of_the_page(build: Path, tmp_path: Path) -> None:
    build_with_installed_library(build, build / "pages", tmp_path)
    line = re.fullmatch(r"y = (\S+) x \+ (\S+)\n", run(tmp_path / "train"))
    assert line is not None
    assert [float(number) for number in line.groups()] == pytest.approx([2.0, 1.0], abs=1e-2)
    assert run(build / "product") == "25\n"


def test_the_example_finds_the_installed_package(build: Path, tmp_path: Path) -> None:
    before = children_seconds()
    build_with_installed_library(build, ROOT / "examples" / "cpp", tmp_path)
    assert children_seconds() - before < COMPILE_SECONDS  # it includes all ops
    assert "10 steps on /job:local/" in run(tmp_path / "figure1")


def test_a_launch_that_fails_says_why(build: Path) -> None:
    for command, words in (("/nowhere/weft", "cannot be started"), ("/bin/false", "ended before")):
        assert words in run(build / "product", env={"WEFT_COMMAND": command})


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_program_for_node(tmp_path: Path) -> None:
    ((_, block),) = page_blocks("js")
    (tmp_path / "line.mjs").write_text(block, encoding="utf-8")
    modules = tmp_path / "node_modules"
    modules.mkdir()
    (modules / "weftml").symlink_to(ROOT / "packages" / "client" / "js")
    assert NODE is not None and run(NODE, tmp_path / "line.mjs") == "y = 2.00 x + 1.00\n"
