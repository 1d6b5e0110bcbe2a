"""Groups of GPUs that exchange values by NCCL.

NCCL requires all members of a group to begin their operations in the same order, and blocks forever
if one does not. So a run begins when all members have reached its operation, in an order defined by
the first member. Each member watches the previous one, so that all members notice if one is lost.
Calls that wait inside NCCL run on their own threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from weft_distrib.collective.arithmetic import NCCL_OPS, divide
from weft_distrib.collective.exchange import (
    Exchange,
    MemberTransport,
    Operation,
    pack_message,
    unpack_message,
)
from weft_distrib.collective.groups import Member
from weft_distrib.wire.future import Reply
from weft_distrib.worker.threads import WaitingThreads
from weft_exec.gpu.discovery import nccl_module
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.gpu.hardware import Gpu
    from weft_exec.gpu.session_device import GpuDevice

_THREADS: Final = WaitingThreads("weft-nccl")

_TYPES: Final = frozenset(
    ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64")
)
"""Element types that NCCL can merge, by NCCL's names without their prefix."""
_PAIRS: Final[Mapping[str, str]] = {"complex64": "float32", "complex128": "float64"}
"""Complex types, which are summed as pairs of real numbers."""


# ------------------------------------------------------------------------------- whether


def gpu_of(device: Device) -> str:
    """Return the identity of a GPU, which is the same in all processes; "" for other devices."""
    if device.type != "GPU":
        return ""
    gpu: GpuDevice = device  # type: ignore[assignment] # as its type says
    result = gpu.xp.cuda.runtime.getDeviceProperties(gpu.hardware.index)
    membership = [result[f"pci{part}ID"] for part in ("Domain", "Bus", "Device")]
    return f"{bytes(result['uuid']).hex()} at {membership}"


def unsupported_reason(device: Device, operation: Operation) -> str:
    """Return why NCCL does not support an operation on a device; "" if it does."""
    if device.type != "GPU":
        return f"{device.name} is not a GPU"
    if not nccl_module().available:
        return (
            f"CuPy did not find NCCL on {device.name}: install nvidia-nccl for its version of CUDA"
        )
    name = operation.dtype.name
    if (
        operation.kind != "reduce"
        or name in _TYPES
        or (name in _PAIRS and operation.merge == "Add")
    ):
        return ""
    return f"NCCL cannot merge {name} by {operation.merge}"


def find_obstacle(members: Sequence[Member], descriptions: Sequence[Mapping[str, Any]]) -> str:
    """Return why NCCL does not support an operation of a group; "" if it does.

    Args:
      descriptions: for each member `gpu`, the result of `gpu_of`, and `nccl`, the result of
        `unsupported_reason`.
    """
    owners: dict[str, str] = {}
    for member, expected in zip(members, descriptions, strict=True):
        if expected["nccl"]:
            return str(expected["nccl"])
        owner = owners.setdefault(expected["gpu"], member.device)
        if owner != member.device:
            return f"{owner} and {member.device} are one GPU"
    return ""


# ------------------------------------------------------------------------------ carrying


class Communicator:
    """A device's NCCL communicator; its creation waits for the other members.

    Args:
      gpu: the GPU of the device. It is passed instead of the device, which would keep the state of
        its session alive.
      size, rank: the size of the group, and the rank of this member.
      unique: NCCL's unique id, which the first member has created.
    """

    def __init__(self, gpu: Gpu, size: int, rank: int, unique: bytes) -> None:
        self._gpu, self._cuda, self._nccl = gpu, gpu.cupy.cuda, nccl_module()
        with gpu.active():
            self._ends = self._nccl.NcclCommunicator(size, unique, rank)
            self._stream = self._cuda.Stream(non_blocking=True)

    def begin(self, operation: Operation, own_value: Any, result: Any, source: int) -> Any:
        """Enqueue an operation on contiguous arrays; return the event of its end."""
        nccl, ends, stream = self._nccl, self._ends, self._stream
        kind, name, count = operation.kind, operation.dtype.name, result.size
        event = self._cuda.Event
        with self._gpu.active(stream):
            # Earlier uses of the result's memory may still be running there.
            stream.wait_event(self._gpu.compute.record(event(disable_timing=True)))
            target_pointer = result.data.ptr
            if kind == "reduce":
                item = getattr(nccl, f"NCCL_{_PAIRS.get(name, name).upper()}")
                op = getattr(nccl, NCCL_OPS[operation.merge])
                ends.allReduce(
                    own_value.data.ptr,
                    target_pointer,
                    count * (1 + (name in _PAIRS)),
                    item,
                    op,
                    stream.ptr,
                )
            elif kind == "gather":
                ends.allGather(
                    own_value.data.ptr,
                    target_pointer,
                    own_value.nbytes,
                    nccl.NCCL_UINT8,
                    stream.ptr,
                )
            else:
                pointer = (result if own_value is None else own_value).data.ptr
                ends.broadcast(
                    pointer, target_pointer, result.nbytes, nccl.NCCL_UINT8, source, stream.ptr
                )
            end_event = stream.record(event(block=True, disable_timing=True))
        return end_event

    def check(self) -> None:
        """Check for asynchronous errors. Raises: NcclError: an enqueued operation has failed."""
        self._ends.check_async_error()

    def close(self) -> None:
        """Destroy the communicator, together with the other members; may wait for them."""
        with self._gpu.active():
            self._ends.destroy()

    def abort(self) -> None:
        """Abort pending operations, so that their events complete."""
        with self._gpu.active():
            self._ends.abort()


class _RunOrder:
    """Starts runs in the order of the numbers assigned by the first member."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._last_given = self._next = 0
        self._error: errors.OpError | None = None

    def take_number(self) -> int:
        """Return the next number; only the first member calls this."""
        with self._changed:
            self._last_given += 1
            return self._last_given - 1

    @contextmanager
    def take(self, ticket: int) -> Iterator[None]:
        """Wait until a number is next; the end of the block releases the following one."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._next == ticket)
            if self._error is not None:
                raise self._error.copy()
        try:
            yield
        finally:
            with self._changed:
                self._next += 1
                self._changed.notify_all()

    def end(self, error: errors.OpError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


class WatchedTransport(MemberTransport, Protocol):
    """Interface of a place that reports the end of other members."""

    def register_wait(self, wait: Reply) -> Reply:
        """Make `wait` fail when the membership ends."""
        ...

    def watch(self, peer: int, name: str) -> None:
        """End the membership when a value of another member cannot arrive any more."""
        ...


class NcclRuns:
    """The NCCL operations of a member of a group.

    Args:
      place: the member's position in the group.
    """

    def __init__(self, membership: WatchedTransport) -> None:
        self._group = membership
        self._run_order = _RunOrder()
        self._lock = threading.Lock()
        self._unique = b""
        self._ends: Communicator | None = None
        self._error: errors.OpError | None = None

    def unique(self) -> str:
        """Return NCCL's unique id in hexadecimal; only the first member calls this."""
        with self._lock:
            self._unique = self._unique or bytes(nccl_module().get_unique_id())
            return self._unique.hex()

    def run(
        self, exchange: Exchange, verdict: Mapping[str, Any], value: Any, device: Device
    ) -> Any:
        """Compute an operation together with the other members, waiting for them.

        Args:
          verdict: `nccl`, a result of `unique`, and for a broadcast the `source`.
          value: the value of this member; None if it only receives.
        Returns: a value of the device.
        Raises: OpError: see `Membership.run`.
        """
        gpu: GpuDevice = device  # type: ignore[assignment] # as its type says
        membership, operation = self._group, exchange.operation
        size, rank = len(membership.members), membership.rank
        # All memory that can be is taken before the others begin to wait for this device.
        own_value = result = shape = None
        if value is not None:
            own_value = _contiguous(gpu, value)
            shape = own_value.shape
            result = _empty(gpu, _shape_of_result(operation, shape, size), operation)
        agreement = self._agree_on_shape(exchange, shape)
        if result is None:
            result = _empty(gpu, tuple(agreement["shape"]), operation)
        if size > 1:
            membership.watch((rank - 1) % size, exchange.key((rank - 1) % size, rank, "over"))
        wait = membership.register_wait(Reply())

        def work() -> None:
            try:
                self._carry(operation, verdict, agreement["turn"], own_value, result, gpu)
            except errors.OpError as error:
                wait.fail(error)
            except Exception as error:  # because NCCL's errors are CuPy's, and a run must end
                wait.fail(errors.InternalError(f"NCCL failed on {gpu.name}: {error}"))
            else:
                wait()

        _THREADS.submit(work)
        exchange.wait_within(wait, "NCCL has not finished")
        if size > 1:
            exchange.send((rank + 1) % size, "over", np.zeros(0, np.uint8))
        return _finish(operation, result, size, gpu)

    def _agree_on_shape(self, exchange: Exchange, shape: Sequence[int] | None) -> dict[str, Any]:
        """Wait for all members; return the agreed shape and the number of the operation.

        The first one checks the shapes and assigns a number.
        """
        membership, own_shape = self._group, None if shape is None else list(shape)
        if membership.rank:
            exchange.send(0, "come", pack_message({"shape": own_shape}))
            verdict = unpack_message(exchange.receive(0, "turn"))
        else:
            peers = range(1, len(membership.members))
            replies = [(i, exchange.ask(i, "come")) for i in peers]
            shapes = [unpack_message(exchange.take(wait, i))["shape"] for i, wait in replies]
            verdict = self._verdict_for(exchange.operation, [own_shape, *shapes])
            for peer in peers:
                exchange.send(peer, "turn", pack_message(verdict))
        if "error" in verdict:
            raise errors.InvalidArgumentError(verdict["error"])
        return verdict

    def _verdict_for(
        self, operation: Operation, shapes: Sequence[list[int] | None]
    ) -> dict[str, Any]:
        members = self._group.members
        (index, first), *remaining = [
            (i, shape) for i, shape in enumerate(shapes) if shape is not None
        ]
        for i, shape in remaining:
            if shape != first:
                return {
                    "error": f"instance {operation.instance} of group {self._group.key} must have "
                    f"one shape in all members: {members[i].device} gave {shape} where "
                    f"{members[index].device} has {first}"
                }
        return {"turn": self._run_order.take_number(), "shape": first}

    def _carry(
        self,
        operation: Operation,
        verdict: Mapping[str, Any],
        ticket: int,
        own_value: Any,
        result: Any,
        gpu: GpuDevice,
    ) -> None:
        with self._run_order.take(ticket):
            if not result.size:
                return
            ends = self._ends or self._open(gpu, verdict["nccl"])
            end_event = ends.begin(operation, own_value, result, verdict.get("source", 0))
        end_event.synchronize()
        if self._error is not None:
            raise self._error.copy()
        ends.check()

    def _open(self, gpu: GpuDevice, unique: str) -> Communicator:
        """Create the communicator; only the first run does this."""
        communicator = Communicator(
            gpu.hardware, len(self._group.members), self._group.rank, bytes.fromhex(unique)
        )
        with self._lock:
            error = self._error
            self._ends = communicator if error is None else None
        if error is not None:  # while it waited for the other ends
            communicator.abort()
            raise error.copy()
        return communicator

    def end(self, error: errors.OpError, drained: bool) -> None:
        """Fail pending operations; if the member has `drained`, nothing is pending."""
        self._run_order.end(error)
        with self._lock:
            self._error = error
            ends, self._ends = self._ends, None
        if ends is not None:
            _THREADS.submit(ends.close if drained else ends.abort)


def _contiguous(gpu: GpuDevice, value: Any) -> Any:
    with gpu.active():
        array = gpu.own(np.asarray(value) if isinstance(value, np.generic) else value)
        return gpu.xp.ascontiguousarray(array).reshape(array.shape)


def _empty(gpu: GpuDevice, shape: tuple[int, ...], operation: Operation) -> Any:
    with gpu.active():
        return gpu.xp.empty(shape, operation.dtype)


def _shape_of_result(operation: Operation, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    if operation.kind != "gather":
        return shape
    if not shape:
        raise errors.InvalidArgumentError(
            "all-gather requires inputs of rank 1 or more, got a scalar"
        )
    return (shape[0] * size, *shape[1:])


def _finish(operation: Operation, result: Any, size: int, gpu: GpuDevice) -> Any:
    from weft_exec.gpu.launch import finalize_result

    with gpu.active():
        if operation.kind == "reduce" and operation.final == "Div" and result.size:
            divide(result, size)
        return finalize_result(gpu, result, operation.dtype)
