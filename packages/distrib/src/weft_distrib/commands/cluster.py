"""`weft cluster`: show the state of a running cluster."""

from __future__ import annotations

import argparse
import sys
import time

from weft_distrib.commands.table import console, lines, table
from weft_distrib.launch.status import EVERY_SECONDS, Rates, Row, reports_of
from weft_distrib.wire.address import address_of

SCHEME = "grpc://"


def add(parser: argparse.ArgumentParser) -> None:
    """Show the state of a running cluster."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    status = actions.add_parser(
        "status",
        help="show the state, steps and traffic of each task",
        description="Show the state of each task as the given task sees it, the number of its "
        "steps, the bytes received and sent, and the rates over the last second.",
    )
    status.add_argument("target", help="any task of the cluster: grpc://host:port")
    status.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    status.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the tasks."""
    address = arguments.target.removeprefix(SCHEME)
    address_of(address, "the address in a target")
    rates, screen = Rates(), console()

    def ask() -> list[Row]:
        return rates.rows(time.monotonic(), reports_of(address))

    ask()
    time.sleep(EVERY_SECONDS)
    if screen is None:
        sys.stdout.write(lines(ask()))
        while arguments.watch:
            sys.stdout.flush()
            time.sleep(EVERY_SECONDS)
            sys.stdout.write(lines(ask()))
        return 0
    if not arguments.watch:
        screen.print(table(ask()))
        return 0
    from rich.live import Live

    with Live(table(ask()), console=screen, auto_refresh=False) as live:
        while True:
            time.sleep(EVERY_SECONDS)
            live.update(table(ask()), refresh=True)
