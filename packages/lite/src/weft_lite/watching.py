"""Observation of invocations: the time and the results of each op."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from weft_lite.interpreter import Interpreter
from weft_lite.library import Error, OpInfo, Watch, check


class Op(NamedTuple):
    """An op of a file.

    Attributes:
      place: its index in execution order.
      kind: the kind of op, such as Conv2D.
      name: the name of the node from which it was converted.
      inputs: indices of tensors; -1 for an omitted operand.
      outputs: indices of tensors.
    """

    place: int
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


def profile(interpreter: Interpreter, runs: int) -> list[TimedOp]:
    """Measure the average time of each op over some invocations.

    Args:
      interpreter: an interpreter whose inputs are set.
      runs: the number of invocations; positive.
    Returns: one entry per op, in the order of the file.
    """
    ops = ops_of(interpreter)
    total, starts, calls = [0.0] * len(ops), [0.0] * len(ops), [0] * len(ops)

    def watch(op: int, op_end: bool) -> None:
        if op_end:
            total[op] += time.perf_counter() - starts[op]
            calls[op] += 1
        else:
            starts[op] = time.perf_counter()

    for _ in range(runs):
        invoke_watched(interpreter, watch)
    return [TimedOp(op, total[op.place] / runs, calls[op.place] / runs) for op in ops]


__all__ = ["Op", "TimedOp", "invoke_watched", "ops_of", "profile"]
