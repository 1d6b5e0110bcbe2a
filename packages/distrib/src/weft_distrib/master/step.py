"""How one step over several tasks goes: a plain object, told of replies and losses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft_exec.executor.driver import ELSEWHERE
from weft_tensor import errors

T = TypeVar("T")


@dataclass(frozen=True)
class Abort(Generic[T]):
    """Tell a task to end its part of the step."""

    task: T
    error: errors.OpError


@dataclass(frozen=True)
class Finish:
    """Tell the client how the step went; comes once, and last.

    Attributes:
      error: why it failed, or None.
    """

    error: errors.OpError | None


Instruction = Abort[T] | Finish


class StepCoordinator(Generic[T]):
    """Waits for the replies of the tasks that have parts of a step.

    The first failure aborts the parts that still run. The step is over when every task has replied
    or is lost, so that nothing of it runs on when the client is told; who does not answer the abort
    within a time is given up by `give_up`.

    Attributes:
      waiting: tasks that have not replied.
      error: the first failure; one that only tells of another gives way to that.
    """

    def __init__(self, tasks: Collection[T]) -> None:
        self.waiting = set(tasks)
        self.error: errors.OpError | None = None
        self._finished = False

    def replied(self, task: T) -> list[Instruction[T]]:
        """A task has run its part."""
        self.waiting.discard(task)
        return self._over()

    def failed(self, task: T, error: errors.OpError) -> list[Instruction[T]]:
        """A task's part has failed, or the task is lost."""
        if task not in self.waiting:
            return []
        self.waiting.discard(task)
        told = self._abort(error)
        if self.error is not None and ELSEWHERE in self.error.details:
            self.error = error  # what came first only told of another failure, perhaps this one
        elif self.error is not None and _locates(error, self.error):
            error.details = self.error.details
            self.error = error
        return [*told, *self._over()]

    def cancel(self, error: errors.OpError) -> list[Instruction[T]]:
        """The client does not want the step any more, or its time is over."""
        return [] if self._finished else [*self._abort(error), *self._over()]

    def give_up(self) -> list[Instruction[T]]:
        """The time for answers to an abort is over: wait for nobody any more."""
        if self.error is None:
            return []
        self.waiting.clear()
        return self._over()

    def _abort(self, error: errors.OpError) -> list[Instruction[T]]:
        if self.error is not None:
            return []
        self.error = error
        return [Abort(task, error) for task in sorted(self.waiting, key=str)]

    def _over(self) -> list[Instruction[T]]:
        if self.waiting or self._finished:
            return []
        self._finished = True
        return [Finish(self.error)]


def _locates(error: errors.OpError, former: errors.OpError) -> bool:
    """Whether an error is a former one, told by a node that waited for what it has taken away."""
    same = type(error) is type(former) and error.message == former.message
    return same and former.node is None and error.node is not None
