"""Whole scripts as processes: with a cold, a warm and a full cache, and in peers.

Each script of `programs/scripts_v1.py` runs as a process of its own: weft by its kernels (`off`),
three times from one empty cache (`first`, `second`, `third`), with all code on the disk (`full`),
and TensorFlow without and with XLA. The tables have the seconds of the process, milliseconds of a
step at the end, seconds until steps are that fast, and megabytes of memory; and the geometric means
of the ratios to TensorFlow's in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from subjects import environment, keep_to

PROGRAM = Path(__file__).parent / "programs" / "scripts_v1.py"
TIMEOUT = 900


class Measurement(NamedTuple):
    """A finished process: total seconds, seconds per final step, warm-up seconds, memory."""

    wall: float
    processor: float
    step: float
    full_speed: float
    megabytes: float


def run_script(
    python: str, name: str, module: str, threads: int, extra: dict[str, str]
) -> Measurement:
    """Run a script as a process and measure it."""
    command = [python, str(PROGRAM), name, "--module", module, "--threads", str(threads)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env=environment(threads) | extra,
            stdout=output,
            stderr=subprocess.DEVNULL,
            preexec_fn=partial(keep_to, threads),
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        report = json.loads(output.read().splitlines()[-1])
    ends = report["ends"]
    steps = [after - before for before, after in zip([0.0, *ends], ends, strict=False)]
    last = statistics.median(steps[-max(5, len(steps) // 10) :])
    slow = [end for end, step in zip(ends, steps, strict=True) if step > 1.5 * last]
    settled = [end for end in slow if end < ends[-1]]
    processor = usage.ru_utime + usage.ru_stime
    return Measurement(ends[-1], processor, last, max(settled, default=0.0), usage.ru_maxrss / 1024)


def modes(tensorflow: str, name: str, threads: int) -> Iterator[tuple[str, Measurement]]:
    """Run a script once in each mode."""
    weft = partial(run_script, sys.executable, name, "weft", threads)
    yield "off", weft({"WEFT_JIT": "off"})
    with tempfile.TemporaryDirectory() as cache:
        for run in ("first", "second", "third"):
            yield run, weft({"WEFT_CACHE": cache})
    with tempfile.TemporaryDirectory() as cache:
        weft({"WEFT_JIT": "now", "WEFT_CACHE": cache})
        yield "full", weft({"WEFT_CACHE": cache})
    if tensorflow:
        peer = partial(run_script, tensorflow, name, "tensorflow.compat.v1", threads)
        yield "tensorflow", peer({})
        yield "xla", peer({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"})


def show(rounds: dict[str, list[dict[str, Measurement]]]) -> None:
    """Print the medians, and ratios to TensorFlow in the same round."""
    names = list(next(iter(rounds.values()))[0])
    for title, field, scale in (
        ("processor seconds", "processor", 1.0),
        ("wall seconds", "wall", 1.0),
        ("ms per step at the end", "step", 1e3),
        ("seconds to full speed", "full_speed", 1.0),
        ("MB", "megabytes", 1.0),
    ):
        print(f"\n| {title} | {' | '.join(names)} |\n|---{'|---:' * len(names)}|")
        for script, found in rounds.items():
            values = [statistics.median(getattr(m[mode], field) for m in found) for mode in names]
            print(f"| {script} | {' | '.join(f'{scale * value:.2f}' for value in values)} |")
        if "tensorflow" in names and field != "full_speed":
            means = [
                statistics.geometric_mean(
                    getattr(m[mode], field) / getattr(m["tensorflow"], field)
                    for found in rounds.values()
                    for m in found
                )
                for mode in names
            ]
            print(
                f"| of TensorFlow's | {' | '.join(f'{mean:.2f}' for mean in means)} |", flush=True
            )


def main() -> None:
    """Measure the scripts that the command line names."""
    sys.path.insert(0, str(PROGRAM.parent))
    import scripts_v1

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("scripts", nargs="*", help="all, if none is named")
    arguments.add_argument("--tensorflow", default=os.environ.get("WEFT_BENCH_TENSORFLOW", ""))
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=1)
    given = arguments.parse_args()
    rounds: dict[str, list[dict[str, Measurement]]] = {}
    for name in given.scripts or scripts_v1.SCRIPTS:
        for _ in range(given.rounds):
            found = dict(modes(given.tensorflow, name, given.threads))
            rounds.setdefault(name, []).append(found)
            row = "  ".join(f"{mode} {m.processor:.2f}s" for mode, m in found.items())
            print(f"{name}: {row}", file=sys.stderr, flush=True)
    show(rounds)


if __name__ == "__main__":
    main()
