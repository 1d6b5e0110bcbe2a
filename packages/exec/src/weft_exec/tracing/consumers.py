"""Consumers of the records of all steps of this process: recordings and the flight recorder.

While there is one, every session records its steps. Sessions watch for changes, so that a step that
is not traced need not ask.
"""

from __future__ import annotations

import threading
from _thread import LockType
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol
from weakref import WeakSet

from weft_exec.tracing.clock_readings import load_native_reader
from weft_exec.tracing.step_trace import (
    Span,
    SpanSubject,
    StepTrace,
    ThreadLog,
    clock,
)


class Consumer(ABC):
    """Receives the records of steps. Its methods may be called from several threads."""

    @abstractmethod
    def step_ended(self, trace: StepTrace) -> None:
        """Receive a step that has ended."""

    @abstractmethod
    def step_spilled(
        self, trace: StepTrace, log: ThreadLog, runs: Sequence[Any], spans: Sequence[Span]
    ) -> None:
        """Receive the first records of a thread in a long step."""

    @abstractmethod
    def outside_steps(self, log: ThreadLog, spans: Sequence[Span]) -> None:
        """Receive records of a thread that belong to no step."""

    def session_found(self, session: Any) -> None:  # noqa: B027 - most consumers need no sessions
        """Receive a session whose steps will be recorded."""


class TasksRecording(Protocol):
    """A recording of other processes that run steps of a session.

    Attributes:
      target: target of the session.
    """

    target: str

    def end(self) -> bytes:
        """End it, and return the bytes of its trace file."""
        ...


class _Thread(threading.local):
    """The state of a thread between steps.

    Attributes:
      phases: phases of the step that is about to begin, as in `ThreadLog`.
      last_end: when its last recorded step ended, as a reading of the clock; 0 if there was none.
      steps: the recorded steps that it is in, the innermost last.
    """

    def __init__(self) -> None:
        self.phases: list[tuple[int, str, int, int]] = []
        self.last_end = 0
        self.steps: list[StepTrace] = []


_consumers: tuple[Consumer, ...] = ()
_active_since = 0  # reading of the clock
_watchers: WeakSet[Any] = WeakSet()
_lock = threading.Lock()
_thread = _Thread()
_PYTHON: Final = 8  # of `weft_trace.schema.Kind`, which is imported with the first trace
PHASE: Final = 1
"""The kind of a phase, such as compiling, for `record_block`."""
KERNEL: Final = 2
"""The kind of work such as computing an element of a dataset, for `record_block`."""
WAIT: Final = 7
"""The kind of a wait, for `record_block`."""
CHECKPOINT: Final = 9
"""The kind of saving or restoring a checkpoint, for `record_block`."""


def is_active() -> bool:
    """Return True if there is a consumer."""
    return bool(_consumers)


def watch(watcher: Any) -> None:
    """Call `watcher.tracing_changed()` whenever `is_active` changes; it is not kept alive.

    Its method `memory_in_use` returns the bytes that are in use and cached on each of its devices.
    `record_tasks` starts the recording of its other processes.
    """
    _watchers.add(watcher)
    for consumer in _consumers:
        consumer.session_found(watcher)


def memory_in_use() -> dict[str, tuple[int, int]]:
    """Return the bytes in use and the bytes cached by the allocator of each device."""
    result: dict[str, tuple[int, int]] = {}
    for watcher in list(_watchers):
        for device, (in_use, cached) in watcher.memory_in_use().items():
            totals = result.get(device, (0, 0))  # several sessions may share an allocator
            result[device] = max(in_use, totals[0]), max(cached, totals[1])
    return result


def add_consumer(consumer: Consumer) -> None:
    """Send the records of all steps that begin from now on to a consumer, too."""
    load_native_reader()
    _change(lambda consumers: (*consumers, consumer))
    for watcher in list(_watchers):
        consumer.session_found(watcher)


def remove_consumer(consumer: Consumer) -> None:
    """Send no more records to a consumer."""
    _change(
        lambda consumers: tuple([remaining for remaining in consumers if remaining is not consumer])
    )


def _change(change: Callable[[tuple[Consumer, ...]], tuple[Consumer, ...]]) -> None:
    global _consumers, _active_since
    with _lock:
        if not _consumers:
            _active_since = clock()
        _consumers = change(_consumers)
        for watcher in list(_watchers):
            watcher.tracing_changed()


def begin_step(label: str, is_kept: bool = False) -> StepTrace:
    """Return the record of a step of this thread that begins now, for all consumers.

    Args:
      is_kept: True to keep all records until the step has ended, for the caller.
    """
    thread = _thread
    trace = StepTrace(label, None if is_kept else _spill)
    log = trace.log()
    if thread.phases:
        log.phases += thread.phases
        trace.start = min(trace.start, thread.phases[0][2])
        thread.phases = []
    if thread.last_end > _active_since and not thread.steps:
        end = max(trace.start, thread.last_end)
        log.phases.append((_PYTHON, "(between steps)", thread.last_end, end))
    thread.steps.append(trace)
    return trace


def end_step(trace: StepTrace, failed: bool) -> None:
    """Send the record of a step that ends now to all consumers."""
    trace.end, trace.failed = clock(), failed
    trace.release_spills()
    _thread.steps.remove(trace)
    _thread.last_end = trace.end
    for consumer in _consumers:
        consumer.step_ended(trace)


def note_phase(name: str, start: int) -> None:
    """Record a phase, from `start` until now, of the step that this thread is about to begin."""
    if _consumers:
        _thread.phases.append((PHASE, name, start, clock()))


@contextmanager
def record_block(kind: int, name: str, op: str) -> Iterator[None]:
    """Record the block as an event of this thread's step, or outside of steps.

    Args:
      kind: a `weft_trace.schema.Kind`.
      name, op: name and op of the subject.
    """
    if not _consumers:
        yield
        return
    start, failed = clock(), True
    try:
        yield
        failed = False
    finally:
        add_span(Span(kind, SpanSubject(name, op), start, start, clock(), failed=failed))


def acquire(lock: Any, name: str, timeout: float = -1) -> bool:
    """Acquire a lock, and record the wait for it if another thread holds it.

    Args:
      name: name of the wait in the trace, such as "lock of the session".
      timeout: in seconds; -1 for no limit.
    Returns: False if the timeout has passed.
    """
    if lock.acquire(blocking=False):
        return True
    with record_block(WAIT, name, "_Lock"):
        return bool(lock.acquire(timeout=timeout))


def record_contention(lock: LockType, name: str) -> None:
    """Wait until a lock of another thread is free, and record the wait if steps are traced.

    Args:
      name: as for `acquire`.
    """
    if _consumers:
        with record_block(WAIT, name, "_Lock"):
            lock.acquire()
            lock.release()


def add_span(span: Span) -> None:
    """Record an event of this thread, of its step if it is in one."""
    if _thread.steps:
        _thread.steps[-1].log().spans.append(span)
        return
    log = ThreadLog(None)
    for consumer in _consumers:
        consumer.outside_steps(log, [span])


def _spill(trace: StepTrace, log: ThreadLog) -> None:
    runs, spans = log.take()
    for consumer in _consumers:
        consumer.step_spilled(trace, log, runs, spans)
