"""Tasks of clusters for tests: in this process, or as processes that can be killed and stopped."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from weft_distrib import Server

Jobs = Mapping[str, Sequence[str]]

_SERVE = """
import sys
from weft_distrib import Server
server = Server(eval(sys.argv[1], {}), sys.argv[2], int(sys.argv[3]))
print("ready", flush=True)
server.join()
"""


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, each another one."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in made]


def jobs(**counts: int) -> dict[str, list[str]]:
    """A cluster on free ports of this machine: so many tasks of each job."""
    ports = iter(free_ports(sum(counts.values())))
    return {
        job: [f"localhost:{next(ports)}" for _ in range(count)] for job, count in counts.items()
    }


@contextmanager
def servers(cluster: Jobs, config: Any = None) -> Iterator[list[Server]]:
    """All tasks of a cluster in this process, joined by sockets."""
    with ExitStack() as stack:
        made = []
        for job, addresses in cluster.items():
            for i in range(len(addresses)):
                server = Server(cluster, job, i, config=config)
                stack.callback(server.close)
                made.append(server)
        yield made


class Process:
    """A task in a process of its own.

    Args:
      options: of `weft server`; without them it is a program of a few lines.
    """

    def __init__(
        self, cluster: Jobs, job: str, task: int, options: Sequence[str] | None = None
    ) -> None:
        if options is None:
            serve = ["-c", _SERVE, repr(dict(cluster)), job, str(task)]
        else:
            told = ["--cluster", json.dumps(dict(cluster)), "--job", job, "--task", str(task)]
            serve = ["-m", "weft", "server", *told, *options]
        self._arguments = [sys.executable, *serve]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 it lives as long as this
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._arguments, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith(("ready", "listening"))
        return process

    @property
    def pid(self) -> int:
        """Of its present life."""
        return self._process.pid

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Tell it to end."""
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[int, str]:
        """Wait for its end; its exit status, and what it wrote to stderr."""
        code = self._process.wait(60)
        self._errors.seek(0)
        return code, self._errors.read()

    def restart(self) -> None:
        """Another life, after `kill`."""
        self._process = self._started()

    def stop(self) -> None:
        """Freeze it."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Thaw it."""
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def processes(cluster: Jobs, job: str) -> Iterator[list[Process]]:
    """All tasks of a job as processes."""
    with ExitStack() as stack:
        made = []
        for i in range(len(cluster[job])):
            process = Process(cluster, job, i)
            stack.callback(process.kill)
            made.append(process)
        yield made
