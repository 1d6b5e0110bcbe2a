"""Recording a trace of a running cluster."""

from __future__ import annotations

import os
from typing import Any

from weft_distrib.client.target import link_to
from weft_distrib.wire.methods import Record
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
      steps: number of steps that one task records, at most 10,000; the recording then ends.
      path: the file, which is replaced if it exists.
      seconds: time after which the recording ends in any case, at most 600.
      config: a ConfigProto with credentials.
    Raises:
      FailedPreconditionError: another trace is being recorded.
      InvalidArgumentError: a number is out of range.
      UnavailableError: a task cannot be reached.
    """
    if not seconds > 0:
        raise errors.InvalidArgumentError(f"seconds must be positive, got {seconds}")
    link = link_to(target, config=config)
    try:
        content = link.record(Record(steps, int(seconds * 1000)))
    finally:
        link.close()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as stream:
        stream.write(content)
