"""A local server for the viewer page: traces that are too large for a page are read in parts.

The server listens on a loopback address only. Its URL has a random token, and the header `Host`
must be its own address, so that other users and other web sites cannot read traces.
"""

from __future__ import annotations

import hmac
import json
import secrets
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from weft_trace.bins import bin_lane, bin_memory, rows_of_events
from weft_trace.chunks import (
    FILE_END,
    FILE_HEADER,
    Chunk,
    ChunkType,
    encode_chunk,
    encode_records,
    pack_rows,
)
from weft_trace.reader import TraceFile
from weft_trace.schema import LaneKind

_ROWS: Final = 1 << 15
_RECORDS: Final = 1 << 13
_MAX_BINS: Final = 8192
_MAX_EVENTS: Final = 1 << 22
_MAX_EXACT_EVENTS: Final = 1 << 20
"""Maximum number of events in a small trace, and for computing bins from events directly."""
_LATEST: Final = 1 << 62

_Query = Mapping[str, Sequence[str]]


class _BadRequestError(Exception):
    """A parameter of a request is missing or invalid."""


class ServedTrace:
    """The answers about one trace file.

    Args:
      path: the file.
    Raises: OSError, TraceError: the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file = TraceFile(path)
        self._lock = threading.Lock()  # reading may drop damaged chunks
        is_small = self._file.num_events <= _MAX_EXACT_EVENTS
        self._events = self._file.events() if is_small else None
        # A file of a killed process has no levels; they are computed from all events.
        overview = None if self._file.levels() else self._file.overview()
        self._steps = overview.steps if overview else self._file.step_events()
        self._levels = overview.levels if overview else None
        peaks = self._file.peaks()
        samples = self._file.samples() if peaks is None else peaks
        self._bytes_in_use = {
            i: samples.compress((samples["lane"] == i) & (samples["series"] == 0))
            for i, lane in enumerate(self._file.records.lanes)
            if lane.kind is LaneKind.MEMORY
        }

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def info(self, _: _Query) -> bytes:
        """Return the name, the size and the interval of the trace as JSON."""
        first, last = self._file.interval()
        data = {
            "name": self._path.name,
            "bytes": self._path.stat().st_size,
            "events": self._file.num_events,
            "small": self._events is not None,
            "first": str(first),
            "last": str(last),
            "warnings": self._file.warnings,
        }
        return json.dumps(data).encode()

    def records(self, _: _Query) -> bytes:
        """Return a trace file with all records, and with the events of the kind STEP."""
        records = self._file.records
        tables: dict[str, Sequence[Any]] = records._asdict()
        tables["iterations"] = records.iterations[1:]
        parts = [FILE_HEADER]
        for name, rows in tables.items():
            for i in range(0, len(rows), _RECORDS):
                part = rows[i : i + _RECORDS]
                payload = encode_records({name: part})
                parts.append(encode_chunk(Chunk(ChunkType.RECORDS, len(part), 0, 0, payload)))
        return b"".join(parts) + _encode_rows(ChunkType.EVENTS, self._steps) + FILE_END

    def events(self, query: _Query) -> bytes | None:
        """Return a trace file with the events and samples of an interval; None: too many."""
        first, last = _interval(query)
        limit = _number(query, "limit", 0, _MAX_EVENTS)
        if self._file.num_events_between(first, last) > max(4 * limit, 4 * _ROWS):
            return None
        events = self._read(first, last)
        if len(events) > limit:
            return None
        with self._lock:
            samples = self._file.samples(first, last)
        return (
            FILE_HEADER
            + _encode_rows(ChunkType.EVENTS, events)
            + _encode_rows(ChunkType.SAMPLES, samples)
            + FILE_END
        )

    def levels(self, query: _Query) -> bytes:
        """Return all lanes of an interval as bins: kinds and busy shares."""
        first, last = _interval(query)
        bins = _number(query, "bins", 1, _MAX_BINS)
        count = self._file.num_events_between(first, last)
        width = (last - first) / (4 * bins)  # a row may reach into the next bucket
        rows = self._read_level(first, last, width, count)
        rows = rows.compress((rows["start"] < last) & (rows["start"] + rows["span"] > first))
        rows = rows.take(np.argsort(rows["lane"], kind="stable"))
        lanes = self._file.records.lanes
        cuts = np.searchsorted(rows["lane"], np.arange(len(lanes) + 1))
        parts = [struct.pack("<IIQ", len(lanes), bins, count)]
        for i in range(len(lanes)):
            kinds, shares = bin_lane(rows[cuts[i] : cuts[i + 1]], first, last, bins)
            if i in self._bytes_in_use:
                shares = bin_memory(self._bytes_in_use[i], first, last, bins)
            parts += [kinds.tobytes(), shares.tobytes()]
        return b"".join(parts)

    def _read_level(self, first: int, last: int, width: float, count: int) -> NDArray[Any]:
        """Return the rows of an interval whose buckets are not wider than `width` nanoseconds.

        They are the bins of the finest level if that is coarser and the interval has many events.
        """
        levels = self._file.levels() if self._levels is None else np.unique(self._levels["level"])
        fitting = [int(level) for level in levels if 1 << int(level) <= width]
        if not fitting and (count <= _MAX_EXACT_EVENTS or not len(levels)):
            return rows_of_events(self._read(first, last))
        level = fitting[-1] if fitting else int(levels[0])
        if self._levels is not None:
            return self._levels.compress(self._levels["level"] == level)
        with self._lock:
            return self._file.level_rows(level, first, last)

    def _read(self, first: int, last: int) -> NDArray[Any]:
        if self._events is None:
            with self._lock:
                return self._file.events(first, last)
        is_inside = (self._events["start"] <= last) & (self._events["end"] >= first)
        return self._events.compress(is_inside)


class TraceServer:
    """A server of one or two traces.

    Args:
      paths: the trace files.
      page: the bytes of the viewer page.
    Attributes:
      url: the address of the page, with the token.

    Raises: OSError, TraceError: a file cannot be read, or no port is free.
    """

    def __init__(self, paths: Sequence[str | Path], page: bytes) -> None:
        self._traces = [ServedTrace(path) for path in paths]
        self._page = page
        self._token = secrets.token_urlsafe(24)
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing: paths have the token."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self._host}/{self._token}/"

    def serve_forever(self) -> None:
        """Answer requests until `stop` is called."""
        self._server.serve_forever()

    def stop(self) -> None:
        """End `serve_forever`, which another thread runs."""
        self._server.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port and the files."""
        self._server.server_close()
        for trace in self._traces:
            trace.close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.headers.get("Host") != self._host:
            _respond(request, HTTPStatus.FORBIDDEN)
            return
        parts = urlsplit(request.path)
        token, _, name = parts.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            _respond(request, HTTPStatus.NOT_FOUND)
            return
        if not name:
            _respond(request, HTTPStatus.OK, self._page, "text/html; charset=utf-8")
            return
        answer = self._find(name)
        if answer is None:
            _respond(request, HTTPStatus.NOT_FOUND)
            return
        try:
            body = answer(parse_qs(parts.query, max_num_fields=8))
        except (_BadRequestError, ValueError) as error:
            _respond(request, HTTPStatus.BAD_REQUEST, str(error).encode(), "text/plain")
            return
        if body is None:
            _respond(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        kind = "application/json" if name.endswith(".json") else "application/octet-stream"
        _respond(request, HTTPStatus.OK, body, kind)

    def _find(self, name: str) -> Callable[[_Query], bytes | None] | None:
        number, _, query_name = name.partition("/")
        if number not in [str(i) for i in range(len(self._traces))]:
            return None
        trace = self._traces[int(number)]
        answers: dict[str, Callable[[_Query], bytes | None]] = {
            "info.json": trace.info,
            "records": trace.records,
            "events": trace.events,
            "levels": trace.levels,
        }
        return answers.get(query_name)


def _respond(
    request: BaseHTTPRequestHandler, status: HTTPStatus, body: bytes = b"", kind: str = "text/plain"
) -> None:
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.send_header("Cache-Control", "no-store")
    request.send_header("X-Content-Type-Options", "nosniff")
    request.send_header("Referrer-Policy", "no-referrer")
    request.end_headers()
    request.wfile.write(body)


def _encode_rows(kind: ChunkType, rows: NDArray[Any]) -> bytes:
    time, end = ("start", "end") if kind is ChunkType.EVENTS else ("time", "time")
    parts = []
    for i in range(0, len(rows), _ROWS):
        part = rows[i : i + _ROWS]
        first, last = int(part[time].min()), int(part[end].max())
        chunk = Chunk(kind, len(part), first, last, pack_rows(part))
        parts.append(encode_chunk(chunk, level=0))
    return b"".join(parts)


def _interval(query: _Query) -> tuple[int, int]:
    first, last = _number(query, "from", 0, _LATEST), _number(query, "to", 0, _LATEST)
    if first >= last:
        raise _BadRequestError(f"from={first} must be less than to={last}")
    return first, last


def _number(query: _Query, name: str, minimum: int, maximum: int) -> int:
    values = query.get(name, ())
    text = values[0] if values else ""
    if not (
        text.isascii() and text.isdigit() and len(text) < 20 and minimum <= int(text) <= maximum
    ):
        raise _BadRequestError(
            f"{name} must be a number from {minimum} to {maximum}, got {text!r:.40}"
        )
    return int(text)
