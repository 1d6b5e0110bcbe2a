"""Methods that tasks and clients call over the wire, and their argument formats."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from weft_tensor import errors

PULL: Final = 1
"""Of a worker: wait for the value of a key. Meta: a `StepKey`, then the key."""
RUN_PARTS: Final = 2
"""Of a worker: run a signature's partitions. Meta: `RunParts`; values: feeds and fetches."""
ABORT: Final = 3
"""Of a worker: end a step. Meta: a `StepKey`, then the error as JSON."""
REGISTER: Final = 4
"""Of a worker: keep parts. Meta: `messages.Register`; values: the graph of each part."""
FORGET: Final = 5
"""Of a worker: forget a session and its parts. Meta: `messages.SessionRequest`."""
EXTEND: Final = 6
"""Of a master: add nodes to a graph. Meta: `messages.SessionRequest`; values: segments of it."""
RUN_STEP: Final = 7
"""Of a master: run a signature. Meta: `RunStep`; values: feeds and fetches."""
JOIN: Final = 16
"""Of a worker: wait for the members of a group. Meta: `messages.Join`; in reply: `Group`."""
BEGIN_PARTIAL: Final = 18
"""Of a master: begin a partial run. Meta: `RunStep`; in reply: a `StepKey`."""
ADVANCE: Final = 19
"""Of a master: continue a partial run. Meta: `messages.Advance`; values: feeds and fetches."""
EXPLAIN: Final = 20
"""Of a master: explain a step. Meta: `messages.Signature`; values: of a `StepReport`."""
CREATE_SESSION: Final = 21
"""Of a master: open a session. Meta: `messages.OpenSession`; in reply: `messages.Session`."""
PLAN: Final = 22
"""Of a master: plan a signature. Meta: `messages.Signature`; in reply: `messages.Planned`."""
CLOSE_SESSION: Final = 23
"""Of a master: close a session. Meta: `messages.SessionRequest`."""
STATUS: Final = 24
"""Describe the task. Meta: `messages.Empty`; in reply: `messages.Status`."""
DEFINE: Final = 25
"""Of a master: add nodes. Meta: `messages.Define`; values: a GraphDef, and constants."""
DEFINE_FUNCTION: Final = 26
"""Of a master: add a function. Meta: `messages.DefineFunction`; values: as for `DEFINE`."""
DIFFERENTIATE: Final = 27
"""Of a master: add gradients. Meta: `messages.Differentiate`; in reply: `messages.Gradients`."""
SHAPES: Final = 28
"""Of a master: describe outputs. Meta: `messages.Names`; values: of `describe_outputs`."""
FUNCTIONS: Final = 29
"""Of a master: functions of a graph. Meta: `messages.Names`; in reply also a GraphDef of them."""
RESET: Final = 30
"""Of a master: drop the state of all tasks. Meta: `messages.Reset`."""
FIND: Final = 17
"""Of a worker: which resources it has. Meta: `messages.Find`; in reply: `messages.Found`."""

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
    }
)
"""Methods that clients may call, too; the others are for tasks of the cluster."""

VERSION: Final = 1
"""The version of the metas below, with which each of them begins; both ends must agree."""

_STEP_KEY = struct.Struct("<B7xQQ")


class StepKey(NamedTuple):
    """One step of one session; numbers of steps grow."""

    session: int
    step: int

    def pack(self, remaining: bytes = b"") -> bytes:
        """Encode the key, followed by `remaining`."""
        return _STEP_KEY.pack(VERSION, *self) + remaining

    @classmethod
    def unpack(cls, meta: bytes) -> tuple[StepKey, bytes]:
        """Decode the result of `pack`.

        Raises:
          DataLossError: it is too short.
          FailedPreconditionError: it is of another version.
        """
        return cls(*_unpack(_STEP_KEY, meta)), meta[_STEP_KEY.size :]


class RunParts(NamedTuple):
    """The request to a worker to run its partitions of a step.

    Attributes:
      ended: all steps of the session with smaller numbers have ended, except `running`.
      timeout: in milliseconds; 0 for none.
      traced: whether the reply's meta holds a `tracing.pack`.
      running: the steps with smaller numbers that still run.
    """

    session: int
    step: int
    signature: int
    ended: int
    timeout: int = 0
    traced: bool = False
    running: tuple[int, ...] = ()

    def pack(self) -> bytes:
        """Return the bytes of it."""
        return _RUN_PARTS.pack(VERSION, *self[:-1]) + struct.pack(
            f"<{len(self.running)}Q", *self.running
        )

    @classmethod
    def unpack(cls, meta: bytes) -> RunParts:
        """Decode the result of `pack`.

        Raises: DataLossError: it is too short.
        """
        fixed, remaining = _unpack(_RUN_PARTS, meta), meta[_RUN_PARTS.size :]
        if len(remaining) % 8:
            raise errors.DataLossError(f"numbers of steps cannot have {len(remaining)} bytes")
        running = struct.unpack(f"<{len(remaining) // 8}Q", remaining)
        return cls(*fixed)._replace(running=running)


_RUN_PARTS = struct.Struct("<B7xQQQQQ?")


class RunStep(NamedTuple):
    """The request to a master to run a step; see `RunParts`."""

    session: int
    signature: int
    timeout: int = 0
    traced: bool = False

    def pack(self) -> bytes:
        """Return the bytes of it."""
        return _RUN_STEP.pack(VERSION, *self)

    @classmethod
    def unpack(cls, meta: bytes) -> RunStep:
        """Decode the result of `pack`.

        Raises: DataLossError: it is too short.
        """
        return cls(*_unpack(_RUN_STEP, meta))


_RUN_STEP = struct.Struct("<B7xQQQ?")


def _unpack(form: struct.Struct, meta: bytes) -> tuple[Any, ...]:
    if len(meta) < form.size:
        raise errors.DataLossError(f"a call with {len(meta)} bytes of meta needs {form.size}")
    version, *result = form.unpack_from(meta)
    if version != VERSION:
        raise errors.FailedPreconditionError(
            f"a call of version {version} was received, but this task uses version {VERSION}: "
            "install "
            "the same release of weftml-distrib on both"
        )
    return tuple(result)
