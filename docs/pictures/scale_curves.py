"""The figures of `docs/scale.md`, drawn from its tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import picture_style as svg

PAGE = Path(__file__).parents[1] / "scale.md"
KINDS = ("first", "second", "third", "fourth")


class Figure(NamedTuple):
    """A table of the page as curves.

    Attributes:
      section: the heading above the table.
      title: of the figure.
      names: the columns that are curves.
      is_logarithmic: True for two logarithmic axes.
    """

    section: str
    title: str
    names: Sequence[str]
    is_logarithmic: bool


FIGURES = (
    Figure(
        "Null steps (figure 6 of the paper)",
        "Null steps, ms",
        ("Scalar", "Dense 100 MB", "Dense 1 GB"),
        True,
    ),
    Figure("An image model (figure 7)", "Images per second", ("Asynchronous", "Synchronous"), True),
    Figure("Backup workers (figure 8)", "Seconds per step", ("Seconds per step",), False),
)


def read_curves(page: str, figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each curve: numbers of workers, and values."""
    section = page.partition(f"## {figure.section}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (.*) \|$", section, re.M)
    rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    if figure.names[0] not in rows[0]:  # the table has a row for each curve
        rows = [list(column) for column in zip(*rows, strict=True)]
    xs = [_number(row[0]) for row in rows[1:]]
    return {
        name: list(zip(xs, [_number(row[rows[0].index(name)]) for row in rows[1:]], strict=True))
        for name in figure.names
    }


def _number(cell: str) -> float:
    return float(cell.replace(",", ""))


def draw(page: str) -> str:
    """Return the figures beside each other as SVG."""
    parts: list[str] = []
    for i, figure in enumerate(FIGURES):
        parts += _figure(figure, read_curves(page, figure), 60 + 300.0 * i)
    return svg.document(310, "Simulated steps of large clusters", parts)


def _figure(
    figure: Figure, curves: dict[str, list[tuple[float, float]]], left: float
) -> Iterator[str]:
    scale = math.log10 if figure.is_logarithmic else float
    points = [point for curve in curves.values() for point in curve]
    xs, ys = zip(*points, strict=True)
    low, high = scale(min(ys)), scale(max(ys))
    if figure.is_logarithmic:
        low, high = math.floor(low), math.ceil(high)
        ticks = [(float(power), f"{10**power:,}") for power in range(low, high + 1)]
    else:
        low, high = 0.0, math.ceil(high)
        ticks = [(float(value), f"{value}") for value in range(high + 1)]
    plot = svg.Plot(left, 50, 215, 170, (scale(min(xs) or 0), scale(max(xs))), (low, high))
    yield svg.text(plot.left, plot.top - 16, figure.title, "title")
    for value, shown in ticks:
        yield svg.line(plot.left, plot.y(value), plot.left + plot.width, plot.y(value))
        yield svg.text(plot.left - 6, plot.y(value) + 4, shown, "faint", "end")
    bottom = plot.top + plot.height
    for x in (min(xs), max(xs)):
        yield svg.text(plot.x(scale(x)), bottom + 16, f"{x:,.0f}", "faint", "middle")
    label = "workers" if figure.is_logarithmic else "backup workers"
    yield svg.text(plot.left + plot.width / 2, bottom + 16, label, "faint", "middle")
    for i, (name, curve) in enumerate(curves.items()):
        yield plot.curve([(scale(x), scale(y)) for x, y in curve], KINDS[i])
        if len(curves) > 1:
            yield svg.bar(plot.left, bottom + 28 + 18 * i, 14, 10, KINDS[i])
            yield svg.text(plot.left + 20, bottom + 37 + 18 * i, name)
