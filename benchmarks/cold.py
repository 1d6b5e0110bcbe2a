"""The first seconds of small programs with the compiler, beside kernels alone.

Each program of `programs/models_v1.py` runs for so many seconds of the processor's time from its
first step on, in a child process, in turn without the compiler, with it and an empty cache, and
with it and a cache that has all its code. The table has the steps that each got done, and their
ratio to those of kernels: the medians of rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class Counter:
    """A stand-in for the programs' timer, which counts their steps."""

    threads = 1

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def time(self, row: str, step: Callable[[], Any]) -> None:
        """Run steps until the processor time is used up, and print their number."""
        end = time.process_time() + self.seconds
        step()
        count = 1
        while time.process_time() < end:
            step()
            count += 1
        print(count, flush=True)


def run_here(name: str, seconds: float) -> None:
    """Count the steps of a program in this process."""
    sys.path.insert(0, str(PROGRAMS))
    import models_v1

    import weft

    models_v1.use(weft)
    with weft.Graph().as_default():
        models_v1.PROGRAMS[name](Counter(seconds))


def steps(name: str, seconds: float, jit: str, cache: str) -> int:
    """Count the steps of a program in a child process."""
    own = {key: value for key, value in os.environ.items() if key not in PINNED}
    own |= {"WEFT_JIT": jit, "WEFT_CACHE": cache, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--here", name, "--seconds", str(seconds)]
    return int(subprocess.run(command, env=own, check=True, stdout=subprocess.PIPE).stdout)


def measure(names: list[str], seconds: float, rounds: int) -> None:
    """Print the table."""
    print(f"{'program':24} {'kernels':>8} {'cold':>8} {'kept':>8}   cold/kernels kept/kernels")
    for name in names:
        found: list[list[int]] = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                counts = [steps(name, seconds, jit, cache) for jit in ("off", "on")]
                steps(name, 0.0, "now", cache)  # which keeps all
                found.append([*counts, steps(name, seconds, "on", cache)])
        median = [statistics.median(column) for column in zip(*found, strict=True)]
        ratios = [statistics.median(row[at] / row[0] for row in found) for at in (1, 2)]
        medians = " ".join(f"{count:8.0f}" for count in median)
        print(f"{name:24} {medians}   {ratios[0]:12.2f} {ratios[1]:12.2f}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("programs", nargs="*")
    arguments.add_argument("--seconds", type=float, default=3.0, help="of the processor")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--here", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.here:
        run_here(given.here, given.seconds)
        return
    sys.path.insert(0, str(PROGRAMS))
    import models_v1

    measure(given.programs or list(models_v1.PROGRAMS), given.seconds, given.rounds)


if __name__ == "__main__":
    main()
