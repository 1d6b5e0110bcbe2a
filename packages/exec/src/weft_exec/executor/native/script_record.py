"""Time that the steps of a script took by kernels, kept for its next runs.

A script that ends before compiled regions were chosen leaves no measurements of regions. This
record lets its next run choose them early.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from weft_graph.ir.user_cache import directory, read_file, write_file

_WORTH_WRITING: Final = 0.2
"""Seconds of steps from which on they are written to the disk."""


@cache
def earlier_seconds() -> float:
    """Return the seconds that steps of earlier runs took before regions were chosen."""
    path = _path()
    return 0.0 if path is None else _read(path)


def record_at_exit(seconds: Callable[[], float]) -> None:
    """Add the seconds of this process to the record when it ends.

    Args:
      seconds: returns them.
    """
    path = _path()  # Python forgets the name of the script before it calls `_write`
    if path is not None:
        atexit.register(_write, path, seconds)


def _write(path: Path, seconds: Callable[[], float]) -> None:
    spent = seconds()
    if spent >= _WORTH_WRITING:
        write_file(path, json.dumps({"seconds": _read(path) + spent}).encode())


def _read(path: Path) -> float:
    try:
        return max(0.0, float(json.loads(read_file(path) or b"{}").get("seconds", 0.0)))
    except (ValueError, TypeError, AttributeError):  # not written by `_write`
        return 0.0


def _path() -> Path | None:
    """Return the file of the script; None for an interactive program, or without a directory."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = directory()
    if script is None or folder is None:
        return None
    name = hashlib.sha256(str(Path(script).resolve()).encode()).hexdigest()
    return folder / f"{name}.script"
