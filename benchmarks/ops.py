"""Walks the op table: processor time per node, beside TensorFlow's and PyTorch's, worst first."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from op_table import entries
from report import machine, markdown_table
from rich.console import Console
from rich.table import Table
from subjects import PROGRAM_DIRECTORY, environment

SIZES = {"small": (1_000, 100), "medium": (1_000_000, 20), "large": (8_000_000, 4)}
"""Elements of the largest input, and nodes in the graph."""

SUBJECTS = {
    "weft": ["ops_v1.py", "--module", "weft"],
    "tensorflow": ["ops_v1.py", "--module", "tensorflow.compat.v1"],
    "torch": ["ops_torch.py"],
}
OUT = Path(__file__).parent / "out"
REASONS = Path(__file__).parent / "reasons.json"
WORST = 40  # rows on the terminal
SLOW = 3.0
"""Times the slower peer's time that need a reason in the file, or are something to mend."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", help="op types; all if none is given")
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per op and subject")
    parser.add_argument("--out", type=Path, default=OUT, help="where ops.json and ops.md go")
    for name in ("tensorflow", "torch"):
        variable = f"WEFT_BENCH_{name.upper()}"
        parser.add_argument(
            f"--{name}", default=os.environ.get(variable), metavar="PYTHON", help=f"or {variable}"
        )
    return parser.parse_args()


def run(name: str, python: str, lines: list[str], nodes: int, budget: float) -> dict[str, float]:
    """Op to seconds per node, of those that the subject has.

    A subject that dies of an op, as TensorFlow does of some sizes, goes on with the one after it.
    """
    script, *options = SUBJECTS[name]
    command = [python, str(PROGRAM_DIRECTORY / script), *options, "--nodes", str(nodes)]
    command += ["--budget", str(budget)]
    found: dict[str, float] = {}
    while lines:
        done = subprocess.run(
            command,
            input="".join(lines),
            capture_output=True,
            text=True,
            env=environment(1),
            check=False,
        )
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode > 0:
            raise SystemExit(done.stderr)
        found |= {line["op"]: line["seconds"] for line in told if "seconds" in line}
        lines = lines[len(told) + 1 :]
    return found


class Reasons:
    """Why ops take more than `SLOW` times as long as the slower peer, and what would help."""

    def __init__(self, path: Path) -> None:
        told = json.loads(path.read_text(encoding="utf-8"))
        self._causes: dict[str, str] = told["causes"]
        self._ops: dict[str, str] = {op: cause for cause, ops in told["ops"].items() for op in ops}

    def why(self, op: str, ratio: float) -> str:
        """The short name of the cause; a question mark where there ought to be one."""
        return "" if ratio <= SLOW else self._ops.get(op, "?")

    def legend(self) -> list[list[str]]:
        return [list(each) for each in sorted(self._causes.items())]


def rows(found: dict[str, dict[str, dict[str, float]]], reasons: Reasons) -> list[list[str]]:
    """The cells of rows: first what is slow without a reason, and in this order worst first."""
    made = []
    for size, subjects in found.items():
        for op, ours in subjects["weft"].items():
            theirs = {n: t[op] for n, t in subjects.items() if n != "weft" and op in t}
            ratio = ours / max(theirs.values()) if theirs else 0.0
            why = reasons.why(op, ratio)
            cells = [
                f"{theirs[n] * 1e6:.3g}" if n in theirs else "–" for n in subjects if n != "weft"
            ]
            row = [op, size, f"{ours * 1e6:.3g}", *cells, f"{ratio:.2f}", why]
            made.append((why != "?", -ratio, row))
    return [row for *_, row in sorted(made)]


def main() -> int:
    arguments = parse()
    pythons = {"weft": sys.executable}
    pythons |= {n: getattr(arguments, n) for n in ("tensorflow", "torch") if getattr(arguments, n)}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for size in arguments.sizes:
        elements, nodes = SIZES[size]
        lines = [json.dumps(e) + "\n" for e in entries(elements, arguments.ops)]
        found[size] = {
            name: run(name, python, lines, nodes, arguments.budget)
            for name, python in pythons.items()
        }
    header = ["op", "size", *(f"{name}, µs" for name in pythons), "ours over theirs", "why"]
    reasons = Reasons(REASONS)
    body = rows(found, reasons)
    table = Table(*header, title="time of a node")
    for cells in body[:WORST]:
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    write(arguments.out, header, body, reasons, found)
    return 0


def write(
    directory: Path, header: list[str], body: list[list[str]], reasons: Reasons, found: Any
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    data = json.dumps(machine() | {"seconds": found}, indent=1)
    (directory / "ops.json").write_text(data + "\n", encoding="utf-8")
    tables = [markdown_table(header, body), markdown_table(["why", ""], reasons.legend())]
    text = "\n\n".join(["# Ops, worst first", *tables]) + "\n"
    (directory / "ops.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
