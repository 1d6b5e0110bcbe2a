"""Methods that tasks and clients call over connections, with their argument formats."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from weft_tensor import errors

PULL: Final = 1
"""Worker: wait for the value of a key. Meta: a `StepKey`, then the key."""
RUN_PARTS: Final = 2
"""Worker: run the partitions of a signature. Meta: `RunParts`; values: feeds, in reply fetches."""
ABORT: Final = 3
"""Worker: abort a step. Meta: a `StepKey`, then the error as JSON."""
REGISTER: Final = 4
"""Worker: register partitions. Meta: `messages.Register`; values: the graph of each partition."""
FORGET: Final = 5
"""Worker: remove a session and its partitions. Meta: `messages.SessionRequest`."""
EXTEND: Final = 6
"""Master: add nodes to a graph. Meta: `messages.SessionRequest`; values: segments of the graph."""
RUN_STEP: Final = 7
"""Master: run a signature. Meta: `RunStep`; values: feeds, in reply fetches."""
JOIN: Final = 16
"""Worker: wait for the members of a group. Meta: `messages.Join`; in reply: `Group`."""
BEGIN_PARTIAL: Final = 18
"""Master: begin a partial run. Meta: `RunStep`; in reply: a `StepKey`."""
ADVANCE: Final = 19
"""Master: continue a partial run. Meta: `messages.Advance`; values: feeds, in reply fetches."""
EXPLAIN: Final = 20
"""Master: explain a step. Meta: `messages.Signature`; values: those of a `StepReport`."""
CREATE_SESSION: Final = 21
"""Master: open a session. Meta: `messages.OpenSession`; in reply: `messages.Session`."""
PLAN: Final = 22
"""Master: plan a signature. Meta: `messages.Signature`; in reply: `messages.Planned`."""
CLOSE_SESSION: Final = 23
"""Master: close a session. Meta: `messages.SessionRequest`."""
STATUS: Final = 24
"""Task: return its status. Meta: `messages.Empty`; in reply: `messages.Status`."""
DEFINE: Final = 25
"""Master: add nodes. Meta: `messages.Define`; values: a GraphDef, and constants."""
DEFINE_FUNCTION: Final = 26
"""Master: add a function. Meta: `messages.DefineFunction`; values: as for `DEFINE`."""
DIFFERENTIATE: Final = 27
"""Master: add gradients. Meta: `messages.Differentiate`; in reply: `messages.Gradients`."""
SHAPES: Final = 28
"""Master: describe outputs. Meta: `messages.Names`; values: the result of `describe_outputs`."""
FUNCTIONS: Final = 29
"""Master: return functions of a graph. Meta: `messages.Names`; in reply also a GraphDef of them."""
RESET: Final = 30
"""Master: drop the state of all tasks. Meta: `messages.Reset`."""
TRACE_TASK: Final = 31
"""Task: record steps. Meta: `TraceTask`; in reply: `TraceState`, and at the end the records."""
RECORD: Final = 32
"""Master: record a trace of all tasks. Meta: `Record`; values: in reply the bytes of the file."""
FIND: Final = 17
"""Worker: return which resources it has. Meta: `messages.Find`; in reply: `messages.Found`."""

OF_MASTERS: Final = frozenset(
    {
        CREATE_SESSION,
        EXTEND,
        PLAN,
        EXPLAIN,
        RUN_STEP,
        BEGIN_PARTIAL,
        ADVANCE,
        CLOSE_SESSION,
        STATUS,
        DEFINE,
        DEFINE_FUNCTION,
        DIFFERENTIATE,
        SHAPES,
        FUNCTIONS,
        RESET,
        RECORD,
    }
)
"""The methods that clients may call too; all others are only for tasks of the cluster."""

VERSION: Final = 1
"""The version of the metadata formats below, each of which begins with it; both ends must agree."""

_STEP_KEY = struct.Struct("<B7xQQ")


class StepKey(NamedTuple):
    """The identity of a step: the numbers of the session and of the step.

    Later steps have larger ones.
    """

    session: int
    step: int

    def pack(self, remaining: bytes = b"") -> bytes:
        """Encode the key, followed by further bytes."""
        return _STEP_KEY.pack(VERSION, *self) + remaining

    @classmethod
    def unpack(cls, meta: bytes) -> tuple[StepKey, bytes]:
        """Decode the result of `pack`.

        Raises:
          DataLossError: the data is too short.
          FailedPreconditionError: the data has another version.
        """
        return cls(*_unpack(_STEP_KEY, meta)), meta[_STEP_KEY.size :]


class RunParts(NamedTuple):
    """The request to a worker to run its partitions of a step.

    Attributes:
      ended: all steps of the session below this number have ended, except the steps in `running`.
      timeout: the timeout in milliseconds; 0 for no limit.
      traced: True if the meta of the reply should have a trace, encoded by `tracing.pack`.
      running: the numbers of earlier steps that still run.
    """

    session: int
    step: int
    signature: int
    ended: int
    timeout: int = 0
    traced: bool = False
    running: tuple[int, ...] = ()

    def pack(self) -> bytes:
        """Encode the request."""
        return _RUN_PARTS.pack(VERSION, *self[:-1]) + struct.pack(
            f"<{len(self.running)}Q", *self.running
        )

    @classmethod
    def unpack(cls, meta: bytes) -> RunParts:
        """Decode the result of `pack`.

        Raises: DataLossError: the data is too short.
        """
        fixed, remaining = _unpack(_RUN_PARTS, meta), meta[_RUN_PARTS.size :]
        if len(remaining) % 8:
            raise errors.DataLossError(
                f"invalid list of step numbers: {len(remaining)} bytes are not a multiple of 8"
            )
        running = struct.unpack(f"<{len(remaining) // 8}Q", remaining)
        return cls(*fixed)._replace(running=running)


_RUN_PARTS = struct.Struct("<B7xQQQQQ?")


class RunStep(NamedTuple):
    """The request to a master to run a step; the fields are as in `RunParts`."""

    session: int
    signature: int
    timeout: int = 0
    traced: bool = False

    def pack(self) -> bytes:
        """Encode the request."""
        return _RUN_STEP.pack(VERSION, *self)

    @classmethod
    def unpack(cls, meta: bytes) -> RunStep:
        """Decode the result of `pack`.

        Raises: DataLossError: the data is too short.
        """
        return cls(*_unpack(_RUN_STEP, meta))


_RUN_STEP = struct.Struct("<B7xQQQ?")


_THREE = struct.Struct("<B7xQQ")


class TraceTask(NamedTuple):
    """The request to a task about its recording.

    Attributes:
      action: what to do: `BEGIN`, `POLL` or `END`.
      steps: maximum number of steps to record, for `BEGIN`.
    """

    action: int
    steps: int = 0

    def pack(self) -> bytes:
        """Encode the request."""
        return _THREE.pack(VERSION, *self)

    @classmethod
    def unpack(cls, meta: bytes) -> TraceTask:
        """Decode the result of `pack`.

        Raises: DataLossError: the data is too short.
        """
        return cls(*_unpack(_THREE, meta))


class TraceState(NamedTuple):
    """The state of a recording.

    Attributes:
      now: time of the task on the clock of its trace, in nanoseconds since the epoch.
      steps: number of recorded steps that have ended.
    """

    now: int
    steps: int

    def pack(self) -> bytes:
        """Encode the state."""
        return _THREE.pack(VERSION, *self)

    @classmethod
    def unpack(cls, meta: bytes) -> TraceState:
        """Decode the result of `pack`.

        Raises: DataLossError: the data is too short.
        """
        return cls(*_unpack(_THREE, meta))


class Record(NamedTuple):
    """The request to a master to start a trace of all tasks, or to wait for or end the current one.

    Attributes:
      steps: number of steps to record; 0 for a request about the current recording, which has no
        result.
      milliseconds: time after which the recording ends in any case. Without steps: how long to wait
        until there is a recording, or 0 to end it.
    """

    steps: int
    milliseconds: int

    def pack(self) -> bytes:
        """Encode the request."""
        return _THREE.pack(VERSION, *self)

    @classmethod
    def unpack(cls, meta: bytes) -> Record:
        """Decode the result of `pack`.

        Raises: DataLossError: the data is too short.
        """
        return cls(*_unpack(_THREE, meta))


BEGIN, POLL, END = range(3)
"""Actions of `TraceTask`."""


def _unpack(form: struct.Struct, meta: bytes) -> tuple[Any, ...]:
    if len(meta) < form.size:
        raise errors.DataLossError(
            f"the meta of a call has {len(meta)} bytes, but needs at least {form.size}"
        )
    version, *result = form.unpack_from(meta)
    if version != VERSION:
        raise errors.FailedPreconditionError(
            f"a call of version {version} was received, but this task uses version {VERSION}: "
            "install "
            "the same release of weftml-distrib on both"
        )
    return tuple(result)
