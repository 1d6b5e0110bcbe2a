"""Partial runs: steps that are fed and fetched in several calls."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from weft_exec.executor.executable import Executable
from weft_exec.resources.rendezvous import DEAD
from weft_exec.session.feeds import converter
from weft_exec.session.fetches import FetchPlan, unfeedable_error
from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.ir.node import Output
from weft_graph.passes.caller_exchange import check_outside_loops, fed_key, fetched_key
from weft_tensor import errors
from weft_tensor.finalizers import call_when_gone


class PartialPlan:
    """The plan of the steps of one `partial_run_setup`.

    Args:
      executable: the executable, which exchanges feeds and fetches with its caller.
      home: the device of that exchange.
      needs: for each fetch, the positions of the feeds that it needs.
    """

    def __init__(self, executable: Executable, home: str, needs: Sequence[frozenset[int]]) -> None:
        self.executable = executable
        self.home = home
        self.needs = needs


class PartialSignature:
    """The feeds and fetches of a partial run, and its plan.

    Raises:
      InvalidArgumentError: there are no fetches, a feed is repeated, or a fetch is in a loop.
    """

    def __init__(self, graph: Graph, fetches: Any, feeds: Iterable[Any]) -> None:
        plan = FetchPlan(graph, fetches)
        self.outputs = plan.outputs
        self.targets = plan.targets
        if not self.outputs and not self.targets:
            raise errors.InvalidArgumentError("a partial run needs at least one fetch")
        check_outside_loops(self.outputs)
        self.feeds = [output for feed in feeds for output in _fed_outputs(graph, feed)]
        if len(set(self.feeds)) != len(self.feeds):
            raise errors.InvalidArgumentError(
                "the feeds of a partial run must be different tensors, got one twice"
            )
        self.converters = [converter(feed) for feed in self.feeds]
        self.plan: PartialPlan


class _FeedExchange(Protocol):
    """Interface for exchanging feeds and fetches with the caller of a partial run."""

    fetched: dict[str, Any]

    def send(self, key: str, value: Any) -> None:
        """Feed a value."""
        ...


class CalledStep(Protocol):
    """Interface of a step that exchanges values with its caller, such as `PausedStep`."""

    ended: bool

    @property
    def rendezvous(self) -> _FeedExchange:
        """The exchange of feeds and fetches."""
        ...

    def advance(self, names: Collection[str], to_the_end: bool, timeout: float | None) -> None:
        """See `PausedStep`."""
        ...

    def cancel(self, reason: errors.OpError) -> None:
        """See `PausedStep`."""
        ...

    def close(self, reason: BaseException | None = None) -> None:
        """See `PausedStep`."""
        ...


class PartialRun:
    """A partial run, with a record of its feeds and fetches.

    Args:
      step: the step; it is canceled when this object is destroyed.
    """

    def __init__(self, signature: PartialSignature, step: CalledStep) -> None:
        self._signature = signature
        self._plan = signature.plan
        self._step = step
        self._feeds = {feed: i for i, feed in enumerate(signature.feeds)}
        self._fetches = {output: i for i, output in enumerate(signature.outputs)}
        self._fed_positions: set[int] = set()
        self._fetched: set[int] = set()
        self._lock = threading.Lock()
        call_when_gone(self, step.close)

    @property
    def ended(self) -> bool:
        """True if no further values can be fed or fetched."""
        return self._step.ended

    def run(
        self, outputs: Sequence[Output], feeds: Sequence[tuple[Output, Any]], timeout: float | None
    ) -> list[Any]:
        """Feed values and wait for some of the fetches.

        Args:
          timeout: in seconds.
        Raises:
          InvalidArgumentError: a feed or fetch was not announced, is repeated, does not match, or
            needs values that were not fed. The run is then unchanged.
          OpError: the step failed and has ended.
        """
        with self._lock:
            fetched = [self._new_fetch(output) for output in outputs]
            values = self._new_feeds(feeds)
            self._check_needs(outputs, self._fed_positions | values.keys())
            for position, value in values.items():
                self._step.rendezvous.send(fed_key(position, self._plan.home), value)
            self._fed_positions |= values.keys()
            self._fetched.update(fetched)
            signature = self._signature
            complete = len(self._fed_positions) == len(signature.feeds) and len(
                self._fetched
            ) == len(signature.outputs)
            expected = [fetched_key(position, self._plan.home) for position in fetched]
            self._step.advance(expected, complete, timeout)
            return [self._take(*pair) for pair in zip(outputs, expected, strict=True)]

    def close(self, reason: errors.OpError) -> None:
        """End the run from any thread; a call in progress fails with the reason."""
        self._step.cancel(reason)
        if self._lock.acquire(blocking=False):
            self._step.close(reason)
            self._lock.release()

    def _new_fetch(self, output: Output) -> int:
        position = self._fetches.get(output)
        if position is None:
            raise errors.InvalidArgumentError(
                f"{output.name!r} is not among the fetches that partial_run_setup announced: "
                + ", ".join(fetch.name for fetch in self._fetches)
            )
        if position in self._fetched:
            raise errors.InvalidArgumentError(
                f"{output.name!r} was already fetched from this partial run"
            )
        return position

    def _new_feeds(self, feeds: Sequence[tuple[Output, Any]]) -> dict[int, Any]:
        values: dict[int, Any] = {}
        for output, value in feeds:
            position = self._feeds.get(output)
            if position is None:
                raise errors.InvalidArgumentError(
                    f"{output.name!r} is not among the feeds that partial_run_setup announced: "
                    + ", ".join(feed.name for feed in self._feeds)
                )
            if position in self._fed_positions or position in values:
                raise errors.InvalidArgumentError(
                    f"{output.name!r} was already fed to this partial run"
                )
            values[position] = self._signature.converters[position](value)
        return values

    def _check_needs(self, outputs: Sequence[Output], fed: set[int]) -> None:
        for output in outputs:
            missing = self._plan.needs[self._fetches[output]] - fed
            if missing:
                raise self._unfed_error(output, missing)

    def _unfed_error(self, output: Output, missing: Iterable[int]) -> errors.InvalidArgumentError:
        names = ", ".join(self._signature.feeds[position].name for position in sorted(missing))
        return errors.InvalidArgumentError(
            f"{output.name!r} cannot be computed until {names} is fed to the partial run",
            op=output.node.type,
            node=output.node.name,
            line=output.node.line or None,
        )

    def _take(self, output: Output, key: str) -> Any:
        fetched = self._step.rendezvous.fetched
        if key not in fetched:
            # The fetch itself is fed, but it waits for an update whose earlier readers are not.
            self._fetched.discard(self._fetches[output])
            raise self._unfed_error(output, set(self._feeds.values()) - self._fed_positions)
        value = fetched.pop(key)
        if value is DEAD:
            raise errors.InvalidArgumentError(
                f"{output.name!r} was fetched but has no value in this step: it is in a branch "
                "that was not taken",
                op=output.node.type,
                node=output.node.name,
                line=output.node.line or None,
            )
        return value


def _fed_outputs(graph: Graph, feed: Any) -> list[Output]:
    """Return the outputs of one entry of a list of feeds."""
    if isinstance(feed, SparseTensor | IndexedSlices):
        parts = [feed.indices, feed.values]
        shape = feed.dense_shape
        if shape is not None and graph.is_feedable(shape):
            parts.append(shape)
        return parts
    if isinstance(feed, CompositeTensor):
        feed = feed.parts
    if isinstance(feed, list | tuple):
        return [output for part in feed for output in _fed_outputs(graph, part)]
    output = graph.as_graph_element(feed, allow_operation=False)
    assert isinstance(output, Output)
    if not graph.is_feedable(output):
        raise unfeedable_error(output)
    return [output]
