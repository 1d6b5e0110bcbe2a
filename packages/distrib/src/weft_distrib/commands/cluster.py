"""`weft cluster`: show the state of a running cluster, and record what it does."""

from __future__ import annotations

import argparse
import sys
import time

from weft_distrib.commands.table import console, lines, table
from weft_distrib.launch.status import EVERY_SECONDS, Rates, Row, reports_of
from weft_distrib.wire.address import address_of

_SCHEME = "grpc://"


def add(parser: argparse.ArgumentParser) -> None:
    """Show the state of a running cluster, or record a trace of it."""
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
    text = "record the next steps of all tasks to a trace file, on one clock"
    add_record(actions.add_parser("record", help=text, description=text))


def add_record(parser: argparse.ArgumentParser) -> None:
    """Record the next steps of all tasks of a cluster to a trace file."""
    parser.add_argument("target", help="any task of the cluster: grpc://host:port")
    parser.add_argument("file", help="the trace file, which is replaced if it exists")
    parser.add_argument("--steps", type=int, default=10, help="steps to record; 10 by default")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time limit of the recording; 60 by default"
    )
    parser.set_defaults(run=run_record)


def run_record(arguments: argparse.Namespace) -> int:
    """Record a trace."""
    from weft_distrib.client.recording import record_trace

    address = arguments.target.removeprefix(_SCHEME)
    address_of(address, "the address in a target")
    record_trace(f"{_SCHEME}{address}", arguments.steps, arguments.file, arguments.seconds)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the tasks."""
    address = arguments.target.removeprefix(_SCHEME)
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
