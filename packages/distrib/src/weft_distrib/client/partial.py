"""The client's end of a partial run on a master."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft_distrib.protocol import messages
from weft_tensor import errors

Ask = Callable[[messages.Advance, Sequence[Any], float | None], Sequence[Any]]


class PartialExchange:
    """Values to feed in the next call of a step, and values fetched from it, by name."""

    def __init__(self) -> None:
        self.fed: dict[str, Any] = {}
        self.fetched: dict[str, Any] = {}

    def send(self, key: str, value: Any) -> None:
        """Feed a value."""
        self.fed[key] = value


class RemotePartialStep:
    """A step on a master that exchanges values with its caller; see `PausedStep`.

    Args:
      session, step: the numbers of the session and of the step.
      ask: calls the master and waits for its reply.
      tell: calls the master without waiting; finalizers use it.
    Attributes:
      rendezvous: exchanges feeds and fetches with the caller.
      ended: True if no further values can be fed or fetched.
    """

    def __init__(
        self, session: int, step: int, ask: Ask, tell: Callable[[messages.Advance], None]
    ) -> None:
        self._session, self._step, self._ask, self._deliver = session, step, ask, tell
        self.rendezvous = PartialExchange()
        self.ended = False

    def advance(self, expected: Collection[str], to_the_end: bool, timeout: float | None) -> None:
        """Send the pending feeds, and wait for some fetches, or for the whole step.

        Raises: OpError: the step failed or timed out, and has ended.
        """
        fed, self.rendezvous.fed = self.rendezvous.fed, {}
        names = list(expected)
        request = messages.Advance(self._session, self._step, list(fed), names, to_the_end)
        try:
            values = self._ask(request, list(fed.values()), timeout)
        except BaseException:  # because Ctrl-C must not leave the step behind
            self.close()
            raise
        self.rendezvous.fetched.update(zip(names, values, strict=True))
        self.ended = to_the_end

    def cancel(self, reason: errors.OpError) -> None:
        """End the step, from any thread."""
        self.close(reason)

    def close(self, reason: BaseException | None = None) -> None:
        """End the step; may be called repeatedly."""
        if self.ended:
            return
        self.ended = True
        self._deliver(messages.Advance(self._session, self._step, ends=True))
