"""Chrome's JSON trace format, for chrome://tracing and ui.perfetto.dev.

The format is described in "Trace Event Format" (Google, 2016). Times are microseconds with three
decimals, since the first event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from weft_trace.export.tracks import (
    describe,
    find_arrows,
    kind_name,
    lane_name,
    make_tracks,
)
from weft_trace.schema import SERIES, Flag
from weft_trace.trace import Trace


def write_chrome(trace: Trace, file: BinaryIO) -> None:
    """Write a trace as JSON."""
    file.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
    for i, event in enumerate(_events(trace)):
        file.write((",\n" if i else "").encode() + json.dumps(event).encode())
    file.write(b"\n]}\n")


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    events = trace.events
    origin = int(events["start"][0]) if len(events) else 0

    def time(nanoseconds: int) -> float:
        return (nanoseconds - origin) / 1000

    for pid, process in enumerate(trace.processes):
        name = f"{process.name} ({process.host}, {process.pid})"
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    thread_of: dict[int, int] = {}
    for tid, track in enumerate(make_tracks(trace)):
        pid = trace.lanes[track.lane].process
        common = {"pid": pid, "tid": tid}
        yield {
            "ph": "M",
            **common,
            "name": "thread_name",
            "args": {"name": lane_name(trace, track)},
        }
        yield {"ph": "M", **common, "name": "thread_sort_index", "args": {"sort_index": tid}}
        for index in track.events:
            thread_of[index] = tid
            event = events[index]
            estimate = " (estimate)" if event["flags"] & Flag.ESTIMATED else ""
            yield {
                "ph": "X",
                **common,
                "ts": time(int(event["start"])),
                "dur": int(event["end"] - event["start"]) / 1000,
                "name": trace.nodes[event["node"]].name + estimate,
                "cat": kind_name(int(event["kind"])),
                "args": describe(trace, index),
            }
    for number, arrow in enumerate(find_arrows(trace)):
        for phase, index, moment in (
            ("s", arrow.source, arrow.start),
            ("f", arrow.target, arrow.end),
        ):
            flow = {
                "ph": phase,
                "id": number,
                "pid": trace.lanes[events["lane"][index]].process,
                "tid": thread_of[index],
                "ts": time(moment),
                "name": "input",
                "cat": "dependency",
            }
            yield flow if phase == "s" else {**flow, "bp": "e"}
    for sample in trace.samples:
        lane = trace.lanes[sample["lane"]]
        series = _series_name(int(sample["series"]))
        yield {
            "ph": "C",
            "pid": lane.process,
            "ts": time(int(sample["time"])),
            "name": f"{lane.name}: {series}",
            "args": {series: int(sample["value"])},
        }


def _series_name(series: int) -> str:
    return SERIES[series] if series < len(SERIES) else f"series {series}"
