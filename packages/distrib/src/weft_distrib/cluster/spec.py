"""The jobs of a cluster, and the addresses of their tasks."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["ClusterSpec"]

from collections.abc import Iterable, Mapping
from typing import Any

from weft_distrib.wire.address import address_of
from weft_graph.ir.device_spec import DeviceParts
from weft_tensor import errors


class ClusterSpec:
    """The jobs of a cluster, and the addresses of their tasks.

    Args:
      cluster: a mapping from job names to lists of "host:port", or to mappings from task numbers to
        such addresses if not all are known; another ClusterSpec; or a ClusterDef.
    Raises:
      InvalidArgumentError: an address is invalid or repeated, or the name of a job cannot be part
        of a device name.
      TypeError: `cluster` has another type.

    Examples:
      >>> cluster = wf.train.ClusterSpec({"ps": ["ps0:2222"], "worker": ["w0:2222", "w1:2222"]})
      >>> cluster.num_tasks("worker"), cluster.task_address("ps", 0)
      (2, 'ps0:2222')
    """

    def __init__(self, cluster: Any) -> None:
        self._jobs: dict[str, dict[int, str]] = {}
        for job, tasks in _jobs_of(cluster):
            if not isinstance(job, str) or not job:
                raise errors.InvalidTypeError(
                    f"the name of a job must be a non-empty string, got {job!r}"
                )
            if any(sign.isspace() or sign in "/:" for sign in job):
                raise errors.InvalidArgumentError(
                    f"the name of a job must not contain blanks, '/' or ':', got {job!r}"
                )
            self._jobs[job] = {}
            for task, address in _tasks_of(job, tasks):
                if not isinstance(task, int) or isinstance(task, bool) or task < 0:
                    raise errors.InvalidTypeError(
                        f"task indices of job {job!r} must be integers of at least 0, got {task!r}"
                    )
                self._jobs[job][task] = _check_address(address, f"/job:{job}/task:{task}")
        self._check_duplicates()

    def _check_duplicates(self) -> None:
        owners: dict[str, str] = {}
        for job, tasks in self._jobs.items():
            for task, address in tasks.items():
                name = f"/job:{job}/task:{task}"
                if address in owners:
                    raise errors.InvalidArgumentError(
                        f"{owners[address]} and {name} have the same address {address!r}"
                    )
                owners[address] = name

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs in order."""
        return sorted(self._jobs)

    def _job(self, name: str) -> dict[int, str]:
        job = self._jobs.get(name)
        if job is None:
            raise errors.InvalidArgumentError(
                f"the cluster has no job {name!r}; it has {', '.join(self.jobs) or 'none'}"
            )
        return job

    def num_tasks(self, job_name: str) -> int:
        """Return the number of tasks of a job.

        Raises: InvalidArgumentError: the job does not exist.
        """
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the numbers of a job's tasks, in order.

        Raises: InvalidArgumentError: the job does not exist.
        """
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of a task.

        Raises: InvalidArgumentError: the job or task does not exist.
        """
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise errors.InvalidArgumentError(
                f"job {job_name!r} has no task {task_index!r}; it has {self.task_indices(job_name)}"
            )
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return the addresses of a job's tasks by number; None for missing numbers.

        Raises: InvalidArgumentError: the job does not exist.
        """
        tasks = self._job(job_name)
        return [tasks.get(i) for i in range(max(tasks, default=-1) + 1)]

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Return the cluster as a mapping that can recreate it."""
        return {job: _as_list(self._jobs[job]) for job in self.jobs}

    def as_cluster_def(self) -> Any:
        """Return the cluster as a ClusterDef."""
        cluster_def = proto.ClusterDef()
        for job in self.jobs:
            item = cluster_def.job.add(name=job)
            for task, address in sorted(self._jobs[job].items()):
                item.tasks[task] = address
        return cluster_def

    def tasks(self) -> list[DeviceParts]:
        """Return all tasks as prefixes of device names."""
        return [DeviceParts(job, 0, task) for job in self.jobs for task in sorted(self._jobs[job])]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(str(self.as_dict()))

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"


def _jobs_of(cluster: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(cluster, ClusterSpec):
        return cluster.as_dict().items()
    if isinstance(cluster, Mapping):
        return cluster.items()
    if getattr(getattr(cluster, "DESCRIPTOR", None), "name", "") == "ClusterDef":
        return [(job.name, dict(job.tasks)) for job in cluster.job]
    raise errors.InvalidTypeError(
        f"a cluster must be a mapping of jobs, a ClusterSpec or a ClusterDef, got {cluster!r}"
    )


def _tasks_of(job: str, tasks: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(tasks, Mapping):
        return tasks.items()
    if isinstance(tasks, list | tuple):
        return enumerate(tasks)
    raise errors.InvalidTypeError(
        f"job {job!r} must have a list or a mapping of addresses, got {tasks!r}"
    )


def _check_address(address: Any, task: str) -> str:
    if isinstance(address, bytes):
        address = address.decode(errors="replace")
    if not isinstance(address, str):
        raise errors.InvalidTypeError(f"the address of {task} must be a string, got {address!r}")
    address_of(address, f"the address of {task}")
    return address


def _as_list(tasks: dict[int, str]) -> list[str] | dict[int, str]:
    if sorted(tasks) == list(range(len(tasks))):
        return [tasks[i] for i in range(len(tasks))]
    return dict(sorted(tasks.items()))
