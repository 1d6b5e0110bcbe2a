"""Tables and numbers of the commands, as plain text."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from weft_trace.reader import load
from weft_trace.trace import Trace

_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_WIDEST: Final = 60


def printable(text: str) -> str:
    """Escape unprintable characters of a file's text, which may be terminal commands."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])


def write_line(text: str = "") -> None:
    """Write a line."""
    sys.stdout.write(printable(text) + "\n")


def write_json(value: Any) -> None:
    """Write a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def write_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], num_left_aligned: int = 1
) -> None:
    """Write a table with a title; nothing if it has no rows.

    Args:
      num_left_aligned: number of columns that are set to the left; numbers follow, set to the
        right. Further columns behind an empty heading are set to the left again.
    """
    if not rows:
        return
    cells = [[_shorten(printable(cell)) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    write_line()
    write_line(title)
    for row in cells:
        columns = [
            cell.ljust(width) if i < num_left_aligned else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        write_line("  " + "  ".join(columns).rstrip())


def _shorten(text: str) -> str:
    if len(text) <= _WIDEST:
        return text
    half = (_WIDEST - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def format_time(nanoseconds: float) -> str:
    """Return a duration with three digits and a unit."""
    for scale, unit in _UNITS:
        if abs(nanoseconds) >= scale:
            number = nanoseconds / scale
            digits = max(0, 2 - len(str(int(abs(number)))) + 1)
            return f"{number:.{digits}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def format_difference(nanoseconds: float) -> str:
    """Return a duration with its sign."""
    return ("+" if nanoseconds > 0 else "") + format_time(nanoseconds)


def format_size(size: int) -> str:
    """Return a number of bytes with a unit."""
    for scale, unit in _SIZES:
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def format_share(part: float, total: float) -> str:
    """Return a share in percent."""
    return f"{100 * part / total:.1f} %" if total else ""


def load_trace(path: str) -> Trace:
    """Load a trace, and report its missing parts on the error stream."""
    trace = load(path)
    for warning in trace.warnings:
        sys.stderr.write(f"warning: {printable(warning)}\n")
    return trace


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 process", "1,680 events"."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
