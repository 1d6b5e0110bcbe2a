"""Lanes of a trace as bins of equal width, for views of more events than pixels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft_trace.schema import EVENT, LEVEL, Kind

_KINDS: Final = 16
"""Kinds are numbers below this; others count as the last one."""
_HIDDEN: Final = (Kind.STEP, Kind.BUFFER)


def rows_of_events(events: NDArray[Any]) -> NDArray[Any]:
    """Return events as rows of the finest possible level."""
    assert events.dtype == EVENT
    rows = np.zeros(len(events), LEVEL)
    for name in ("kind", "lane", "node", "start"):
        rows[name] = events[name]
    rows["count"] = 1
    rows["span"] = rows["busy"] = events["end"] - events["start"]
    return rows


def bin_lane(
    rows: NDArray[Any], first: int, last: int, bins: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the kinds and the busy shares of the bins of an interval.

    Args:
      rows: array of `LEVEL` of one lane that overlap the interval.
      first, last: the interval, in nanoseconds.
      bins: their number.
    Returns: for each bin, the kind with the most time, and the busy share from 0 to 255, at least 1
      if anything overlaps the bin. Steps and buffers do not count.
    """
    rows = rows.compress(~np.isin(rows["kind"], _HIDDEN))
    if not len(rows):
        return np.zeros(bins, np.uint8), np.zeros(bins, np.uint8)
    scale = bins / max(1, last - first)
    starts = (rows["start"] - first).astype(np.float64) * scale
    ends = starts + np.maximum(rows["span"] * scale, 1e-9)
    density = np.maximum(rows["busy"] * scale, 1e-9) / (ends - starts)
    starts, ends = np.clip(starts, 0, bins), np.clip(ends, 0, bins)
    kinds = np.minimum(rows["kind"], _KINDS - 1).astype(np.int64)
    time = _spread(kinds, starts, ends, density, bins)
    # The kernels of a region are inside of it.
    inner = time[Kind.GENERATED]
    busy = np.maximum(time.sum(0) - inner, inner)
    shares = np.clip(np.ceil(busy * 255), 0, 255)
    return time.argmax(0).astype(np.uint8), shares.astype(np.uint8)


def _spread(
    kinds: NDArray[np.int64],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    density: NDArray[np.float64],
    bins: int,
) -> NDArray[np.float64]:
    """Return the time of each kind in each bin, in bins: array [kinds, bins]."""
    width = bins + 2
    base = kinds * width
    begin = np.minimum(starts.astype(np.int64), bins - 1)
    end = np.minimum(ends.astype(np.int64), bins)
    size = _KINDS * width
    # From the bin of the start on, each bin is full; the excess at both ends is subtracted.
    changes = np.bincount(base + begin, density, size) - np.bincount(base + end, density, size)
    full = np.cumsum(changes.reshape(_KINDS, width), axis=1)
    last_parts = np.bincount(base + end, density * (ends - end), size)
    parts = last_parts - np.bincount(base + begin, density * (starts - begin), size)
    time: NDArray[np.float64] = (full + parts.reshape(_KINDS, width))[:, :bins]
    return np.maximum(time, 0.0)


def bin_memory(samples: NDArray[Any], first: int, last: int, bins: int) -> NDArray[np.uint8]:
    """Return the bytes in use at the end of each bin, as shares of 255 of the peak.

    Args:
      samples: array of `SAMPLE` of one lane and series, sorted by time.
    """
    peak = int(samples["value"].max(initial=0))
    if peak <= 0:
        return np.zeros(bins, np.uint8)
    edges = first + np.arange(1, bins + 1) * (last - first) // bins
    indices = np.searchsorted(samples["time"], edges, "right") - 1
    values = np.where(indices >= 0, samples["value"][indices], 0)
    return np.clip(np.ceil(values * (255 / peak)), 0, 255).astype(np.uint8)
