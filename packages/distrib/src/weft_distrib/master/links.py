"""Links of a master to workers: to the worker of its own task, and to workers of other tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import encode
from weft_distrib.wire import methods
from weft_distrib.wire.channel import Answer, Channel
from weft_distrib.wire.methods import RunParts, StepKey
from weft_distrib.wire.values import Pieces
from weft_distrib.worker.recording import TaskRecording
from weft_distrib.worker.worker import Done, Worker
from weft_exec.resources.rendezvous import Rendezvous
from weft_tensor import errors

Fail = Callable[[errors.OpError], None]

TaskParts = dict[str, Pieces]
"""The partitions of a task by device name, as `part_pieces` returns them."""


def _register_message(parts: TaskParts, same_as: int) -> tuple[list[messages.Part], list[Pieces]]:
    """Return the partitions as message fields, and the graphs that are sent with the message."""
    return [messages.Part(device) for device in parts], [] if same_as else list(parts.values())


class WorkerLink(Protocol):
    """Interface of a worker for a master: the worker of its own task or of another task."""

    def register(
        self, session: int, signature: int, parts: TaskParts, same_as: int, answer: Answer
    ) -> None:
        """Register the task's partitions of a signature; `answer` is called when that is done.

        Args:
          same_as: an earlier signature with the same partitions; 0 for none.
        """
        ...

    def run(
        self, request: RunParts, values: Sequence[Any], done: Done, fail: Fail, may_run_part: bool
    ) -> Callable[[], None] | None:
        """Run the task's partitions; either `done` or `fail` is called once.

        Args:
          may_run_part: True if this thread only waits for the step.
        Returns: a function that runs the partitions, which this thread must call; None if another
          thread runs them.
        """
        ...

    def abort(self, key: StepKey, error: errors.OpError) -> None:
        """Abort a step."""
        ...

    def forget(self, session: int) -> None:
        """Remove a session."""
        ...

    def find(self, request: messages.Find, answer: Answer) -> None:
        """Query the resources of the worker; `answer` receives a `messages.Found`."""
        ...


class OwnWorker:
    """The worker of the master's own task.

    Args:
      isolated: True if the session does not share state with others.
      trusted: True if its client is in this process.
    """

    def __init__(self, worker: Worker, isolated: bool = False, trusted: bool = False) -> None:
        self._worker = worker
        self._isolated, self._trusted = isolated, trusted
        self.abort = worker.abort

    def register(
        self, session: int, signature: int, parts: TaskParts, same_as: int, answer: Answer
    ) -> None:
        """See `WorkerLink`; runs on this thread."""
        message, values = _register_message(parts, same_as)
        try:
            request = messages.Register(session, signature, message, self._isolated, same_as)
            self._worker.register(request, [v.joined() for v in values], self._trusted)
        except errors.OpError as error:
            answer.fail(error)
        else:
            answer((), b"")

    def run(
        self, request: RunParts, values: Sequence[Any], done: Done, fail: Fail, may_run_part: bool
    ) -> Callable[[], None] | None:
        """See `WorkerLink`."""
        return self._worker.run(request, values, done, fail, may_run_part)

    def forget(self, session: int) -> None:
        """See `WorkerLink`."""
        self._worker.forget(session)

    @property
    def recording(self) -> TaskRecording | None:
        """The recording of the task; None if it is not recorded."""
        return self._worker.recording

    def rendezvous(self, key: StepKey) -> Rendezvous:
        """Return the rendezvous of a step."""
        return self._worker.open_rendezvous(key)

    def find(self, request: messages.Find, answer: Answer) -> None:
        """See `WorkerLink`."""
        answer((), encode(self._worker.find(request)))


class RemoteWorker:
    """The worker of another task.

    Args:
      channel: the connection to the task.
      isolated: True if the session does not share state with others.
    """

    def __init__(self, channel: Channel, isolated: bool = False) -> None:
        self._channel = channel
        self._isolated = isolated

    def register(
        self, session: int, signature: int, parts: TaskParts, same_as: int, answer: Answer
    ) -> None:
        """See `WorkerLink`."""
        message, values = _register_message(parts, same_as)
        meta = encode(messages.Register(session, signature, message, self._isolated, same_as))
        self._channel.call(methods.REGISTER, meta, values, answer)

    def run(
        self, request: RunParts, values: Sequence[Any], done: Done, fail: Fail, may_run_part: bool
    ) -> Callable[[], None] | None:
        """See `WorkerLink`."""
        self._channel.call(methods.RUN_PARTS, request.pack(), values, AbortNotice(done, fail))
        return None

    def abort(self, key: StepKey, error: errors.OpError) -> None:
        """See `WorkerLink`."""
        meta = key.pack(json.dumps(error.to_dict(), default=str).encode())
        self._channel.call(methods.ABORT, meta, (), _IGNORE_REPLY)

    def forget(self, session: int) -> None:
        """See `WorkerLink`."""
        meta = encode(messages.SessionRequest(session))
        self._channel.call(methods.FORGET, meta, (), _IGNORE_REPLY)

    def find(self, request: messages.Find, answer: Answer) -> None:
        """See `WorkerLink`."""
        self._channel.call(methods.FIND, encode(request), (), answer)


class AbortNotice:
    """Receiver of a reply that calls one of two functions."""

    def __init__(self, done: Done, fail: Fail) -> None:
        self._done = done
        self.fail = fail

    def __call__(self, values: Sequence[Any], meta: bytes) -> None:
        """Process the contents of the reply."""
        self._done(list(values), meta)


class _IgnoredReply:
    """Receiver that ignores the reply."""

    def __call__(self, values: Sequence[Any], meta: bytes) -> None:
        pass

    def fail(self, error: errors.OpError) -> None:
        pass


_IGNORE_REPLY: Final = _IgnoredReply()
