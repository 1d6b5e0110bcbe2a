"""Measures the front ends beside Python: round trips, and the size and build time of the library.

`python benchmarks/frontends.py` builds the library with cmake, starts `weft server`, and runs the
same steps from C++, Node and Python in turn, several rounds. It prints medians, as a table in
Markdown.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from report import machine, markdown_table
from subjects import PROGRAM_DIRECTORY

import weft_client

ROWS = {
    "step": ("a step of one op with a feed and a fetch, µs", 1e6),
    "16 MB": ("the same with 16 MB each way, ms", 1e3),
    "build": ("building a graph of 6,000 nodes, ms", 1e3),
    "send": ("a session that sends it, ms", 1e3),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds per row and round")
    return parser.parse_args()


def call(*command: str | Path) -> float:
    """Run a command; return its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def build(folder: Path) -> tuple[Path, dict[str, float]]:
    """Build the library and the C++ program; return the program and the build's time."""
    source = weft_client.source_directory()
    call("cmake", "-S", source, "-B", folder / "library")
    library_seconds = call("cmake", "--build", folder / "library")
    library, program = folder / "library" / "libweft_client.a", folder / "frontends"
    options = ["-std=c++17", "-O2", f"-I{weft_client.include_directory()}"]
    main = PROGRAM_DIRECTORY / "frontends.cpp"
    seconds = call("g++", *options, "-c", main, "-o", folder / "frontends.o")
    libraries = [library, "-pthread", "-lssl", "-lcrypto"]
    call("g++", folder / "frontends.o", *libraries, "-o", program)
    return program, {
        "static library with TLS, MB": library.stat().st_size / 1e6,
        "building the library, s of processor time": library_seconds,
        "compiling a program with all ops, -O2, s of processor time": seconds,
    }


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Start `weft server`; return its addresses for Python and for other languages."""
    command = [sys.executable, "-m", "weft", "server", "--stop-at-eof"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().rpartition(" ")[2].strip() for _ in range(2)]
        try:
            yield lines[0], lines[1]
        finally:
            process.terminate()


def measure(command: list[str | Path], target: str, budget: float) -> dict[str, float]:
    words = [*map(str, command), target, str(budget)]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in json.loads(printed).items()}


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder, server() as (python_target, target):
        program, sizes = build(Path(folder))
        python = [sys.executable, PROGRAM_DIRECTORY / "frontends_python.py"]
        subjects: dict[str, tuple[list[str | Path], str]] = {
            "Python": (python, python_target),
            "C++": ([program], target),
        }
        if node := shutil.which("node"):
            subjects["Node"] = ([node, PROGRAM_DIRECTORY / "frontends.mjs"], target)
        rounds = [
            {name: measure(*subject, arguments.budget) for name, subject in subjects.items()}
            for _ in range(arguments.rounds)
        ]
    body = []
    for row, (title, scale) in ROWS.items():
        cells = [title]
        for name in subjects:
            value = statistics.median(result[name][row] for result in rounds)
            ratio = statistics.median(
                result[name][row] / result["Python"][row] for result in rounds
            )
            cells.append(f"{value * scale:.3g}" + ("" if name == "Python" else f" ({ratio:.2f}×)"))
        body.append(cells)
    print(machine())
    print(markdown_table(["", *subjects], body))
    print(markdown_table(["", ""], [[name, f"{value:.2g}"] for name, value in sizes.items()]))


if __name__ == "__main__":
    main()
