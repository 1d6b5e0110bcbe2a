"""The specification of a launch: jobs with their numbers of tasks and their programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from weft_distrib.cluster.environment import VARIABLE
from weft_distrib.cluster.spec import ClusterSpec
from weft_tensor import errors

SERVER_COMMAND: Final = ("weft", "server")
"""The program of tasks without a command: a server for other programs."""


def localize_program(program: tuple[str, ...]) -> tuple[str, ...]:
    """Adapt a program to this machine: servers run in this interpreter, regardless of PATH."""
    if program == SERVER_COMMAND:
        return (sys.executable, "-m", "weft", *program[1:])
    return program


_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_MAX_TASKS: Final = 100_000


class TaskId(NamedTuple):
    """The identity of a task: the name of its job, and its number in the job."""

    job: str
    number: int

    def __str__(self) -> str:
        return f"{self.job}:{self.number}"


@dataclass(frozen=True)
class Job:
    """A group of equal tasks.

    Attributes:
      name: its name, such as "ps" or "worker": lowercase letters, digits and hyphens.
      tasks: the number of tasks.
      command: the program of each task; empty for a server.
      cpus, gpus: the number of processors of each task.
      memory: the bytes of memory of each task; 0 if unspecified.
    Raises: InvalidArgumentError: the name is invalid, or a number is out of range.
    """

    name: str
    tasks: int
    command: tuple[str, ...] = ()
    cpus: float = 1.0
    gpus: int = 0
    memory: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise errors.InvalidArgumentError(
                "the name of a job must consist of lowercase letters, digits and hyphens, got "
                f"{self.name!r}"
            )
        if not 0 < self.tasks <= _MAX_TASKS:
            raise errors.InvalidArgumentError(
                f"job {self.name!r} must have 1 to {_MAX_TASKS} tasks, got {self.tasks}"
            )
        for label in ("cpus", "gpus", "memory"):
            if not getattr(self, label) >= 0:
                raise errors.InvalidArgumentError(
                    f"{label} of job {self.name!r} must be 0 or more, got {getattr(self, label)}"
                )

    @property
    def serves(self) -> bool:
        """True if its tasks are servers, which do not end on their own."""
        return not self.command or self.name == "ps"

    @property
    def program(self) -> tuple[str, ...]:
        """The program of each task."""
        return self.command or SERVER_COMMAND


@dataclass(frozen=True)
class Launch:
    """A cluster to start.

    Attributes:
      name: the name of the launch: lowercase letters, digits and hyphens.
      jobs: its jobs.
      restarts: how often each task may be restarted after a failure.
      environment: environment variables for all tasks.
    Raises: InvalidArgumentError: a name is invalid or repeated, a number is out of range, or the
      environment sets a variable that differs between tasks.

    Examples:
      >>> from weft_distrib.launch import Job, Launch
      >>> launch = Launch("digits", [Job("ps", 1), Job("worker", 2, ("python", "train.py"))])
      >>> [str(place) for place in launch.task_ids()]
      ['ps:0', 'worker:0', 'worker:1']
    """

    name: str
    jobs: Sequence[Job]
    restarts: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise errors.InvalidArgumentError(
                f"the name must consist of lowercase letters, digits and hyphens, got {self.name!r}"
            )
        if not self.jobs:
            raise errors.InvalidArgumentError("a launch needs at least one job with a task")
        names = [job.name for job in self.jobs]
        for name in names:
            if names.count(name) > 1:
                raise errors.InvalidArgumentError(f"the job {name!r} is listed twice")
        if VARIABLE in self.environment:
            raise errors.InvalidArgumentError(
                f"{VARIABLE} is set for each task and cannot be one of the common variables"
            )
        if self.restarts < 0:
            raise errors.InvalidArgumentError(f"restarts must be 0 or more, got {self.restarts}")

    def task_ids(self) -> Iterator[TaskId]:
        """Yield the identities of all tasks, job by job."""
        for job in self.jobs:
            for number in range(job.tasks):
                yield TaskId(job.name, number)

    def job(self, name: str) -> Job:
        """Return the job with a name.

        Raises: InvalidArgumentError: the launch has no such job.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        raise errors.InvalidArgumentError(
            f"unknown job {name!r}; the jobs are {', '.join(job.name for job in self.jobs)}"
        )

    def cluster(self, addresses: Sequence[str]) -> ClusterSpec:
        """Return the cluster whose tasks have the given addresses.

        Args:
          addresses: "host:port" of each task, in the order of `task_ids`.
        Raises: InvalidArgumentError: the number of addresses differs from the number of tasks, or
          one is repeated.
        """
        task_ids = list(self.task_ids())
        if len(addresses) != len(task_ids):
            raise errors.InvalidArgumentError(
                f"{len(task_ids)} tasks require {len(task_ids)} addresses, got {len(addresses)}"
            )
        jobs: dict[str, list[str]] = {job.name: [] for job in self.jobs}
        for task_id, address in zip(task_ids, addresses, strict=True):
            jobs[task_id.job].append(address)
        return ClusterSpec(jobs)


def tf_config(cluster: ClusterSpec, task_id: TaskId) -> dict[str, str]:
    """Return the value of `TF_CONFIG` for a task.

    Args:
      cluster: the addresses of all tasks.
      place: the identity of the task.
    """
    task = {"type": task_id.job, "index": task_id.number}
    return {VARIABLE: json.dumps({"cluster": cluster.as_dict(), "task": task})}
