"""The arguments, the clock and the output format of all timed programs."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 3
FEWEST, MOST = 3, 20_000
BATCH_SECONDS = 100e-6

clock = time.process_time if os.environ.get("WEFT_BENCH_CLOCK") else time.perf_counter

Step = Callable[[], Any]
Program = Callable[["Timer"], None]


class Timer:
    """Measures the steps of a program, and prints the times."""

    def __init__(self, threads: int, budget: float) -> None:
        self.threads = threads
        self.budget = budget

    def time(self, row: str, step: Step) -> None:
        """Repeat `step` for the budgeted seconds; very short steps are timed in batches."""
        started = clock()
        step()
        first = clock() - started
        for _ in range(WARM_UP if first < self.budget else 0):
            started = clock()
            step()
            first = clock() - started
        batch = max(1, int(BATCH_SECONDS / max(first, 1e-9)))
        samples: list[float] = []
        end = time.perf_counter() + self.budget
        while len(samples) < FEWEST or (time.perf_counter() < end and len(samples) < MOST):
            started = clock()
            for _ in range(batch):
                step()
            samples.append((clock() - started) / batch)
        self.report(row, samples)

    def report(self, row: str, samples: list[float]) -> None:
        """Print samples that were measured elsewhere: seconds, or bytes for sizes."""
        line = {"row": row, "median": statistics.median(samples), "least": min(samples)}
        print(json.dumps(line | {"samples": len(samples)}), flush=True)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--budget", type=float, default=1.0, help="seconds per row")
    return arguments


def main(programs: dict[str, Program], arguments: argparse.Namespace) -> None:
    """Run the program that the command line names."""
    programs[arguments.program](Timer(arguments.threads, arguments.budget))


def graph_mode(programs: dict[str, Program], use: Callable[[Any], None]) -> None:
    """Run a program in a graph of weft or tensorflow.compat.v1, which it receives as `tf`."""
    arguments = parser()
    arguments.add_argument("--module", choices=["weft", "tensorflow.compat.v1"], default="weft")
    given = arguments.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    module = importlib.import_module(given.module)
    if given.module != "weft":
        module.disable_v2_behavior()
    use(module)
    with module.Graph().as_default():
        main(programs, given)
