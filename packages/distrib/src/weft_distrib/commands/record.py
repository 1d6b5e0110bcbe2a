"""`weft trace record`: record the activity of all tasks of a cluster."""

from __future__ import annotations

import argparse

from weft_distrib.commands.cluster import SCHEME
from weft_distrib.wire.address import address_of


def add(parser: argparse.ArgumentParser) -> None:
    """Record the next steps of all tasks of a cluster to a trace file."""
    parser.add_argument("target", help="any task of the cluster: grpc://host:port")
    parser.add_argument(
        "file",
        nargs="?",
        default="cluster.weft-trace",
        help="the trace file, which is replaced if it exists (default: %(default)s)",
    )
    parser.add_argument(
        "--steps", type=int, default=10, help="steps to record (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="time limit of the recording (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Record a trace."""
    from weft_distrib.client.recording import record_trace

    address = arguments.target.removeprefix(SCHEME)
    address_of(address, "the address in a target")
    record_trace(f"{SCHEME}{address}", arguments.steps, arguments.file, arguments.seconds)
    return 0
