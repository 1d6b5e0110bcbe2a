"""Reading a trace file into NumPy columns."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from weft_trace.chunks import (
    ChunkHeader,
    ChunkType,
    Damage,
    check_file_header,
    decode_records,
    read_payload,
    scan_chunks,
    unpack_rows,
)
from weft_trace.errors import TraceError
from weft_trace.levels import compute_levels
from weft_trace.records import Records, RecordsBuilder
from weft_trace.schema import (
    EVENT,
    LATEST,
    LEVEL,
    NO_STEP,
    SAMPLE,
    Kind,
)
from weft_trace.trace import Trace

_THREADS: Final = min(4, os.cpu_count() or 1)
_BLOCK: Final = 1 << 14
_DTYPES: Final = {
    ChunkType.EVENTS: EVENT,
    ChunkType.SAMPLES: SAMPLE,
    ChunkType.LEVELS: LEVEL,
    ChunkType.STEPS: EVENT,
    ChunkType.PEAKS: SAMPLE,
}


class Overview(NamedTuple):
    """Tables that show a long trace without reading all of its events.

    Attributes:
      levels: array of `LEVEL`, sorted by level, and by start in each level.
      steps: the events of the kind STEP, sorted by start.
    """

    levels: NDArray[Any]
    steps: NDArray[Any]


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace file.

    A damaged file is read up to the damage; `Trace.warnings` lists the missing parts.

    Raises:
      OSError: the file cannot be read.
      TraceError: it is not a trace, or it has a newer version.
    """
    with TraceFile(path) as file:
        events, samples = file.events(), file.samples()
        warnings = list(file.warnings)
        records = file.records
    return Trace(
        records.processes, records.lanes, records.nodes, records.iterations, records.steps, events,
        samples, warnings,
    )  # fmt: skip


class TraceFile:
    """An open trace file, for reading parts of it.

    Args:
      path: the file.
      is_growing: True if it is still being written, so that its end is no damage.
    Attributes:
      records: its processes, lanes, nodes, iterations and steps.

    Raises: as `load`.
    """

    def __init__(self, path: str | os.PathLike[str], is_growing: bool = False) -> None:
        self._path = os.fspath(path)
        self._warnings: list[str] = []
        self._is_unfinished = False
        with open(path, "rb") as file:
            check_file_header(file.read(16), self._path)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._data = memoryview(self._map)
        self._headers, damage = scan_chunks(self._data)
        if damage:
            self._warn(damage)
        elif not is_growing:
            self._is_unfinished = not self._chunks_of_type(ChunkType.END)
        self._check_other_chunks()
        self.records = self._read_records()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def warnings(self) -> list[str]:
        """Places that could not be read so far, with reasons. Reading tables may add to them."""
        if not self._is_unfinished:
            return self._warnings
        end = f"{self._path}: the recording was not closed, so its last events may be missing"
        return [*self._warnings, end]

    def close(self) -> None:
        """Close the file."""
        self._data.release()
        self._map.close()

    @property
    def num_events(self) -> int:
        """Number of events that the file claims to have."""
        return sum(header.rows for header in self._chunks_of_type(ChunkType.EVENTS))

    def interval(self) -> tuple[int, int]:
        """Return the first start and the last end of events; (0, 0) if there are none."""
        headers = self._chunks_of_type(ChunkType.EVENTS)
        if not headers:
            return 0, 0
        return min(header.first for header in headers), max(header.last for header in headers)

    def num_events_between(self, first: int, last: int) -> int:
        """Return the number of events in the chunks that an interval of time touches."""
        return sum(
            h.rows for h in self._chunks_of_type(ChunkType.EVENTS) if _touches(h, first, last)
        )

    def events(self, first: int | None = None, last: int | None = None) -> NDArray[Any]:
        """Return events, sorted by start.

        Args:
          first, last: an interval of time; by default all events.
        Returns: array of `EVENT` of all events that begin before `last` and end after `first`.
        """
        if first is None or last is None:
            return _sort(
                self._table(ChunkType.EVENTS, self._chunks_of_type(ChunkType.EVENTS)), "start"
            )
        headers = [h for h in self._chunks_of_type(ChunkType.EVENTS) if _touches(h, first, last)]
        events = self._table(ChunkType.EVENTS, headers)
        is_visible = (events["start"] <= last) & (events["end"] >= first)
        return _sort(events.compress(is_visible), "start")

    def samples(self, first: int | None = None, last: int | None = None) -> NDArray[Any]:
        """Return counter samples, sorted by time.

        Args:
          first, last: an interval of time; by default all samples.
        """
        headers = self._chunks_of_type(ChunkType.SAMPLES)
        if first is None or last is None:
            return _sort(self._table(ChunkType.SAMPLES, headers), "time")
        headers = [header for header in headers if _touches(header, first, last)]
        samples = self._table(ChunkType.SAMPLES, headers)
        is_inside = (samples["time"] >= first) & (samples["time"] <= last)
        return _sort(samples.compress(is_inside), "time")

    @property
    def num_samples(self) -> int:
        """Number of samples that the file claims to have."""
        return sum(header.rows for header in self._chunks_of_type(ChunkType.SAMPLES))

    def overview(self) -> Overview:
        """Return the tables that show a long trace, from the file or a pass over all events."""
        if self.levels():
            levels = [self.level_rows(level) for level in self.levels()]
            return Overview(np.concatenate(levels), self.step_events())
        step_events = [np.zeros(0, EVENT)]

        def read_chunks() -> Iterator[NDArray[Any]]:
            for events in self.event_chunks():
                step_events.append(events.compress(events["kind"] == Kind.STEP))
                yield events

        levels_of_events = compute_levels(read_chunks())
        return Overview(levels_of_events, _sort(np.concatenate(step_events), "start"))

    def levels(self) -> list[int]:
        """Return the levels of detail that the file has, finest first."""
        return sorted({header.level for header in self._chunks_of_type(ChunkType.LEVELS)})

    def level_rows(
        self, level: int, first: int | None = None, last: int | None = None
    ) -> NDArray[Any]:
        """Return rows of a level of detail, sorted by start.

        Args:
          first, last: an interval of time, whose chunks are read; by default all of the level.
        """
        headers = [h for h in self._chunks_of_type(ChunkType.LEVELS) if h.level == level]
        if first is not None and last is not None:
            headers = [h for h in headers if _touches(h, first, last)]
        rows = self._table(ChunkType.LEVELS, headers)
        return rows.take(np.argsort(rows["start"], kind="stable"))

    def step_events(self) -> NDArray[Any]:
        """Return the events of the kind STEP of a file with levels of detail, sorted by start."""
        return _sort(self._table(ChunkType.STEPS, self._chunks_of_type(ChunkType.STEPS)), "start")

    def peaks(self) -> NDArray[Any] | None:
        """Return the largest samples of short intervals; None if the file has no such table."""
        headers = self._chunks_of_type(ChunkType.PEAKS)
        return _sort(self._table(ChunkType.PEAKS, headers), "time") if headers else None

    def event_chunks(self) -> Iterator[NDArray[Any]]:
        """Yield the events of each chunk, in the order of the file."""
        for header in self._chunks_of_type(ChunkType.EVENTS):
            yield self._table(ChunkType.EVENTS, [header])

    def sample_chunks(self) -> Iterator[NDArray[Any]]:
        """Yield the samples of each chunk, in the order of the file."""
        for header in self._chunks_of_type(ChunkType.SAMPLES):
            yield self._table(ChunkType.SAMPLES, [header])

    def chunk_headers(self) -> Sequence[ChunkHeader]:
        """Return the headers of all chunks that appear complete."""
        return self._headers

    def _chunks_of_type(self, kind: ChunkType) -> list[ChunkHeader]:
        return [header for header in self._headers if header.type == kind]

    def _warn(self, damage: Damage) -> None:
        lost = len(self._data) - damage.offset
        self._is_unfinished = False  # the end is lost anyway
        self._warnings.append(
            f"{self._path}: the last {lost} bytes, from offset {damage.offset}, were not read: "
            f"{damage.reason}"
        )

    def _check_other_chunks(self) -> None:
        """Check the chunks of other types: a damaged type makes any chunk one of them."""
        known_types = (ChunkType.RECORDS, ChunkType.EVENTS, ChunkType.SAMPLES)
        other_headers = [header for header in self._headers if header.type not in known_types]

        def check(header: ChunkHeader) -> Damage | None:
            payload = read_payload(self._data, header)
            return payload if isinstance(payload, Damage) else None

        self._visit(other_headers, check, map)

    def _read_records(self) -> Records:
        builder = RecordsBuilder()

        def read(header: ChunkHeader) -> Damage | None:
            payload = read_payload(self._data, header)
            if isinstance(payload, Damage):
                return payload
            try:
                builder.add(decode_records(payload))
            except TraceError as error:
                return Damage(header.offset, str(error))
            return None

        self._visit(self._chunks_of_type(ChunkType.RECORDS), read, map)
        return builder.finish()

    def _table(self, kind: ChunkType, headers: Sequence[ChunkHeader]) -> NDArray[Any]:
        """Return the rows of chunks, in the order of the file; without the invalid ones."""
        table = np.empty(sum(header.rows for header in headers), _DTYPES[kind])
        ends = np.cumsum([0, *[header.rows for header in headers]])
        slots = {h.offset: table[a:b] for h, a, b in zip(headers, ends, ends[1:], strict=False)}
        is_valid = _validator(kind, self.records)
        invalid: set[int] = set()

        def read(header: ChunkHeader) -> Damage | None:
            payload = read_payload(self._data, header)
            if isinstance(payload, Damage):
                return payload
            rows = slots[header.offset]
            try:
                unpack_rows(payload, rows)
            except TraceError as error:
                return Damage(header.offset, str(error))
            if len(rows) and not is_valid(rows).all():
                invalid.add(header.offset)
            return None

        if len(headers) < 2:
            num_valid = self._visit(headers, read, map)
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                num_valid = self._visit(headers, read, pool.map)
        table = table[: ends[num_valid]]
        if not invalid:
            return table
        valid = is_valid(table)
        self._warnings.append(
            f"{self._path}: {int((~valid).sum())} rows were left out: they refer to records that "
            "the file does not have, or end before they begin"
        )
        return table.compress(valid)

    def _visit(
        self,
        headers: Sequence[ChunkHeader],
        read: Callable[[ChunkHeader], Damage | None],
        mapper: Callable[..., Iterable[Damage | None]],
    ) -> int:
        """Read chunks up to the first damage, and forget all behind it.

        Returns: the number of complete chunks.
        """
        for i, damage in enumerate(mapper(read, headers)):
            if damage is not None:
                self._headers = [h for h in self._headers if h.offset < damage.offset]
                self._warn(damage)
                return i
        return len(headers)


def _touches(header: ChunkHeader, first: int, last: int) -> bool:
    return header.first <= last and header.last >= first


def _sort(rows: NDArray[Any], name: str) -> NDArray[Any]:
    """Sort rows in place by a time, and return them.

    Rows of a file are nearly sorted: only neighboring chunks overlap. They are sorted in blocks
    whose boundaries no row has to cross, so that only one block at a time is copied.
    """
    times = np.ascontiguousarray(rows[name])
    if (times[1:] >= times[:-1]).all():
        return rows
    later = np.minimum.accumulate(times[::-1])[::-1]
    cuts = np.flatnonzero(np.maximum.accumulate(times)[:-1] <= later[1:]) + 1
    begin, bytes_ = 0, f"V{rows.dtype.itemsize}"
    while begin < len(rows):
        i = int(np.searchsorted(cuts, begin + _BLOCK))
        end = int(cuts[i]) if i < len(cuts) else len(rows)
        order = np.argsort(times[begin:end], kind="stable")
        # NumPy moves structured rows field by field; `take`, and rows seen as bytes, avoid that.
        rows[begin:end].view(bytes_)[:] = rows[begin:end].take(order).view(bytes_)
        begin = end
    return rows


def _validator(kind: ChunkType, records: Records) -> Callable[[NDArray[Any]], NDArray[np.bool_]]:
    """Return a function that says which rows of a table refer to existing records only."""
    lanes, nodes = len(records.lanes), len(records.nodes)
    steps, iterations = len(records.steps), len(records.iterations)

    def is_valid(rows: NDArray[Any]) -> NDArray[np.bool_]:
        valid: NDArray[np.bool_] = rows["lane"] < lanes
        if kind in (ChunkType.EVENTS, ChunkType.STEPS):
            step = rows["step"]
            valid &= (rows["node"] < nodes) & (rows["iteration"] < iterations)
            valid &= (step < steps) | (step == NO_STEP)
            valid &= (rows["ready"] <= rows["start"]) & (rows["start"] <= rows["end"])
            valid &= (rows["ready"] >= 0) & (rows["end"] <= LATEST)
        elif kind is ChunkType.LEVELS:
            valid &= (rows["node"] < nodes) & (rows["level"] < 63) & (rows["start"] >= 0)
            valid &= (rows["span"] >= 0) & (rows["span"] <= LATEST - rows["start"])
        return valid

    return is_valid
