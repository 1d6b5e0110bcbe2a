"""Output of tables: aligned columns on a terminal, tab-separated fields otherwise."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def printable(text: str) -> str:
    """Escape unprintable characters in text from a file, which could contain terminal commands."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows; the header and the alignment only on a terminal."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        sys.stdout.write("".join(["\t".join(row) + "\n" for row in cells]))
        return
    interval = [list(header), *cells]
    widths = [max(len(row[i]) for row in interval) for i in range(len(header))]
    for row in interval:
        line = "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)])
        sys.stdout.write(line.rstrip() + "\n")


def size(count: float) -> str:
    """Format a number of bytes: 512 B, 1.5 KB, 12.0 MB."""
    for unit in ("B", "KB", "MB"):
        if count < 1000 or unit == "MB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


__all__ = ["printable", "size", "table"]
