"""The training curve of the digits example: `examples/digits/train.py` with seed 0."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import picture_style as svg

EPOCHS = 25
Curve = Sequence[Mapping[str, float]]


def record(epochs: int = EPOCHS) -> list[dict[str, float]]:
    """Train the example's network as for 25 epochs, and return the curve of the first `epochs`."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "digits"))
    try:
        from train import Trainer
    finally:
        sys.path.pop(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Path(folder), seed=0, epochs=EPOCHS)
        trainer.restore()
        points = [trainer.epoch(number) for number in range(epochs)]
    return [{name: round(value, 4) for name, value in point.items()} for point in points]


def draw(curve: Curve) -> str:
    """Return the loss and the accuracy by epoch as SVG."""
    losses = [math.log10(point["loss"]) for point in curve]
    accuracies = [100 * point["accuracy"] for point in curve]
    low, high = math.floor(min(losses)), math.ceil(max(losses))
    epochs = (1.0, float(len(curve)))
    left = svg.Plot(70, 60, 350, 200, epochs, (low, high))
    right = svg.Plot(520, 60, 350, 200, epochs, (80, 100))
    decades = [(float(power), f"{10.0**power:g}") for power in range(low, high + 1)]
    parts = [
        *left.frame("Training loss (cross entropy)", "epoch", decades),
        left.curve(list(enumerate(losses, 1)), "first"),
        *right.frame(
            "Accuracy on held-out images", "epoch", [(y, f"{y:g} %") for y in range(80, 101, 5)]
        ),
        right.curve([(x, max(y, 80.0)) for x, y in enumerate(accuracies, 1)], "second"),
        svg.text(864, right.y(accuracies[-1]) + 18, f"{accuracies[-1]:.1f} %", "second", "end"),
    ]
    return svg.document(300, "Loss and accuracy of the digits example by epoch", parts)
