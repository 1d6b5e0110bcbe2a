"""Writing a trace file."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from weft_trace.chunks import (
    FILE_END,
    FILE_HEADER,
    Chunk,
    ChunkType,
    encode_chunk,
    encode_records,
    interval_of,
    pack_rows,
)
from weft_trace.levels import MIN_EVENTS, MIN_SAMPLES, compute_peaks
from weft_trace.reader import TraceFile
from weft_trace.schema import EVENT, SAMPLE, Iteration, Lane, Node, Process, Step

_ROWS: Final = 1 << 15
"""Number of rows in a chunk."""
_RECORDS: Final = 1 << 13
"""Number of records in a chunk."""
_PARTIAL_CHUNKS: Final = 3
"""Number of chunks that a file needs in addition to full ones: one for each table."""
_SMALL_EVENTS: Final = 100_000
"""Number of events of a file below which better compression takes no time that matters."""
_SMALL_LEVEL: Final = 6
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_TABLES: Final = ("processes", "lanes", "nodes", "inputs", "iterations", "steps")
"""The tables of records in writing order: records refer to earlier ones."""


class Writer:
    """Appends the records of a trace to a file. Its methods may be called from several threads.

    Records reach the file in chunks: when enough rows are there, and with `flush`. A process that
    is killed loses only the rows since the last chunk. Records with ids are written before the
    events that refer to them.

    Args:
      path: the file; it is replaced if it exists. Only its owner can read it.
    Raises: OSError: the file cannot be created or written.

    Examples:
      >>> with Writer("run.weft-trace") as writer:
      ...     process = writer.process(Process("/job:localhost/task:0", 7, "host"))
      ...     lane = writer.lane(Lane(process, LaneKind.THREAD, "MainThread"))
      ...     node = writer.node(Node("y", "MatMul"))
      ...     event = np.zeros(1, EVENT)
      ...     event["kind"], event["lane"], event["node"] = Kind.KERNEL, lane, node
      ...     event["step"] = NO_STEP
      ...     event["ready"] = event["start"] = 1000
      ...     event["end"] = 3000
      ...     writer.events(event)
      >>> load("run.weft-trace").events["end"]
      array([3000])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, _FLAGS, 0o600)
        self._path = os.path.abspath(path)
        self._num_events = self._num_chunks = 0
        self._lock = threading.Lock()
        self._tables: dict[str, list[Any]] = {}
        self._counts: dict[str, int] = {"iterations": 1}  # 0 stands for "outside of loops"
        self._rows: dict[ChunkType, list[NDArray[Any]]] = {}
        self._write(FILE_HEADER)

    def process(self, process: Process) -> int:
        """Add a process; returns its id."""
        return self._add("processes", process)

    def lane(self, lane: Lane) -> int:
        """Add a lane; returns its id."""
        return self._add("lanes", lane)

    def node(self, node: Node) -> int:
        """Add a node; returns its id."""
        return self._add("nodes", node)

    def inputs(self, node: int, inputs: Sequence[int]) -> None:
        """Replace the inputs of a node that was added before them, as in loops."""
        with self._lock:
            self._tables.setdefault("inputs", []).append([node, list(inputs)])

    def iteration(self, iteration: Iteration) -> int:
        """Add an iteration of a loop; returns its id, from 1."""
        return self._add("iterations", iteration)

    def step(self, step: Step) -> int:
        """Add a step; returns its id."""
        return self._add("steps", step)

    def events(self, events: NDArray[Any]) -> None:
        """Add events: an array of the dtype `EVENT`, in any order. It must not change later."""
        self._buffer(ChunkType.EVENTS, events)

    def samples(self, samples: NDArray[Any]) -> None:
        """Add counter samples: an array of the dtype `SAMPLE`. It must not change later."""
        self._buffer(ChunkType.SAMPLES, samples)

    def flush(self) -> None:
        """Write all buffered records to the file."""
        with self._lock:
            self._flush_all()

    def close(self) -> None:
        """Write all records and close the file. Later calls do nothing."""
        with self._lock:
            if self._file < 0:
                return
            try:
                self._flush_all()
                self._compact()
                if self._num_events >= MIN_EVENTS:
                    self._write_overview()
                self._write(FILE_END)
            finally:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, table: str, row: Sequence[Any]) -> int:
        with self._lock:
            self._tables.setdefault(table, []).append(row)
            number = self._counts.get(table, 0)
            self._counts[table] = number + 1
        return number

    def _buffer(self, kind: ChunkType, rows: NDArray[Any]) -> None:
        dtype = EVENT if kind is ChunkType.EVENTS else SAMPLE
        if rows.dtype != dtype or rows.ndim != 1:
            raise TypeError(
                f"rows must have rank 1 and dtype {dtype}, got {rows.ndim}, {rows.dtype}"
            )
        if not len(rows):
            return
        with self._lock:
            buffered = self._rows.setdefault(kind, [])
            buffered.append(rows)
            if sum(map(len, buffered)) >= _ROWS:
                self._flush_records()
                self._flush_rows(kind)

    def _flush_all(self) -> None:
        self._flush_records()
        for kind in list(self._rows):
            self._flush_rows(kind)

    def _flush_records(self) -> None:
        tables, self._tables = self._tables, {}
        self._write_records(tables, 1)

    def _write_records(self, tables: Mapping[str, Sequence[Any]], level: int) -> None:
        part: dict[str, Sequence[Any]] = {}
        free = _RECORDS
        for table in _TABLES:
            rows = tables.get(table, [])
            while rows:
                part[table], rows = rows[:free], rows[free:]
                free -= len(part[table])
                if not free:
                    self._write_record_chunk(part, level)
                    part, free = {}, _RECORDS
        if part:
            self._write_record_chunk(part, level)

    def _write_record_chunk(self, tables: Mapping[str, Sequence[Any]], level: int) -> None:
        count = sum(map(len, tables.values()))
        chunk = Chunk(ChunkType.RECORDS, count, 0, 0, encode_records(tables))
        self._write(encode_chunk(chunk, level))

    def _flush_rows(self, kind: ChunkType) -> None:
        rows = np.concatenate(self._rows.pop(kind))
        self._num_events += len(rows) if kind is ChunkType.EVENTS else 0
        self._write_rows(kind, rows)

    def _compact(self) -> None:
        """Replace the file by one with fewer chunks, if most of them are small.

        A recording that flushes often has chunks of some rows, whose headers need more bytes than
        the rows. The file is replaced only when the new one is complete.
        """
        if self._num_chunks <= 2 * _PARTIAL_CHUNKS:
            return
        with TraceFile(self._path, is_growing=True) as file:
            min_chunks = (file.num_events + file.num_samples) // _ROWS + _PARTIAL_CHUNKS
            if self._num_chunks <= 2 * min_chunks or file.warnings:
                return
            old, partial = self._file, f"{self._path}.partial"
            try:
                self._file = os.open(partial, _FLAGS, 0o600)
            except OSError:
                return  # the folder is read-only, or the disk is full
            try:
                self._write_compact(file)
                os.replace(partial, self._path)
            except OSError:
                os.close(self._file)
                self._file = old
                os.unlink(partial)
                return
        os.close(old)

    def _write_compact(self, file: TraceFile) -> None:
        level = _SMALL_LEVEL if file.num_events < _SMALL_EVENTS else 1
        records = file.records
        self._write(FILE_HEADER)
        tables: dict[str, Sequence[Any]] = records._asdict()
        self._write_records({**tables, "iterations": records.iterations[1:]}, level)
        for kind, chunks in (
            (ChunkType.EVENTS, file.event_chunks()),
            (ChunkType.SAMPLES, file.sample_chunks()),
        ):
            pending: list[NDArray[Any]] = []
            for rows in chunks:
                pending.append(rows)
                if sum(map(len, pending)) >= _ROWS:
                    self._write_rows(kind, np.concatenate(pending), level)
                    pending = []
            if pending:
                self._write_rows(kind, np.concatenate(pending), level)

    def _write_overview(self) -> None:
        with TraceFile(self._path, is_growing=True) as file:
            overview = file.overview()
            peaks = None
            if file.num_samples >= MIN_SAMPLES:
                peaks = compute_peaks(file.sample_chunks(), file.records.lanes)
        self._write_rows(ChunkType.STEPS, overview.steps)
        if peaks is not None:
            self._write_rows(ChunkType.PEAKS, peaks)
        for level in np.unique(overview.levels["level"]):
            first, last = np.searchsorted(overview.levels["level"], [level, level + 1])
            self._write_rows(ChunkType.LEVELS, overview.levels[first:last], detail=int(level))

    def _write_rows(
        self, kind: ChunkType, rows: NDArray[Any], level: int = 1, detail: int = 0
    ) -> None:
        """Write rows as chunks, sorted by time.

        Args:
          level: of compression.
          detail: the level of detail of rows of the dtype `LEVEL`.
        """
        time = "time" if rows.dtype == SAMPLE else "start"
        rows = rows.take(np.argsort(rows[time], kind="stable"))
        for i in range(0, len(rows), _ROWS):
            part = rows[i : i + _ROWS]
            first, last = interval_of(part)
            chunk = Chunk(kind, len(part), first, last, pack_rows(part), detail)
            self._write(encode_chunk(chunk, level))

    def _write(self, data: bytes) -> None:
        self._num_chunks += 1
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
