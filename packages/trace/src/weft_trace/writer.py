"""Writing a trace file."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from weft_trace.chunks import (
    FILE_HEADER,
    Chunk,
    ChunkType,
    encode_chunk,
    encode_records,
    pack_rows,
)
from weft_trace.levels import MIN_EVENTS
from weft_trace.reader import TraceFile
from weft_trace.schema import EVENT, SAMPLE, Iteration, Lane, Node, Process, Step

_ROWS: Final = 1 << 15
"""Number of rows in a chunk."""
_RECORDS: Final = 1 << 13
"""Number of records in a chunk."""
_TABLES: Final = ("processes", "lanes", "nodes", "inputs", "iterations", "steps")
"""The tables of records in the order in which they are written: records refer to earlier ones."""


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
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._path = os.path.abspath(path)
        self._num_events = 0
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
                if self._num_events >= MIN_EVENTS:
                    self._write_overview()
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
        for table in _TABLES:
            rows = tables.get(table, [])
            for i in range(0, len(rows), _RECORDS):
                part = rows[i : i + _RECORDS]
                payload = encode_records({table: part})
                self._write(encode_chunk(Chunk(ChunkType.RECORDS, len(part), 0, 0, payload)))

    def _flush_rows(self, kind: ChunkType) -> None:
        rows = np.concatenate(self._rows.pop(kind))
        is_events = kind is ChunkType.EVENTS
        self._num_events += len(rows) if is_events else 0
        time, end = ("start", "end") if is_events else ("time", "time")
        self._write_rows(kind, rows.take(np.argsort(rows[time], kind="stable")), time, end)

    def _write_overview(self) -> None:
        with TraceFile(self._path) as file:
            overview = file.overview()
        self._write_rows(ChunkType.STEPS, overview.steps, "start", "end")
        self._write_rows(ChunkType.LEVELS, overview.levels, "start", "start")

    def _write_rows(self, kind: ChunkType, rows: NDArray[Any], time: str, end: str) -> None:
        for i in range(0, len(rows), _ROWS):
            part = rows[i : i + _ROWS]
            first, last = int(part[time].min()), int(part[end].max())
            self._write(encode_chunk(Chunk(kind, len(part), first, last, pack_rows(part))))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
