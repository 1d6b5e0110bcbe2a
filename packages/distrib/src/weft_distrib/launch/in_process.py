"""A cluster in this process, for tests."""

from __future__ import annotations

__all__ = ["create_local_cluster"]

import socket
from contextlib import ExitStack
from typing import Any

from weft_distrib.server import Server


def create_local_cluster(
    num_workers: int,
    num_ps: int,
    protocol: str = "grpc",
    worker_config: Any = None,
    ps_config: Any = None,
) -> tuple[list[Server], list[Server]]:
    """The servers of a cluster of jobs "worker" and "ps", all in this process.

    Args:
      num_workers, num_ps: how many tasks the jobs have.
      protocol: as of `train.Server`.
      worker_config, ps_config: ConfigProtos of their devices.
    Returns: the servers of the workers, and those of "ps".

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
    addresses = iter(_addresses(sum(jobs.values())))
    cluster = {job: [next(addresses) for _ in range(n)] for job, n in jobs.items() if n}
    configs = {"worker": worker_config, "ps": ps_config}
    workers, ps = (
        [
            Server(cluster, job_name=job, task_index=i, protocol=protocol, config=configs[job])
            for i in range(count)
        ]
        for job, count in jobs.items()
    )
    return workers, ps


def _addresses(count: int) -> list[str]:
    """Free ports of this machine, held until all are known."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]
