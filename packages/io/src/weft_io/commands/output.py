"""Output of commands: tables on a terminal, tab-separated fields otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_TEXT_WIDTH = 14

Step = Callable[[int], None]


def printable(text: str) -> str:
    """Escape unprintable characters in text from a file, which could contain terminal commands."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])


class Output:
    """The output of a command.

    Args:
      plain: write tab-separated fields even on a terminal.
    """

    def __init__(self, plain: bool = False) -> None:
        self._console: Any = None
        if not plain and sys.stdout.isatty():
            try:
                from rich.console import Console
            except ImportError:  # an extra of this package: tables are plain without it
                return
            self._console = Console(markup=False, highlight=False)

    def table(
        self, header: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = ""
    ) -> None:
        """Write rows as tab-separated fields or as a table.

        Args:
          numbers: the headings of right-aligned columns, separated by spaces.
        """
        if self._console is None:
            for row in rows:
                sys.stdout.write("\t".join([printable(cell) for cell in row]) + "\n")
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(*header, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        cells = [[printable(cell) for cell in row] for row in rows]
        minimum = 2
        for i, (column, title) in enumerate(zip(table.columns, header, strict=True)):
            width = max([len(title), *[len(row[i]) for row in cells]])
            if title in numbers.split():
                column.justify, column.min_width = "right", width
            else:
                column.overflow, column.min_width = "fold", min(width, _TEXT_WIDTH)
            minimum += (column.min_width or 0) + 2
        for row in cells:
            table.add_row(*[Text(cell) for cell in row])
        # If the terminal is too narrow for the numbers, it breaks the lines, and nothing is lost.
        self._console.print(table, width=max(self._console.width, minimum), crop=False)

    def line(self, text: str) -> None:
        """Write a line."""
        if self._console is None:
            sys.stdout.write(printable(text) + "\n")
        else:
            self._console.print(printable(text))

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Step]:
        """Show a progress bar on a terminal.

        Yields: a function to call with each number of processed bytes.
        """
        if self._console is None:
            yield lambda _: None
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(printable(title), total=total)
            yield lambda size: progress.advance(task, size)
