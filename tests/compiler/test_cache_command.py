"""`weft cache`: listing, warming and clearing, each as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import numpy as np
import weft as wf

x = wf.placeholder(wf.float32, [1000])
y = wf.reduce_sum(wf.exp(-x) + 1.0)
with wf.Session() as session:
    print(sys.argv[1:], session.run(y, {x: np.zeros(1000, np.float32)}))
"""


def run_command(place: Path | str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `weft cache` with a directory, and check its exit status."""
    command = [
        sys.executable,
        "-c",
        "from weft._commands import main; raise SystemExit(main())",
        "cache",
        *words,
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "WEFT_CACHE": str(place)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_script_is_warmed_listed_and_cleared(tmp_path: Path) -> None:
    place, script = tmp_path / "objects", tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_command(place, "warm", str(script), "--steps", "3")
    assert "['--steps', '3'] 2000.0" in done.stdout
    assert "entries added in" in done.stderr
    (place / "notes.txt").write_text("not an entry")
    listed = run_command(place, "list").stdout
    assert str(place) in listed
    assert " 1 programs" in listed
    assert "removed" in run_command(place, "clear").stdout
    assert [path.name for path in place.iterdir()] == ["notes.txt"]


def test_measurements_of_strangers_are_no_terminal_commands(tmp_path: Path) -> None:
    from weft_compiler.native import cache

    place = tmp_path / "objects"
    place.mkdir(0o700)
    name = r'{"name": "a\u001b[2Jb", "members": 3, "runs": 7, "kernel_seconds": 1.5,'
    rest = ' "compile_seconds": null, "is_slower": true, "processes": 2}'
    cache._write(place / f"{'0' * 64}.profile", (name + rest).encode())
    cache._write(place / f"{'1' * 64}.profile", b"[1, 2]")
    listed = run_command(place, "list").stdout
    assert "a\\x1b[2Jb\t3\t7\t1.50\t\tslower compiled" in listed


@pytest.mark.parametrize("action", ["list", "clear"])
def test_without_a_cache_the_command_says_so(action: str) -> None:
    assert "there is no cache" in run_command("off", action, code=1).stderr


def test_a_script_that_fails_fails_the_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(3)")
    run_command(tmp_path / "objects", "warm", str(script), code=3)
