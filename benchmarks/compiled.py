"""Compiled programs beside NumPy: calls, exp of a million numbers, products, convolutions.

Each pair alternates in one process, and the least of its times counts; the processor's time is
taken, since the machine may have other work.  BLAS chooses its own kernels, with one thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
SIZES = (16, 64, 256, 512, 1024)
ROUNDS = 15


def least(*subjects: Callable[[], object], turns: int) -> list[float]:
    """Return the least seconds of each function, in alternating rounds."""
    found = [float("inf")] * len(subjects)
    for _ in range(ROUNDS):
        for at, subject in enumerate(subjects):
            start = time.thread_time()
            for _ in range(turns):
                subject()
            found[at] = min(found[at], (time.thread_time() - start) / turns)
    return found


def row(name: str, ours: float, theirs: float | None = None, rate: float = 0) -> None:
    text = f"{name:34} {ours * 1e6:12.3f} µs"
    text += f" {rate / ours / 1e9:7.1f} GFLOP/s" if rate else " " * 16
    print(text + (f"  NumPy takes {theirs / ours:5.2f} times that" if theirs else ""))


def measure() -> None:  # noqa: PLR0915 - a function for each kind of row
    import numpy as np

    from weft_compiler.codegen.module import module_of
    from weft_compiler.codegen.targets import host, object_code
    from weft_compiler.ir.parser import parse
    from weft_compiler.native.program import load

    def entering(count: int) -> None:
        names = [f"x{at}" for at in range(count)]
        inputs = ", ".join(f"{name}: float32[3]" for name in names)
        program = load(parse(f"program p({inputs}) -> (y: float32[]):\n  y[] = x0[0]\n"))
        arrays: list[Any] = [np.ones(3, np.float32) for _ in names]
        arrays.append(np.empty((), np.float32))
        row(f"enter with {count + 1} arrays", least(lambda: program.enter(*arrays), turns=5000)[0])

    def function(name: str) -> None:
        size = 1_000_000
        text = f"program p(x: float32[{size}]) -> (y: float32[{size}]):\n  vector i in {size}:\n"
        program = load(parse(f"{text}    y[i] = {name}(x[i])\n"))
        x = np.random.default_rng(1).normal(size=size).astype(np.float32)
        y = np.empty_like(x)
        row(
            f"{name} of 1 M float32",
            *least(lambda: program.enter(x, y), lambda: getattr(np, name)(x, out=y), turns=3),
        )

    def product(size: int, dtype: str) -> None:
        shape = f"{dtype}[{size}, {size}]"
        text = f"""
program p(a: {shape}, b: {shape}) -> (c: {shape}):
  call matmul(a[0, 0], b[0, 0], c[0, 0], m={size}, n={size}, k={size}, a_row={size}, a_column=1, \
b_row={size}, b_column=1, c_row={size}, accumulate=0)
"""
        program = load(parse(text))
        a, b = np.random.default_rng(1).normal(size=(2, size, size)).astype(dtype)
        c = np.empty_like(a)
        turns = max(1, int(3e7 / size**3))
        times = least(lambda: program.enter(a, b, c), lambda: np.matmul(a, b, out=c), turns=turns)
        row(f"product of {size}², {dtype}", *times, rate=2.0 * size**3)

    def convolution(images: int, side: int, channels: int) -> None:
        depth, panels = channels, -(-channels // 32)
        of = {"images": 1, "rows": 1, "width": side, "depth": depth, "channels": channels}
        of |= {"height": side, "breadth": side, "taps_y": 3, "taps_x": 3}
        of |= dict.fromkeys(("stride_y", "stride_x", "dilation_y", "dilation_x"), 1)
        of |= {"before_y": 1, "before_x": 1, "packed": 1}
        settings = ", ".join(f"{name}={value}" for name, value in of.items())
        shape = f"float32[{images}, {side}, {side}, {channels}]"
        text = f"""
program p(x: {shape}, w: float32[{panels}, {9 * channels}, 32]) -> (y: {shape}):
  for n in {images}:
    for i in {side}:
      call conv(x[n, 0, 0, 0], w[0, 0, 0], y[n, i, 0, 0], {settings}, at i)
"""
        program = load(parse(text))
        x = np.random.default_rng(1).normal(size=(images, side, side, channels)).astype(np.float32)
        w, y = np.ones((panels, 9 * channels, 32), np.float32), np.empty_like(x)
        rate = 18.0 * images * side**2 * channels * depth
        ours = least(lambda: program.enter(x, w, y), turns=1)[0]
        row(f"3x3 of {images}x{side}²x{channels}, float32", ours, rate=rate)

    def compiling() -> None:
        text = parse(
            "program p(x: float32[4096], z: float32[4096]) -> (y: float32[4096]):\n"
            "  vector i in 4096:\n"
            "    let a = x[i] * z[i] + 1.0\n    let b = maximum(a, 0.0) - square(z[i])\n"
            "    y[i] = where(b < 0.5, sqrt(abs(b)), a / (1.0 + b))\n"
        )
        row("compile a kernel of ten ops", least(lambda: _compile(text), turns=1)[0])

    def _compile(program: Any) -> None:
        object_code(module_of(program).text, host())

    entering(2)
    entering(9)
    for name in ("exp", "tanh", "sin", "log"):
        function(name)
    for dtype in ("float32", "float64"):
        for size in SIZES:
            product(size, dtype)
    for images, side, channels in ((8, 64, 64), (8, 32, 128), (8, 28, 256), (32, 32, 32)):
        convolution(images, side, channels)
    compiling()


if __name__ == "__main__":
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1" and not any(p in os.environ for p in PINNED):
        measure()
    else:
        own = {name: value for name, value in os.environ.items() if name not in PINNED}
        command = [sys.executable, *sys.argv]
        sys.exit(subprocess.run(command, env={**own, "OPENBLAS_NUM_THREADS": "1"}).returncode)
