"""The training curve, read from the event files that TensorBoard shows."""

from __future__ import annotations

from pathlib import Path

import weft as wf


def read_curve(directory: Path, tag: str = "loss") -> dict[int, float]:
    """Return the values of a scalar summary by step; those of a resumed run win."""
    points: dict[int, float] = {}
    for path in sorted(directory.glob("events.*"), key=lambda path: path.stat().st_mtime):
        for event in wf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == tag:
                    points[event.step] = value.simple_value
    return dict(sorted(points.items()))


def draw_curve(points: dict[int, float], title: str, path: Path) -> None:
    """Draw the loss by step, on a logarithmic scale if it is positive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.add_axes((0.14, 0.13, 0.82, 0.78))  # a fixed place, which needs no layout pass
    axes.plot(list(points), list(points.values()), color="tab:blue")
    if min(points.values(), default=0.0) > 0.0:
        axes.set_yscale("log")
    axes.set(title=title, xlabel="step", ylabel="loss")
    figure.savefig(path, dpi=120)
