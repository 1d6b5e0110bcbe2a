"""Measurements of regions that outlive a process."""

from __future__ import annotations

import json
from typing import NamedTuple


class History(NamedTuple):
    """Measurements of a region, for one choice of shapes, by earlier processes.

    Attributes:
      processes: processes that ran it with kernels.
      runs: runs with kernels in all of them.
      kernel_seconds: processor seconds of these runs.
      compile_seconds: the measured price, or None if it was never compiled.
      is_slower: True if compiled code was slower than the kernels.
      abandoned: processes that ended while they compiled it.
      varies: True if a process ran it for several choices of shapes.
      is_monomorphic: True if no code could support several of them.
    """

    processes: int = 0
    runs: int = 0
    kernel_seconds: float = 0.0
    compile_seconds: float | None = None
    is_slower: bool = False
    abandoned: int = 0
    varies: bool = False
    is_monomorphic: bool = False


def read_history(content: bytes | None) -> History:
    """Return the history that `write_history` wrote; an empty one if the content is not of it."""
    try:
        fields = json.loads(content or b"{}")
        price = fields.get("compile_seconds")
        return History(
            int(fields.get("processes", 0)),
            int(fields.get("runs", 0)),
            float(fields.get("kernel_seconds", 0.0)),
            None if price is None else float(price),
            bool(fields.get("is_slower", False)),
            int(fields.get("abandoned", 0)),
            bool(fields.get("varies", False)),
            bool(fields.get("is_monomorphic", False)),
        )
    except (ValueError, TypeError, AttributeError):  # not written by `write_history`
        return History()


def write_history(history: History, name: str, members: int) -> bytes:
    """Return a history as JSON, with the region's name and number of nodes for human readers."""
    return json.dumps({"name": name, "members": members} | history._asdict()).encode()
