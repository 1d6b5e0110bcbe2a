"""Measured limits of this machine, for comparison with programs (roofline model)."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import Target, host, object_code
from weft_compiler.ir.parser import parse
from weft_compiler.native import cache
from weft_compiler.native.linking import Library
from weft_compiler.native.program import load
from weft_graph.ir.compiled_function import Roofline

_FLOATS: Final = 8 << 20
"""Elements of each streamed array: 32 MB, more than the caches of a core."""
_CHAINS: Final = 12
"""Independent multiply-add chains: enough for two units with a latency of five cycles."""
_TURNS: Final = 200_000
_SECONDS: Final = 0.15
"""Duration of a measurement, in seconds. The fastest run counts, because other processes may run
too.
"""


@functools.cache
def roofline() -> Roofline:
    """Return the limits of one thread of this machine, measured at the first call in some 0.5 s."""
    return Roofline(_bandwidth(), _peak("float"), _peak("double"))


def _fastest_seconds(run: Callable[[], Any]) -> float:
    """Return the time of the fastest call, in seconds."""
    best = float("inf")
    start_seconds = time.perf_counter()
    while time.perf_counter() - start_seconds < _SECONDS:
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return best


def _bandwidth() -> float:
    """Measure the memory bandwidth in bytes per second, by `z = x + 3 y` on large arrays."""
    shape = f"float32[{_FLOATS}]"
    text = f"program triad(x: {shape}, y: {shape}) -> (z: {shape}):\n  vector i in {_FLOATS}:\n"
    triad = load(parse(f"{text}    z[i] = x[i] + 3.0 * y[i]\n"), Options(threads=False))
    x, y, z = (np.ones(_FLOATS, np.float32) for _ in range(3))
    return float(3 * x.nbytes / _fastest_seconds(lambda: triad.enter(x, y, z)))


def _peak(kind: str) -> float:
    """Measure the floating-point operations per second of multiply-adds in registers."""
    target = host()
    lanes = target.vector_bytes // (4 if kind == "float" else 8)
    text = _chains(kind, lanes, target)
    library = cache.load_object(
        "peak",
        text,
        target,
        lambda: object_code(text, target),
        lambda image: Library(image, ["weft.peak"]),
    )
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("weft.peak"))
    memory = np.full(lanes, 0.5, np.float32 if kind == "float" else np.float64)
    seconds = _fastest_seconds(lambda: run(memory.ctypes.data, _TURNS))
    return 2.0 * lanes * _CHAINS * _TURNS / seconds


def _chains(kind: str, lanes: int, target: Target) -> str:
    """Return a function that runs independent multiply-adds.

    Its parameters are a vector and a trip count.
    """
    vector = f"<{lanes} x {kind}>"
    chains = range(_CHAINS)
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            "define void @weft.peak(ptr %p, i64 %turns) #0 {",
            f"  %x = load {vector}, ptr %p, align 4",
            f"  %c0 = fmul {vector} %x, %x",
            *(f"  %c{n} = fmul {vector} %c{n - 1}, %x" for n in chains[1:]),
            "  br label %head",
            "head:",
            "  %i = phi i64 [ 0, %0 ], [ %next, %head ]",
            *(f"  %a{n} = phi {vector} [ %c{n}, %0 ], [ %b{n}, %head ]" for n in chains),
            *(
                f"  %b{n} = call {vector} @llvm.fma({vector} %a{n}, {vector} %x, {vector} %x)"
                for n in chains
            ),
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %turns",
            "  br i1 %more, label %head, label %done",
            "done:",
            f"  %s0 = fadd {vector} %b0, %b0",
            *(f"  %s{n} = fadd {vector} %s{n - 1}, %b{n}" for n in chains[1:]),
            f"  store {vector} %s{_CHAINS - 1}, ptr %p, align 4",
            "  ret void",
            "}",
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{8 * target.vector_bytes}" }}',
        ]
    )
