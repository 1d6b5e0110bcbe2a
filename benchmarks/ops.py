"""Walks the op table: processor time per node, beside TensorFlow's and PyTorch's, worst first."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from op_table import entries
from report import machine, markdown_table
from rich.console import Console
from rich.table import Table
from subjects import PROGRAM_DIRECTORY, environment

SIZES = {"small": (1_000, 100), "medium": (1_000_000, 5), "large": (8_000_000, 2)}
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
GROUP = 50
"""Ops that a subject measures before the next one has its turn, since clocks change."""
SILENT = 40
"""Seconds after which a child process that gives no answer is ended."""

Told = float | str
"""Seconds per node, or what became of the op."""
Found = dict[str, dict[str, dict[str, Told]]]
"""By size, subject and op."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", help="op types; all if none is given")
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per op and subject")
    parser.add_argument("--out", type=Path, default=OUT, help="where ops.json and ops.md go")
    parser.add_argument(
        "--resume", action="store_true", help="keep what ops.json has, and measure the rest"
    )
    for name in ("tensorflow", "torch"):
        variable = f"WEFT_BENCH_{name.upper()}"
        parser.add_argument(
            f"--{name}", default=os.environ.get(variable), metavar="PYTHON", help=f"or {variable}"
        )
    return parser.parse_args()


def run(
    name: str, python: str, lines: list[str], nodes: int, budget: float
) -> Iterator[tuple[str, Told]]:
    """Measure each op; return the seconds per node, or the reason for a missing measurement.

    A subject that dies of an op, as TensorFlow does of some sizes, or that does not come back from
    one, goes on with the op after it.
    """
    script, *options = SUBJECTS[name]
    command = [python, str(PROGRAM_DIRECTORY / script), *options, "--nodes", str(nodes)]
    command += ["--budget", str(budget)]
    while lines:
        count = 0
        for answer in _answers(command, lines):
            yield answer["op"], answer.get("seconds", answer.get("failed", ""))
            count += 1
        lines = lines[count:]


def _answers(command: list[str], lines: list[str]) -> Iterator[dict[str, Any]]:
    """Return the child's answers to the first lines, and how it ended if it did not answer all.

    Raises: SystemExit: it did not come so far as to measure.
    """
    count, ended = 0, threading.Event()
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as said:
        given.writelines(lines)
        given.seek(0)
        with subprocess.Popen(
            command, stdin=given, stdout=subprocess.PIPE, stderr=said, text=True, env=environment(1)
        ) as child:
            assert child.stdout is not None
            watch = _watch(child, ended)
            for line in child.stdout:
                if line.startswith("{"):
                    watch.cancel()
                    yield json.loads(line)
                    count += 1
                    watch = _watch(child, ended)
            watch.cancel()
        if child.returncode > 0 and not count:
            said.seek(0)
            raise SystemExit(said.read())
    if count < len(lines):
        why = f"over {SILENT} s" if ended.is_set() else "ends the process"
        yield {"op": json.loads(lines[count])["op"], "failed": why}


def _watch(child: subprocess.Popen[str], ended: threading.Event) -> threading.Timer:
    """Kill a child that does not answer in time, even if a kernel blocks it in C."""

    def end() -> None:
        ended.set()
        child.kill()

    watch = threading.Timer(SILENT, end)
    watch.daemon = True
    watch.start()
    return watch


class Reasons:
    """The reasons why ops take more than `SLOW` times as long as the slower peer."""

    def __init__(self, path: Path) -> None:
        told = json.loads(path.read_text(encoding="utf-8"))
        self._causes: dict[str, str] = told["causes"]
        self._ops: dict[str, str] = {op: cause for cause, ops in told["ops"].items() for op in ops}

    def why(self, op: str, ratio: float) -> str:
        """Return the short name of the cause, or a question mark if a cause is missing."""
        return "" if ratio <= SLOW else self._ops.get(op, "?")

    def legend(self) -> list[list[str]]:
        return [list(each) for each in sorted(self._causes.items())]


def rows(found: Found, reasons: Reasons) -> list[list[str]]:
    """Return the rows: slow ops without a reason first, otherwise the slowest first."""
    made = []
    for size, subjects in found.items():
        for op, ours in subjects["weft"].items():
            theirs = {n: t[op] for n, t in subjects.items() if n != "weft" and op in t}
            known = [told for told in theirs.values() if isinstance(told, float)]
            ratio = 0.0
            if known:
                ratio = ours / max(known) if isinstance(ours, float) else inf
            why = reasons.why(op, ratio) if isinstance(ours, float) else ours
            cells = [_cell(theirs.get(n)) for n in subjects if n != "weft"]
            row = [op, size, _cell(ours), *cells, f"{ratio:.2f}" if known else "–", why]
            made.append((why != "?", -ratio, row))
    return [row for *_, row in sorted(made)]


def _cell(told: Told | None) -> str:
    if told is None:
        return "–"
    return f"{told * 1e6:.3g}" if isinstance(told, float) else "failed"


def walk(arguments: argparse.Namespace, pythons: dict[str, str], reasons: Reasons) -> Found:
    """Measure group by group, and write the results after each op."""
    found = _kept(arguments.out) if arguments.resume else {}
    for size in arguments.sizes:
        elements, nodes = SIZES[size]
        subjects = found.setdefault(size, {})
        for name in pythons:
            subjects.setdefault(name, {})
        told = [
            entry
            for entry in entries(elements, arguments.ops)
            if not all(entry["op"] in subjects[name] for name in pythons)
        ]
        lines = [json.dumps(entry) + "\n" for entry in told]
        for start in range(0, len(lines), GROUP):
            for name, python in pythons.items():
                group = lines[start : start + GROUP]
                for op, measured in run(name, python, group, nodes, arguments.budget):
                    subjects[name][op] = measured
                    write(arguments.out, list(pythons), found, reasons)
    return found


def _kept(directory: Path) -> Found:
    path = directory / "ops.json"
    found: Found = json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.exists() else {}
    return found


def main() -> int:
    arguments = parse()
    pythons = {"weft": sys.executable}
    pythons |= {n: getattr(arguments, n) for n in ("tensorflow", "torch") if getattr(arguments, n)}
    reasons = Reasons(REASONS)
    found = walk(arguments, pythons, reasons)
    table = Table(*_header(list(pythons)), title="time of a node")
    for cells in rows(found, reasons)[:WORST]:
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


def _header(subjects: list[str]) -> list[str]:
    return ["op", "size", *(f"{name}, µs" for name in subjects), "ours over theirs", "why"]


def write(directory: Path, subjects: list[str], found: Found, reasons: Reasons) -> None:
    """Write ops.json and ops.md."""
    directory.mkdir(parents=True, exist_ok=True)
    data = json.dumps(machine() | {"seconds": found}, indent=1)
    (directory / "ops.json").write_text(data + "\n", encoding="utf-8")
    worst = markdown_table(_header(subjects), rows(found, reasons))
    tables = [worst, markdown_table(["why", ""], reasons.legend())]
    text = "\n\n".join(["# Ops, worst first", *tables]) + "\n"
    (directory / "ops.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
