"""`weft trace export`."""

from __future__ import annotations

import argparse

from weft_trace.commands.output import load_trace
from weft_trace.export import FORMATS


def add_export(parser: argparse.ArgumentParser) -> None:
    """Convert a trace for another viewer."""
    parser.add_argument("file", help="trace file")
    parser.add_argument("--format", required=True, choices=list(FORMATS), help="format to write")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="file to write")
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> int:
    """Write a file in another format."""
    trace = load_trace(arguments.file)
    with open(arguments.output, "wb") as file:
        FORMATS[arguments.format](trace, file)
    return 0
