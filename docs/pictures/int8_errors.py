"""The errors that int8 and int16 cause in each tensor of a small network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import picture_style as svg

import weft as wf

ROW = 34
LEFT, RIGHT, TOP = 250, 60, 96
MOST = 80.0
"""Decibels at the right end of the axis."""
FORMATS = ("int8", "int16")
Errors = Mapping[str, Mapping[str, float]]


def record() -> dict[str, dict[str, float]]:
    """Return the signal-to-noise ratio in decibels of each tensor, by name and format."""
    rng = np.random.default_rng(0)
    pictures = rng.random((64, 8, 8, 1), "float32")
    with wf.Graph().as_default(), wf.Session() as session:
        wf.set_random_seed(1)
        images = wf.placeholder(wf.float32, [16, 8, 8, 1], name="images")
        hidden = wf.layers.conv2d(images, 8, 3, 1, "same", activation=wf.nn.relu, name="conv1")
        hidden = wf.layers.conv2d(hidden, 16, 3, 2, "same", activation=wf.nn.relu, name="conv2")
        pooled = wf.reduce_mean(hidden, [1, 2], name="pool")
        dense = wf.layers.dense(pooled, 32, activation=wf.nn.tanh, name="dense")
        logits = wf.layers.dense(dense, 10, name="logits")
        scores = wf.nn.softmax(logits, name="scores")
        session.run(wf.global_variables_initializer())
        converter = wf.lite.Converter.from_session(session, [images], [scores])
        samples = [{"images": pictures[i : i + 16]} for i in range(0, 64, 16)]
        errors: dict[str, dict[str, float]] = {}
        for name in FORMATS:
            for noise in converter.noise(samples, activations=name):
                errors.setdefault(noise.name, {})[name] = round(noise.decibels, 1)
    return errors


def draw(errors: Errors) -> str:
    """Return the ratios as bars, the worst tensor of int8 first."""
    names: Sequence[str] = sorted(errors, key=lambda name: errors[name]["int8"])
    scale = (svg.WIDTH - LEFT - RIGHT) / MOST
    bottom = TOP + ROW * len(names)
    parts = [
        svg.text(16, 28, "Signal-to-noise ratio of each tensor, in decibels", "title"),
        svg.text(16, 48, "Longer bars are better: 20 dB more is a tenth of the error.", "faint"),
    ]
    for i, name in enumerate(FORMATS):
        kind = ("first", "second")[i]
        parts += [
            svg.bar(LEFT + 130 * i, 62, 14, 12, kind),
            svg.text(LEFT + 130 * i + 20, 72, f"{name} activations"),
        ]
    for tick in range(0, int(MOST) + 1, 20):
        parts.append(svg.line(LEFT + tick * scale, TOP - 6, LEFT + tick * scale, bottom))
        parts.append(svg.text(LEFT + tick * scale, bottom + 18, f"{tick}", "faint", "middle"))
    for row, name in enumerate(names):
        y = TOP + ROW * row
        parts.append(svg.text(LEFT - 10, y + 17, name, anchor="end"))
        for i, form in enumerate(FORMATS):
            decibels = errors[name].get(form)
            if decibels is not None:
                width = min(decibels, MOST) * scale
                kind = ("first", "second")[i]
                parts.append(svg.bar(LEFT, y + 13 * i, width, 11, kind, f"{decibels} dB"))
                parts.append(svg.text(LEFT + width + 5, y + 13 * i + 10, f"{decibels}", "faint"))
    return svg.document(bottom + 30, "Errors of int8 and int16 by tensor", parts)
