"""A cluster whose servers are all in this process, for tests."""

from __future__ import annotations

__all__ = ["create_local_cluster"]

from contextlib import ExitStack
from typing import Any

from weft_distrib.launch.local import find_free_addresses
from weft_distrib.server import Server
from weft_tensor import errors


def create_local_cluster(
    num_workers: int,
    num_ps: int,
    protocol: str = "grpc",
    worker_config: Any = None,
    ps_config: Any = None,
) -> tuple[list[Server], list[Server]]:
    """Create a cluster of the jobs "worker" and "ps" in this process, and return its servers.

    Args:
      num_workers, num_ps: the number of tasks of each job.
      protocol: as for `train.Server`.
      worker_config, ps_config: ConfigProtos for the devices of each job.
    Returns: the servers of the workers, and the servers of "ps".
    Raises: InvalidArgumentError: a number is negative, or both are 0.

    Examples:
      >>> workers, ps = wf.test.create_local_cluster(num_workers=1, num_ps=1)
      >>> with wf.device("/job:ps/task:0"):
      ...     v = wf.Variable(3.0)
      >>> with wf.Session(workers[0].target) as session:
      ...     session.run(v.initializer)
      ...     session.run(v * 2.0)
      np.float32(6.0)
      >>> for server in workers + ps:
      ...     server.close()
    """
    jobs = {"worker": num_workers, "ps": num_ps}
    for job, count in jobs.items():
        if count < 0:
            raise errors.InvalidArgumentError(
                f"the number of {job} tasks must be 0 or more, got {count}"
            )
    addresses = iter(find_free_addresses(sum(jobs.values())))
    cluster = {job: [next(addresses) for _ in range(n)] for job, n in jobs.items() if n}
    configs = {"worker": worker_config, "ps": ps_config}
    with ExitStack() as exit_stack:  # if one cannot be created, the others end

        def server(job: str, task: int) -> Server:
            server = Server(cluster, job, task, protocol, configs[job])
            exit_stack.callback(server.close)
            return server

        workers, ps = ([server(job, i) for i in range(count)] for job, count in jobs.items())
        exit_stack.pop_all()
        return workers, ps
