"""The library in a checkout: built once at first use, and imported modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

from weft_lite import library

PACKAGE = ROOT / "packages" / "lite" / "src" / "weft_lite"
COMPILER = """\
#!{python}
import shutil, sys
with open({log!r}, "a") as log:
    print(sys.argv[-1], "-shared" in sys.argv, file=log)
shutil.copy({library!r}, sys.argv[sys.argv.index("-o") + 1])
"""
PROGRAM = """\
import sys
sys.path.insert(0, {path!r})
from weft_lite import library
print("ready", flush=True)
sys.stdin.readline()
print(library.load().wl_format_version())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no flock: processes build side by side")
def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    """Replace the compiler by one that records its calls and returns an existing library."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "weft_lite")
    real, log = library.load()._name, tmp_path / "log"
    command = tmp_path / "cc"
    command.write_text(COMPILER.format(python=sys.executable, log=str(log), library=real))
    command.chmod(0o755)
    environment = {**os.environ, "CC": str(command)}
    environment.pop("WEFT_LITE_LIBRARY", None)
    program = PROGRAM.format(path=str(tmp_path / "src"))
    together = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for _ in range(3)
    ]  # fmt: skip
    for each in together:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in together:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    assert [each.communicate(timeout=120)[0] for each in together] == ["1\n"] * 3
    calls = log.read_text().split("\n")[:-1]
    assert sum(call.endswith("True") for call in calls) == 1
    assert len(calls) == len(set(calls))


def test_an_import_brings_only_what_is_quick() -> None:
    """The import takes 5 ms; each of these would add one to ten."""
    slow = {"collections", "typing", "pathlib", "re", "inspect", "numpy", "subprocess"}
    program = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import weft_lite; "
    program += "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert not slow & set(done.stdout.split())
