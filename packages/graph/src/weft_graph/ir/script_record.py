"""Record of the time that a script's steps took by kernels, for its next runs.

A script that ends before compiled regions were chosen leaves no measurements of regions. This
record lets its next run choose them, and look for their code, early.
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
_GROWTH: Final = 1.1
"""Ratio to the recorded seconds from which on a longer run is recorded."""


@cache
def expected_seconds() -> float:
    """Return the seconds by kernels of the longest recorded run of this script; 0 without any."""
    path = _path_of_main()
    return 0.0 if path is None else _read(path)


def record_at_exit(seconds: Callable[[], float]) -> None:
    """Record this run of the script when the process ends.

    Args:
      seconds: returns the seconds that steps took by kernels.
    """
    path = _path_of_main()  # Python forgets the name of the script before it calls `_write`
    if path is not None:
        atexit.register(lambda: _write(path, seconds()))


def record(script: Path, seconds: float) -> None:
    """Record a script run and its seconds by kernels."""
    path = _path_of(script)
    if path is not None:
        _write(path, seconds)


def _write(path: Path, seconds: float) -> None:
    if seconds >= max(_WORTH_WRITING, _GROWTH * _read(path)):
        write_file(path, json.dumps({"seconds": seconds}).encode())


def _read(path: Path) -> float:
    try:
        return max(0.0, float(json.loads(read_file(path) or b"{}").get("seconds", 0.0)))
    except (ValueError, TypeError, AttributeError):  # not written by `_write`
        return 0.0


def _path_of_main() -> Path | None:
    """Return the file of this program's script; None for an interactive program."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if script is None else _path_of(Path(script))


def _path_of(script: Path) -> Path | None:
    folder = directory()
    name = hashlib.sha256(str(script.resolve()).encode()).hexdigest()
    return None if folder is None else folder / f"{name}.script"
