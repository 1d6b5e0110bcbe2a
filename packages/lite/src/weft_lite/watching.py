"""Observation of invocations: the time and the results of each op."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from weft_lite.interpreter import Interpreter
from weft_lite.library import Error, OpInfo, Watch, check


class Op(NamedTuple):
    """An op of a file.

    Attributes:
      position: its index in execution order.
      kind: the kind of op, such as Conv2D.
      name: the name of the node from which it was converted.
      inputs: indices of tensors; -1 for an omitted operand.
      outputs: indices of tensors.
    """

    position: int
    kind: str
    name: str
    inputs: list[int]
    outputs: list[int]


class TimedOp(NamedTuple):
    """An op with its measured time.

    Attributes:
      op: the op.
      seconds: time per invocation, including the ops of its subgraphs.
      calls: number of times that it ran per invocation.
    """

    op: Op
    seconds: float
    calls: float


def verify_weights(interpreter: Interpreter) -> None:
    """Verify the checksum of a file's weights, which opening the file does not.

    Raises: DataLossError: the checksum is wrong.
    """
    error, file = Error(), interpreter._file
    call = interpreter._library.wl_verify_weights
    check(call(file.address, file.size, ctypes.byref(error)), error)


def memory_bytes(interpreter: Interpreter) -> int:
    """Return the bytes that an interpreter of the same file needs, without threads."""
    error, file, size = Error(), interpreter._file, ctypes.c_size_t()
    call = interpreter._library.wl_query
    check(call(file.address, file.size, None, ctypes.byref(size), ctypes.byref(error)), error)
    return size.value


def ops_of(interpreter: Interpreter) -> list[Op]:
    """Return the ops of a graph and its subgraphs.

    Args:
      interpreter: interpreter of the file.
    Returns: the ops in the order of the file.
    """
    lib, handle = interpreter._library, interpreter._handle
    result, info = [], OpInfo()
    for i in range(lib.wl_op_count(handle)):
        lib.wl_describe_op(handle, i, ctypes.byref(info))
        ends = [_tensors(lib, handle, i, results) for results in (0, 1)]
        result.append(Op(i, info.kind.decode(), info.name.decode("utf-8", "replace"), *ends))
    return result


def _tensors(lib: Any, handle: Any, op: int, results: int) -> list[int]:
    count = lib.wl_op_tensors(handle, op, results, None, 0)
    numbers = (ctypes.c_int32 * count)()
    lib.wl_op_tensors(handle, op, results, numbers, count)
    return list(numbers)


def invoke_watched(interpreter: Interpreter, watch: Callable[[int, bool], None]) -> None:
    """Invoke once, with a callback before and after each op.

    Args:
      interpreter: an interpreter whose inputs are set.
      watch: function called with the index of the op and whether it has ended.
    Raises: LiteError: as for `Interpreter.invoke`. An error of `watch` is raised after the
      invocation.
    """
    raised: list[BaseException] = []

    def call(context: Any, op: int, end: int) -> None:
        try:
            if not raised:
                watch(op, bool(end))
        except BaseException as error:  # because C cannot carry it: it is raised behind the call
            raised.append(error)

    lib, handle, result = interpreter._library, interpreter._handle, Watch(call)
    with interpreter._exclusive:
        interpreter._require_idle()
        lib.wl_watch(handle, result, None)
        try:
            interpreter.invoke()
        finally:
            lib.wl_watch(handle, None, None)
    if raised:
        raise raised[0]


class Timeline(NamedTuple):
    """The times of invocations and of the ops in them, in nanoseconds since the epoch.

    Attributes:
      invocations: start and end of each.
      events: the index of the op, the start and the end of each execution, ordered by the ends.
    """

    invocations: list[tuple[int, int]]
    events: list[tuple[int, int, int]]

    def write(self, path: str, interpreter: Interpreter, model: str) -> None:
        """Write a file in JSON that `weft trace import` converts to a trace.

        Args:
          interpreter: the interpreter that ran.
          model: name of the model, for display.
        Raises: OSError: the file cannot be written.
        """
        document = {
            "format": "weft-lite profile",
            "version": 1,
            "model": model,
            "host": platform.node(),
            "pid": os.getpid(),
            "ops": [[op.kind, op.name, op.inputs, op.outputs] for op in ops_of(interpreter)],
            **self._asdict(),
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)


def record(interpreter: Interpreter, runs: int) -> Timeline:
    """Record when each op ran in some invocations.

    Args:
      interpreter: an interpreter whose inputs are set.
      runs: the number of invocations; positive.
    """
    clock, epoch = time.perf_counter_ns, time.time_ns() - time.perf_counter_ns()
    timeline, starts = Timeline([], []), [0] * len(ops_of(interpreter))

    def watch(op: int, op_end: bool) -> None:
        now = clock() + epoch
        if op_end:
            timeline.events.append((op, starts[op], now))
        else:
            starts[op] = now

    for _ in range(runs):
        start = clock() + epoch
        invoke_watched(interpreter, watch)
        timeline.invocations.append((start, clock() + epoch))
    return timeline


def profile(interpreter: Interpreter, runs: int) -> list[TimedOp]:
    """Measure the average time of each op over some invocations.

    Args:
      interpreter: an interpreter whose inputs are set.
      runs: the number of invocations; positive.
    Returns: one entry per op, in the order of the file.
    """
    return timed_ops(interpreter, record(interpreter, runs))


def timed_ops(interpreter: Interpreter, timeline: Timeline) -> list[TimedOp]:
    """Return the average time of each op over the invocations of a timeline."""
    ops, runs = ops_of(interpreter), len(timeline.invocations)
    total, calls = [0] * len(ops), [0] * len(ops)
    for op, start, end in timeline.events:
        total[op] += end - start
        calls[op] += 1
    return [TimedOp(op, total[op.position] * 1e-9 / runs, calls[op.position] / runs) for op in ops]


__all__ = [
    "Op", "TimedOp", "Timeline", "invoke_watched", "ops_of", "profile", "record", "timed_ops",
]  # fmt: skip
