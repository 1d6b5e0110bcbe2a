"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a header and rows in aligned columns. Columns of numbers are aligned to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    is_number = [
        all(_looks_numeric(line[i]) for line in lines[1:]) and len(lines) > 1
        for i in range(len(header))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def _looks_numeric(cell: str) -> bool:
    return bool(cell) and cell[0] in "0123456789-+.∞"
