"""`weft server`: run one task of a cluster."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Final

from weft_distrib.cluster.environment import VARIABLE, task_from_environment
from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.security.credentials import VARIABLES, Credentials
from weft_distrib.security.loopback import LOOPBACK
from weft_distrib.server import DRAIN_SECONDS, Server
from weft_distrib.wire.address import address_of
from weft_tensor import errors

_LOCAL_CLUSTER: Final = {"local": ["localhost:0"]}
_STDIN: Final = 0
_READ_BYTES: Final = 4096

_FILES: Final = {
    "certificate": "certificate of the task",
    "key": "private key of the certificate",
    "authority": "certificates of the authorities to trust",
    "token": "secret that all tasks and clients share",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Run one task of a cluster until it is stopped."""
    parser.add_argument(
        "--cluster",
        metavar="JOBS",
        help='tasks as JSON, such as {"ps": ["host:2222"], "worker": ["host:2223"]} '
        f"(default: {VARIABLE}, or else this task alone, on a free port of localhost)",
    )
    parser.add_argument("--job", help="job of this task; optional if the cluster has one job")
    parser.add_argument(
        "--task", type=int, help="index of this task; optional if the job has one task"
    )
    for name, label in _FILES.items():
        parser.add_argument(
            f"--{name}", metavar="FILE", default="", help=f"{label} (default: {VARIABLES[name]})"
        )
    parser.add_argument(
        "--insecure",
        action="count",
        default=0,
        help="accept every user of this machine, without a token; pass it twice to listen for "
        "other machines without certificates",
    )
    parser.add_argument(
        "--root",
        action="append",
        metavar="DIRECTORY",
        help="directory whose files sessions of other processes may read and write; can be "
        "repeated (default: the directory for temporary files)",
    )
    parser.add_argument(
        "--value-port",
        type=int,
        default=0,
        metavar="PORT",
        help="port for sessions and values, which clients in C, C++ and JavaScript connect to "
        "(default: a free one)",
    )
    parser.add_argument(
        "--drain",
        type=float,
        default=DRAIN_SECONDS,
        metavar="SECONDS",
        help=f"time for running steps to end after SIGTERM (default: {DRAIN_SECONDS:g})",
    )
    parser.add_argument(
        "--stop-at-eof",
        action="store_true",
        help=(
            "stop, as after SIGTERM, when standard input is closed; a pipe is closed when the "
            "program that started the server ends"
        ),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the task that the arguments or the environment variables describe."""
    cluster, job, task = _task(arguments)
    if arguments.insecure == 1:
        _check_loopback(cluster, job, task)
    overrides = {name: getattr(arguments, name) for name in _FILES}
    server = Server(
        cluster,
        job,
        task,
        credentials=Credentials.from_environment(explicit_paths=overrides),
        insecure=arguments.insecure > 0,
        file_roots=arguments.root,
        value_port=arguments.value_port,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.begin_drain(arguments.drain))
    sys.stdout.write(f"listening on {server.target}\nlistening on {server.value_target}\n")
    sys.stdout.flush()
    if arguments.stop_at_eof:
        threading.Thread(
            target=_stop_at_eof, args=(server, arguments.drain), name="weft-stdin", daemon=True
        ).start()
    server.join()
    return 0


def _stop_at_eof(server: Server, drain_seconds: float) -> None:
    with suppress(OSError):  # standard input is closed, or its terminal is gone
        while os.read(_STDIN, _READ_BYTES):
            pass
    server.begin_drain(drain_seconds)


def _check_loopback(cluster: Any, job: str | None, task: int | None) -> None:
    """Reject a single --insecure if other machines can reach the server."""
    spec = ClusterSpec(cluster)
    for name in [job] if job else spec.jobs:
        for index in spec.task_indices(name) if task is None else [task]:
            address = spec.task_address(name, index)
            if address_of(address).host not in LOOPBACK:
                raise errors.InvalidArgumentError(
                    f"with --insecure, anyone who can reach {address} can run code on this "
                    "machine; pass the option twice to confirm"
                )


def _task(arguments: argparse.Namespace) -> tuple[Any, str | None, int | None]:
    if arguments.cluster is not None:
        try:
            return json.loads(arguments.cluster), arguments.job, arguments.task
        except ValueError as error:
            raise errors.InvalidArgumentError(f"--cluster is not valid JSON: {error}") from error
    task = task_from_environment()
    if task is None and arguments.job is None and arguments.task is None:
        return _LOCAL_CLUSTER, None, None
    if task is None:
        raise errors.InvalidArgumentError(
            f"--job and --task name a task of a cluster: pass --cluster, or set {VARIABLE}"
        )
    job = arguments.job or task.job
    return task.cluster, job, task.number if arguments.task is None else arguments.task
