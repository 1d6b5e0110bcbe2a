"""`weft trace`: summarizes, compares, predicts, exports and shows traces.

Other packages add subcommands in the entry-point group `weft_trace.commands`, with functions
`add(parser)` as those of `weft.commands`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from weft_trace.commands import ask, convert, view
from weft_trace.errors import TraceError

GROUP = "weft_trace.commands"
_TROUBLE: Final = 2

_Run = Callable[[argparse.Namespace], int]


def add(parser: argparse.ArgumentParser) -> None:
    """Record traces, and find out why a step is slow."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    adders = {
        "summary": ask.add_summary,
        "diff": ask.add_diff,
        "whatif": ask.add_whatif,
        "export": convert.add_export,
        "html": view.add_html,
        "open": view.add_open,
    }
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name in sorted({*adders, *others}):
        adder = adders[name] if name in adders else others[name].load()
        text = (adder.__doc__ or "").partition("\n")[0]
        action = actions.add_parser(name, help=text, description=text)
        adder(action)
        run: _Run | None = action.get_default("run")
        if run is not None:
            action.set_defaults(run=_catching(run))


def _catching(run: _Run) -> _Run:
    """Return a command that reports damaged files and wrong options in a line."""

    def run_command(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except TraceError as error:
            sys.stderr.write(f"weft: {error}\n")
            return _TROUBLE

    return run_command
