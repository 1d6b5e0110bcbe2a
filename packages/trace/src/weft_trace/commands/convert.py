"""`weft trace export` and `weft trace import`."""

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


def add_import(parser: argparse.ArgumentParser) -> None:
    """Convert a profile of a weft-lite model to a trace."""
    parser.add_argument("profile", help="file that `weft-lite profile --timeline` wrote")
    parser.add_argument("-o", "--output", required=True, help="the trace file")
    parser.set_defaults(run=run_import)


def run_import(arguments: argparse.Namespace) -> int:
    """Convert a profile."""
    from weft_trace.lite_profile import convert_lite_profile

    convert_lite_profile(arguments.profile, arguments.output)
    return 0
