"""Rates of input pipelines: images per second and records per second, beside TensorFlow's.

Each row is a dataset of `programs/input_v1.py`. weft and TensorFlow iterate over it in child
processes that alternate, kept to as many processors as there are threads. The table has the
medians of the rounds, and the median ratio of weft's rate to TensorFlow's in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial

from subjects import PROGRAM_DIRECTORY, environment, keep_to

PROGRAM = PROGRAM_DIRECTORY / "input_v1.py"
ROWS = ("jpeg", "jpeg_augmented", "png", "png_augmented", "records")
TIMEOUT = 300


def run(python: str, module: str, row: str, directory: str, threads: int, budget: float) -> float:
    """Return the rate of one child process. Raises CalledProcessError if the child fails."""
    command = [python, str(PROGRAM), row, "--module", module, "--directory", directory]
    command += ["--threads", str(threads), "--budget", str(budget)]
    done = subprocess.run(
        command,
        env=environment(threads),
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
        preexec_fn=partial(keep_to, threads),
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"row"')]
    return float(json.loads(lines[-1])["rate"]) if lines else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}; all if none is given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds per row and subject")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument(
        "--tensorflow", default=os.environ.get("WEFT_BENCH_TENSORFLOW", ""), metavar="PYTHON"
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="per second of the processor's time, where the machine has other work",
    )
    given = parser.parse_args()
    if given.processor_time:
        os.environ["WEFT_BENCH_CLOCK"] = "processor"  # for the children
    subjects = {"weft": (sys.executable, "weft")}
    if given.tensorflow:
        subjects["tensorflow"] = (given.tensorflow, "tensorflow.compat.v1")
    print("| row | threads | weft | TensorFlow | ratio |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as directory:
        run(sys.executable, "weft", "write", directory, 1, 0.0)
        for row in given.rows or ROWS:
            for threads in given.threads:
                rates: dict[str, list[float]] = {name: [] for name in subjects}
                for _ in range(given.rounds):
                    for name, (python, module) in subjects.items():
                        rate = run(python, module, row, directory, threads, given.budget)
                        rates[name].append(rate)
                print_row(row, threads, rates)


def print_row(row: str, threads: int, rates: dict[str, list[float]]) -> None:
    """Print the medians, and the median of the ratios of the rounds."""
    ours = rates["weft"]
    cells = [row, str(threads), f"{statistics.median(ours):,.0f}", "–", "–"]
    if "tensorflow" in rates:
        theirs = rates["tensorflow"]
        ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
        cells[3:] = [f"{statistics.median(theirs):,.0f}", f"{ratio:.2f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
