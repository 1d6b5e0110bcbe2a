"""A step that pauses whenever it waits for feeds or fetches of its caller."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import numpy as np

from weft_exec.executor.driver import Driver
from weft_exec.executor.executable import Executable
from weft_exec.executor.kernel_errors import raise_located
from weft_exec.executor.linear import Slots
from weft_exec.kernels.context import StepContext
from weft_exec.kernels.quiet import quietly
from weft_exec.resources.rendezvous import Rendezvous, ends_of
from weft_exec.resources.threads import ThreadPool
from weft_graph.passes.caller import CALLER
from weft_tensor import errors
from weft_tensor.memory import copied


class CallerRendezvous(Rendezvous):
    """The rendezvous of a step that exchanges values with its caller.

    Attributes:
      fetched: values sent to the caller, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fetched: dict[str, Any] = {}

    def send(self, key: str, value: Any) -> None:
        """Send a value; a value for the caller belongs to it from now on."""
        if ends_of(key)[1] != CALLER:
            super().send(key, value)
        elif isinstance(value, np.ndarray):
            self.fetched[key] = copied(np.asarray(value)) if value.ndim else value[()]
        else:
            self.fetched[key] = value

    @property
    def waiting(self) -> int:
        """Return the number of receives whose value has not been sent yet."""
        with self._lock:
            return len(self._waiting)


class PausedStep(Driver):
    """A step that advances only inside the calls of its caller.

    Between calls nothing runs except asynchronous kernels, whose results wait for the next call. So
    an abandoned step holds no thread, and is released when its object is dropped.

    Attributes:
      rendezvous: exchanges feeds and fetches with the caller.
      ended: whether the step has ended.
    """

    def __init__(
        self,
        executable: Executable,
        slots: Slots,
        context: StepContext,
        pool: ThreadPool | None,
        rendezvous: CallerRendezvous,
    ) -> None:
        super().__init__(executable, slots, context, pool, None)
        self.rendezvous = rendezvous
        self.ended = False
        self._token = context.cancellation.register(self._wake)

    def advance(self, names: Collection[str], to_the_end: bool, timeout: float | None) -> None:
        """Run everything that can run now; return once the wanted fetches are available.

        Args:
          names: names of fetches. One that needs values not fed yet is not available afterwards.
          to_the_end: wait for the whole step, since nothing more will be fed or fetched.
          timeout: in seconds, for this call; when it expires, the step ends.
        Raises: OpError: a kernel failed, or the step was canceled or timed out; the step has ended.
        """
        self._context.deadline = None if timeout is None else time.monotonic() + timeout
        try:
            quietly(self._advance, names, to_the_end)
        except BaseException as error:  # because Ctrl-C must not leave kernels running
            self.close(error)
            raise
        self._context.deadline = None
        if self.ended and self._machine.error is not None:
            raise_located(self._machine.take_error())

    def _advance(self, names: Collection[str], to_the_end: bool) -> None:
        machine = self._machine
        while True:
            ready = machine.take()
            if ready is not None:
                self._start(ready)
                if not self._mailbox.empty():
                    self._receive(block=False)
            elif machine.done:
                machine.end()
                self._end()
                return
            elif self._can_pause(names, to_the_end):
                return
            else:
                self._wait()

    def _can_pause(self, names: Collection[str], to_the_end: bool) -> bool:
        """Return True if the wanted fetches are available or the rest waits for the caller."""
        if self._on_pool:
            return False
        if not to_the_end and all([key in self.rendezvous.fetched for key in names]):
            return True
        return self._mailbox.empty() and len(self._machine.running) == self.rendezvous.waiting

    def cancel(self, reason: errors.OpError) -> None:
        """Cancel the step at its next node; thread-safe."""
        self._context.cancellation.cancel(reason)

    def close(self, reason: BaseException | None = None) -> None:
        """Cancel the rest of the step; may be called repeatedly."""
        if not self.ended:
            self._abandon(reason or errors.CancelledError("the partial run was dropped"))
            self._end()

    def _end(self) -> None:
        self.ended = True
        self._context.cancellation.deregister(self._token)
        self._machine.close()
        self._context.end()
        self.rendezvous.abort(errors.CancelledError("the step has ended"))
