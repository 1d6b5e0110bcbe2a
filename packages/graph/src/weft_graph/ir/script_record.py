"""Record of the time that a script's steps spent in kernels, for later runs of the script.

A script that ends before regions are chosen for compilation leaves no measurements of regions.
With this record, the next run chooses regions and loads their code earlier: after the first run of
each step if the last run of the script used compiled code.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from weft_graph.ir.user_cache import directory, read_file, write_file

_WORTH_WRITING: Final = 0.2
"""Smallest time of steps, in seconds, that is written to disk."""
_GROWTH: Final = 1.1
"""Ratio to the recorded seconds above which a longer run replaces the record."""


class ScriptRecord(NamedTuple):
    """Record of the runs of a script.

    Attributes:
      seconds: time in kernels of the longest run.
      has_code: True if the last recorded run used compiled code.
    """

    seconds: float = 0.0
    has_code: bool = False


@cache
def script_record() -> ScriptRecord:
    """Return the record of earlier runs of this script, or an empty one."""
    path = _path_of_main()
    return ScriptRecord() if path is None else _read(path)


def record_at_exit(run: Callable[[], ScriptRecord]) -> None:
    """Record this run of the script when the process ends.

    Args:
      run: function that returns the record of this run.
    """
    path = _path_of_main()  # Python forgets the name of the script before it calls `_write`
    if path is not None:
        atexit.register(lambda: _write(path, run()))


def record(script: Path, run: ScriptRecord) -> None:
    """Record a run of a script."""
    path = _path_of(script)
    if path is not None:
        _write(path, run)


def _write(path: Path, run: ScriptRecord) -> None:
    previous = _read(path)
    has_grown = run.seconds >= max(_WORTH_WRITING, _GROWTH * previous.seconds)
    if has_grown or (previous.seconds and run.has_code != previous.has_code):
        longest = ScriptRecord(max(run.seconds, previous.seconds), run.has_code)
        write_file(path, json.dumps(longest._asdict()).encode())


def _read(path: Path) -> ScriptRecord:
    try:
        fields = json.loads(read_file(path) or b"{}")
        seconds = max(0.0, float(fields.get("seconds", 0.0)))
        return ScriptRecord(seconds, bool(fields.get("has_code", False)))
    except (ValueError, TypeError, AttributeError):  # not written by `_write`
        return ScriptRecord()


def _path_of_main() -> Path | None:
    """Return the file of this program's script; None for an interactive program."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if script is None else _path_of(Path(script))


def _path_of(script: Path) -> Path | None:
    folder = directory()
    name = hashlib.sha256(str(script.resolve()).encode()).hexdigest()
    return None if folder is None else folder / f"{name}.script"
