"""`weft launch`: start a cluster for a program, or write manifests for another manager."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import ExitStack
from typing import Any, Final

from weft_distrib.commands.table import console, table
from weft_distrib.launch import Job, Launch, TaskId
from weft_distrib.launch.local import GRACE_SECONDS, LocalCluster
from weft_distrib.launch.spec import localize_program, tf_config
from weft_distrib.launch.status import Row, Watcher
from weft_tensor import errors

JOBS: Final = ("ps", "chief", "worker", "evaluator")
"""Jobs that have command-line options, in the order of task numbers."""

_COLORS = ("cyan", "magenta", "blue", "yellow", "green")


def add(parser: argparse.ArgumentParser) -> None:
    """Start a cluster locally or in a Slurm step, or write manifests for Kubernetes."""
    parser.description = (
        "Runs a program in every task of a cluster, each with its own TF_CONFIG; without a "
        "program, plain servers. The cluster ends when all tasks but parameter servers are done."
    )
    target_group = parser.add_mutually_exclusive_group(required=True)
    target_group.add_argument(
        "--local", action="store_true", help="run the tasks as processes of this machine"
    )
    target_group.add_argument(
        "--slurm", action="store_true", help="run the program as this task of a Slurm step"
    )
    target_group.add_argument(
        "--kubernetes",
        choices=("jobs", "jobset", "trainjob"),
        help="print manifests: a Service with Indexed Jobs, a JobSet, or a Kubeflow TrainJob",
    )
    for name in JOBS:
        parser.add_argument(
            f"--{name}", type=int, default=0, metavar="N", help=f"number of {name} tasks"
        )
    parser.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="NAME=N",
        help="number of tasks of another job",
    )
    parser.add_argument("--name", default="weft", help="job name for Kubernetes and Slurm")
    parser.add_argument(
        "--restarts", type=int, default=0, metavar="N", help="restarts per failed task (default: 0)"
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL (default: %(default)g)",
    )
    parser.add_argument("--image", help="container image (Kubernetes)")
    parser.add_argument(
        "--cpus", type=float, default=1.0, help="CPUs per task (Kubernetes; default: 1)"
    )
    parser.add_argument(
        "--gpus", type=int, default=0, help="GPUs per worker and chief (Kubernetes)"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment variable for all tasks",
    )
    parser.add_argument("program", nargs="*", help="program and its arguments, after --")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command with its arguments."""
    launch = launch_of(arguments)
    if arguments.slurm:
        from weft_distrib.launch.slurm import task_from_slurm

        task = task_from_slurm(launch)
        program = localize_program(launch.job(task.task_id.job).program)
        os.environ.update(tf_config(task.cluster, task.task_id))
        sys.stdout.flush()
        try:
            os.execvp(program[0], program)
        except OSError as error:
            raise errors.NotFoundError(f"cannot run {program[0]}: {error.strerror}") from error
    if arguments.kubernetes:
        from weft_distrib.launch.kubernetes import manifests, to_yaml

        if not arguments.image:
            raise errors.InvalidArgumentError("--kubernetes needs --image")
        sys.stdout.write(to_yaml(manifests(launch, arguments.image, arguments.kubernetes)))
        return 0
    return run_local(launch, arguments.grace)


def launch_of(arguments: argparse.Namespace) -> Launch:
    """Return the launch specification that the arguments describe.

    Raises: InvalidArgumentError: a job or a number is invalid.
    """
    counts = {name: getattr(arguments, name) for name in JOBS}
    for text in arguments.job:
        name, _, number = text.partition("=")
        if not number.isdecimal():
            raise errors.InvalidArgumentError(f"--job must be like NAME=2, got {text!r}")
        counts[name] = counts.get(name, 0) + int(number)
    program = tuple(arguments.program)
    jobs = [
        Job(name, count, program, arguments.cpus, arguments.gpus if _computes(name) else 0)
        for name, count in counts.items()
        if count
    ]
    environment = dict(_variable(text) for text in arguments.env)
    return Launch(arguments.name, jobs, arguments.restarts, environment)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise errors.InvalidArgumentError(f"--env must be like NAME=VALUE, got {text!r}")
    return name, value


def _computes(job: str) -> bool:
    return job not in ("ps", "evaluator")


def run_local(launch: Launch, grace: float) -> int:
    """Run a launch on this machine; show its output and, on a terminal, its status table."""
    output = _Output(launch)
    cluster = LocalCluster(launch, output.line, grace)
    signal.signal(signal.SIGINT, lambda *_: cluster.interrupt())
    signal.signal(signal.SIGTERM, lambda *_: cluster.interrupt())
    with ExitStack() as stack:
        output.begin(stack, cluster)
        return cluster.run()


class _Output:
    """Writer of output lines, prefixed by the task's name, above the status table."""

    def __init__(self, launch: Launch) -> None:
        self._console = console()
        self._live: Any = None
        self._lock = threading.Lock()
        self._width = max(len(str(task_id)) for task_id in launch.task_ids())
        names = [job.name for job in launch.jobs]
        self._colors = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(names)}

    def begin(self, stack: ExitStack, cluster: LocalCluster) -> None:
        """Show the status table on a terminal, until the exit stack is unwound."""
        if self._console is None:
            return
        from rich.live import Live

        self._live = Live(table([]), console=self._console, auto_refresh=False)
        stack.enter_context(self._live)
        stack.callback(Watcher(cluster.cluster, self._show).close)

    def _show(self, rows: list[Row]) -> None:
        with self._lock:
            self._live.update(table(rows), refresh=True)

    def line(self, task_id: TaskId | None, text: str) -> None:
        """Write a line of output of a task, or of the launcher."""
        label = f"[{'launch' if task_id is None else task_id}]".ljust(self._width + 2)
        if self._console is None:
            with self._lock:
                sys.stdout.write(f"{label} {text}\n")
                sys.stdout.flush()
            return
        from rich.text import Text

        color = "bold" if task_id is None else self._colors[task_id.job]
        body = Text.from_ansi(text)
        with self._lock:
            self._console.print(Text(label + " ", color) + body, soft_wrap=True)
