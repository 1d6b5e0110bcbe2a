"""The page about packages: its commands, and its program in C."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from weft_testing.lite_packages import small_model
from weft_testing.workspace import ROOT

from weft_lite import compiling, targets
from weft_lite.commands import main
from weft_lite.packaging import microcontroller

TEXT = (ROOT / "docs" / "lite-shipping.md").read_text("utf-8")
README = (ROOT / "packages" / "lite" / "README.md").read_text("utf-8")
PACKAGES = {"android", "apple", "arduino", "dart", microcontroller.TARGET}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_the_commands_name_each_target(tmp_path: Path) -> None:
    lines = [line.split()[1:] for line in blocks("bash")[0].splitlines()]
    named = [line[line.index("--target") + 1] for line in lines]
    assert set(named) >= PACKAGES
    for name in named:
        if name not in PACKAGES:
            targets.parts_of(name)
        assert f"`{name}`" in README
    model = small_model(tmp_path / "bright.weftlite")
    for line, name in zip(lines, named, strict=True):
        if name in ("arduino", "dart"):  # which are quick
            words = [str(model) if word == "bright.weftlite" else word for word in line]
            assert main([*words[:-1], str(tmp_path / words[-1])]) == 0


def test_the_program_in_c_compiles(tmp_path: Path) -> None:
    model = small_model(tmp_path / "bright.weftlite")
    words = ["build", "--target", "arduino", "--models", str(model), "-o", str(tmp_path)]
    assert main(words) == 0
    (tmp_path / "app.c").write_text(blocks("c")[0])
    source = tmp_path / "WeftLite" / "src"
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command = [*compiling.compiler(), *warnings, "-I", str(source), "app.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
