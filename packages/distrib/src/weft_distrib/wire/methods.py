"""What tasks and clients call of each other by the wire, and the numbers that go with it."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from weft_tensor import errors

PULL: Final = 1
"""Of a worker: the value of a key, as soon as it is there. Meta: a `StepKey`, then the key."""
RUN_PARTS: Final = 2
"""Of a worker: run a signature's parts. Meta: `RunParts`; values: what is fed and fetched."""
ABORT: Final = 3
"""Of a worker: end a step. Meta: a `StepKey`, then the error as JSON."""
REGISTER: Final = 4
"""Of a worker: keep parts. Meta: `messages.Register`; values: the graph of each part."""
FORGET: Final = 5
"""Of a worker: forget a session and its parts. Meta: `messages.SessionRequest`."""
EXTEND: Final = 6
"""Of a master: add nodes to a graph. Meta: `messages.SessionRequest`; values: segments of it."""
RUN_STEP: Final = 7
"""Of a master: run a signature. Meta: `RunStep`; values: what is fed and fetched."""
JOIN: Final = 16
"""Of a worker: wait for the members of a group. Meta: `messages.Join`; in reply: `Group`."""
BEGIN_PARTIAL: Final = 18
"""Of a master: begin a partial run. Meta: `RunStep`; in reply: a `StepKey`."""
ADVANCE: Final = 19
"""Of a master: go on with one. Meta: `messages.Advance`; values: what is fed and fetched."""
EXPLAIN: Final = 20
"""Of a master: what becomes of a step. Meta: `messages.Signature`; values: of a `StepReport`."""
CREATE_SESSION: Final = 21
"""Of a master: open a session. Meta: `messages.OpenSession`; in reply: `messages.Session`."""
PLAN: Final = 22
"""Of a master: plan a signature. Meta: `messages.Signature`; in reply: `messages.Planned`."""
CLOSE_SESSION: Final = 23
"""Of a master: close a session. Meta: `messages.SessionRequest`."""
FIND: Final = 17
"""Of a worker: which resources it has. Meta: `messages.Find`; in reply: `messages.Found`."""

OF_MASTERS: Final = frozenset(
    {CREATE_SESSION, EXTEND, PLAN, EXPLAIN, RUN_STEP, BEGIN_PARTIAL, ADVANCE, CLOSE_SESSION}
)
"""What clients may call, too; the rest is for tasks of the cluster."""

VERSION: Final = 1
"""Of the metas below, each of which begins with it. Both ends must have the same one."""

_STEP_KEY = struct.Struct("<B7xQQ")


class StepKey(NamedTuple):
    """One step of one session; numbers of steps grow."""

    session: int
    step: int

    def pack(self, rest: bytes = b"") -> bytes:
        """The bytes of it, and what follows."""
        return _STEP_KEY.pack(VERSION, *self) + rest

    @classmethod
    def unpack(cls, meta: bytes) -> tuple[StepKey, bytes]:
        """What `pack` was given.

        Raises:
          DataLossError: it is too short.
          FailedPreconditionError: it is of another version.
        """
        return cls(*_unpack(_STEP_KEY, meta)), meta[_STEP_KEY.size :]


class RunParts(NamedTuple):
    """How a worker runs its parts of a step.

    Attributes:
      ended: all steps of the session with smaller numbers are over, but for `running`.
      timeout: in milliseconds; 0 for none.
      traced: whether the reply's meta holds a `tracing.pack`.
      running: the steps with smaller numbers that are not over.
    """

    session: int
    step: int
    signature: int
    ended: int
    timeout: int = 0
    traced: bool = False
    running: tuple[int, ...] = ()

    def pack(self) -> bytes:
        """The bytes of it."""
        return _RUN_PARTS.pack(VERSION, *self[:-1]) + struct.pack(
            f"<{len(self.running)}Q", *self.running
        )

    @classmethod
    def unpack(cls, meta: bytes) -> RunParts:
        """What `pack` gave.

        Raises: DataLossError: it is too short.
        """
        fixed, rest = _unpack(_RUN_PARTS, meta), meta[_RUN_PARTS.size :]
        if len(rest) % 8:
            raise errors.DataLossError(f"numbers of steps cannot have {len(rest)} bytes")
        running = struct.unpack(f"<{len(rest) // 8}Q", rest)
        return cls(*fixed)._replace(running=running)


_RUN_PARTS = struct.Struct("<B7xQQQQQ?")


class RunStep(NamedTuple):
    """How a master runs a step; as of `RunParts`."""

    session: int
    signature: int
    timeout: int = 0
    traced: bool = False

    def pack(self) -> bytes:
        """The bytes of it."""
        return _RUN_STEP.pack(VERSION, *self)

    @classmethod
    def unpack(cls, meta: bytes) -> RunStep:
        """What `pack` gave.

        Raises: DataLossError: it is too short.
        """
        return cls(*_unpack(_RUN_STEP, meta))


_RUN_STEP = struct.Struct("<B7xQQQ?")


def _unpack(form: struct.Struct, meta: bytes) -> tuple[Any, ...]:
    if len(meta) < form.size:
        raise errors.DataLossError(f"a call with {len(meta)} bytes of meta needs {form.size}")
    version, *found = form.unpack_from(meta)
    if version != VERSION:
        raise errors.FailedPreconditionError(
            f"a call of version {version} came, and this task speaks version {VERSION}: install "
            "the same release of weftml-distrib on both"
        )
    return tuple(found)
