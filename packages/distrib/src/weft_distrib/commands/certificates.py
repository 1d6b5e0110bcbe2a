"""`weft certificates`: create a development authority, and certificates for a cluster."""

from __future__ import annotations

import argparse
import json
import sys

from weft_distrib.cluster.environment import VARIABLE, task_from_environment
from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.security.authority import DAYS, make_certificates
from weft_distrib.wire.address import address_of
from weft_tensor import errors


def add(parser: argparse.ArgumentParser) -> None:
    """Create a development authority, certificates and a token for a cluster."""
    parser.add_argument(
        "folder", help="output directory; an authority in it signs the new certificates"
    )
    parser.add_argument(
        "--cluster", metavar="JOBS", help=f"tasks, as for weft server (default: {VARIABLE})"
    )
    parser.add_argument(
        "--days", type=float, default=DAYS, help=f"validity in days (default: {DAYS:g})"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Create the certificates and print their paths."""
    cluster = _cluster(arguments.cluster)
    tasks = {
        f"{job}-{task}": address_of(cluster.task_address(job, task)).host
        for job in cluster.jobs
        for task in cluster.task_indices(job)
    }
    for path in make_certificates(arguments.folder, tasks, arguments.days):
        sys.stdout.write(f"{path}\n")
    return 0


def _cluster(text: str | None) -> ClusterSpec:
    if text is not None:
        try:
            return ClusterSpec(json.loads(text))
        except ValueError as error:
            raise errors.InvalidArgumentError(f"--cluster is not valid JSON: {error}") from error
    task = task_from_environment()
    if task is None:
        raise errors.InvalidArgumentError(f"pass --cluster, or set {VARIABLE}")
    return task.cluster
