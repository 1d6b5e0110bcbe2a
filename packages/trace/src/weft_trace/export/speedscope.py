"""The JSON format of speedscope (https://www.speedscope.app), with one profile per track."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from weft_trace.export.tracks import boundaries, lane_name, make_tracks
from weft_trace.schema import Flag
from weft_trace.trace import Trace

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(trace: Trace, file: BinaryIO) -> None:
    """Write a trace as JSON. Frames have the user's file and line."""
    events = trace.events
    frames: dict[tuple[str, str], int] = {}
    origin = int(events["start"][0]) if len(events) else 0
    profiles: list[dict[str, Any]] = []
    for track in make_tracks(trace):
        rows = []
        for boundary in boundaries(trace, track):
            event = events[boundary.event]
            node = trace.nodes[event["node"]]
            estimate = " (estimate)" if event["flags"] & Flag.ESTIMATED else ""
            frame = frames.setdefault((node.name + estimate, node.line), len(frames))
            kind = "O" if boundary.is_start else "C"
            rows.append({"type": kind, "frame": frame, "at": boundary.time - origin})
        process = trace.processes[trace.lanes[track.lane].process].name
        profiles.append(
            {
                "type": "evented",
                "name": f"{process} {lane_name(trace, track)}",
                "unit": "nanoseconds",
                "startValue": rows[0]["at"],
                "endValue": rows[-1]["at"],
                "events": rows,
            }
        )
    shared = {"frames": [_frame(name, line) for name, line in frames]}
    data = {"$schema": _SCHEMA, "exporter": "weft", "shared": shared, "profiles": profiles}
    file.write(json.dumps(data).encode())


def _frame(name: str, line: str) -> dict[str, Any]:
    path, _, number = line.rpartition(":")
    if path and number.isascii() and number.isdigit():
        return {"name": name, "file": path, "line": int(number)}
    return {"name": name}
