"""Tasks of clusters for tests: in this process, or as processes that can be killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from weft_distrib import Server
from weft_distrib.launch.local import find_free_addresses
from weft_testing.waiting import wait_until

Jobs = Mapping[str, Sequence[str]]

# A test that is itself killed, such as for its time, closes the pipe and so ends its tasks.
_TIED = """
import os, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
"""

_SERVE = """
import sys
from weft_distrib import Server
server = Server(eval(sys.argv[1], {}), sys.argv[2], int(sys.argv[3]))
print("ready", flush=True)
server.join()
"""

_WEFT = """
import runpy
runpy.run_module("weft", run_name="__main__", alter_sys=True)
"""


def free_ports(count: int) -> list[int]:
    """Return different free ports of this machine."""
    return [int(each.rpartition(":")[2]) for each in find_free_addresses(count)]


def jobs(**counts: int) -> dict[str, list[str]]:
    """Return a cluster on free ports of this machine with these numbers of tasks."""
    ports = iter(free_ports(sum(counts.values())))
    return {
        job: [f"localhost:{next(ports)}" for _ in range(count)] for job, count in counts.items()
    }


@contextmanager
def servers(
    cluster: Jobs, config: Any = None, protocol: str | None = None
) -> Iterator[list[Server]]:
    """Start all tasks of a cluster in this process."""
    with ExitStack() as stack:
        made = []
        for job, addresses in cluster.items():
            for i in range(len(addresses)):
                server = Server(cluster, job, i, protocol, config)
                stack.callback(server.close)
                made.append(server)
        yield made


class Process:
    """A task in its own process, which ends with the `with` block.

    Args:
      options: of `weft server`; without them it is a program of a few lines.
    """

    def __init__(
        self, cluster: Jobs, job: str, task: int, options: Sequence[str] | None = None
    ) -> None:
        if options is None:
            serve = ["-c", _TIED + _SERVE, repr(dict(cluster)), job, str(task)]
        else:
            told = ["--cluster", json.dumps(dict(cluster)), "--job", job, "--task", str(task)]
            serve = ["-c", _TIED + _WEFT, "server", *told, *options]
        self._arguments = [sys.executable, *serve]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 it lives as long as this
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self._arguments, stdin=pipe, stdout=pipe, stderr=self._errors, text=True
        )
        assert process.stdout is not None
        try:
            told = process.stdout.readline()
            assert told.startswith(("ready", "listening")), self._written()
        except BaseException:  # because nobody has it yet who could end it
            _end(process)
            raise
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._errors.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process."""
        _end(self._process)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return exit status and stderr."""
        return self._process.wait(60), self._written()

    def _written(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def restart(self) -> None:
        """Start again after `kill`."""
        self._process = self._started()

    def stop(self) -> None:
        """Freeze the process, and wait until all its threads stand still."""
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        wait_until(lambda: all(_state(task) == "T" for task in tasks.iterdir()))

    def go_on(self) -> None:
        """Continue a frozen process."""
        self._process.send_signal(signal.SIGCONT)


def _state(task: Path) -> str:
    """Return the state of a thread, such as "R" or "T"."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.stdin is not None
    if not process.stdin.closed:  # else it was ended already
        process.communicate()  # closes its pipes as well


@contextmanager
def processes(cluster: Jobs, job: str) -> Iterator[list[Process]]:
    """Start all tasks of a job as processes."""
    with ExitStack() as stack:
        made = []
        for i in range(len(cluster[job])):
            made.append(stack.enter_context(Process(cluster, job, i)))
        yield made


def memory_files(process: int) -> set[tuple[int, int]]:
    """Return the shared memory files that a process holds open, as (device, inode)."""
    directory = f"/proc/{process}/fd"
    found = set()
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        try:
            if "memfd:weft-values" in os.readlink(path):
                status = os.stat(path)
                found.add((status.st_dev, status.st_ino))
        except FileNotFoundError:
            continue
    return found
