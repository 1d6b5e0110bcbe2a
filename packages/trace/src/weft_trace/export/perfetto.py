"""Perfetto's trace format, for ui.perfetto.dev and trace_processor.

A file is a message `Trace` of Protocol Buffers, whose fields are encoded here by hand. Field names
and numbers follow `protos/perfetto/trace` in Perfetto's repository. Times are nanoseconds since the
first event.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from weft_trace.export.tracks import (
    boundaries,
    describe,
    find_arrows,
    kind_name,
    lane_name,
    make_tracks,
)
from weft_trace.schema import SERIES, Flag
from weft_trace.trace import Trace

_SEQUENCE: Final = 1
_BEGIN, _END, _COUNTER = 1, 2, 4  # TrackEvent.Type
_CLEARED: Final = 1  # TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
_NEEDS: Final = 2  # TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE
_BYTES: Final = 3  # CounterDescriptor.Unit.UNIT_SIZE_BYTES
_EXPLICIT: Final = 3  # TrackDescriptor.ChildTracksOrdering.EXPLICIT
_FIRST_TRACK: Final = 1 << 32
_FIRST_COUNTER: Final = 1 << 33


def write_perfetto(trace: Trace, file: BinaryIO) -> None:
    """Write a trace as a Perfetto trace."""
    for packet in _Packets(trace).all():
        file.write(_bytes(1, packet))  # Trace.packet


class _Packets:
    """The packets of a trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._origin = int(trace.events["start"][0]) if len(trace.events) else 0
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}

    def all(self) -> Iterator[bytes]:
        """Yield the packets, with names and tracks before their use."""
        trace = self._trace
        yield _int(13, _CLEARED) + _int(10, _SEQUENCE)
        for i, process in enumerate(trace.processes):
            name = _int(1, i + 1) + _text(6, f"{process.name} ({process.host}, {process.pid})")
            yield self._track(_int(1, i + 1) + _bytes(3, name) + _int(11, _EXPLICIT))
        sources: dict[int, list[int]] = {}
        targets: dict[int, list[int]] = {}
        for number, arrow in enumerate(find_arrows(trace), 1):
            sources.setdefault(arrow.source, []).append(number)
            targets.setdefault(arrow.target, []).append(number)
        for i, track in enumerate(make_tracks(trace)):
            uuid = _FIRST_TRACK + i
            parent = trace.lanes[track.lane].process + 1
            yield self._track(
                _int(1, uuid) + _text(2, lane_name(trace, track)) + _int(5, parent) + _int(12, i)
            )
            for boundary in boundaries(trace, track):
                if not boundary.is_start:
                    yield self._event(boundary.time, _int(9, _END) + _int(11, uuid))
                    continue
                flows = b"".join(
                    [_fixed64(47, n) for n in sources.get(boundary.event, ())]
                    + [_fixed64(48, n) for n in targets.get(boundary.event, ())]
                )
                event, interned = self._slice(boundary.event)
                body = _int(9, _BEGIN) + _int(11, uuid) + event + flows
                yield self._event(boundary.time, body, interned)
        yield from self._counters()

    def _slice(self, index: int) -> tuple[bytes, bytes]:
        """Return the encoded event, and the interned names that it introduces."""
        event = self._trace.events[index]
        estimate = " (estimate)" if event["flags"] & Flag.ESTIMATED else ""
        name = self._trace.nodes[event["node"]].name + estimate
        fields, interned = b"", b""
        tables = ((10, 2, self._names, name), (3, 1, self._categories, kind_name(event["kind"])))
        for field, table_field, table, text in tables:
            if text not in table:
                table[text] = len(table) + 1
                interned += _bytes(table_field, _int(1, table[text]) + _text(2, text))
            fields += _int(field, table[text])
        for key, value in describe(self._trace, index).items():
            entry = _text(6, value) if isinstance(value, str) else _int(4, value)
            fields += _bytes(4, _text(10, key) + entry)
        return fields, interned

    def _counters(self) -> Iterator[bytes]:
        trace = self._trace
        uuids: dict[tuple[int, int], int] = {}
        for sample in trace.samples:
            key = (int(sample["lane"]), int(sample["series"]))
            if key not in uuids:
                uuids[key] = _FIRST_COUNTER + len(uuids)
                lane = trace.lanes[key[0]]
                series = SERIES[key[1]] if key[1] < len(SERIES) else f"series {key[1]}"
                unit = _int(3, _BYTES) if series.startswith("bytes") else b""
                yield self._track(
                    _int(1, uuids[key])
                    + _text(2, f"{lane.name}: {series}")
                    + _int(5, lane.process + 1)
                    + _bytes(8, unit)
                )
            body = _int(9, _COUNTER) + _int(11, uuids[key]) + _int(30, int(sample["value"]))
            yield self._event(int(sample["time"]), body)

    def _track(self, descriptor: bytes) -> bytes:
        return _bytes(60, descriptor) + _int(10, _SEQUENCE)

    def _event(self, time: int, body: bytes, interned: bytes = b"") -> bytes:
        names = _bytes(12, interned) if interned else b""
        delta = max(0, time - self._origin)
        return names + _int(8, delta) + _bytes(11, body) + _int(10, _SEQUENCE) + _int(13, _NEEDS)


def _varint(value: int) -> bytes:
    """Return an integer in base 128; negative ones as 64 bits of two's complement."""
    value &= 0xFFFFFFFFFFFFFFFF
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed64(field: int, value: int) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<Q", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode(errors="replace"))
