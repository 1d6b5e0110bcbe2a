"""A step on two devices: its placement, as simulated, and its trace, as measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import picture_style as svg

import weft as wf

SIZE = 512
LEFT, RIGHT, TOP, LANE = 120, 20, 72, 74
KINDS = {"MatMul": "first", "Relu": "second", "_Recv": "third", "_Send": "third"}
Event = Mapping[str, Any]


def build() -> tuple[wf.Tensor, wf.Tensor]:
    """Build two towers of matrix products, and return the input and the mean of both."""
    images = wf.placeholder(wf.float32, [SIZE, SIZE], name="images")
    ends = []
    for tower in ("left", "right"):
        with wf.name_scope(tower):
            hidden: wf.Tensor = images
            for i in range(3):
                weights = wf.constant(np.full([SIZE, SIZE], 0.01, np.float32))
                product = wf.matmul(hidden, weights, name=f"product{i}")
                hidden = wf.nn.relu(product, name=f"relu{i}")
            ends.append(hidden)
    return images, wf.reduce_mean(ends[0] + ends[1], name="mean")


def _session() -> wf.Session:
    optimizer = wf.OptimizerOptions(global_jit_level=wf.OptimizerOptions.OFF)
    options = wf.GraphOptions(optimizer_options=optimizer)
    return wf.Session(config=wf.ConfigProto(device_count={"CPU": 2}, graph_options=options))


def placement() -> str:
    """Return the picture of the placement that `Session.explain` makes, from estimated costs."""
    with wf.Graph().as_default():
        images, mean = build()
        with _session() as session:
            return session.explain(mean, [images]).svg()


def record(steps: int = 60) -> list[dict[str, Any]]:
    """Return the events of `Timeline` for the shortest of some traced steps."""
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    with wf.Graph().as_default():
        images, mean = build()
        feeds = {images: np.ones([SIZE, SIZE], np.float32)}
        with _session() as session:
            traces = []
            for _ in range(steps):
                metadata = wf.RunMetadata()
                session.run(mean, feeds, options=options, run_metadata=metadata)
                timeline = wf.timeline.Timeline(metadata.step_stats)
                traces.append(json.loads(timeline.generate_chrome_trace_format())["traceEvents"])
    return min(traces, key=_end)


def _end(events: Sequence[Event]) -> float:
    """Return the time at which the last node ends, in microseconds."""
    return max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")


def structure(events: Sequence[Event]) -> list[str]:
    """Return the parts of a trace that do not depend on time: devices, executions and waits."""
    devices = _devices(events)
    bars = [event for event in events if event["ph"] == "X"]
    return sorted(
        f"{devices[bar['pid']]}: {bar['cat']} {bar['args']['name']}"
        for bar in bars
        if bar["cat"] != "Wait"  # a Receive that comes late waits for nothing
    )


def _devices(events: Sequence[Event]) -> dict[int, str]:
    names = [event for event in events if event["name"] == "process_name"]
    return {
        event["pid"]: event["args"]["name"].partition(" ")[0].rpartition("/")[2] for event in names
    }


def draw(events: Sequence[Event]) -> str:
    """Return the trace as SVG: a lane per device, with bars for nodes and arrows for values."""
    devices = _devices(events)
    bars = [event for event in events if event["ph"] == "X"]
    end = _end(events)
    scale = (svg.WIDTH - LEFT - RIGHT) / end
    bottom = TOP + LANE * len(devices)
    parts = [
        svg.text(16, 28, "A traced step on two devices", "title"),
        svg.text(
            16, 48, "Bars are nodes, the thin bar is a wait, the arrow is the transfer.", "faint"
        ),
    ]
    for pid, device in devices.items():
        parts.append(svg.text(16, TOP + LANE * pid + 20, f"/{device}"))
        below = TOP + LANE * (pid + 1) - 12
        parts.append(svg.line(16, below, svg.WIDTH - RIGHT, below))
    parts += [part for bar in bars for part in _bar(bar, scale)]
    parts += _transfers(events, scale)
    for tick in range(6):
        anchor = "end" if tick == 5 else "middle" if tick else "start"
        label = f"{end * tick / 5000:.1f} ms"
        parts.append(svg.text(LEFT + end * tick / 5 * scale, bottom + 12, label, "faint", anchor))
    return svg.document(bottom + 26, "A traced step on two devices", parts)


def _bar(bar: Event, scale: float) -> Iterator[str]:
    x, width = LEFT + bar["ts"] * scale, bar["dur"] * scale
    y = TOP + LANE * bar["pid"]
    note = f"{bar['args']['name']}, {bar['dur']:.0f} µs"
    if bar["cat"] == "Wait":
        yield svg.bar(x, y + 38, width, 6, "third", note)
        yield svg.text(x + 3, y + 56, bar["args"]["name"], "faint")
        return
    yield svg.bar(x, y + 4, width, 28, KINDS.get(bar["name"], "fourth"), note)
    label = bar["args"]["name"].rpartition("/")[2]
    if width > 7 * len(label):
        yield svg.text(x + 4, y + 22, label, "inside")


def _transfers(events: Sequence[Event], scale: float) -> Iterator[str]:
    """Draw an arrow for each value that crosses devices."""
    ends: dict[int, list[Event]] = {}
    for event in events:
        if event.get("cat") == "DataFlow":
            ends.setdefault(event["id"], []).append(event)
    for source, user in ends.values():
        if source["pid"] != user["pid"]:
            above = source["pid"] < user["pid"]
            y1 = TOP + LANE * source["pid"] + (32 if above else 4)
            y2 = TOP + LANE * user["pid"] + (4 if above else 32)
            x1, x2 = (LEFT + event["ts"] * scale for event in (source, user))
            yield svg.line(x1, y1, x2, y2, "arrow")
