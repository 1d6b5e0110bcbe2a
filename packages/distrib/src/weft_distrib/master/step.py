"""The course of one step over several tasks: a plain object driven by replies and losses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft_exec.executor.driver import ELSEWHERE
from weft_tensor import errors

T = TypeVar("T")


@dataclass(frozen=True)
class Abort(Generic[T]):
    """Abort a task's part of the step."""

    task: T
    error: errors.OpError


@dataclass(frozen=True)
class Finish:
    """Report the result of the step to the client; the last instruction, sent once.

    Attributes:
      error: the failure, or None.
    """

    error: errors.OpError | None


Instruction = Abort[T] | Finish


class StepCoordinator(Generic[T]):
    """Waits for the replies of the tasks that have partitions of a step.

    The first failure aborts the partitions that still run. The step ends when every task has
    replied or is lost, so that nothing of it runs when the client is notified. Tasks that do not
    answer the abort in time are dropped by `stop_waiting`.

    Attributes:
      waiting: tasks that have not replied.
      error: the first failure; a consequence of another failure is replaced by that one.
    """

    def __init__(self, tasks: Collection[T]) -> None:
        self.waiting = set(tasks)
        self.error: errors.OpError | None = None
        self._finished = False

    def replied(self, task: T) -> list[Instruction[T]]:
        """Return a task has run its part."""
        self.waiting.discard(task)
        return self._finished_instructions()

    def failed(self, task: T, error: errors.OpError) -> list[Instruction[T]]:
        """Return a task's part has failed, or the task is lost."""
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
        """Cancel the step on request of the client, or after a timeout."""
        return [] if self._finished else [*self._abort(error), *self._finished_instructions()]

    def stop_waiting(self) -> list[Instruction[T]]:
        """Stop waiting for answers to an abort."""
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
    """Return True if an error is an earlier one with the node that waited for the lost value."""
    is_same = type(error) is type(former) and error.message == former.message
    return is_same and former.node is None and error.node is not None
