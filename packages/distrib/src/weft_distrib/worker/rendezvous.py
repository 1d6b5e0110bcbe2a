"""The rendezvous of steps over several tasks: receivers pull values from senders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from weft_distrib.wire.channel import Call, Channel
from weft_distrib.wire.methods import PULL, StepKey
from weft_distrib.worker.tracing import Transfer
from weft_exec.devices.description import HOST
from weft_exec.devices.device import Device
from weft_exec.resources.rendezvous import DEAD, Rendezvous, ends_of
from weft_exec.resources.resources import CompletionCallback
from weft_exec.tracing.step_trace import trace_time
from weft_graph.ir.device_spec import DeviceParts, parse
from weft_graph.passes.caller_exchange import CALLER
from weft_tensor import errors

ChannelTo = Callable[[DeviceParts], Channel]


@lru_cache(4096)
def task_of(device: str) -> DeviceParts:
    """Return the task of a device, from the device's full name."""
    return DeviceParts(*parse(device)[:3])


class StepRendezvous(Rendezvous):
    """One task's side of the rendezvous of a step.

    Sent values are kept here until their receiver requests them: a partition of this task, or
      another task by `serve`. Values of other tasks are requested as soon as a partition needs
      them.

    Args:
      key: the identity of the step.
      task: this task.
      devices: the devices of this task by name.
      channel_to: returns the connection to another task.
    Attributes:
      passages: records of transfers from and to other tasks; None if they are not recorded.
    """

    def __init__(
        self,
        key: StepKey,
        task: DeviceParts,
        devices: Mapping[str, Device],
        channel_to: ChannelTo,
    ) -> None:
        super().__init__()
        self.session = key.session
        self._key, self._task, self._devices = key, task, devices
        self._channel_to = channel_to
        self._pulls: dict[str, _Pull] = {}
        self.passages: list[Transfer] | None = None

    def send(self, key: str, value: Any) -> None:
        """See the base class; a value for another task is first copied to the host's memory."""
        sender, receiver = ends_of(key)
        device = None if receiver == CALLER or sender == CALLER else self._devices[sender]
        if device is None:
            super().send(key, value)
        elif device.memory_space != HOST and value is not DEAD and task_of(receiver) != self._task:
            device.send(value, _Outbound(self, key))
        else:
            super().send(key, value)

    def receive(self, key: str, done: CompletionCallback) -> None:
        """See the base class; a value of another task is requested from there."""
        device = ends_of(key)[0]
        sender = self._task if device == CALLER else task_of(device)
        if sender == self._task:
            super().receive(key, done)
            return
        pull = _Pull(self, key, done)
        with self._lock:
            error = self._error
            if error is None:
                # Registered before the request is sent, so that `abort` can cancel it.
                self._pulls[key] = pull
        if error is not None:
            done.fail(error.copy())
            return
        try:
            pull.begin(self._channel_to(sender), self._key.pack(key.encode()))
        except errors.OpError as raised:
            pull.fail(raised)

    def serve(self, key: str, call: Call) -> None:
        """Answer another task's request for a value as soon as the value is available."""
        super().receive(key, _ServedRequest(self, key, call))

    def abort(self, error: errors.OpError) -> None:
        """See the base class; requests to other tasks are canceled."""
        super().abort(error)
        with self._lock:
            pulls = list(self._pulls.values())
        for pull in pulls:
            pull.cancel(error.copy())

    @property
    def pending(self) -> int:
        """See the base class; requests to other tasks are counted."""
        with self._lock:
            pulls = len(self._pulls)
        return super().pending + pulls

    def note(self, key: str, nbytes: int = 0, link: str = "", requested: int = 0) -> None:
        """Record that a value has left, or has arrived over a link, if transfers are recorded."""
        if self.passages is not None:
            self.passages.append(Transfer(key, trace_time(), nbytes, link, requested))

    def take(self, key: str) -> bool:
        """Remove a request.

        Return True only for the first caller, which then notifies the receiver.
        """
        with self._lock:
            return self._pulls.pop(key, None) is not None


class _Outbound:
    """Receives a value that a device has copied to the host's memory."""

    def __init__(self, rendezvous: StepRendezvous, key: str) -> None:
        self._rendezvous, self._key = rendezvous, key

    def __call__(self, value: Any = None) -> None:
        Rendezvous.send(self._rendezvous, self._key, value)

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, errors.OpError):
            error = errors.InternalError(f"reading a value failed: {error!r}")
        self._rendezvous.abort(error)


class _ServedRequest:
    """Receives a value that another task has requested, and sends it."""

    def __init__(self, rendezvous: StepRendezvous, key: str, call: Call) -> None:
        self._rendezvous, self._key, self._call = rendezvous, key, call

    def __call__(self, value: Any = None) -> None:
        self._rendezvous.note(self._key)
        self._call.reply([value])

    def fail(self, error: BaseException) -> None:
        assert isinstance(error, errors.OpError)
        self._call.fail(error)


class _Pull:
    """A value that was requested from another task; notifies the receiver once."""

    def __init__(self, rendezvous: StepRendezvous, key: str, done: CompletionCallback) -> None:
        self._rendezvous, self._key, self._done = rendezvous, key, done
        self._channel: Channel | None = None
        self._number = 0
        self._requested = 0

    def begin(self, channel: Channel, meta: bytes) -> None:
        self._channel = channel
        if self._rendezvous.passages is not None:
            self._requested = trace_time()
        self._number = channel.call(PULL, meta, (), self)

    def __call__(self, values: Sequence[Any], meta: bytes) -> None:
        rendezvous = self._rendezvous
        if rendezvous.take(self._key):
            if rendezvous.passages is not None and self._channel is not None:
                nbytes = getattr(values[0], "nbytes", 0)
                rendezvous.note(self._key, nbytes, self._channel.link_of(nbytes), self._requested)
            self._done(values[0])

    def fail(self, error: errors.OpError) -> None:
        if self._rendezvous.take(self._key):
            self._done.fail(error)

    def cancel(self, error: errors.OpError) -> None:
        self.fail(error)
        if self._channel is not None:
            self._channel.cancel(self._number)
