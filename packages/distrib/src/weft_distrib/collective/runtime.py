"""Collective runtimes: of the devices of a single process, or of a task in a cluster."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft_distrib.collective.exchange import Operation
from weft_distrib.collective.groups import GroupAnswers, Groups, Member, Outcome
from weft_distrib.collective.membership import Membership, Transport
from weft_distrib.wire.future import Reply
from weft_distrib.worker.threads import WaitingThreads
from weft_exec.resources.cancellation import call_at
from weft_exec.resources.rendezvous import Rendezvous
from weft_exec.resources.resources import CompletionCallback, ResourceManager
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext

_THREADS: Final = WaitingThreads("weft-collective")


class Leader:
    """The task that forms groups: a thin shell around `Groups`."""

    def __init__(self) -> None:
        self._groups = Groups()
        self._lock = threading.Lock()

    def join(
        self, key: int, size: int, member: Member, seconds: float, answer: Callable[[Outcome], None]
    ) -> Callable[[], None]:
        """Join a group as in `Groups.join`; return a function that undoes it."""

        def expire() -> None:
            with self._lock:
                answers = self._groups.expire(key, member.number, seconds)
            _deliver_answers(answers)

        def report_outcome(outcome: Outcome) -> None:
            timer.cancel()
            answer(outcome)

        def take_back() -> None:
            timer.cancel()
            with self._lock:
                self._groups.leave(key, member.number)

        timer = call_at(time.monotonic() + seconds, expire)
        with self._lock:
            answers = self._groups.join(key, size, member, report_outcome)
        _deliver_answers(answers)
        return take_back


def _deliver_answers(answers: GroupAnswers) -> None:
    for answer, outcome in answers:
        answer(outcome)


class LocalTransport:
    """Transport between the devices of one process."""

    def __init__(self) -> None:
        self._leader = Leader()
        self._mailboxes: dict[int, Rendezvous] = {}

    def join(
        self, key: int, size: int, member: Member, seconds: float, wait: Reply
    ) -> Callable[[], None]:
        """See `Transport`."""

        def answer(outcome: Outcome) -> None:
            if isinstance(outcome, errors.OpError):
                wait.fail(outcome)
            else:
                wait(outcome)

        return self._leader.join(key, size, member, seconds, answer)

    def begin(self, number: int) -> Rendezvous:
        """See `Transport`."""
        rendezvous = self._mailboxes[number] = Rendezvous()
        return rendezvous

    def end(self, number: int, error: errors.OpError, drained: bool) -> None:
        """See `Transport`."""
        self._mailboxes.pop(number).finish(error)

    def source(self, member: Member) -> Rendezvous:
        """See `Transport`."""
        mailbox = self._mailboxes.get(member.number)
        if mailbox is None:
            raise errors.AbortedError(f"{member.device} has left its group")
        return mailbox


class CollectiveRuntime:
    """The memberships of the devices of a task.

    Args:
      transport: the transport to other members.
      in_order: True if sums on the host are computed in the order of the members by default; on
        deterministic devices they always are.
    """

    def __init__(self, transport: Transport, in_order: bool = False) -> None:
        self._transport = transport
        self._in_order = in_order
        self._lock = threading.Lock()
        self._memberships: dict[tuple[int, int, str], Membership] = {}

    def start(
        self,
        ctx: StepContext,
        device: Device,
        group: tuple[int, int],
        operation: Operation,
        value: Any,
        done: CompletionCallback,
    ) -> None:
        """Start a run of an operation; `done` receives its result.

        Args:
          device: the device of this member.
          group: the key and the size of the group.
        Raises: InvalidArgumentError: two nodes of the device have the same instance key, or the
          group has another size.
        """
        member = self._membership(ctx.rendezvous.session, device.name, *group)
        run = member.number(operation)
        token = ctx.cancellation.register(member.leave)

        def work() -> None:
            try:
                result = member.run(operation, run, value, device)
            except errors.OpError as error:
                failed(error)
            except Exception as error:  # because a bug here must not leave the step waiting
                failed(errors.InternalError(f"a collective operation failed: {error!r}"))
            else:
                ctx.cancellation.deregister(token)
                done(result)

        def failed(error: errors.OpError) -> None:
            ctx.cancellation.deregister(token)
            member.end(error)
            done.fail(error)

        _THREADS.submit(work)

    def _membership(self, session: int, device: str, key: int, size: int) -> Membership:
        with self._lock:
            membership = self._memberships.get((session, key, device))
            if membership is None or membership.error is not None:
                membership = Membership(self._transport, key, size, device, self._in_order)
                self._memberships[session, key, device] = membership
        if membership.size != size:
            raise errors.InvalidArgumentError(
                f"group {key} has {membership.size} members, but this node has group_size {size}"
            )
        return membership

    def forget(self, session: int, error: errors.OpError) -> None:
        """Make the devices of a closed session leave their groups."""
        with self._lock:
            closed_keys = [key for key in self._memberships if key[0] == session]
            closed_memberships = [self._memberships.pop(key) for key in closed_keys]
        for member in closed_memberships:
            member.leave(error, drained=True)


_runtimes: weakref.WeakKeyDictionary[ResourceManager, CollectiveRuntime] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()


def local_runtime(resources: ResourceManager) -> CollectiveRuntime:
    """Return the collective runtime of the devices in one process, which their resources hold."""
    with _lock:
        collective_runtime = _runtimes.get(resources)
        if collective_runtime is None:
            collective_runtime = _runtimes[resources] = CollectiveRuntime(LocalTransport(), True)
        return collective_runtime
