"""The values that a member of a group sends and receives in one run of an operation."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from weft_distrib.collective import schedule
from weft_distrib.collective.arithmetic import MERGES, divide
from weft_distrib.collective.groups import Member
from weft_distrib.collective.schedule import Action, Schedule
from weft_distrib.wire.future import Reply
from weft_exec.resources.rendezvous import Rendezvous
from weft_tensor import errors

Array = np.ndarray[Any, Any]

_MAX_REQUESTS_AHEAD: Final = 16
"""Number of pieces that are requested before the first of them is needed."""


class Operation(NamedTuple):
    """The computation of the nodes of one instance key.

    Attributes:
      instance: the key.
      kind: "reduce", "gather" or "broadcast".
      dtype: element type.
      merge, final: the merge and the final operation of a reduction.
      hint: the node's preferred algorithm.
      sends: True if this member is the source of a broadcast.
      node: the node's name, to detect two nodes with one key.
      timeout: the seconds to wait for other members; 0 for no limit.
    """

    instance: int
    kind: str
    dtype: np.dtype[Any]
    merge: str = "Add"
    final: str = "Id"
    hint: str = "auto"
    sends: bool = False
    node: str = ""
    timeout: float = 0.0


class MemberTransport(Protocol):
    """The position of a member in its group.

    Attributes:
      key: the key of the group.
      members: all members in order.
      rank: the index of this member.
      own: the rendezvous for the values that it sends.
    """

    key: int
    members: tuple[Member, ...]
    rank: int
    own: Rendezvous

    def ask(self, peer: int, name: str) -> Reply:
        """Request a value from another member."""
        ...

    def forget(self, wait: Reply) -> None:
        """Release a completed request of `ask`."""
        ...


class Exchange:
    """One run of an operation, on one thread.

    Args:
      place: the member's position in the group.
      operation: the computation.
      run: the identifier of the run, the same in all members.
    Attributes:
      operation: the computation.
    """

    def __init__(self, transport: MemberTransport, operation: Operation, run: str) -> None:
        self._transport, self._run = transport, run
        self.operation = operation
        limit = operation.timeout
        self._deadline = time.monotonic() + limit if limit else None

    def send(self, peer: int, name: str, value: Array) -> None:
        """Send a value to a member; the value must not change until it has been received."""
        transport = self._transport
        transport.own.send(self.key(transport.rank, peer, name), value)

    def key(self, sender: int, receiver: int, name: str) -> str:
        """Return the rendezvous key of a value that one member sends to another in this run."""
        members = self._transport.members
        return f"{members[sender].device};{members[receiver].device};{self._run}:{name}"

    def ask(self, peer: int, name: str) -> Reply:
        """Request a value from a member; `take` waits for it."""
        return self._transport.ask(peer, self.key(peer, self._transport.rank, name))

    def take(self, wait: Reply, peer: int) -> Array:
        """Wait for a requested value and return it.

        Raises: DeadlineExceededError: the value did not arrive in time.
        """
        array: Array = self.wait_within(
            wait, f"{self._transport.members[peer].device} did not reach"
        )
        return array

    def wait_within(self, wait: Reply, late: str) -> Any:
        """Return the result of `wait`, within the time limit of the operation.

        Raises: DeadlineExceededError: the result did not arrive; `late` is the beginning of the
          message.
        """
        remaining_seconds = (
            None if self._deadline is None else max(self._deadline - time.monotonic(), 0)
        )
        operation = self.operation
        try:
            if not wait.wait(remaining_seconds):
                raise errors.DeadlineExceededError(
                    f"{late} instance {operation.instance} of group {self._transport.key} within "
                    f"{operation.timeout:g} s"
                )
            return wait.result()[0]
        finally:
            self._transport.forget(wait)

    def receive(self, peer: int, name: str) -> Array:
        """Wait for a value of a member and return it."""
        return self.take(self.ask(peer, name), peer)

    # ------------------------------------------------------------------------- schedules

    def carry_out(self, actions: Schedule, flat: Array) -> None:
        """Run a schedule on a buffer of rank 1."""
        merge, size = MERGES[self.operation.merge], len(self._transport.members)
        for action, replies in self._request_ahead(actions):
            kind, peer, start, stop, phase = action
            segment = flat[start:stop]
            if kind == schedule.SEND:
                self.send(peer, f"{phase}{start}", segment)
            elif kind == schedule.GIVE:
                self.send(peer, f"{phase}{start}", segment.copy())
            elif kind == schedule.FINISH:
                if self.operation.final == "Div":
                    divide(segment, size)
            elif kind == schedule.FOLD:
                self._fold(merge, segment, replies)
            else:
                (wait,) = replies
                actual = self._check_values(self.take(wait, peer), segment, peer)
                if kind == schedule.MERGE:
                    merge(segment, actual, out=segment)
                else:
                    segment[...] = actual

    def _request_ahead(self, actions: Schedule) -> Iterator[tuple[Action, list[Reply]]]:
        """Yield the actions, requesting the pieces that they receive ahead of time."""
        ahead: deque[tuple[Action, list[Reply]]] = deque()
        requested = 0
        for action in actions:
            replies = [
                self.ask(peer, f"{action.phase}{action.start}") for peer in self._senders_of(action)
            ]
            ahead.append((action, replies))
            requested += bool(replies)
            while requested > _MAX_REQUESTS_AHEAD:
                first = ahead.popleft()
                requested -= bool(first[1])
                yield first
        yield from ahead

    def _senders_of(self, action: Action) -> Iterable[int]:
        """Return the members that an action receives from."""
        if action.kind == schedule.FOLD:
            return [i for i in range(len(self._transport.members)) if i != self._transport.rank]
        return [action.peer] if action.kind in (schedule.MERGE, schedule.STORE) else []

    def _fold(self, merge: Callable[..., Any], array: Array, replies: list[Reply]) -> None:
        rank, reply_iterator = self._transport.rank, iter(replies)
        total: Array | None = None
        for peer in range(len(self._transport.members)):
            if peer == rank:
                value = array
            else:
                value = self._check_values(self.take(next(reply_iterator), peer), array, peer)
            if total is None:
                total = value.copy()
            else:
                merge(total, value, out=total)
        array[...] = total

    def _check_values(self, actual: Any, array: Array, peer: int) -> Array:
        values: Array = np.asarray(actual)
        if values.shape != array.shape or values.dtype != array.dtype:
            transport, instance = self._transport, self.operation.instance
            raise errors.InvalidArgumentError(
                f"instance {instance} of group {transport.key} must have the same type and "
                f"shape in all members: {transport.members[peer].device} sent {values.size} "
                "elements of "
                f"{values.dtype} "
                f"where {transport.members[transport.rank].device} has "
                f"{array.size} of {array.dtype}"
            )
        return values


def pack_message(message: dict[str, Any]) -> Array:
    """Encode a message between members as a value, which `unpack_message` decodes."""
    return np.frombuffer(json.dumps(message).encode(), np.uint8)


def unpack_message(data: Any) -> dict[str, Any]:
    """Decode a message that `pack_message` has encoded.

    Raises: DataLossError: the data is not such a message.
    """
    try:
        result = json.loads(np.asarray(data).tobytes())
    except ValueError as error:
        raise errors.DataLossError(f"a member's message cannot be read: {error}") from error
    if not isinstance(result, dict):
        raise errors.DataLossError(f"a member's message must be a JSON object, got {result!r}")
    return result
