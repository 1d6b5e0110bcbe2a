"""Lite beside its peers: for each network and number of threads, time and ratio to the fastest.

    python benchmarks/lite/models.py FOLDER weft
    PEER/bin/python benchmarks/lite/models.py FOLDER tensorflow
    python benchmarks/lite/run.py FOLDER --litert PEER/bin/python

Subjects take turns, in processes of their own; the least time of all turns counts, since other
programs of the machine can only add to it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

SUBJECT = Path(__file__).with_name("subject.py")


def measure(python: str, file: Path, threads: int, seconds: float) -> float:
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    command = [python, str(SUBJECT), str(file), str(threads), str(seconds)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--litert", help="a Python that has ai-edge-litert")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    subjects = {".weftlite": sys.executable, ".tflite": arguments.litert}
    print("| network | threads | lite, ms | LiteRT, ms | ratio to the fastest |")
    print("|---|---|---|---|---|")
    for file in sorted(arguments.folder.glob("*.weftlite")):
        for threads in arguments.threads:
            least: dict[str, float] = {}
            for _ in range(arguments.turns):
                for suffix, python in subjects.items():
                    if python and file.with_suffix(suffix).exists():
                        took = measure(python, file.with_suffix(suffix), threads, arguments.seconds)
                        least[suffix] = min(took, least.get(suffix, took))
            own, peer = least[".weftlite"], least.get(".tflite", float("nan"))
            ratio = own / min(least.values())
            print(f"| {file.stem} | {threads} | {own:.3f} | {peer:.3f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
