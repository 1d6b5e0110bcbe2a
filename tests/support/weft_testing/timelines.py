"""Events in the timeline of a traced step."""

from __future__ import annotations

import json
from typing import Any

import weft as wf


def events_of(step_stats: Any) -> list[dict[str, Any]]:
    """Return the events of a step in Chrome's trace format."""
    text = wf.timeline.Timeline(step_stats).generate_chrome_trace_format(show_memory=True)
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


def assert_forward(events: list[dict[str, Any]]) -> None:
    """Check that there are arrows, and that none ends before it begins."""
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "t"}
    assert starts and starts.keys() == ends.keys()
    backwards = [e["name"] for number, e in starts.items() if ends[number]["ts"] < e["ts"]]
    assert not backwards, f"{len(backwards)} of {len(starts)}: {backwards}"
