"""A cluster on Ray: servers are actors, which Ray places, watches and restarts.

Ray is only the control plane. Tensors are sent directly between servers, never through Ray's object
store. A restart that Ray reports is only a hint; the incarnation number of the server confirms it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.launch.spec import Job, Launch, TaskId
from weft_tensor import errors

_log = logging.getLogger("weft")

START_SECONDS: Final = 120.0
"""Seconds within which Ray must place and start all tasks."""

_LOOK_SECONDS = 0.5
_END_SECONDS = 30.0


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise errors.FailedPreconditionError(
            "a cluster on Ray requires the package ray: pip install weftml-distrib[ray]"
        ) from error
    return ray


class Task:
    """The actor of one task, in a process that Ray has started.

    Args:
      host: the address under which other tasks reach it; by default that of its machine.
    """

    def __init__(self, host: str = "") -> None:
        self._host = host or _local_address()
        self._server: Any = None

    def reserve(self) -> str:
        """Return a free address of this machine for the task."""
        with socket.create_server((self._host, 0)) as sock:
            return f"{self._host}:{sock.getsockname()[1]}"

    def serve(
        self, cluster: dict[str, Any], job: str, number: int, insecure: bool
    ) -> tuple[int, int]:
        """Start the server of the task; return its incarnation and process id."""
        if self._server is None:
            from weft_distrib.server import Server

            self._server = Server(cluster, job, number, insecure=insecure)
        return self._server.incarnation, os.getpid()

    def incarnation(self) -> int:
        """Return the server's incarnation.

        0 before `serve`, and after Ray has restarted the actor.
        """
        return 0 if self._server is None else self._server.incarnation


def _local_address() -> str:
    return str(_ray().util.get_node_ip_address())


class RayCluster:
    """The tasks of a launch as actors of Ray, until `close`.

    Connect to Ray first (`ray.init`). Each task has a bundle of one placement group, so either all
    tasks are placed or none. A task whose process dies is restarted in its bundle with the same
    address, up to `restarts` times. No programs are run; sessions connect to `target`.

    Args:
      launch: the launch, whose jobs have no commands.
      host: the address on which servers listen; by default that of each node, which requires
        certificates or `insecure`.
      strategy: the strategy of the placement group: "PACK", "SPREAD", "STRICT_PACK" or
        "STRICT_SPREAD".
      insecure: see `Server`.
      on_restart: called when a task was restarted.
    Attributes:
      cluster: the addresses of the tasks.
    Raises:
      FailedPreconditionError: Ray is not installed, or not connected.
      UnavailableError: Ray could not place the tasks in time.

    Examples:
      A parameter server and two workers on the nodes of a Ray cluster:

          ray.init()
          launch = Launch("digits", [Job("ps", 1), Job("worker", 2)], restarts=3)
          with RayCluster(launch) as cluster, wf.Session(cluster.target("worker")) as session:
              ...
    """

    def __init__(
        self,
        launch: Launch,
        host: str = "",
        strategy: str = "SPREAD",
        insecure: bool = False,
        on_restart: Callable[[TaskId], None] | None = None,
    ) -> None:
        ray = _ray()
        if not ray.is_initialized():
            raise errors.FailedPreconditionError("connect to Ray first: ray.init()")
        for job in launch.jobs:
            if job.command:
                raise errors.InvalidArgumentError(
                    f"tasks on Ray must be servers without a command; job {job.name!r} has the "
                    f"command {job.command}"
                )
        self._launch, self._insecure, self._on_restart = launch, insecure, on_restart
        self._stop = threading.Event()
        self._lives: dict[TaskId, tuple[int, int]] = {}
        self._actors: dict[TaskId, Any] = {}
        self._group = _create_placement_group(ray, launch, strategy)
        try:
            self._actors = _actors(ray, launch, self._group, host)
            calls = [actor.reserve.remote() for actor in self._actors.values()]
            self.cluster: ClusterSpec = launch.cluster(ray.get(calls, timeout=START_SECONDS))
            for actor in self._actors:
                self._serve(actor)
        except BaseException:  # because actors started by Ray must be stopped
            self._remove()
            raise
        self._thread = threading.Thread(target=self._watch, name="weft-ray", daemon=True)
        self._thread.start()

    def target(self, job: str, number: int = 0) -> str:
        """Return the target for sessions on a task.

        Raises: InvalidArgumentError: the task does not exist.
        """
        return f"grpc://{self.cluster.task_address(job, number)}"

    def process(self, job: str, number: int = 0) -> int:
        """Return the process id of a task on its node."""
        return self._lives[TaskId(job, number)][1]

    def incarnation(self, job: str, number: int = 0) -> int:
        """Return the last observed incarnation of a task."""
        return self._lives[TaskId(job, number)][0]

    def _serve(self, task_id: TaskId) -> None:
        call = self._actors[task_id].serve.remote(
            self.cluster.as_dict(), task_id.job, task_id.number, self._insecure
        )
        self._lives[task_id] = _ray().get(call, timeout=START_SECONDS)

    def _watch(self) -> None:
        """Start the servers of actors that Ray has restarted.

        All actors are polled concurrently, so a busy or frozen one does not delay the others.
        Liveness probes decide whether a task is lost.
        """
        requested: dict[Any, TaskId] = {}
        silent: set[TaskId] = set()
        while not self._stop.wait(_LOOK_SECONDS):
            for key in self._actors.keys() - requested.values():
                requested[self._actors[key].incarnation.remote()] = key
            answered, _ = _ray().wait(
                list(requested), num_returns=len(requested), timeout=_LOOK_SECONDS
            )
            for answer in answered:
                key = requested.pop(answer)
                try:
                    self._check_process(key, answer)
                    silent.discard(key)
                except Exception as error:  # because Ray raises many kinds; the next poll retries
                    if key not in silent:
                        _log.warning("%s does not respond to Ray: %s", key, error)
                    silent.add(key)

    def _check_process(self, task_id: TaskId, answer: Any) -> None:
        if self._stop.is_set() or _ray().get(answer) == self.incarnation(*task_id):
            return
        self._serve(task_id)
        _log.info("%s was restarted by Ray", task_id)
        if self._on_restart is not None:
            self._on_restart(task_id)

    def close(self) -> None:
        """End all tasks."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(_END_SECONDS)
            self._remove()

    def _remove(self) -> None:
        ray = _ray()
        if not ray.is_initialized():  # shutting down Ray has ended the actors
            return
        for actor in self._actors.values():
            ray.kill(actor, no_restart=True)
        ray.util.remove_placement_group(self._group)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _create_placement_group(ray: Any, launch: Launch, strategy: str) -> Any:
    """Create a placement group with one bundle for each task."""
    bundles = [_required_resources(launch.job(task_id.job)) for task_id in launch.task_ids()]
    group = ray.util.placement_group(bundles, strategy=strategy)
    if not group.wait(START_SECONDS):
        ray.util.remove_placement_group(group)
        raise errors.UnavailableError(
            f"Ray could not place {len(bundles)} tasks within {START_SECONDS:g} s: they need "
            f"{bundles}, but only {ray.available_resources()} are available"
        )
    return group


def _required_resources(job: Job) -> Mapping[str, float]:
    expected = {"CPU": job.cpus, "GPU": job.gpus, "memory": job.memory}
    return {name: float(count) for name, count in expected.items() if count}


def _actors(ray: Any, launch: Launch, group: Any, host: str) -> dict[TaskId, Any]:
    """Create an actor in each bundle, and return the actors."""
    result = {}
    for i, task_id in enumerate(launch.task_ids()):
        job = launch.job(task_id.job)
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=i
        )
        options = ray.remote(Task).options(
            name=f"{launch.name}-{task_id}",
            num_cpus=job.cpus,
            num_gpus=job.gpus,
            memory=job.memory or None,
            max_restarts=launch.restarts,
            max_concurrency=4,
            scheduling_strategy=strategy,
            runtime_env={"env_vars": dict(launch.environment)},
        )
        result[task_id] = options.remote(host)
    return result
