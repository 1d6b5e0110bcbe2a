"""The results as tables: on the terminal, in Markdown and in JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rows import PROMISES, Measured, Program
from subjects import Subject

SCALE = {"s": 1.0, "ms": 1e3, "µs": 1e6, "MB": 1e-6}


class Results:
    """The measurements of all rounds, and their statistics."""

    def __init__(self, subjects: Sequence[Subject], programs: Sequence[Program]) -> None:
        self.subjects = subjects
        self.rows = [row for program in programs for row in program.rows]
        self.rounds: list[Measured] = []
        self.failures: dict[str, str] = {}
        names = [subject.name for subject in subjects]
        self.own = "weft-jit" if "weft-jit" in names else "weft"

    def median(self, row: str, subject: str) -> float | None:
        values = [m[row][subject] for m in self.rounds if subject in m.get(row, {})]
        return statistics.median(values) if values else None

    def ratio(self, row: str, subject: str) -> float | None:
        """Return the subject's time over weft's in each round; over 1, weft is faster.

        Where weft is measured with its compiler, that is weft's.
        """
        pairs = [m[row] for m in self.rounds if {self.own, subject} <= m.get(row, {}).keys()]
        return statistics.median(p[subject] / p[self.own] for p in pairs) if pairs else None

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header = ["", *(subject.title for subject in self.subjects)]
        body = []
        for row in self.rows:
            cells = [f"{row.title}, {row.unit}"]
            for subject in self.subjects:
                value = self.median(row.name, subject.name)
                ratio = None if subject.name == self.own else self.ratio(row.name, subject.name)
                text = "–" if value is None else f"{value * SCALE[row.unit]:.3g}"
                cells.append(text if ratio is None else f"{text} ({ratio:.2f}×)")
            body.append(cells)
        mean = self.mean_of_models()
        return header, [*body, mean] if mean else body

    def mean_of_models(self) -> list[str]:
        """Return the cells of a row with the geometric means of the ratios of all models."""
        models = [row.name for row in self.rows if row.name.startswith("model_")]
        cells = [f"geometric mean of {len(models)} models"]
        for subject in self.subjects:
            ratios = [self.ratio(name, subject.name) for name in models]
            known = [ratio for ratio in ratios if ratio and subject.name != self.own]
            cells.append(f"({statistics.geometric_mean(known):.2f}×)" if known else "")
        return cells if models else []

    def promises(self) -> tuple[list[str], list[list[str]]]:
        body = []
        for promise in PROMISES:
            values = []
            for measured in self.rounds:
                try:
                    values.append(promise.value(measured))
                except KeyError:
                    continue  # a row that was not asked for, or that failed
            if values:
                value = statistics.median(values)
                sign = "≥" if promise.at_least else "≤"
                bound = f"{sign} {promise.bound:g} {promise.unit}"
                kept = "yes" if promise.kept(value) else "no"
                body.append([promise.title, bound, f"{value:.3g} {promise.unit}", kept])
        return ["promise", "bound", "measured", "kept"], body


def machine() -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        processor = models[0] if models else processor
    except OSError:
        pass
    return {
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor,
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """Return the measured commit, with a plus sign if files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    )
    return done.stdout.strip() or "unknown"


def markdown_table(header: list[str], body: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *body])


def markdown(results: Results, setting: dict[str, Any]) -> str:
    versions = ", ".join(
        f"{subject.title} {setting['versions'][subject.name]}" for subject in results.subjects
    )
    where = (
        f"{setting['date']}, commit {setting['commit']}, {setting['processor']}, "
        f"{setting['processors']} processors, {setting['system']}, Python {setting['python']}"
    )
    parts = [
        "# Results",
        f"{where}; {versions}. Threads: {setting['threads']}; rounds: {setting['rounds']}"
        f"{'; processor time' if setting['processor_time'] else ''}. "
        "Medians of the rounds' medians. In parentheses: the peer's value over weft's in the "
        "same round, so that more than 1 means that weft is ahead.",
        markdown_table(*results.cells()),
        markdown_table(*results.promises()),
    ]
    if results.failures:
        parts.append("\n".join(f"- {what}: {why}" for what, why in results.failures.items()))
    return "\n\n".join(parts) + "\n"


def write(results: Results, setting: dict[str, Any], directory: Path) -> list[Path]:
    """Write results.json, with every round, and results.md."""
    directory.mkdir(parents=True, exist_ok=True)
    data = setting | {"rounds": results.rounds, "failures": results.failures}
    files = {
        directory / "results.json": json.dumps(data, indent=1) + "\n",
        directory / "results.md": markdown(results, setting),
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)
