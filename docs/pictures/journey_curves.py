"""The training curves of the examples, from full runs: `hatch run example NAME`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import picture_style as svg

EXAMPLES = Path(__file__).parents[2] / "examples"
NUM_POINTS = 50
"""Points of a curve, each the mean of the losses up to it."""

NUM_COLUMNS = 4
SMALLEST = 1e-4
"""Smaller losses are drawn as this one."""

Curve = Sequence[Sequence[float]]
"""Pairs of step and loss."""


def record(runs: Path) -> dict[str, list[list[float]]]:
    """Return the curve of each example that has trained in a directory of `runs`."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from journey.curve import read_curve
    finally:
        sys.path.pop(0)
    folders = sorted(path.parent for path in runs.glob("*/curve.png"))
    return {path.name: _thin([*read_curve(path).items()]) for path in folders}


def _thin(points: Sequence[tuple[int, float]]) -> list[list[float]]:
    """Return means of neighboring points."""
    size = max(1, len(points) // NUM_POINTS)
    groups = [points[i : i + size] for i in range(0, len(points) - size + 1, size)]
    return [[group[-1][0], float(f"{sum(y for _, y in group) / size:.4g}")] for group in groups]


def draw(curves: Mapping[str, Curve]) -> str:
    """Return the loss by step of each example as SVG, on logarithmic axes."""
    parts = []
    for number, (name, points) in enumerate(curves.items()):
        row, column = divmod(number, NUM_COLUMNS)
        losses = [math.log10(max(loss, SMALLEST)) for _, loss in points]
        low, high = math.floor(10 * min(losses)) / 10, math.ceil(10 * max(losses)) / 10
        steps = points[0][0], points[-1][0]
        plot = svg.Plot(50 + 218 * column, 50 + 200 * row, 155, 120, steps, (low, high))
        ticks = [(y, f"{10.0**y:.2g}") for y in (low, (low + high) / 2, high)]
        parts += [*plot.frame(name, "step", ticks)]
        pairs = zip(points, losses, strict=True)
        parts.append(plot.curve([(step, y) for (step, _), y in pairs], "first"))
    height = 20 + 200 * -(-len(curves) // NUM_COLUMNS)
    return svg.document(height, "Training loss of the examples by step", parts)
