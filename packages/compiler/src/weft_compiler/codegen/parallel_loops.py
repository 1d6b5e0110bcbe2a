"""Calls of a parallel loop's function: by one thread, or shared with the thread pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft_compiler.codegen import runtime
from weft_compiler.codegen.frames import Capture, free_names, strip_attributes, thunk
from weft_compiler.codegen.writer import register_type
from weft_compiler.ir.program import Statement

if TYPE_CHECKING:
    from weft_compiler.codegen.kernel import Function


def emit_parallel_loop(
    outer: Function,
    inner: Function,
    captures: Sequence[Capture],
    iterations: str,
    grain: int,
    chunks: int,
    unless: str = "",
) -> None:
    """Emit a call of a function over iterations, by this thread or shared with others.

    Args:
      outer: the writer of the function that contains the call.
      inner: the writer of the function that is called; it is finished here.
      captures: the captured values, which follow the range of iterations as parameters.
      iterations: the operand of their number.
      grain: the minimal number of iterations per thread.
      chunks: the number of chunks of each thread's part.
      unless: an operand; if it is true, one thread runs all iterations.
    """
    kernel, w = outer.kernel, outer.w
    kernel.regions += 1
    name = f"weft.region{kernel.regions}"
    parameters = ", ".join(
        f"{capture.kind} %capture{index}" for index, capture in enumerate(captures)
    )
    inner.finish(name, f"i64 %thread, i64 %low, i64 %high, {parameters}")
    kernel.functions.append(thunk(name, captures))
    arguments = ", ".join(
        f"{strip_attributes(capture.kind)} {capture.value}" for capture in captures
    )
    serial, parallel, end = w.label(), w.label(), w.label()
    single = w.put("icmp eq i64 %threads, 1")
    single = w.put(f"or i1 {single}, {unless}") if unless else single
    w.branch(single, serial, parallel)
    w.begin(serial)
    serial_status = w.put(f"call i32 @{name}(i64 0, i64 0, i64 {iterations}, {arguments})")
    w.go(end)
    w.begin(parallel)
    frame = outer.slot(f"[{len(captures)} x i64]", ", align 8")
    for index, capture in enumerate(captures):
        kind, value = strip_attributes(capture.kind), capture.value
        if kind == "i1":
            kind, value = "i8", w.put(f"zext i1 {value} to i8")
        address = w.put(f"getelementptr i64, ptr {frame}, i64 {index}")
        w.do(f"store {kind} {value}, ptr {address}, align 8")
    numbers = f"i64 {iterations}, i64 {grain}, i64 {chunks}, i64 %threads"
    shared = w.put(f"call i32 @{runtime.PARALLEL_FOR}(ptr @{name}.call, ptr {frame}, {numbers})")
    w.go(end)
    w.begin(end)
    result = w.put(f"phi i32 [ {serial_status}, %{serial} ], [ {shared}, %{parallel} ]")
    succeeded, failed = w.label(), w.label()
    w.branch(w.put(f"icmp eq i32 {result}, 0"), succeeded, failed)
    w.begin(failed)
    w.do(f"ret i32 {result}")
    w.begin(succeeded)


def find_captures(outer: Function, statement: Statement, inner: Function) -> list[Capture]:
    """Return the values and buffers of `outer` that a statement captures.

    `inner` receives them as parameters.
    """
    kernel = outer.kernel
    result = [Capture("ptr noalias", "%arena"), Capture("ptr", "%interrupt")]
    inner.arena, inner.interrupt = "%capture0", "%capture1"
    inner.pointers.clear()
    arguments = {buffer.name for buffer in (*kernel.program.inputs, *kernel.program.outputs)}
    for name in free_names(statement, kernel.immediate):
        parameter = f"%capture{len(result)}"
        if name in outer.pointers:
            kind = "ptr noalias nonnull" if name in arguments else "ptr"
            result.append(Capture(kind, outer.pointers[name]))
            inner.pointers[name] = parameter
        elif name in outer.variables:
            slot, dtype = outer.variables[name]
            kind = register_type(dtype)
            result.append(Capture(kind, outer.w.put(f"load {kind}, ptr {slot}")))
            inner.names[name] = (parameter, dtype)
        elif name in outer.names:
            value, dtype = outer.names[name]
            result.append(Capture(register_type(dtype), value))
            inner.names[name] = (parameter, dtype)
    return result
