"""`weft trace`: summarizes, compares, predicts, exports and shows traces.

Other packages add subcommands in the entry-point group `weft_trace.commands`, with functions
`add(parser)` as those of `weft.commands`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from weft_trace.commands import convert, queries, view
from weft_trace.errors import TraceError

GROUP = "weft_trace.commands"
_TROUBLE: Final = 2

_Run = Callable[[argparse.Namespace], int]


def add(parser: argparse.ArgumentParser) -> None:
    """Record traces, and find out why a step is slow."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    adders = {
        "summary": queries.add_summary,
        "diff": queries.add_diff,
        "whatif": queries.add_whatif,
        "export": convert.add_export,
        "import": convert.add_import,
        "html": view.add_html,
        "open": view.add_open,
    }
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name in sorted({*adders, *entries}):
        adder = adders.get(name) or _load(entries[name])
        text = (adder.__doc__ or "").partition("\n")[0]
        action = actions.add_parser(name, help=text, description=text)
        adder(action)
        run: _Run | None = action.get_default("run")
        if run is not None:
            action.set_defaults(run=_report_errors(run))


def _load(entry: EntryPoint) -> Callable[[argparse.ArgumentParser], None]:
    """Return the function of an entry point, or one that adds a command that reports its error."""
    try:
        adder: Callable[[argparse.ArgumentParser], None] = entry.load()
    except Exception as cause:  # because one package's mistake must not hide the other commands
        reason = f"{entry.name} = {entry.value} cannot be loaded: {cause!r}"

        def adder(parser: argparse.ArgumentParser) -> None:
            parser.set_defaults(run=lambda _: _fail(reason))

        adder.__doc__ = reason
    return adder


def _fail(reason: str) -> int:
    sys.stderr.write(f"weft: {reason}\n")
    return _TROUBLE


def _report_errors(run: _Run) -> _Run:
    """Return a command that reports damaged files and wrong options in a line."""

    def run_command(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except TraceError as error:
            return _fail(str(error))

    return run_command
