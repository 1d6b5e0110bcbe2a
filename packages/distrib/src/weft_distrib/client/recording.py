"""Recording a trace of a running cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

from weft_distrib.client.link import MasterLink
from weft_distrib.client.target import link_to
from weft_distrib.master.recording import MAX_MILLISECONDS
from weft_distrib.wire.methods import Record
from weft_distrib.worker.recording import MAX_STEPS
from weft_tensor import errors


def record_trace(
    target: str,
    steps: int,
    path: str | os.PathLike[str],
    seconds: float = 60.0,
    config: Any = None,
) -> None:
    """Record the next steps of all tasks of a cluster to a trace file.

    The clocks of the tasks are compared by the times of messages. The file has the time of the task
    at `target`, and for each other task the offset of its clock and the error of the offset.

    Args:
      target: any task: "grpc://host:port".
      steps: number of steps that one task records, at most 10,000; the recording then ends. A step
        that runs when the recording begins counts, but is not in the file.
      path: the file, which is replaced if it exists.
      seconds: time after which the recording ends in any case, at most 600.
      config: a ConfigProto with credentials.
    Raises:
      FailedPreconditionError: another trace is being recorded.
      InvalidArgumentError: a number is out of range.
      OSError: the file cannot be written.
      UnavailableError: a task cannot be reached.
    """
    if not steps > 0:
        raise errors.InvalidArgumentError(f"steps must be positive, got {steps}")
    if not seconds > 0:
        raise errors.InvalidArgumentError(f"seconds must be positive, got {seconds}")
    is_new = not os.path.exists(path)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as stream:  # opened first, so that no recording is lost
        try:
            link = link_to(target, _CONNECT_SECONDS, config)
            try:
                content = link.record(Record(steps, int(seconds * 1000)))
            finally:
                link.close()
        except BaseException:  # because an empty file is no trace, whatever the error
            if is_new:
                os.unlink(path)
            raise
        stream.truncate()
        stream.write(content)


class SessionTasksRecording:
    """A recording of the tasks of a session's cluster, from now until `end`.

    It ends earlier after 10,000 steps or 10 minutes.

    Args:
      target: target of the session.
      open_link: opens a link to the master.
    Raises: OpError: the tasks cannot be recorded, such as because another trace is being recorded.
    """

    def __init__(self, target: str, open_link: Callable[[], MasterLink]) -> None:
        self.target = target
        self._open_link = open_link
        self._content: bytes | None = None
        self._error: errors.OpError | None = None
        self._thread = threading.Thread(target=self._record, name="weft trace tasks", daemon=True)
        self._thread.start()
        try:
            self._control(_BEGIN_MILLISECONDS)
        except errors.OpError as error:
            raise self._error or error from None

    def _record(self) -> None:
        try:
            link = self._open_link()
            try:
                self._content = link.record(Record(MAX_STEPS, MAX_MILLISECONDS))
            finally:
                link.close()
        except errors.OpError as error:
            self._error = error

    def _control(self, milliseconds: int) -> None:
        link = self._open_link()
        try:
            link.record(Record(0, milliseconds))
        finally:
            link.close()

    def end(self) -> bytes:
        """End the recording, and return the bytes of its trace file.

        Raises: OpError: a task was lost.
        """
        if self._thread.is_alive():
            self._control(0)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._content or b""


_CONNECT_SECONDS: Final = 5.0
"""Time limit for connecting; shorter than a session's, because the cluster is running already."""
_BEGIN_MILLISECONDS: Final = 10_000
"""How long to wait until all tasks record."""
