"""Levels of detail: few rows that represent many short events, for views of long intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft_trace.schema import EVENT, LEVEL, SAMPLE, Lane, LaneKind

_FINEST: Final = 10  # 1 microsecond
_COARSEST: Final = 62
_STEP: Final = 2
_SHARE: Final = 8
"""The finest level has at most one row for so many events."""
_MOST_ROWS: Final = 1 << 22
"""The finest level has at most so many rows."""
_COARSEST_ROWS: Final = 20_000
_PENDING_ROWS: Final = 1 << 18
_PEAKS: Final = 1 << 13

MIN_EVENTS: Final = 1 << 20
"""Number of events below which a file needs no levels of detail."""

MIN_SAMPLES: Final = 1 << 18
"""Number of samples below which a file needs no peaks."""


def compute_levels(chunks: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Return the levels of detail of events.

    Each level has buckets of 4 times the width of the level before. The finest one is the first
    that has at most one row for 8 events, and at most 4 million rows.

    Args:
      chunks: arrays of `EVENT`, each sorted by start.
    Returns: array of `LEVEL`, sorted by level, and by start in each level.
    """
    level, count = _FINEST, 0
    rows, pending = np.zeros(0, LEVEL), [np.zeros(0, LEVEL)]

    def merge() -> NDArray[Any]:
        return _coarsen(np.concatenate([rows, *pending]), level)

    for events in chunks:
        count += len(events)
        pending.append(_coarsen(_to_rows(events), level))
        if sum(map(len, pending)) > max(_PENDING_ROWS, len(rows)):
            rows, pending = merge(), []
            while len(rows) > _limit(count) and level < _COARSEST:
                level += _STEP
                rows = _coarsen(rows, level)
    rows, pending = merge(), []
    while len(rows) > _limit(count) and level < _COARSEST:
        level += _STEP
        rows = _coarsen(rows, level)
    levels = [rows]
    while len(rows) > _COARSEST_ROWS and level < _COARSEST:
        level += _STEP
        coarser = _coarsen(rows, level)
        if len(coarser) == len(rows):  # only long events are left
            break
        rows = coarser
        levels.append(rows)
    return np.concatenate(levels)


def _limit(events: int) -> int:
    """Return the maximum size of the finest level, in rows, for a number of events."""
    return max(min(events // _SHARE, _MOST_ROWS), _COARSEST_ROWS)


def _to_rows(events: NDArray[Any]) -> NDArray[Any]:
    assert events.dtype == EVENT
    rows = np.zeros(len(events), LEVEL)
    for name in ("kind", "lane", "node", "start"):
        rows[name] = events[name]
    rows["count"] = 1
    rows["span"] = rows["busy"] = events["end"] - events["start"]
    return rows


def _coarsen(rows: NDArray[Any], level: int) -> NDArray[Any]:
    """Return the rows of a level, computed from a finer level and sorted by start."""
    if not len(rows):
        return rows
    is_long = (rows["span"] >= 1 << level) & (rows["count"] == 1)
    short = rows.compress(~is_long)
    merged = _merge_buckets(short, level) if len(short) else short
    result = np.concatenate([rows.compress(is_long), merged])
    result["level"] = level
    return result.take(np.argsort(result["start"], kind="stable"))


def _merge_buckets(rows: NDArray[Any], level: int) -> NDArray[Any]:
    buckets = rows["start"] >> level
    lanes = rows["lane"].astype(np.int64) << 8 | rows["kind"]
    order = np.lexsort((buckets, lanes))
    rows, buckets, lanes = rows.take(order), buckets[order], lanes[order]
    is_first = np.ones(len(rows), bool)
    is_first[1:] = (buckets[1:] != buckets[:-1]) | (lanes[1:] != lanes[:-1])
    first = np.flatnonzero(is_first)
    result = rows.take(first)
    result["start"] = np.minimum.reduceat(rows["start"], first)
    ends = np.maximum.reduceat(rows["start"] + rows["span"], first)
    result["span"] = ends - result["start"]
    for name in ("busy", "count"):
        result[name] = np.add.reduceat(rows[name], first)
    result["node"] = _longest_nodes(rows, first)
    return result


def _longest_nodes(rows: NDArray[Any], first: NDArray[np.intp]) -> NDArray[Any]:
    """Return, for each group of rows, the node of the row that is busy for the longest time."""
    longest = np.maximum.reduceat(rows["busy"], first)
    groups = np.repeat(np.arange(len(first)), np.diff(first, append=len(rows)))
    candidates = np.flatnonzero(rows["busy"] == longest[groups])
    nodes = np.zeros(len(first), rows["node"].dtype)
    nodes[groups[candidates[::-1]]] = rows["node"][candidates[::-1]]
    return nodes


def compute_peaks(chunks: Iterable[NDArray[Any]], lanes: Sequence[Lane]) -> NDArray[Any]:
    """Return the largest samples of the bytes in use of each memory in some intervals.

    Args:
      chunks: arrays of `SAMPLE`, each sorted by time.
    Returns: array of `SAMPLE`, sorted by time: at most `_PEAKS` rows for each lane.
    """
    is_memory = np.array([lane.kind is LaneKind.MEMORY for lane in lanes] or [False])
    rows, shift = np.zeros(0, SAMPLE), _FINEST
    pending = [rows]
    for samples in chunks:
        pending.append(samples.compress(is_memory[samples["lane"]] & (samples["series"] == 0)))
        if sum(map(len, pending)) > _PENDING_ROWS:
            rows, shift = _keep_peaks(np.concatenate(pending), shift, int(is_memory.sum()))
            pending = [rows]
    rows, _ = _keep_peaks(np.concatenate(pending), shift, int(is_memory.sum()))
    return rows


def _keep_peaks(rows: NDArray[Any], shift: int, lanes: int) -> tuple[NDArray[Any], int]:
    """Return the largest row of each lane and bucket, and the binary logarithm of its width."""
    while True:
        buckets = rows["time"] >> shift
        rows = rows.take(np.lexsort((rows["value"], buckets, rows["lane"])))
        buckets = rows["time"] >> shift
        is_last = np.ones(len(rows), bool)
        is_last[:-1] = (buckets[1:] != buckets[:-1]) | (rows["lane"][1:] != rows["lane"][:-1])
        rows = rows.compress(is_last)
        if len(rows) <= _PEAKS * lanes or shift >= _COARSEST:
            return rows.take(np.argsort(rows["time"], kind="stable")), shift
        shift += _STEP
