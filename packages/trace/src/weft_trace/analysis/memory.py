"""Holders of memory: the buffers at the peak, by node and line, and the bytes over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.schema import Kind
from weft_trace.trace import Trace


class Holder(NamedTuple):
    """A node whose buffers were allocated at the peak.

    Attributes:
      node: its id.
      num_buffers: their number.
      bytes: their sizes together.
    """

    node: int
    num_buffers: int
    bytes: int


class MemoryView(NamedTuple):
    """The buffers of a memory lane.

    Attributes:
      lane: its id.
      peak_time, peak_bytes: when the buffers were largest together, and how large.
      holders: nodes of the buffers at the peak, largest first.
      times, bytes: arrays: the bytes in use from each time to the next one.
    """

    lane: int
    peak_time: int
    peak_bytes: int
    holders: Sequence[Holder]
    times: NDArray[np.int64]
    bytes: NDArray[np.int64]


def view_memory(trace: Trace) -> list[MemoryView]:
    """Return a view of each lane that has buffers, largest peak first."""
    buffers = trace.events.take(np.flatnonzero(trace.events["kind"] == Kind.BUFFER))
    buffers = buffers.take(np.flatnonzero(buffers["output_bytes"] > 0))
    views = [
        _view_lane(buffers.take(np.flatnonzero(buffers["lane"] == lane)), int(lane))
        for lane in np.unique(buffers["lane"])
    ]
    return sorted(views, key=lambda view: -view.peak_bytes)


def _view_lane(buffers: NDArray[Any], lane: int) -> MemoryView:
    sizes = buffers["output_bytes"]
    # Releases come before allocations of the same time.
    times = np.concatenate([buffers["end"], buffers["start"]])
    order = np.argsort(times, kind="stable")
    times = times[order]
    levels = np.cumsum(np.concatenate([-sizes, sizes])[order])
    is_last = np.append(times[1:] != times[:-1], True)
    times, levels = times[is_last], levels[is_last]
    peak = int(levels.argmax())
    peak_time = times[peak]
    is_held = (buffers["start"] <= peak_time) & (buffers["end"] > peak_time)
    nodes, inverse, counts = np.unique(
        buffers["node"][is_held], return_inverse=True, return_counts=True
    )
    held_bytes = np.bincount(inverse, sizes[is_held], len(nodes))
    holders = [
        Holder(int(n), int(c), int(b)) for n, c, b in zip(nodes, counts, held_bytes, strict=True)
    ]
    holders.sort(key=lambda holder: -holder.bytes)
    return MemoryView(lane, int(peak_time), int(levels[peak]), holders, times, levels)
