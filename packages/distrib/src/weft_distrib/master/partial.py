"""Partial runs: steps that their client feeds and fetches while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_distrib.master.feeds import Feeds
from weft_distrib.protocol import messages
from weft_exec.resources.rendezvous import Rendezvous, ends_of
from weft_graph.passes.caller_exchange import CALLER
from weft_tensor import errors
from weft_tensor.memory import copy_array

Reply = Callable[[Sequence[Any]], None]
Fail = Callable[[errors.OpError], None]


class PartialStep:
    """A master's state of one partial run.

    Args:
      rendezvous: the rendezvous of the master's own task, through which the client feeds and
        fetches.
      home: the device that the client uses for feeds and fetches.
      feeds: the tensors that the client may feed.
      cancel: ends the step.
      forget: called when the client will not ask for anything more of the step, not even for its
        error.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        home: str,
        feeds: Feeds,
        cancel: Fail,
        forget: Callable[[], None],
    ) -> None:
        self._rendezvous, self._cancel, self._forget = rendezvous, cancel, forget
        self._home, self._feeds = home, feeds
        self._lock = threading.Lock()
        self._is_over = False
        self._error: errors.OpError | None = None
        self._waiting: list[Callable[[], None]] = []

    def done(self, error: errors.OpError | None) -> None:
        """Record that all nodes of the run have run, or that it failed."""
        with self._lock:
            self._is_over, self._error = True, error
            waiting, self._waiting = self._waiting, []
        if error is not None:
            self._rendezvous.abort(error)
        for call in waiting:
            call()

    def advance(
        self, request: messages.Advance, values: Sequence[Any], reply: Reply, fail: Fail
    ) -> None:
        """Accept feeds, and reply with fetches once they are available.

        Raises:
          DataLossError: the names of feeds or fetches are malformed.
          InvalidArgumentError: a feed has another dtype or shape.
        """
        if request.ends:
            self._cancel(errors.CancelledError("the client has ended the partial run"))
            self._forget()
            reply(())
            return
        self._check(request, values)
        for key, value in zip(request.fed, values, strict=True):
            self._rendezvous.send(key, value)

        def finish_results(result: list[Any]) -> None:
            if request.complete:
                self._call_when_over(lambda: self._deliver(result, reply, fail))
            else:
                self._deliver(result, reply, fail)

        def failed(error: errors.OpError) -> None:
            # The step knows best why; what came here may only tell of another failure.
            self._call_when_over(lambda: self._end(fail, self._error or error))

        FetchCollector(len(request.wanted), finish_results, failed).receive(
            self._rendezvous, request.wanted
        )

    def _check(self, request: messages.Advance, values: Sequence[Any]) -> None:
        """Reject names that the client may not feed or fetch, and unsuitable values."""
        if len(values) != len(request.fed):
            raise errors.DataLossError(
                f"{len(request.fed)} feeds were named, but {len(values)} values were received"
            )
        beginning = f"{CALLER};{self._home};feed:"
        for name, value in zip(request.fed, values, strict=True):
            position = name.removeprefix(beginning)
            if position == name or not position.isdecimal():
                raise errors.DataLossError(f"{name!r} is not a feed of the partial run")
            self._feeds.check_one(int(position), value)
        for name in request.wanted:
            if name.count(";") < 2 or ends_of(name)[1] != CALLER:
                raise errors.DataLossError(f"{name!r} is not a fetch of the partial run")

    def _deliver(self, result: list[Any], reply: Reply, fail: Fail) -> None:
        if self._is_over:
            if self._error is not None:
                self._end(fail, self._error)
                return
            if not self._rendezvous.pending:
                self._forget()
        reply(result)

    def _end(self, fail: Fail, error: errors.OpError) -> None:
        self._forget()
        fail(error.copy())

    def _call_when_over(self, call: Callable[[], None]) -> None:
        with self._lock:
            if not self._is_over:
                self._waiting.append(call)
                return
        call()


class FetchCollector:
    """Waits for several values of a rendezvous; reports them, or the first failure, once."""

    def __init__(self, count: int, done: Callable[[list[Any]], None], fail: Fail) -> None:
        self._values: list[Any] = [None] * count
        self._num_remaining = count
        self._done, self._fail = done, fail
        self._lock = threading.Lock()

    def receive(self, rendezvous: Rendezvous, keys: Sequence[str]) -> None:
        """Request the values from the rendezvous."""
        if not keys:
            self._done([])
        for index, key in enumerate(keys):
            rendezvous.receive(key, _FetchSlot(self, index))

    def take(self, index: int, value: Any) -> None:
        """Store a fetched value, whose arrays belong to the client from now on."""
        if isinstance(value, np.ndarray):
            value = copy_array(np.asarray(value)) if value.ndim else value[()]
        with self._lock:
            self._values[index] = value
            self._num_remaining -= 1
            complete = self._num_remaining == 0
        if complete:
            self._done(self._values)

    def fail(self, error: errors.OpError) -> None:
        """Record that a fetched value will not arrive."""
        with self._lock:
            first, self._num_remaining = self._num_remaining > 0, -1
        if first:
            self._fail(error)


class _FetchSlot:
    def __init__(self, gathered: FetchCollector, index: int) -> None:
        self._gathered, self._index = gathered, index

    def __call__(self, value: Any = None) -> None:
        self._gathered.take(self._index, value)

    def fail(self, error: BaseException) -> None:
        assert isinstance(error, errors.OpError)
        self._gathered.fail(error)
