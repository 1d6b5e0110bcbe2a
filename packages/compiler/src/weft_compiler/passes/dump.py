"""Dumps of programs to files with `WEFT_JIT_DUMP=DIR`, after each pass that changed them."""

from __future__ import annotations

import itertools
import os
import re
import stat
from pathlib import Path
from typing import Final

from weft_compiler.ir.program import Program
from weft_graph.ir.code_generators import SettingError

VARIABLE: Final = "WEFT_JIT_DUMP"
"""The environment variable that names the directory."""
_MAX_NAME: Final = 60


def is_dumping() -> bool:
    """Return True if the environment asks for dumps."""
    return bool(os.environ.get(VARIABLE))


class ProgramDump:
    """The folder of one program, with a numbered file for each pass that changed the program."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @staticmethod
    def begin(program: Program) -> ProgramDump | None:
        """Create the dump of a program, with its first file; return None if dumps are off.

        The directory, the folder and the files are accessible only to their owner.

        Raises: SettingError: the directory cannot be created or written, or other users can
          change it.
        """
        if not is_dumping():
            return None
        directory = Path(os.environ[VARIABLE])
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_own(directory)
            dump = ProgramDump(_new_folder(directory, _safe_name(program.name)))
        except OSError as error:
            raise _unusable(directory, error.strerror or str(error)) from error
        dump.write(0, "lowered", program)
        return dump

    def write(self, number: int, name: str, program: Program) -> None:
        """Write a program.

        Args:
          number: position of the pass in its pipeline.
          name: name of the pass.
        Raises: SettingError: the file cannot be written.
        """
        path = self._folder / f"{number:02}-{_safe_name(name)}.txt"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(str(program))
        except OSError as error:
            raise _unusable(path, error.strerror or str(error)) from error


def _new_folder(directory: Path, name: str) -> Path:
    """Create a folder with the first unused number.

    Several processes may do this concurrently.
    """
    first = sum(1 for _ in directory.iterdir()) + 1
    for number in itertools.count(first):
        folder = directory / f"{number:04}-{name}"
        if not any(directory.glob(f"{number:04}-*")):
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return folder
    raise AssertionError


def _safe_name(name: str) -> str:
    """Return a name without path separators: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:_MAX_NAME].lstrip(".") or "program"


def _require_own(directory: Path) -> None:
    """Check that other users cannot change a directory.

    Raises: SettingError: they can.
    """
    mode = directory.stat().st_mode
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise _unusable(directory, "other users can write to it; chmod go-w")


def _unusable(path: Path, reason: str) -> SettingError:
    return SettingError(
        f"{VARIABLE} must name a directory that can be written, got {str(path)!r}: {reason}"
    )
