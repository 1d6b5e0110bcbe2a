"""The table of tasks: updated in place on a terminal, otherwise lines with tabs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from weft_distrib.launch.status import HEADER, Row
from weft_tensor import errors

_STYLES = {"running": "green", "idle": "", "busy": "yellow"}


def console() -> Any:
    """Return a console of the package rich if the output is a terminal, else None.

    Returns: the console, or None.
    Raises: FailedPreconditionError: the output is a terminal, and rich is not installed.
    """
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError as error:
        raise errors.FailedPreconditionError(
            "showing a table on a terminal requires the package rich: pip install "
            "weftml-distrib[launch]"
        ) from error
    return Console(highlight=False, markup=False)


def table(rows: Sequence[Row]) -> Any:
    """Return rows as a table of the package rich."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in HEADER:
        table.add_column(title, justify="left" if title in ("task", "state") else "right")
    for row in rows:
        style = _STYLES.get(row[1], "red")
        table.add_row(*[Text(cell, style if i == 1 else "") for i, cell in enumerate(row)])
    return table


def lines(rows: Sequence[Row]) -> str:
    """Return rows as lines with tabs, for other programs."""
    return "".join(["\t".join(row) + "\n" for row in [HEADER, *rows]])
