"""The record of one step: readings of the clock, stored while it runs.

A thread stores one reading at each node boundary (`clock_readings.py`), so the end of a node is the
start of the next one. The nodes of the readings are known in advance (`programs.py`).
Everything else, such as looking up names and sizes, is done after the step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft_graph.ir.device_spec import parse
from weft_graph.ir.traits import Role

if TYPE_CHECKING:
    from weft_exec.tracing.programs import Program
    from weft_graph.ir.node import Node

clock: Final = time.perf_counter_ns
"""The clock of all readings, in nanoseconds. On Linux it is CLOCK_MONOTONIC."""

FAILED: Final = -1
"""Last reading of an execution that ended with an error."""


def _clock_epoch() -> int:
    """Return the time when `clock` was 0, in nanoseconds since the epoch."""
    best, offset = 1 << 62, 0
    for _ in range(5):
        before, now, after = clock(), time.time_ns(), clock()
        if after - before < best:
            best, offset = after - before, now - (before + after) // 2
    return offset


EPOCH: Final = _clock_epoch()
"""The sum with a reading of `clock` is the time in nanoseconds since the epoch."""


def trace_time() -> int:
    """Return the time on the clock of traces, in nanoseconds since the epoch."""
    return clock() + EPOCH


class SpanSubject(NamedTuple):
    """The subject of a span that is not a node of a graph, such as a phase of a step.

    Attributes:
      name, op, device: as in `weft_trace.schema.Node`.
    """

    name: str
    op: str
    device: str = ""


def transfer_subject(sender: str, receiver: str, value: str) -> SpanSubject:
    """Return the subject of the transfers of a value from one device to another."""
    return SpanSubject(f"{sender};{receiver};{value}", "_Transfer", sender)


class LoopIteration:
    """An iteration of a loop, or a call of a function.

    Attributes:
      frame: name of the loop's frame, or of the calling node.
      number: from 0.
      parent: the iteration around it; None outside of loops.
      tag: identifies it in the step; see `weft_exec.kernels.random_counters.iteration_tag`.
    """

    __slots__ = ("frame", "number", "parent", "tag")

    def __init__(self, frame: str, number: int, parent: LoopIteration | None, tag: int) -> None:
        self.frame = frame
        self.number = number
        self.parent = parent
        self.tag = tag


class Run(NamedTuple):
    """One execution of a program.

    Attributes:
      program: the meaning of the readings.
      iteration: None outside of loops.
      ready: when it could have started; 0 for its first reading.
      readings: of `clock`, a buffer of int64; `FAILED` is the last one after an error.
      sizes: in bytes, of results whose sizes are not static.
    """

    program: Program
    iteration: LoopIteration | None
    ready: int
    readings: Any
    sizes: Sequence[int]


class Span(NamedTuple):
    """An interval that was recorded on its own; times are readings of `clock`.

    Attributes:
      kind: a `weft_trace.schema.Kind`.
      subject: the node, or the name of other work.
      device: name of the device of a node; "" for the one that it requests.
      lane: name of the device, link or memory whose lane shows it; "" for the thread's lane.
      sizes: bytes of each output, if they are known.
      sent: when the value of a Receive left its sender, if that was in this process; else 0.
      failed: True if it ended with an error.
    """

    kind: int
    subject: Node | SpanSubject
    ready: int
    start: int
    end: int
    iteration: LoopIteration | None = None
    device: str = ""
    lane: str = ""
    input_bytes: int = -1
    sizes: tuple[int, ...] = ()
    sent: int = 0
    failed: bool = False

    @property
    def waited(self) -> bool:
        """True if the time was spent waiting for something other than a device."""
        return self.kind in (_RECEIVE, _WAIT)


class ThreadLog:
    """The records of one thread in one step.

    Attributes:
      ident: identifier of the thread, from `threading.get_ident`.
      native_id: identifier of the thread in the operating system.
      name: name of the thread.
      iteration: the iteration that the thread is in.
      runs: its executions of programs.
      phases: its phases as the kind, the name, the start and the end; `spans` contains them too.
      deferred: functions that add to `runs` the times that are known only after the step, such as
        GPU times. `spans` calls them.
    """

    __slots__ = (
        "_spans", "deferred", "ident", "iteration", "name", "native_id", "phases", "runs", "spill",
        "spilled",
    )  # fmt: skip

    def __init__(self, spill: Callable[[ThreadLog], None] | None) -> None:
        thread = threading.current_thread()
        self.ident = threading.get_ident()
        self.native_id = threading.get_native_id()
        self.name = thread.name
        self.iteration: LoopIteration | None = None
        self.runs: list[Any] = []
        self.phases: list[tuple[int, str, int, int]] = []
        self.deferred: list[Callable[[], None]] = []
        self._spans: list[Span] = []
        self.spill = spill
        self.spilled = 0

    @property
    def spans(self) -> list[Span]:
        """Its other records."""
        deferred, self.deferred = self.deferred, []
        for complete in deferred:
            complete()
        if self.phases:
            self._spans += [_phase_span(*phase) for phase in self.phases]
            self.phases.clear()
        return self._spans

    def trim(self) -> None:
        """Hand over the records of a long loop, so that they need bounded memory."""
        if self.spill is not None and len(self.runs) > _MAX_RUNS:
            self.spill(self)

    def take(self) -> tuple[list[Any], list[Span]]:
        """Return the records so far, and remove them."""
        runs, self.runs = self.runs, []
        spans, self._spans = self.spans, []
        self.spilled += len(runs)
        return runs, spans


def _phase_span(kind: int, name: str, start: int, end: int) -> Span:
    op = "_Phase" if kind == _PHASE else "_Python"
    return Span(kind, SpanSubject(name, op), start, start, end)


_MAX_RUNS: Final = 1 << 14
"""Number of runs in the log of a thread above which a loop hands them over."""


class _PendingNode(NamedTuple):
    """An asynchronous node that has started.

    Attributes:
      key: the rendezvous key of a Receive.
    """

    node: Node
    device: str
    ready: int
    start: int
    iteration: LoopIteration | None
    key: str


class StepTrace:
    """Collects the records of one step from all its threads.

    Args:
      label: the step's fetches and feeds in short form.
      spill: receives the log of a thread that has become long; None to keep everything.
    Attributes:
      start, end: readings of `clock` around the step; `end` is 0 until it has ended.
      failed: True if it ended with an error.
      is_kept: True if the caller of the step wants its records.
      other: records of other processes, as StepStats messages.
    """

    def __init__(
        self, label: str = "", spill: Callable[[StepTrace, ThreadLog], None] | None = None
    ) -> None:
        self.label = label
        self.start = clock()
        self.end = 0
        self.failed = False
        self.logs: dict[int, ThreadLog] = {}
        self.other: list[Any] = []
        self.is_kept = spill is None
        self._spill = spill
        self._waiting: dict[Any, _PendingNode] = {}
        self._sent: dict[str, int] = {}
        self._end_times: dict[str, int] = {}

    def log(self) -> ThreadLog:
        """Return the log of the current thread."""
        ident = threading.get_ident()
        log = self.logs.get(ident)
        if log is None:
            spill = self._spill
            hand_over = None if spill is None else (lambda log: spill(self, log))
            log = self.logs[ident] = ThreadLog(hand_over)
        return log

    def release_spills(self) -> None:
        """Hand over no more logs before the end, so that the logs do not refer to this record."""
        for log in list(self.logs.values()):
            log.spill = None

    def record_phase(self, name: str, start: int, end: int) -> None:
        """Record a part of the step outside kernels, such as "feed"."""
        self.log().phases.append((_PHASE, name, start, end))

    def record_start(
        self,
        token: Any,
        node: Node,
        device: str,
        ready: int,
        iteration: LoopIteration | None,
        key: str = "",
    ) -> None:
        """Record that an asynchronous node starts now.

        Args:
          ready: when it could have started; 0 for now.
          key: the rendezvous key of a Receive.
        """
        now = clock()
        self._waiting[token] = _PendingNode(node, device, ready or now, now, iteration, key)

    def record_send(
        self, key: str, node: Node, device: str, ready: int, iteration: LoopIteration | None
    ) -> None:
        """Record that a Send passes on a value now under a rendezvous key.

        Args:
          ready: when it could have started; 0 for now.
        """
        now = self._sent[key] = clock()
        self.log().spans.append(Span(_KERNEL, node, ready or now, now, now, iteration, device))

    def record_completion(self, token: Any, value: Any = None, failed: bool = False) -> None:
        """Record that an asynchronous node has completed, with its value or None if it failed."""
        node, device, ready, start, iteration, key = self._waiting.pop(token)
        end, sizes, spans = clock(), sizes_of(value), self.log().spans
        sent = self._sent.pop(key, 0)
        kind, lane = _WAIT, ""
        if node.role is Role.RECEIVE:
            kind = _RECEIVE
        elif parse(device).device_type not in ("CPU", None):
            kind, lane = _KERNEL, device  # its nodes run one after the other, in its stream
            start = max(start, min(self._end_times.get(device, 0), end))
            self._end_times[device] = end
        spans.append(
            Span(
                kind, node, ready, start, end, iteration, device, lane, sizes=sizes, sent=sent,
                failed=failed,
            )
        )  # fmt: skip
        if sent:
            sender, receiver, value, *_ = key.split(";")
            begin_time = min(max(start, sent), end)
            subject = transfer_subject(sender, receiver, value)
            lane = f"{sender} → {receiver}"
            spans.append(
                Span(
                    _TRANSFER, subject, start, begin_time, end, iteration, sender, lane, sizes=sizes
                )
            )

    def record_fetch(self, outputs: Sequence[Any], values: Sequence[Any], device: str) -> None:
        """Record the fetches of a step that runs no kernels, such as reading a variable."""
        now, spans = clock(), self.log().spans
        for output, value in zip(outputs, values, strict=True):
            node_device, sizes = output.node.device or device, sizes_of(value)
            spans.append(Span(_KERNEL, output.node, now, now, now, device=node_device, sizes=sizes))

    @property
    def empty(self) -> bool:
        """True if no execution of a node was recorded, in this or other processes."""
        return not self.other and not any(
            log.spilled
            or any(run[0].events for run in log.runs)
            or any(span.kind not in (_PHASE, _PYTHON) for span in log.spans)
            for log in self.logs.values()
        )


# Values of `weft_trace.schema.Kind`, which is imported with the first trace.
_PHASE, _KERNEL, _RECEIVE, _TRANSFER, _WAIT, _PYTHON = 1, 2, 5, 6, 7, 8


def sizes_of(value: Any) -> tuple[int, ...]:
    """Return the bytes of each output in the result of a kernel."""
    if value is None:
        return ()
    if isinstance(value, tuple | list):
        return tuple(map(bytes_of, value))
    return (bytes_of(value),)


def bytes_of(value: Any) -> int:
    """Return the bytes of an output's value; 0 for handles."""
    if isinstance(value, tuple | list):
        return sum(map(bytes_of, value))
    nbytes = getattr(value, "nbytes", 0)
    return nbytes if isinstance(nbytes, int) else 0
