"""The cost of recording a trace: `python benchmarks/trace.py [--tensorflow PYTHON]`.

Each row is a program in a process of its own, which runs blocks of steps without and with a trace
in turn; the figures are medians of the blocks. "rest" is what ending the recording takes, per step:
rows are made and written on another thread, and ending waits for it. Beside it TensorFlow's
FULL_TRACE, which keeps its records in memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from subjects import environment

PROGRAM = Path(__file__).parent / "programs" / "trace_v1.py"


def measured(python: str, subject: str, program: str, rounds: int, jit: str) -> dict[str, float]:
    """Run one program, and return what it prints."""
    variables = environment(1) | {"WEFT_JIT": jit}
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONDONTWRITEBYTECODE"):
        variables.pop(name, None)
    done = subprocess.run(
        [python, str(PROGRAM), subject, program, str(rounds)],
        env=variables, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow", help="an interpreter that has TensorFlow")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    rows = [("weft, kernels", sys.executable, "weft", "off")]
    rows += [("weft, compiled", sys.executable, "weft", "now")]
    if arguments.tensorflow:
        rows.append(("TensorFlow FULL_TRACE", arguments.tensorflow, "tensorflow", ""))
    print("| program | system | ms plain | ms traced | more | rest ms | events | bytes/event |")
    print("|---|---|---|---|---|---|---|---|")
    for program in ("chain", "convnet"):
        for name, python, subject, jit in rows:
            found = measured(python, subject, program, arguments.rounds, jit)
            more = 100 * (found["traced"] / found["plain"] - 1)
            each = found["bytes"] / found["events"] if found["events"] else 0
            print(
                f"| {program} | {name} | {found['plain']:.3f} | {found['traced']:.3f} | "
                f"{more:.1f} % | {found['rest']:.3f} | {found['events']:.0f} | {each:.1f} |"
            )


if __name__ == "__main__":
    main()
