"""The code on the pages of lite: Python and C, as they stand there, and the list of operations."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from weft_testing.loading import load
from weft_testing.workspace import ROOT

from weft_lite import Interpreter, compiling, library
from weft_lite.commands import main
from weft_lite.convert.registry import rules
from weft_lite.schema.enums import OpKind

TEXT = (ROOT / "docs" / "lite.md").read_text(encoding="utf-8")
ops = load(ROOT / "docs" / "lite_ops_page.py")


def blocks(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert found
    return "\n".join(found)


def commands() -> list[list[str]]:
    """The lines of the page that call `weft-lite`, without its name."""
    return [line.split()[1:] for line in blocks("bash").splitlines() if line]


def call(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="linked as a library beside the program")
def test_the_program_in_python_makes_the_file_that_the_one_in_c_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.py").write_text(blocks("python"), encoding="utf-8")
    call(sys.executable, "page.py", cwd=tmp_path)
    (tmp_path / "page.c").write_text(blocks("c"), encoding="utf-8")
    built = Path(library.load()._name)
    warnings = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-I", compiling.RUNTIME)
    linked = (built, f"-Wl,-rpath,{built.parent}", "-o", "page")
    call(*compiling.compiler(), *warnings, "page.c", *linked, cwd=tmp_path)
    got = [float(text) for text in call(tmp_path / "page", cwd=tmp_path).split()]

    for line in commands():
        if line[0] != "build":
            assert main([str(word) for word in line]) == 0, line
    assert np.load(tmp_path / "results" / "scores.npy").shape == (1, 2)

    interpreter = Interpreter(tmp_path / "bright.weftlite")
    interpreter.resize_tensor_input(0, [1, 8, 8, 1])
    run = interpreter.get_signature_runner()
    want = run(images=np.full([1, 8, 8, 1], 1.5, "float32"))["scores"][0]
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert want[1] > 0.9


def test_the_list_of_operations_is_current() -> None:
    assert ops.PAGE.read_text("utf-8") == ops.text(), "run python docs/lite_ops_page.py"


def test_the_list_has_every_operation_once() -> None:
    listed = [name for _, kinds in ops.families() for name, _ in kinds]
    assert sorted(listed) == sorted(kind.name for kind in OpKind)
    assert ops.about("Conv2D") == "float32, int16, int8 | filter: PANELS; PANELS4 with int8 | "
    assert {"Conv2D", "AddV2"} <= set(rules)
