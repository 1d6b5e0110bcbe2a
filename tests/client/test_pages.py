"""The programs of the page and the example: compiled as the page says, and run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

from tests.client.conftest import call, run


def test_the_programs_of_the_page(build: Path) -> None:
    line = re.fullmatch(r"y = (\S+) x \+ (\S+)\n", run(build / "train"))
    assert line is not None
    assert [float(number) for number in line.groups()] == pytest.approx([2.0, 1.0], abs=1e-2)
    assert run(build / "product") == "25\n"


def test_the_example_finds_the_installed_package(build: Path, tmp_path: Path) -> None:
    installed = f"-DCMAKE_PREFIX_PATH={build}/installed"
    call("cmake", "-S", ROOT / "examples" / "cpp", "-B", tmp_path, installed)
    call("cmake", "--build", tmp_path)
    assert "10 steps on /job:local/" in run(tmp_path / "figure1")


def test_a_launch_that_fails_says_why(build: Path) -> None:
    for command, words in (("/nowhere/weft", "cannot be started"), ("/bin/false", "ended before")):
        assert words in run(build / "product", env={"WEFT_COMMAND": command})
