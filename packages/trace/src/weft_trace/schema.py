"""The records of a trace.

A trace has six tables. Processes, lanes, nodes, iterations and steps are small and are described by
the named tuples below; their ids count up from 0 in the order of addition. Events and
counter samples are many, and are rows of the NumPy dtypes `EVENT` and `SAMPLE`.

All times are nanoseconds since the epoch, on the clock of the process that wrote the file.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

import numpy as np


class Kind(IntEnum):
    """Kinds of events.

    The ready time of an event is the earliest time at which it could have started: all inputs were
    there. `ready <= start <= end`; the interval from `ready` to `start` is the queueing delay.
    """

    STEP = 0
    """One `Session.run`, from call to return, in the lane of the calling thread."""
    PHASE = 1
    """A part of a step outside kernels: plan, compile, feed, fetch; the node's name says which."""
    KERNEL = 2
    """One execution of a node by its kernel."""
    REGION = 3
    """One execution of a compiled region; its generated kernels are separate events."""
    GENERATED = 4
    """One execution of a generated kernel inside a region."""
    RECEIVE = 5
    """A wait for a value of another device or task. `start` to `end`: from request to arrival."""
    TRANSFER = 6
    """The transfer of a value, in the lane of the link. `ready`: the receiver requested it;
    `start`: the sender had the value and the request; `end`: it arrived."""
    WAIT = 7
    """A wait for a queue, a dataset, a lock or a rendezvous; the node's op says which."""
    PYTHON = 8
    """Time of the calling thread between two steps."""
    CHECKPOINT = 9
    """Saving or restoring a checkpoint."""
    COPY = 10
    """A copy to or from an accelerator, in the lane of its stream."""
    BUFFER = 11
    """The lifetime of a buffer, from allocation to release; `output_bytes` is its size."""


class Flag(IntFlag):
    """Properties of an event."""

    ESTIMATED = 1
    """The times are shares of a measured time, and not measured themselves."""
    FAILED = 2
    """The kernel or the wait ended with an error."""


class LaneKind(IntEnum):
    """Kinds of lanes in the viewer."""

    THREAD = 0
    DEVICE = 1
    LINK = 2
    MEMORY = 3


class Crossing(IntEnum):
    """Iteration of a node's inputs, relative to the node's own."""

    SAME = 0
    """The same, or the nearest enclosing iteration in which the input ran."""
    PREVIOUS = 1
    """The iteration before (NextIteration into Merge)."""
    INNER = 2
    """The last one of the inner loop (Exit)."""


class Process(NamedTuple):
    """A process that recorded events.

    Attributes:
      name: its task, such as "/job:worker/task:1".
      pid: its process id.
      host: name of its machine.
      clock_offset: nanoseconds that were subtracted from its times, to convert them to the clock of
        the file.
      clock_error: half of the width of the interval that contains the true offset, in nanoseconds;
        0 for the process that wrote the file.
    """

    name: str
    pid: int
    host: str
    clock_offset: int = 0
    clock_error: int = 0


class Lane(NamedTuple):
    """A row of the viewer: a thread, a device or its stream, a link, a memory space.

    Attributes:
      process: id of its process. For a link: of the receiver.
      kind: what it stands for.
      name: for example "MainThread", "CPU:0", "/job:ps/task:0 → /job:worker/task:1 (socket)".
    """

    process: int
    kind: LaneKind
    name: str


class Node(NamedTuple):
    """A node of an executed graph, after all passes; or the subject of an event of another kind.

    Attributes:
      name, op: for a phase or a wait, a name such as "feed" and the op "_Phase" or "_Wait"; for a
        transfer, its rendezvous key and the op "_Transfer".
      device: full name of the device, or "".
      line: "file:line" of the user's line that created it, or "".
      inputs: ids of the nodes whose outputs or control edges it waits for. They may be added later
        than the node itself. The inputs of a Receive include its transfer, or its Send if no
        transfer is recorded; the input of a transfer is its Send. A node that never has an event (a
        constant, a feed, a Merge that needs no kernel) is replaced by its own inputs; its
        `crossing` counts, too.
      origins: names of the nodes of the user's graph that it computes; empty if it is just `name`.
      crossing: iteration of the inputs.
      members: ids of the nodes inside a region or a generated kernel.
      output_bytes: size of all outputs if their shapes are static, or else -1.
    """

    name: str
    op: str
    device: str = ""
    line: str = ""
    inputs: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    crossing: Crossing = Crossing.SAME
    members: tuple[int, ...] = ()
    output_bytes: int = -1


class Iteration(NamedTuple):
    """An iteration of a loop, with one id for all steps.

    Id 0 means "outside of loops" and needs no record.

    Attributes:
      frame: name of the loop's frame.
      number: from 0.
      parent: id of the iteration of the enclosing loop, or 0.
    """

    frame: str
    number: int
    parent: int = 0


class Step(NamedTuple):
    """One `Session.run`. Its times are stored in its event of the kind STEP.

    Attributes:
      process: id of the process that called it.
      label: its fetches and feeds in short form; equal labels are comparable steps.
      number: how many steps with this label came before.
    """

    process: int
    label: str
    number: int


EVENT: Final = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("lane", "<u2"),
        ("node", "<u4"),
        ("step", "<u4"),
        ("iteration", "<u4"),
        ("ready", "<i8"),
        ("start", "<i8"),
        ("end", "<i8"),
        ("input_bytes", "<i8"),
        ("output_bytes", "<i8"),
    ]
)
"""One event. `lane`, `node`, `step` and `iteration` are ids; `NO_STEP` if it is outside of steps.
Sizes are in bytes, or -1 if they are unknown."""

LEVEL: Final = np.dtype(
    [
        ("level", "u1"),
        ("kind", "u1"),
        ("lane", "<u2"),
        ("node", "<u4"),
        ("count", "<u4"),
        ("start", "<i8"),
        ("span", "<i8"),
        ("busy", "<i8"),
    ]
)
"""A row of a level of detail. At level `k`, an event of at least 2**k nanoseconds has a row of its
own. Shorter events of the same kind and lane that start in the same bucket of 2**k nanoseconds
share one: from the first `start`, `span` nanoseconds to the last end; `busy` is the sum of their
durations, `count` their number, and `node` the one of the longest."""

LATEST: Final = 1 << 62
"""The latest time that an event may have."""

NO_STEP: Final = 0xFFFFFFFF
"""The step of an event outside of steps."""

SAMPLE: Final = np.dtype([("lane", "<u2"), ("series", "<u2"), ("time", "<i8"), ("value", "<i8")])
"""One sample of a counter: `series` is an index of `SERIES`."""

SERIES: Final = (
    "bytes in use",
    "bytes cached",
    "nanoseconds on a CPU",
    "nanoseconds runnable but not running",
)
"""Names of the counters. Allocators of a memory lane have the first two, threads the others (from
/proc/self/task/*/schedstat, cumulative)."""
