"""A cluster of processes on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

import weft as wf
from weft_distrib.launch import Job, Launch
from weft_distrib.launch.local import LocalCluster


@contextmanager
def local_cluster(
    jobs: Mapping[str, int], directory: Path, console: Console
) -> Iterator[wf.train.ClusterSpec]:
    """Start servers, and end them when the block ends.

    Args:
      jobs: the number of tasks of each job.
      directory: the only directory that the servers may read and write.
      console: shows what the servers print.
    """
    launch = Launch(
        "journey",
        [Job(name, tasks) for name, tasks in jobs.items()],
        environment={"WEFT_FILE_ROOTS": str(directory.resolve())},
    )
    lines: list[str] = []
    cluster = LocalCluster(launch, lambda place, line: lines.append(f"{place or ''} {line}"))
    thread = threading.Thread(target=cluster.run)
    thread.start()
    try:
        yield cluster.cluster
    except Exception:
        console.print("\n".join(lines[-20:]), markup=False)
        raise
    finally:
        cluster.interrupt()
        thread.join()
