"""A step that pauses when it waits for feeds or fetches of its caller."""

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
from weft_exec.kernels.numpy_warnings import call_quietly
from weft_exec.resources.rendezvous import Rendezvous, ends_of
from weft_exec.resources.threads import ThreadPool
from weft_graph.passes.caller_exchange import CALLER
from weft_tensor import errors
from weft_tensor.memory import copy_array


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
            self.fetched[key] = copy_array(np.asarray(value)) if value.ndim else value[()]
        else:
            self.fetched[key] = value

    @property
    def waiting(self) -> int:
        """Return the number of receives that wait for a value."""
        with self._lock:
            return len(self._waiting)


class PausedStep(Driver):
    """A step that advances only during calls of its caller.

    Between calls only asynchronous kernels run, and their results are processed in the next call.
    So an abandoned step does not occupy a thread, and is released with its object.

    Attributes:
      rendezvous: exchanges feeds and fetches with the caller.
      ended: True once the step has ended.
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
        """Run everything that can run now; return once the requested fetches are available.

        Args:
          names: the names of the requested fetches; fetches that need values not fed yet remain
            unavailable.
          to_the_end: True to wait for the whole step, because nothing more will be fed or fetched.
          timeout: in seconds, for this call; when it expires, the step ends.
        Raises: OpError: a kernel failed, or the step was canceled or timed out; the step has ended.
        """
        self._context.deadline = None if timeout is None else time.monotonic() + timeout
        try:
            call_quietly(self._advance, names, to_the_end)
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
        """Return True if the requested fetches are available or the rest waits for the caller."""
        if self._on_pool:
            return False
        if not to_the_end and all([key in self.rendezvous.fetched for key in names]):
            return True
        return self._mailbox.empty() and len(self._machine.running) == self.rendezvous.waiting

    def cancel(self, reason: errors.OpError) -> None:
        """Cancel the step at its next node; thread-safe."""
        self._context.cancellation.cancel(reason)

    def close(self, reason: BaseException | None = None) -> None:
        """Cancel the rest of the step; further calls have no effect."""
        if not self.ended:
            self._abandon(reason or errors.CancelledError("the partial run was abandoned"))
            self._end()

    def _end(self) -> None:
        self.ended = True
        self._context.cancellation.deregister(self._token)
        self._machine.close()
        self._context.end()
        self.rendezvous.abort(errors.CancelledError("the step has ended"))
