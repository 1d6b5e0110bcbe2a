"""Measures clusters of processes beside TensorFlow's, and beside raw sockets and copies."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from report import machine, markdown_table
from rich.console import Console
from rich.table import Table
from subjects import PROGRAM_DIRECTORY, environment

OUT = Path(__file__).parent / "out"
TIMEOUT = 900
PROGRAMS = (
    "transfer",
    "update",
    "null_scalar",
    "null_dense",
    "null_sparse",
    "null_sparse_small",
    "first_run",
    "backup",
)
ONLY_WEFT = ("backup",)
BY_TCP = ("transfer", "update")
SIZES = (1, 10, 100)

moved: dict[str, int] = {}
"""The bytes of values that come to each worker in a step of weft, by row."""

Measured = dict[str, dict[str, float]]  # row -> subject -> seconds


class Promise(NamedTuple):
    """A bound that measurements of one round must meet."""

    title: str
    most: float
    value: Callable[[Measured], float]


def _floor(kind: str, subject: str, size: int) -> Callable[[Measured], float]:
    """Return a transfer's time, without that of an empty transfer, relative to raw transport."""

    def value(m: Measured) -> float:
        spent = m[f"transfer_{size}MB"][subject] - m["transfer_0MB"][subject]
        return spent / m[f"floor_{kind}_{size}MB"]["floor"]

    return value


PROMISES = (
    Promise(
        "an empty transfer, over TensorFlow's",
        0.4,
        lambda m: m["transfer_0MB"]["weft"] / m["transfer_0MB"]["tensorflow"],
    ),
    *(
        Promise(f"{size} MB by TCP, over a bare socket", 1.25, _floor("tcp", "weft, TCP", size))
        for size in SIZES
    ),
    *(
        Promise(f"{size} MB by memory, over a copy", 1.25, _floor("copy", "weft", size))
        for size in SIZES
    ),
    *(
        Promise(
            f"null step, {what}, {count} workers, over TensorFlow's",
            1.0,
            lambda m, row=f"null_{what}_{count}": m[row]["weft"] / m[row]["tensorflow"],
        )
        for what in ("scalar", "dense")
        for count in (1, 2, 4, 8)
    ),
    Promise(
        "rows of 1 GB over rows of 16 MB, 2 workers",
        1.2,
        lambda m: m["null_sparse_2"]["weft"] / m["null_sparse_small_2"]["weft"],
    ),
    Promise(
        "a step with a slow worker and a backup, over one without either",
        1 / 0.9,
        lambda m: m["sync_backup"]["weft"] / m["sync_even"]["weft"],
    ),
    Promise("36,000 nodes over 8 workers, first result, s", 8, lambda m: m["first_run"]["weft"]),
    Promise("the second signature, s", 3, lambda m: m["second_signature"]["weft"]),
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)}; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds per row and round")
    parser.add_argument("--out", type=Path, default=OUT, help="where cluster.json and .md go")
    variable = "WEFT_BENCH_TENSORFLOW"
    parser.add_argument(
        "--tensorflow", default=os.environ.get(variable), metavar="PYTHON", help=f"or {variable}"
    )
    return parser.parse_args()


def commands(program: str, tensorflow: str | None) -> Iterator[tuple[str, list[str], str]]:
    """Return the subjects: name, command of the program, and protocol of the servers."""
    script = str(PROGRAM_DIRECTORY / "cluster_v1.py")
    yield "weft", [sys.executable, script, program], "grpc"
    if program in BY_TCP:
        yield "weft, TCP", [sys.executable, script, program], "grpc+tcp"
    if tensorflow and program not in ONLY_WEFT:
        yield (
            "tensorflow",
            [tensorflow, script, program, "--module", "tensorflow.compat.v1"],
            "grpc",
        )
    if program == "transfer":
        floors = str(PROGRAM_DIRECTORY / "cluster_floors.py")
        yield "floor", [sys.executable, floors, "floors"], "grpc"


def run(command: list[str], protocol: str, budget: float) -> dict[str, float]:
    done = subprocess.run(
        [*command, "--budget", str(budget)],
        env=environment(1) | {"WEFT_BENCH_PROTOCOL": protocol},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    moved.update({line["moved"]: line["bytes"] for line in lines if "moved" in line})
    return {line["row"]: line["median"] for line in lines if "row" in line}


def measure(arguments: argparse.Namespace) -> list[Measured]:
    """Run the rounds; each begins with another subject."""
    rounds: list[Measured] = []
    for index in range(arguments.rounds):
        measured: Measured = {}
        for program in arguments.programs or PROGRAMS:
            told = list(commands(program, arguments.tensorflow))
            turn = index % len(told)
            for subject, command, protocol in [*told[turn:], *told[:turn]]:
                for row, seconds in run(command, protocol, arguments.budget).items():
                    measured.setdefault(row, {})[subject] = seconds
        rounds.append(measured)
    return rounds


def cells(rounds: list[Measured]) -> tuple[list[str], list[list[str]]]:
    """Return medians in milliseconds, and for TensorFlow the ratio of its time to weft's."""
    subjects = ("weft", "weft, TCP", "tensorflow", "floor")
    body = []
    for row in rounds[0]:
        line = [row]
        for subject in subjects:
            values = [m[row][subject] for m in rounds if subject in m.get(row, {})]
            text = f"{statistics.median(values) * 1e3:.3g}" if values else "–"
            if values and subject == "tensorflow":
                ratios = [m[row][subject] / m[row]["weft"] for m in rounds if row in m]
                text += f" ({statistics.median(ratios):.2f}×)"
            line.append(text)
        body.append([*line, f"{moved[row]:,}" if row in moved else "–"])
    return ["ms", *subjects, "bytes to a worker"], body


def promises(rounds: list[Measured]) -> tuple[list[str], list[list[str]]]:
    body = []
    for promise in PROMISES:
        try:
            value = statistics.median(promise.value(measured) for measured in rounds)
        except KeyError:
            continue  # what was not measured
        kept = "yes" if value <= promise.most else "no"
        body.append([promise.title, f"≤ {promise.most:.3g}", f"{value:.3g}", kept])
    return ["promise", "bound", "measured", "kept"], body


def main() -> int:
    arguments = parse()
    rounds = measure(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    texts = []
    for title, (header, body) in (
        ("Clusters", cells(rounds)),
        ("Promises", promises(rounds)),
    ):
        table = Table(*header, title=title)
        for line in body:
            table.add_row(*line)
        console.print(table)
        texts.append(markdown_table(header, body))
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = json.dumps(machine() | {"rounds": rounds}, indent=1)
    (arguments.out / "cluster.json").write_text(data + "\n", encoding="utf-8")
    text = "# Clusters\n\n" + "\n\n".join(texts) + "\n"
    (arguments.out / "cluster.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
