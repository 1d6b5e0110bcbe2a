"""The runtime in C that compiled programs share, as LLVM IR.

`weft_compiler/runtime` has the sources and their IR, which `hatch run golden:runtime` compiles with
clang: one file for each system, the same for all 64-bit processors. It contains the thread pool,
the arena, the functions that enter programs and run their pieces, and readings of the clock.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Final

from weft_compiler.codegen.targets import Target

MAX_THREADS: Final = 64
"""Maximum number of threads that run a program: `WEFT_MAX_THREADS`."""

PARALLEL_FOR: Final = "weft_parallel_for"
RUN_SEQUENCE: Final = "weft_run_sequence"
ENTER: Final = "weft_enter"
LAYOUT: Final = "weft_layout"
REPLACE_ARENA: Final = "weft_replace_arena"
RESET_THREADS: Final = "weft_reset_threads"
STOP_THREADS: Final = "weft_stop_threads"
BEGIN_READINGS: Final = "weft_begin_readings"
FAIL_READINGS: Final = "weft_fail_readings"
NEXT_READING: Final = "weft_next_reading"
NUM_READINGS: Final = "weft_num_readings"
EXPORT_READINGS: Final = "weft_export_readings"
FREE_READINGS: Final = "weft_free_readings"
READINGS_SIZE: Final = "weft_readings_size"
USE_COUNTER: Final = "weft_use_counter"
EXPORTS: Final = (
    PARALLEL_FOR,
    RUN_SEQUENCE,
    ENTER,
    LAYOUT,
    REPLACE_ARENA,
    RESET_THREADS,
    STOP_THREADS,
    BEGIN_READINGS,
    FAIL_READINGS,
    NEXT_READING,
    NUM_READINGS,
    EXPORT_READINGS,
    FREE_READINGS,
    READINGS_SIZE,
    USE_COUNTER,
)

PARALLEL_FOR_DECLARATION: Final = (
    f"declare i32 @{PARALLEL_FOR}(ptr, ptr, i64, i64, i64, i64) nounwind\n"
)
"""`parallel_for(body, context, num_iterations, grain, num_chunks, num_threads)`: calls
`body(context, thread, low, high)` for all iterations; see `weft_pool_run` in thread_pool.h."""
RUN_SEQUENCE_DECLARATION: Final = (
    f"declare i32 @{RUN_SEQUENCE}(ptr, ptr, ptr, ptr, ptr, i64) nounwind\n"
)

_IR: Final = Path(__file__).parent.parent / "runtime" / "ir"
_DECLARED_PAUSE: Final = "declare void @weft_pause()\n"
_PAUSE: Final = "define internal void @weft_pause() alwaysinline {{\n{instruction}  ret void\n}}\n"
_DECLARED_STAMP: Final = "declare i64 @weft_time_stamp()\n"
_STAMP: Final = "define internal i64 @weft_time_stamp() alwaysinline {{\n{body}}}\n"
_X86_STAMP: Final = """\
  %ticks = call i64 @llvm.readcyclecounter()
  ret i64 %ticks
"""
_X86_PAUSE: Final = "  call void @llvm.x86.sse2.pause()\n"


def has_threads(target: Target) -> bool:
    """Return True if programs may use helper threads: on Linux and macOS."""
    return _system(target) != "serial"


def text(target: Target) -> str:
    """Return the module of the runtime."""
    pause = _PAUSE.format(instruction=_X86_PAUSE if target.x86 else "")
    stamp = _STAMP.format(body=_X86_STAMP if target.x86 else "  ret i64 0\n")
    if target.x86:
        stamp = "declare i64 @llvm.readcyclecounter()\n" + stamp
    module = _read(f"runtime.{_system(target)}")
    module = module.replace(_DECLARED_PAUSE, pause).replace(_DECLARED_STAMP, stamp)
    return f'target triple = "{target.triple}"\n{module}'


def fmod_text(kind: str) -> str:
    """Return the LLVM text of C's `fmod` for a float type, as an internal function of a program."""
    suffix = "f64" if kind == "double" else "f32"
    body = re.search(rf"^define (.*@)weft_fmod_{suffix}(.*?^\}}\n)", _read("fmod"), re.M | re.S)
    assert body is not None
    return f"\ndefine internal {body[1]}weft.fmod.{suffix}{body[2]}"


def _system(target: Target) -> str:
    if sys.maxsize < 1 << 32:
        return "serial"
    if "-linux" in target.triple:
        return "linux"
    return "macos" if "-apple-" in target.triple else "serial"


@functools.cache
def _read(name: str) -> str:
    return (_IR / f"{name}.ll").read_text(encoding="utf-8")
