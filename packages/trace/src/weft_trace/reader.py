"""Reading a trace file into NumPy columns."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.chunks import (
    Chunk,
    ChunkType,
    Damage,
    check_file_header,
    decode_records,
    read_chunks,
    unpack_rows,
)
from weft_trace.errors import TraceError
from weft_trace.schema import (
    EVENT,
    SAMPLE,
    Crossing,
    Iteration,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
)


class Trace(NamedTuple):
    """A trace in memory. The fields of records are described in `weft_trace.schema`.

    Attributes:
      processes, lanes, nodes, iterations, steps: the records; indices are ids.
      events: array [number of events] of the dtype `EVENT`, sorted by start.
      samples: array [number of samples] of the dtype `SAMPLE`, sorted by time.
      warnings: where and why parts of a damaged file could not be read; empty for a whole file.
    """

    processes: Sequence[Process]
    lanes: Sequence[Lane]
    nodes: Sequence[Node]
    iterations: Sequence[Iteration]
    steps: Sequence[Step]
    events: NDArray[Any]
    samples: NDArray[Any]
    warnings: Sequence[str]


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace file.

    A damaged file is read as far as it is whole; `Trace.warnings` says what is missing.

    Raises:
      OSError: the file cannot be read.
      TraceError: it is not a trace, or it has a newer version.
    """
    with open(path, "rb") as file:
        check_file_header(file.read(16), os.fspath(path))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return _parse(memoryview(mapped).toreadonly(), os.fspath(path))


def _parse(data: memoryview, path: str) -> Trace:
    builder = _Builder()
    warnings = []
    try:
        for chunk in read_chunks(data):
            if isinstance(chunk, Damage):
                lost = len(data) - chunk.offset
                warnings.append(
                    f"{path}: the last {lost} bytes, from offset {chunk.offset}, were not read: "
                    f"{chunk.reason}"
                )
            else:
                builder.add(chunk)
    except TraceError as error:
        warnings.append(f"{path}: not all chunks were read: {error}")
    finally:
        data.release()
    return builder.finish(warnings)


class _Builder:
    """Collects the records of chunks."""

    def __init__(self) -> None:
        self._processes: list[Process] = []
        self._lanes: list[Lane] = []
        self._nodes: list[Node] = []
        self._iterations = [Iteration("", 0)]
        self._steps: list[Step] = []
        self._rows: dict[int, list[NDArray[Any]]] = {
            ChunkType.EVENTS: [np.zeros(0, EVENT)],
            ChunkType.SAMPLES: [np.zeros(0, SAMPLE)],
        }

    def add(self, chunk: Chunk) -> None:
        """Add the contents of a chunk. Raises: TraceError: they are damaged."""
        if chunk.type == ChunkType.RECORDS:
            self._add_records(decode_records(chunk.payload))
        elif chunk.type in self._rows:
            dtype = EVENT if chunk.type == ChunkType.EVENTS else SAMPLE
            self._rows[chunk.type].append(unpack_rows(chunk.payload, chunk.rows, dtype))

    def finish(self, warnings: Sequence[str]) -> Trace:
        """Return the trace."""
        events = np.concatenate(self._rows[ChunkType.EVENTS])
        samples = np.concatenate(self._rows[ChunkType.SAMPLES])
        return Trace(
            self._processes,
            self._lanes,
            self._nodes,
            self._iterations,
            self._steps,
            events[np.argsort(events["start"], kind="stable")],
            samples[np.argsort(samples["time"], kind="stable")],
            warnings,
        )

    def _add_records(self, tables: dict[str, list[list[Any]]]) -> None:
        try:
            for row in tables.get("processes", ()):
                self._processes.append(Process(*row))
            for process, kind, name in tables.get("lanes", ()):
                self._lanes.append(Lane(process, LaneKind(kind), name))
            for row in tables.get("nodes", ()):
                self._nodes.append(_node(*row))
            for node, inputs in tables.get("inputs", ()):
                self._nodes[node] = self._nodes[node]._replace(inputs=tuple(inputs))
            for row in tables.get("iterations", ()):
                self._iterations.append(Iteration(*row))
            for row in tables.get("steps", ()):
                self._steps.append(Step(*row))
        except (TypeError, ValueError, IndexError) as error:
            raise TraceError(f"the records of a chunk have an unknown form: {error}") from error


def _node(
    name: str,
    op: str,
    device: str,
    line: str,
    inputs: list[int],
    origins: list[str],
    crossing: int,
    members: list[int],
    output_bytes: int,
) -> Node:
    return Node(
        name, op, device, line, tuple(inputs), tuple(origins), Crossing(crossing), tuple(members),
        output_bytes,
    )  # fmt: skip
