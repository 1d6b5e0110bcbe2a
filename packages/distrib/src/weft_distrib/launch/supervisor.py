"""Decisions about starting, restarting and stopping tasks: a plain object driven by events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft_distrib.launch.spec import Launch, TaskId

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells report it."""


@dataclass(frozen=True)
class Start:
    """Instruction to start or restart a task."""

    task_id: TaskId


@dataclass(frozen=True)
class Stop:
    """Instruction to stop all running tasks; issued once."""

    why: str


Instruction = Start | Stop


class Supervisor:
    """Decides about the tasks of a launch.

    A failed task is restarted as often as the launch allows; one more failure ends the launch. The
    launch also ends when all tasks that end on their own have succeeded. Servers do not end on
    their own; a launch of servers only runs until it is interrupted.

    Attributes:
      code: the exit code of the launch: 0, or the exit code of the task whose failure ended the
        launch.
      running: the running tasks.
      lives: the number of starts of each task.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._unfinished = {
            task_id for task_id in launch.task_ids() if not launch.job(task_id.job).serves
        }
        self._only_servers = not self._unfinished
        self._stopping = False
        self.code = 0
        self.running: set[TaskId] = set()
        self.lives: dict[TaskId, int] = {}

    def begin(self) -> list[Instruction]:
        """Start all tasks."""
        return [self._start(task_id) for task_id in self._launch.task_ids()]

    def _start(self, task_id: TaskId) -> Start:
        self.running.add(task_id)
        self.lives[task_id] = self.lives.get(task_id, 0) + 1
        return Start(task_id)

    def handle_end(self, task_id: TaskId, status: int) -> list[Instruction]:
        """Handle the end of a task.

        Args:
          status: its exit code; if negative, the number of the signal that killed it.
        """
        self.running.discard(task_id)
        if self._stopping:
            return []
        if status == 0:
            self._unfinished.discard(task_id)
            is_over = not self.running if self._only_servers else not self._unfinished
            return self._stop("all tasks are done") if is_over else []
        if self.lives[task_id] <= self._launch.restarts:
            return [self._start(task_id)]
        self.code = status if status > 0 else 128 - status
        return self._stop(f"{task_id} {describe_exit(status)}")

    def handle_interrupt(self) -> list[Instruction]:
        """Stop all tasks because the user has interrupted the launch."""
        if self._stopping:
            return []
        self.code = INTERRUPTED
        return self._stop("interrupted")

    def _stop(self, reason: str) -> list[Instruction]:
        self._stopping = True
        return [Stop(reason)]

    @property
    def over(self) -> bool:
        """True if no task runs and none will be started."""
        return self._stopping and not self.running


def describe_exit(status: int) -> str:
    """Describe how a process has ended."""
    return f"exited with {status}" if status >= 0 else f"was killed by signal {-status}"
