"""Coordination of one step over several tasks: a plain object driven by replies and losses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft_exec.executor.driver import ELSEWHERE
from weft_tensor import errors

T = TypeVar("T")


@dataclass(frozen=True)
class Abort(Generic[T]):
    """Instruction to abort a task's partitions of the step."""

    task: T
    error: errors.OpError


@dataclass(frozen=True)
class Finish:
    """Instruction to report the result of the step to the client; the last one.

    Attributes:
      error: the failure, or None.
    """

    error: errors.OpError | None


Instruction = Abort[T] | Finish


class StepCoordinator(Generic[T]):
    """Waits for the replies of the tasks that have partitions of a step.

    The first failure aborts the partitions that still run. The step ends when every task has
    replied or is lost, so no part of it runs any more when the client is notified. `stop_waiting`
    drops tasks that do not answer the abort in time.

    Attributes:
      waiting: the tasks that have not replied.
      error: the first failure; if it was a consequence of another failure, that one replaces it.
    """

    def __init__(self, tasks: Collection[T]) -> None:
        self.waiting = set(tasks)
        self.error: errors.OpError | None = None
        self._finished = False

    def replied(self, task: T) -> list[Instruction[T]]:
        """Record that a task has run its partitions."""
        self.waiting.discard(task)
        return self._finished_instructions()

    def failed(self, task: T, error: errors.OpError) -> list[Instruction[T]]:
        """Record that a task's partitions have failed, or that the task is lost."""
        # A task that has replied can still be lost before the step ends; only its first report
        # counts.
        if task not in self.waiting:
            return []
        self.waiting.discard(task)
        actions = self._abort(error)
        if self.error is not None and ELSEWHERE in self.error.details:
            self.error = error  # the first one was a consequence, perhaps of this one
        elif self.error is not None and _locates(error, self.error):
            error.details = self.error.details
            self.error = error
        return [*actions, *self._finished_instructions()]

    def cancel(self, error: errors.OpError) -> list[Instruction[T]]:
        """Cancel the step at the request of the client, or after a timeout."""
        return [] if self._finished else [*self._abort(error), *self._finished_instructions()]

    def stop_waiting(self) -> list[Instruction[T]]:
        """Stop waiting for tasks that have not answered an abort."""
        if self.error is None:
            return []
        self.waiting.clear()
        return self._finished_instructions()

    def _abort(self, error: errors.OpError) -> list[Instruction[T]]:
        if self.error is not None:
            return []
        self.error = error
        return [Abort(task, error) for task in sorted(self.waiting, key=str)]

    def _finished_instructions(self) -> list[Instruction[T]]:
        if self.waiting or self._finished:
            return []
        self._finished = True
        return [Finish(self.error)]


def _locates(error: errors.OpError, former: errors.OpError) -> bool:
    """Return True if an error is an earlier one plus the node that waited for the lost value."""
    is_same = type(error) is type(former) and error.message == former.message
    return is_same and former.node is None and error.node is not None
