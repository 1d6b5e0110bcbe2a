"""The `weft` command itself: its subcommands are those that packages declare."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import weft._commands
from weft._commands import main
from weft_tensor import errors


def greet(parser: argparse.ArgumentParser) -> None:
    """Say hello."""
    parser.add_argument("name")
    parser.set_defaults(run=_greet)


def _greet(arguments: argparse.Namespace) -> int:
    if arguments.name == "nobody":
        raise errors.NotFoundError("there is nobody")
    if arguments.name == "interrupt":
        raise KeyboardInterrupt
    sys.stdout.write(f"hello {arguments.name}\n")
    return len(arguments.name)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded(EntryPoint):
        def load(self) -> object:
            if self.name == "broken":
                raise ImportError("no such thing")
            return greet

    found = [
        Loaded(name, "somewhere:add", weft._commands.GROUP) for name in ("greet", "broken", "also")
    ]
    monkeypatch.setattr(weft._commands, "entry_points", lambda group: found)


def test_a_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "Ada"]) == 3
    assert capsys.readouterr().out == "hello Ada\n"


def test_errors_are_said_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "nobody"]) == 2
    assert capsys.readouterr().err == "weft: there is nobody\n"
    assert main(["greet", "interrupt"]) == 130


def test_a_broken_one_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["also", "x"]) == 1
    assert main(["broken"]) == 2
    assert "broken = somewhere:add cannot be loaded: ImportError" in capsys.readouterr().err


def test_help_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    said = capsys.readouterr().out
    assert caught.value.code == 0
    assert "Say hello." in said and "no such thing" in said
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


def test_as_a_program() -> None:
    command = [sys.executable, "-m", "weft", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"weft {weft.version.VERSION}\n"
