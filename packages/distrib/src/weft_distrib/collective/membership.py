"""Membership of a device in a group: joining, agreeing on operations, and running them."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from weft_distrib.collective import nccl, schedule
from weft_distrib.collective.exchange import Exchange, Operation, pack_message, unpack_message
from weft_distrib.collective.groups import Member
from weft_distrib.wire.future import Reply
from weft_exec.kernels.random_counters import next_counter
from weft_exec.resources.rendezvous import Rendezvous
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device

_log = logging.getLogger("weft")

Array = np.ndarray[Any, Any]
Empty = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""Allocator of arrays in the host's memory."""

FORM_SECONDS: Final = 600.0
"""Default number of seconds within which the members of a group must join."""

_PIECE_BYTES = 1 << 19
"""Number of bytes that are sent, merged and forwarded as one piece."""

_SMALL_BYTES = 1 << 16
"""Maximum size in bytes for which latency dominates bandwidth."""

_MAX_DIRECT_MEMBERS = 4
"""Maximum number of members that exchange small values directly, all to all."""


class Transport(Protocol):
    """Interface for the communication between members of groups."""

    def join(
        self, key: int, size: int, member: Member, seconds: float, wait: Reply
    ) -> Callable[[], None]:
        """Request to join a group; `wait` receives the members.

        Return a function that cancels the request.
        """
        ...

    def begin(self, number: int) -> Rendezvous:
        """Return the rendezvous for the values that a member sends."""
        ...

    def end(self, number: int, error: errors.OpError, drained: bool) -> None:
        """Stop sending: deliver values already sent, and fail all other requests.

        Args:
          drained: True if other members may still read values that were sent.
        """
        ...

    def source(self, member: Member) -> Rendezvous:
        """Return the rendezvous of another member; may wait for a connection."""
        ...


class _Instance:
    """The runs of one instance key.

    Attributes:
      node: the node of the runs.
      count: the number of steps that have used it, as for random streams.
      verdict: the agreement of the members, which the first run reaches.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.count = 0
        self.lock = threading.Lock()
        self.verdict: dict[str, Any] = {}


class Membership:
    """One device in one group, for one session.

    The group is formed in the first run, and lasts until the session ends or a run fails. A failure
    makes the group unusable for all members, because their numbers of runs may differ. The next run
    forms a new group.

    Args:
      transport: the transport to the other members.
      key, size: the key and the size of the group.
      device: the name of the member.
      in_order: True if sums on the host are computed in the order of the members.
    Attributes:
      members, rank, own: as for `MemberTransport`.
      error: the reason why the membership ended; None before that.
    """

    def __init__(
        self, transport: Transport, key: int, size: int, device: str, in_order: bool
    ) -> None:
        self._transport = transport
        self.key, self.size = key, size
        self._in_order = in_order
        self._own_member = Member(device, secrets.randbits(63) | 1)
        self.own = transport.begin(self._own_member.number)
        self.members: tuple[Member, ...] = ()
        self.rank = 0
        self.error: errors.OpError | None = None
        self._lock = threading.Lock()
        self._forming = threading.Lock()
        self._sources: dict[int, Rendezvous] = {}
        self._instances: dict[int, _Instance] = {}
        self._waiters: set[Reply] = set()
        self._by_nccl = nccl.NcclRuns(self)
        self._take_back: Callable[[], None] | None = None

    # -------------------------------------------------------------------------- runs

    def number(self, operation: Operation) -> str:
        """Return the number of an instance's run; call it on the thread of the step's iteration.

        Raises: InvalidArgumentError: two nodes of the step have the same instance key.
        """
        with self._lock:
            instance = self._instances.setdefault(operation.instance, _Instance(operation.node))
            if instance.node != operation.node:
                raise errors.InvalidArgumentError(
                    f"{instance.node} and {operation.node} have the instance key "
                    f"{operation.instance} of group {self.key} on {self._own_member.device}: each "
                    "collective operation needs a unique instance key"
                )
            step, tag = next_counter(instance)
        return f"{operation.instance}:{step}:{tag}"

    def run(self, operation: Operation, run: str, value: Any, device: Device) -> Any:
        """Compute an operation together with the other members, waiting for them.

        Args:
          run: a result of `number`.
          value: the value of this member; None if it only receives.
          device: the device of this member.
        Returns: a new value of the device, or `value` itself for the source of a broadcast.
        Raises: OpError: a member is missing, has left or was lost, or the members do not agree.
        """
        self._form(operation.timeout)
        exchange = Exchange(self, operation, run)
        verdict = self._agree(operation, device)
        if "nccl" in verdict:
            return self._by_nccl.run(exchange, verdict, value, device)
        own_value = None if value is None else np.asarray(device.to_host(value))
        empty = device.new_array if device.xp is np else np.empty
        result = self._exchange_on_host(exchange, verdict, own_value, empty)
        return device.from_host(result if result.ndim else result[()])

    def _exchange_on_host(
        self, exchange: Exchange, verdict: dict[str, Any], value: Array | None, empty: Empty
    ) -> Array:
        operation = exchange.operation
        if operation.kind == "broadcast":
            return self._broadcast(exchange, verdict["source"], operation.dtype, value, empty)
        assert value is not None
        if operation.kind == "gather":
            return self._gather(exchange, value, empty)
        result = empty(value.shape, value.dtype)
        np.copyto(result, value)
        flat = result.reshape(-1)
        exchange.carry_out(self._plan(verdict["hint"], flat), flat)
        return result

    def _plan(self, hint: str, flat: Array) -> schedule.Schedule:
        """Return the schedule of a reduction, which is the same for all members."""
        small = flat.nbytes <= _SMALL_BYTES
        if hint == "auto":
            hint = "tree" if small else "ring"
        make = {"ordered": schedule.ordered_schedule, "tree": schedule.tree, "ring": schedule.ring}[
            hint
        ]
        if self.size == 1 or (hint != "ring" and small and self.size <= _MAX_DIRECT_MEMBERS):
            make = schedule.direct
        return make(self.rank, self.size, flat.size, _piece(flat))

    def _gather(self, exchange: Exchange, value: Array, empty: Empty) -> Array:
        if not value.ndim:
            raise errors.InvalidArgumentError(
                "all-gather requires inputs of rank 1 or more, got a scalar"
            )
        result = empty((value.shape[0] * self.size, *value.shape[1:]), value.dtype)
        flat, count = result.reshape(-1), value.size
        flat[self.rank * count : (self.rank + 1) * count] = value.reshape(-1)
        exchange.carry_out(schedule.gather(self.rank, self.size, flat.size, _piece(flat)), flat)
        return result

    def _broadcast(
        self,
        exchange: Exchange,
        source: int,
        dtype: np.dtype[Any],
        value: Array | None,
        empty: Empty,
    ) -> Array:
        """Broadcast a value; its shape is sent first, because receivers may not know it."""
        parent, children = schedule.family(self.rank, self.size, source)
        if value is None:
            shape = exchange.receive(parent, "shape")
            value = empty(tuple(np.asarray(shape).tolist()), dtype)
        for child in children:
            exchange.send(child, "shape", np.array(value.shape, np.int64))
        flat = np.ascontiguousarray(value).reshape(-1)
        actions = schedule.broadcast(self.rank, self.size, flat.size, _piece(flat), source)
        exchange.carry_out(actions, flat)
        return value

    # ------------------------------------------------------------------------ members

    def _form(self, seconds: float) -> None:
        """Join the group, unless that was already done."""
        with self._forming:
            if self.members:
                return
            wait = self.register_wait(Reply())
            try:
                self._take_back = self._transport.join(
                    self.key, self.size, self._own_member, seconds or FORM_SECONDS, wait
                )
                members = wait.result()[0]
            finally:
                self.forget(wait)
                self._take_back = None
            self.rank = members.index(self._own_member)
            for rank, member in enumerate(members):
                if rank != self.rank:
                    self._sources[rank] = self._transport.source(member)
            self.members = members

    def _agree(self, operation: Operation, device: Device) -> dict[str, Any]:
        """Return the agreement on an instance, which its first run reaches."""
        instance = self._instances[operation.instance]
        with instance.lock:
            if not instance.verdict:
                instance.verdict = self._compare(operation, device)
                if "note" in instance.verdict:
                    _log.warning("%s", instance.verdict["note"])
        verdict = instance.verdict
        if "error" in verdict:
            raise errors.InvalidArgumentError(verdict["error"])
        return verdict

    def _compare(self, operation: Operation, device: Device) -> dict[str, Any]:
        """Compare the operations of all members.

        The first member does this and answers the others.
        """
        exchange = Exchange(self, operation, str(operation.instance))
        own_description = {
            "what": [operation.kind, str(operation.dtype), operation.merge, operation.final],
            "hint": "ordered" if self._requires_order(operation, device) else operation.hint,
            "sends": operation.sends,
            "gpu": nccl.gpu_of(device),
            "nccl": nccl.unsupported_reason(device, operation),
        }
        if self.rank:
            exchange.send(0, "wants", pack_message(own_description))
            return unpack_message(exchange.receive(0, "verdict"))
        replies = [(i, exchange.ask(i, "wants")) for i in range(1, self.size)]
        descriptions = [
            own_description,
            *[unpack_message(exchange.take(wait, i)) for i, wait in replies],
        ]
        verdict = self._verdict(operation, descriptions)
        if verdict.get("nccl"):
            verdict["nccl"] = self._by_nccl.unique()
        for peer in range(1, self.size):
            exchange.send(peer, "verdict", pack_message(verdict))
        return verdict

    def _requires_order(self, operation: Operation, device: Device) -> bool:
        if operation.kind != "reduce" or operation.hint != "auto":
            return False
        return device.config.deterministic or (self._in_order and device.type != "GPU")

    def _verdict(self, operation: Operation, descriptions: list[dict[str, Any]]) -> dict[str, Any]:
        instance_label = f"instance {operation.instance} of group {self.key}"
        for member, expected in zip(self.members, descriptions, strict=True):
            if expected["what"] != descriptions[0]["what"]:
                first = f"{descriptions[0]['what']} on {self.members[0].device}"
                other_label = f"{expected['what']} on {member.device}"
                return {"error": f"{instance_label} is {first} and {other_label}"}
        hints = {expected["hint"] for expected in descriptions}
        verdict = {"hint": "ordered" if "ordered" in hints else descriptions[0]["hint"]}
        if operation.kind == "broadcast":
            sources = [i for i, expected in enumerate(descriptions) if expected["sends"]]
            if len(sources) != 1:
                return {
                    "error": f"{instance_label} must have exactly one sender, got {len(sources)}"
                }
            verdict["source"] = sources[0]
        if "nccl" in hints or (
            hints == {"auto"} and all(expected["gpu"] for expected in descriptions)
        ):
            reason = nccl.find_obstacle(self.members, descriptions)
            if not reason:
                return {**verdict, "nccl": True}
            if "nccl" in hints:
                return {"error": f"{instance_label} cannot use NCCL: {reason}"}
            verdict["note"] = f"{instance_label} uses host memory instead of NCCL: {reason}"
        return verdict

    # ------------------------------------------------------------------------ waiting

    def ask(self, peer: int, name: str) -> Reply:
        """See `MemberTransport`."""
        wait = self.register_wait(Reply())
        self._sources[peer].receive(name, wait)
        return wait

    def watch(self, peer: int, name: str) -> None:
        """See `WatchedTransport`."""
        self._sources[peer].receive(name, self.register_wait(_Watch(self)))

    def register_wait(self, wait: Reply) -> Reply:
        """See `WatchedTransport`."""
        with self._lock:
            error = self.error
            self._waiters.add(wait)
        if error is not None:
            wait.fail(error.copy())
        return wait

    def forget(self, wait: Reply) -> None:
        """See `MemberTransport`."""
        with self._lock:
            self._waiters.discard(wait)

    def end(self, error: errors.OpError, drained: bool = False) -> None:
        """Fail all runs, in this and other members; does nothing if it has already ended.

        Args:
          drained: True if no run has failed, so that others may still read values that were sent.
        """
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            waiters = list(self._waiters)
            take_back = self._take_back
        if take_back is not None:
            take_back()
        self._transport.end(self._own_member.number, error, drained)
        self._by_nccl.end(error, drained)
        for wait in waiters:
            wait.fail(error.copy())

    def leave(self, op_error: errors.OpError, drained: bool = False) -> None:
        """End the membership because of an error of this member; `drained` as for `end`."""
        message = f"{self._own_member.device} has left group {self.key}: {op_error.message}"
        self.end(errors.AbortedError(message), drained)


def _piece(flat: Array) -> int:
    return max(_PIECE_BYTES // max(flat.itemsize, 1), 1)


class _Watch(Reply):
    """Receiver of a value that ends a membership when the value cannot arrive any more."""

    __slots__ = ("_member",)

    def __init__(self, member: Membership) -> None:
        super().__init__()
        self._member = member

    def __call__(self, value: Any = None, meta: bytes = b"") -> None:
        self._member.forget(self)

    def fail(self, error: BaseException) -> None:
        self._member.forget(self)
        if isinstance(error, errors.OpError):
            self._member.end(error)
        else:
            self._member.end(errors.InternalError(f"watching a member failed: {error!r}"))
