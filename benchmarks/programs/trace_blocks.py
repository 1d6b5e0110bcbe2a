"""Alternating blocks of steps, without and with a trace, for the programs `trace_*.py`."""

import json
import statistics
import time

WARM_UP = 3


def time_block(step, block):
    """Return the milliseconds of a step, the mean of a block of steps."""
    start = time.perf_counter()
    for _ in range(block):
        step()
    return (time.perf_counter() - start) / block * 1e3


def measure_blocks(steps, traced_steps, rounds):
    """Return the median milliseconds of a step without and with a trace, and of the rest.

    Args:
      steps: runs a block; returns the milliseconds of a step.
      traced_steps: runs a block with a trace; returns the milliseconds of a step, and those of
        ending the recording.
    """
    for _ in range(WARM_UP):
        steps()
        traced_steps()
    plain, traced, rest = [], [], []
    for _ in range(rounds):
        plain.append(steps())
        took, after = traced_steps()
        traced.append(took)
        rest.append(after)
    medians = map(statistics.median, (plain, traced, rest))
    return dict(zip(("plain", "traced", "rest"), medians, strict=True))


def chrome_trace_sizes(path, block):
    """Return the events and the bytes per step of a file in Chrome's format."""
    events = json.loads(path.read_text())["traceEvents"]
    complete = sum(event["ph"] == "X" for event in events)
    return {"events": complete / block, "bytes": path.stat().st_size / block}
