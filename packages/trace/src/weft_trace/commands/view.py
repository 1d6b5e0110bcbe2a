"""`weft trace html` and `open`."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence

from weft_trace.errors import TraceError
from weft_trace.page import server_page, write_page
from weft_trace.server import TraceServer


def add_html(parser: argparse.ArgumentParser) -> None:
    """Write a page that shows a trace, or two side by side, without a network."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="one or two trace files")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="page to write")
    parser.set_defaults(run=run_html)


def add_open(parser: argparse.ArgumentParser) -> None:
    """Show a trace, or two side by side, in the browser, from a local server."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="one or two trace files")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.set_defaults(run=run_open)


def run_html(arguments: argparse.Namespace) -> int:
    """Write a page."""
    files = _check_count(arguments.files)
    try:
        write_page(arguments.output, files)
    except ValueError as error:  # a file is too large for a page
        raise TraceError(str(error)) from error
    return 0


def run_open(arguments: argparse.Namespace) -> int:
    """Serve traces until Ctrl-C."""
    with TraceServer(_check_count(arguments.files), server_page()) as server:
        sys.stdout.write(f"{server.url}  (Ctrl-C ends the server)\n")
        sys.stdout.flush()
        if not arguments.no_browser:
            webbrowser.open(server.url)
        server.serve_forever()
    return 0


def _check_count(files: Sequence[str]) -> Sequence[str]:
    """Return the files. Raises: TraceError: there are more than two."""
    if len(files) > 2:
        raise TraceError(f"a page shows one or two traces, got {len(files)}")
    return files
