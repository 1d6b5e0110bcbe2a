"""Trace files: the activity of every thread, link and kernel of a program over time."""

from weft_trace.errors import TraceError
from weft_trace.reader import load
from weft_trace.schema import (
    EVENT,
    NO_STEP,
    SAMPLE,
    SERIES,
    Crossing,
    Flag,
    Iteration,
    Kind,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
)
from weft_trace.trace import Trace
from weft_trace.writer import Writer

__all__ = [
    "EVENT",
    "NO_STEP",
    "SAMPLE",
    "SERIES",
    "Crossing",
    "Flag",
    "Iteration",
    "Kind",
    "Lane",
    "LaneKind",
    "Node",
    "Process",
    "Step",
    "Trace",
    "TraceError",
    "Writer",
    "load",
]
