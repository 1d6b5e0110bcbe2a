"""A cluster of processes on this machine, for development."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.launch.spec import Launch, TaskId, localize_program, tf_config
from weft_distrib.launch.supervisor import Instruction, Start, Stop, Supervisor, describe_exit
from weft_tensor import errors

GRACE_SECONDS: Final = 10.0
"""Seconds between SIGTERM and SIGKILL for a task that does not end."""

_LINE_BYTES = 1 << 16
_READ_BYTES = 1 << 16
_PORTS = range(10_000, 32_768)
"""Range of ports, below Linux's ephemeral ports, so that no outgoing connection uses the port of a
task first.
"""
_PARENT_DEATH = Path(__file__).with_name("parent_death.py")

Say = Callable[[TaskId | None, str], None]
"""Receives a line of a task's output, or without a task a line of the launcher."""


def find_free_addresses(count: int) -> list[str]:
    """Return distinct free addresses of this machine.

    Raises: ResourceExhaustedError: there are too few free ports.
    """
    with ExitStack() as stack:
        result: list[socket.socket] = []
        for _ in range(100 * count):
            if len(result) < count:
                with suppress(OSError):  # the port is in use
                    address = "localhost", secrets.choice(_PORTS)
                    result.append(stack.enter_context(socket.create_server(address)))
        if len(result) < count:
            raise errors.ResourceExhaustedError(
                f"{count} free ports are needed, but only {len(result)} were found"
            )
        return [f"localhost:{item.getsockname()[1]}" for item in result]


class LocalCluster:
    """The tasks of a launch as processes; `run` starts them and returns when all have ended.

    Call `run` on the main thread, because tasks are terminated when the thread that started them
    ends.

    Args:
      launch: the launch.
      say: receives the output of the tasks line by line.
      grace: seconds between SIGTERM and SIGKILL.
    Attributes:
      cluster: the addresses of the tasks.
      supervisor: decides about starts and restarts.
    """

    def __init__(self, launch: Launch, print_line: Say, grace: float = GRACE_SECONDS) -> None:
        self.cluster: ClusterSpec = launch.cluster(
            find_free_addresses(len(list(launch.task_ids())))
        )
        self.supervisor = Supervisor(launch)
        self._launch, self._print, self._grace = launch, print_line, grace
        self._tasks: dict[TaskId, _Task] = {}
        self._selector = selectors.DefaultSelector()
        self._kill_at: float | None = None
        self._interrupts, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def run(self) -> int:
        """Run the tasks until all have ended; return the exit code of the launch."""
        self._selector.register(self._interrupts, selectors.EVENT_READ, self._handle_interrupt)
        self._announce()
        try:
            self._carry_out(self.supervisor.begin())
            while not self.supervisor.over:
                self._handle_next_event()
        finally:
            for task in self._tasks.values():  # tasks are left only after an error
                task.kill()
            self._selector.close()
            self._interrupts.close()
            self._wake.close()
        return self.supervisor.code

    def _announce(self) -> None:
        """Print how sessions of other programs can connect to the plain servers."""
        for task_id in self._launch.task_ids():
            if not self._launch.job(task_id.job).command:
                address = self.cluster.task_address(task_id.job, task_id.number)
                self._print(
                    None, f"{task_id} is grpc://{address}; this user's sessions need no token"
                )

    def interrupt(self) -> None:
        """End the cluster; for signal handlers and other threads.

        The second call kills all tasks.
        """
        with suppress(OSError):  # it has ended, or has pending interrupts
            self._wake.send(b"!")

    def process(self, task_id: TaskId) -> int | None:
        """Return the process id of a task; None if it is not running."""
        task = self._tasks.get(task_id)
        return None if task is None else task.process.pid

    def _handle_next_event(self) -> None:
        """Wait for the next event and handle it."""
        remaining_seconds = None if self._kill_at is None else self._kill_at - time.monotonic()
        for key, _ in self._selector.select(
            remaining_seconds if remaining_seconds is None else max(remaining_seconds, 0)
        ):
            key.data()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            for task in self._tasks.values():
                task.signal(signal.SIGKILL)

    def _handle_interrupt(self) -> None:
        self._interrupts.recv(1)
        actions = self.supervisor.handle_interrupt()
        if not actions:
            self._kill_at = time.monotonic()
        self._carry_out(actions)

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Start(task_id):
                    self._start(task_id)
                case Stop(reason):
                    self._print(None, f"stopping: {reason}")
                    self._kill_at = time.monotonic() + self._grace
                    for task in self._tasks.values():
                        task.signal(signal.SIGTERM)

    def _start(self, task_id: TaskId) -> None:
        program = localize_program(self._launch.job(task_id.job).program)
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            **self._launch.environment,
            **tf_config(self.cluster, task_id),
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PARENT_DEATH), str(os.getpid()), *program],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is the launcher's
        )
        task = self._tasks[task_id] = _Task(process, lambda line: self._print(task_id, line))
        self._selector.register(task.output, selectors.EVENT_READ, lambda: self._read(task))
        self._selector.register(
            task.end, selectors.EVENT_READ, lambda: self._handle_task_end(task_id, task)
        )

    def _read(self, task: _Task) -> None:
        if not task.output.closed and not task.read():
            self._selector.unregister(task.output)
            task.output.close()

    def _handle_task_end(self, task_id: TaskId, task: _Task) -> None:
        """Handle the end of a task: read its last output, and kill its remaining processes."""
        self._selector.unregister(task.end)
        os.close(task.end)
        task.signal(signal.SIGKILL)
        status = task.process.wait()
        if not task.output.closed:
            task.drain()
            self._selector.unregister(task.output)
            task.output.close()
        del self._tasks[task_id]
        actions = self.supervisor.handle_end(task_id, status)
        restart_note = "; restarting it" if any(isinstance(item, Start) for item in actions) else ""
        if status or restart_note:
            self._print(None, f"{task_id} {describe_exit(status)}{restart_note}")
        self._carry_out(actions)


class _Task:
    """One process whose output is split into lines."""

    def __init__(self, process: subprocess.Popen[bytes], line: Callable[[str], None]) -> None:
        assert process.stdout is not None
        self.process = process
        self.output: IO[bytes] = process.stdout
        self.end = os.pidfd_open(process.pid)
        self._line = line
        self._partial_line = b""
        os.set_blocking(self.output.fileno(), False)

    def read(self) -> bool:
        """Read some output; return False at its end."""
        try:
            data = os.read(self.output.fileno(), _READ_BYTES)
        except BlockingIOError:
            return True
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        if len(self._partial_line) > _LINE_BYTES or (not data and self._partial_line):
            lines.append(self._partial_line)
            self._partial_line = b""
        for line in lines:
            self._line(line.decode(errors="replace").rstrip("\r"))
        return bool(data)

    def drain(self) -> None:
        """Read all available output, even if other processes still have the pipe open."""
        while _ready(self.output) and self.read():
            pass

    def kill(self) -> None:
        """Kill the task and its children, and release its resources."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.end)
        self.output.close()

    def signal(self, number: int) -> None:
        """Send a signal to the task and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def _ready(file: IO[bytes]) -> bool:
    """Return True if output, or the end of output, can be read."""
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(0))
