"""`weft server`: run one task of a cluster."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from weft_distrib.cluster.environment import VARIABLE, task_from_environment
from weft_distrib.server import Server
from weft_tensor import errors


def add(parser: argparse.ArgumentParser) -> None:
    """Run one task of a cluster, until it is told to stop."""
    parser.add_argument(
        "--cluster",
        metavar="JOBS",
        help='JSON such as {"ps": ["host:2222"], "worker": ["host:2223"]}; '
        f"without it {VARIABLE} says all",
    )
    parser.add_argument("--job", help="the task's job; may be left out where there is one")
    parser.add_argument("--task", type=int, help="its number; may be left out where there is one")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the task that the arguments or the environment describe."""
    server = Server(*_task(arguments))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.close())
    sys.stdout.write(f"listening on {server.target}\n")
    sys.stdout.flush()
    server.join()
    return 0


def _task(arguments: argparse.Namespace) -> tuple[Any, str | None, int | None]:
    if arguments.cluster is not None:
        try:
            return json.loads(arguments.cluster), arguments.job, arguments.task
        except ValueError as error:
            raise errors.InvalidArgumentError(f"--cluster is no JSON: {error}") from error
    found = task_from_environment()
    if found is None:
        raise errors.InvalidArgumentError(f"give --cluster, or set {VARIABLE}")
    job = arguments.job or found.job
    return found.cluster, job, found.number if arguments.task is None else arguments.task
