"""Event files of a small training run, which TensorBoard shows in the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import weft as wf

STEPS = 100
START = 1_700_000_000.0
"""Wall time of the first event; a step takes a second."""


def write(folder: Path) -> None:
    """Train a network on points in two rings, and write its summaries and its graph."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 256)
    labels = np.arange(256) % 2
    radius = 1.0 + labels + 0.15 * rng.normal(size=256)
    points = np.stack([radius * np.cos(angles), radius * np.sin(angles)], 1)
    with wf.Graph().as_default() as graph, wf.Session() as session:
        wf.set_random_seed(1)
        x = wf.placeholder(wf.float32, [None, 2], name="points")
        y = wf.placeholder(wf.int64, [None], name="labels")
        hidden = wf.layers.dense(x, 16, activation=wf.nn.tanh, name="hidden")
        logits = wf.layers.dense(hidden, 2, name="output")
        with wf.name_scope("loss"):
            loss = wf.losses.sparse_softmax_cross_entropy(y, logits)
        with wf.name_scope("evaluation"):
            correct = wf.equal(wf.argmax(logits, 1), y)
            accuracy = wf.reduce_mean(wf.cast(correct, wf.float32))
        train = wf.train.AdamOptimizer(0.05).minimize(loss)
        with wf.name_scope("training"):
            wf.summary.scalar("accuracy", accuracy)
            wf.summary.scalar("cross_entropy", loss)
        with wf.name_scope("variables"):
            for variable in wf.trainable_variables():
                wf.summary.histogram(variable.op.name.replace("/", "_"), variable)
        merged = wf.summary.merge_all()
        session.run(wf.global_variables_initializer())
        with wf.summary.FileWriter(str(folder), graph) as writer:
            for step in range(STEPS):
                _, data = session.run([train, merged], {x: points, y: labels})
                event = wf.Event(wall_time=START + step, step=step)
                event.summary.ParseFromString(data)
                writer.add_event(event)


def record(folder: Path) -> dict[str, Any]:
    """Return the content of event files: nodes of the graph, values by tag and step."""
    graph: list[str] = []
    scalars: dict[str, list[float]] = {}
    histograms: dict[str, list[list[float]]] = {}
    for path in sorted(folder.iterdir()):
        for event in wf.train.summary_iterator(str(path)):
            if event.HasField("graph_def"):
                nodes = wf.GraphDef.FromString(event.graph_def).node
                graph += [" ".join([node.name, node.op, *node.input]) for node in nodes]
            for value in event.summary.value:
                if value.HasField("histo"):
                    histogram = value.histo
                    row = [histogram.min, histogram.max, histogram.num, histogram.sum]
                    histograms.setdefault(value.tag, []).append([_digits(x) for x in row])
                elif value.HasField("simple_value"):
                    scalars.setdefault(value.tag, []).append(_digits(value.simple_value))
    last = {tag: rows[-1] for tag, rows in histograms.items()}
    steps = {tag: len(rows) for tag, rows in histograms.items()}
    return {"graph": graph, "scalars": scalars, "histograms": last, "steps": steps}


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
