"""Draw the chart of the README from RESULTS.md, docs/drawings/benchmarks.svg.

Each row is a step of the table "Compiled steps" with one thread. Each mark is a peer's time over
weft's, on a logarithmic axis. A peer that has two columns, without and with its compiler, is shown
by the faster one. Marks beyond the axis are drawn at its end with their value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
CHART = FOLDER.parent / "docs" / "drawings" / "benchmarks.svg"
SECTION = "Compiled steps"
PEERS = {
    "TensorFlow": ("TensorFlow", "TensorFlow with XLA"),
    "PyTorch": ("PyTorch", "torch.compile"),
    "JAX": ("JAX",),
}
WIDTH, LEFT, RIGHT, TOP, ROW = 900, 400, 70, 86, 20
LOW, HIGH = 0.25, 16.0
TICKS = (0.25, 0.5, 1, 2, 4, 8, 16)
DIRECTION = "Right of 1×, weft is faster."
FASTER = "TensorFlow without or with XLA, PyTorch eager or compiled: the faster."
STYLE = """<style>
svg { --page: #ffffff; --text: #1f2328; --faint: #59636e; --grid: #d1d9e0; --weft: #1f2328;
  --tensorflow: #bc4c00; --pytorch: #8250df; --jax: #0969da }
@media (prefers-color-scheme: dark) {
  svg { --page: #0d1117; --text: #e6edf3; --faint: #9198a1; --grid: #30363d; --weft: #e6edf3;
    --tensorflow: #f0883e; --pytorch: #bc8cff; --jax: #58a6ff } }
text { font: 12px sans-serif; fill: var(--text) } .title { font-size: 15px; font-weight: bold }
.faint { fill: var(--faint); font-size: 11px } .page { fill: var(--page) }
.grid { stroke: var(--grid) } .weft { stroke: var(--weft); stroke-width: 1.5 }
.tensorflow { fill: var(--tensorflow) } .pytorch { fill: var(--pytorch) } .jax { fill: var(--jax) }
</style>"""


class Step(NamedTuple):
    """A row of the chart."""

    label: str
    ratios: dict[str, float]
    """The time of each measured peer over weft's."""


class Table(NamedTuple):
    """The section of the results that the chart shows."""

    source: str
    """Machine and date."""

    steps: list[Step]


def read_table(results: str) -> Table:
    """Read the rows of one thread from the text of RESULTS.md.

    Raises:
      ValueError: there is no such section, or it names no machine and date.
    """
    match = re.search(rf"^## {SECTION}\n\n(.*?)(?=^## |\Z)", results, re.M | re.S)
    if match is None:
        raise ValueError(f'RESULTS.md: there is no section "## {SECTION}"')
    section = match[1]
    source = re.match(r"[^.\n]*, \d{4}-\d\d-\d\d(?=\.)", section)
    if source is None:
        raise ValueError(f'section "{SECTION}": no machine and date, got {section[:60]!r}')
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    )
    return Table(source[0], list(_steps([dict(zip(head, row, strict=True)) for row in rows])))


def _steps(rows: list[dict[str, str]]) -> Iterator[Step]:
    base = ""
    for row in rows:
        if row["threads"] != "1":
            continue
        label = full_label(row["step"], base)
        base = base if row["step"].startswith("the same") else label
        weft = _number(row["weft"])
        ratios: dict[str, float] = {}
        for peer, columns in PEERS.items():
            times = [_number(row[column]) for column in columns if row[column]]
            if times:
                ratios[peer] = min(times) / weft
        yield Step(label, ratios)


def full_label(label: str, base: str) -> str:
    """Return a row's label with "the same" replaced by the label it refers to."""
    if label.startswith("the same, "):
        return label.replace("the same", base.split(", ")[0], 1)
    return label.replace("the same", base, 1)


def _number(cell: str) -> float:
    return float(cell.replace(",", ""))


def position(ratio: float) -> float:
    """Return the horizontal position of a ratio, at most at the ends of the axis."""
    part = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def mark(peer: str, x: float, y: float) -> str:
    """Draw the mark of a peer: a circle, a square or a triangle, so that colors are not needed."""
    kind = f'class="{peer.lower()}"'
    if peer == "TensorFlow":
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    if peer == "PyTorch":
        return f'<rect {kind} x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return f'<path {kind} d="M{x:.1f},{y - 5:.1f} l5,9 h-10 z"/>'


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """Draw a line of text."""
    shown = escape(content)
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown}</text>'


def draw(results: str) -> str:
    """Return the chart of these results as SVG."""
    table = read_table(results)
    bottom = TOP + ROW * len(table.steps)
    height = bottom + 34
    title = "Time of TensorFlow, PyTorch and JAX over weft's"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">',
        f"<title>{escape(title)}</title>",
        STYLE,
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        text(16, 26, title, "title"),
        text(16, 46, f"{table.source}, one thread, compiled. {DIRECTION}", "faint"),
        text(16, 62, FASTER, "faint"),
    ]
    for i, peer in enumerate(PEERS):
        x = float(LEFT + 60 + 120 * i)
        parts += [mark(peer, x, 22), text(x + 10, 26, peer)]
    for tick in TICKS:
        x = position(tick)
        kind = "weft" if tick == 1 else "grid"
        parts.append(f'<line class="{kind}" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(text(x, bottom + 18, f"{tick:g}×", "faint", "middle"))
    for i, step in enumerate(table.steps):
        parts += _row(step, TOP + ROW * (i + 0.5))
    return "\n".join([*parts, "</svg>", ""])


def _row(step: Step, y: float) -> Iterator[str]:
    yield text(LEFT - 12, y + 4, step.label, anchor="end")
    beyond: list[str] = []
    for peer, ratio in step.ratios.items():
        x = position(ratio)
        if ratio > HIGH:
            x += 12 * len(beyond)
            beyond.append(f"{ratio:.0f}×")
        yield mark(peer, x, y)
    if beyond:
        yield text(position(HIGH) + 12 * len(beyond) - 4, y + 4, ", ".join(beyond), "faint")


if __name__ == "__main__":
    CHART.write_text(draw(RESULTS.read_text(encoding="utf-8")), encoding="utf-8")
