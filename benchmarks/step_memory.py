"""The memory of steps, compiled and by kernels.

Each program of `programs/networks_v1.py` runs some steps in child processes: by kernels, and
compiled, with its code on the disk. The table has, by kernels and compiled, the megabytes that the
process had at most from its first step on above what it had before (`VmHWM` of Linux); those of the
arena that its functions work in; page faults of a step, once some have run; and milliseconds of the
processor, the least of the steps. A small step comes first, so that what LLVM, helpers and BLAS
take for themselves is in neither; code is.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
LEFT_OUT = "compile_1000"
MEGABYTE = 1e6


def memory(name: str) -> int:
    """Return bytes of this process: `VmRSS` is current, `VmHWM` the peak since `forget`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def forget() -> None:
    """Reset the peak."""
    Path("/proc/self/clear_refs").write_text("5")


class Gauge:
    """A stand-in for the programs' timer, which measures the memory of steps."""

    def __init__(self, steps: int, threads: int) -> None:
        self.steps = steps
        self.threads = threads

    def time(self, row: str, step: Callable[[], Any]) -> None:
        """Run steps, and print their memory."""
        forget()
        before = memory("VmRSS")
        for _ in range(self.steps):
            step()
        peak = memory("VmHWM") - before
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        seconds = float("inf")
        for _ in range(self.steps):
            start = time.process_time()
            step()
            seconds = min(seconds, time.process_time() - start)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        print(json.dumps([peak, arenas(), faults / self.steps, seconds]), flush=True)


def arenas() -> int:
    """Return the bytes of the arena of compiled functions."""
    from weft_compiler.native import arena

    return arena.ARENA.usage().required_bytes


def warm_up(weft: Any) -> None:
    """Run one small step whose code is in the disk cache."""
    with weft.Graph().as_default(), weft.Session() as session:
        x = weft.placeholder(weft.float32, [64, 64])
        session.run(weft.reduce_sum(weft.tanh(weft.matmul(x, x))), {x: [[0.0] * 64] * 64})


def run_here(name: str, steps: int, threads: int) -> None:
    """Run a program in this process."""
    sys.path.insert(0, str(PROGRAMS))
    import networks_v1

    import weft

    warm_up(weft)
    networks_v1.use(weft)
    with weft.Graph().as_default():
        networks_v1.PROGRAMS[name](Gauge(steps, threads))


def child(name: str, steps: int, threads: int, jit: str, cache: str) -> list[float]:
    """Run a program in a new process."""
    own = {key: value for key, value in os.environ.items() if key not in PINNED}
    own |= {"WEFT_JIT": jit, "WEFT_CACHE": cache, "OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--here", name]
    command += ["--steps", str(steps), "--threads", str(threads)]
    found = subprocess.run(command, env=own, check=True, stdout=subprocess.PIPE).stdout
    measured: list[float] = json.loads(found)
    return measured


def measure(names: list[str], steps: int, threads: int, cache: str) -> None:
    """Print the table."""
    heads = ("kernels MB", "compiled MB", "arena MB", "faults", "compiled", "ms", "compiled")
    print(f"{'program':18}" + "".join(f"{head:>13}" for head in heads))
    for name in names:
        kernels = child(name, steps, threads, "off", cache)
        child(name, 1, threads, "now", cache)  # which keeps all
        compiled = child(name, steps, threads, "now", cache)
        sizes = [kernels[0], compiled[0], compiled[1]]
        columns = [f"{size / MEGABYTE:13.1f}" for size in sizes]
        columns += [f"{each[2]:13.1f}" for each in (kernels, compiled)]
        columns += [f"{each[3] * 1e3:13.3f}" for each in (kernels, compiled)]
        print(f"{name:18}" + "".join(columns), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("programs", nargs="*")
    arguments.add_argument("--steps", type=int, default=10)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--here", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.here:
        run_here(given.here, given.steps, given.threads)
        return
    sys.path.insert(0, str(PROGRAMS))
    import networks_v1

    names = given.programs or [each for each in networks_v1.PROGRAMS if each != LEFT_OUT]
    kept = os.environ.get("WEFT_CACHE")
    with tempfile.TemporaryDirectory() as cache:
        measure(names, given.steps, given.threads, kept or cache)


if __name__ == "__main__":
    main()
