"""The viewer: one HTML page that shows traces without a network.

`viewer.html` is built from packages/trace/viewer.
"""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from weft_trace.chunks import FILE_HEADER, ChunkHeader, ChunkType, check_file_header, stored_bytes
from weft_trace.reader import TraceFile
from weft_trace.schema import NO_STEP

_MARK: Final = "<!--TRACES-->"
_PARTS_MARK: Final = "<!--PARTS-->"
_PART_BYTES: Final = 1 << 20
_HEAD: Final = (ChunkType.RECORDS, ChunkType.STEPS, ChunkType.PEAKS)
_PART: Final = 3 << 20  # bytes; a multiple of 3, so that only the last part is padded
_MAX_BYTES: Final = 1 << 30
_SERVER: Final = '<script type="application/json" id="server">{}</script>'


def write_page(out: str | os.PathLike[str], traces: Sequence[str | os.PathLike[str]]) -> None:
    """Write a page that contains one or two trace files, and needs no other file.

    Args:
      out: the page; it is replaced if it exists.
      traces: the paths of the trace files.

    Raises:
      OSError: a file cannot be read or written.
      TraceError: a file is not a trace, or it has a newer version.
      ValueError: the number of traces is not 1 or 2, or one is too large for a page.
    """
    if len(traces) not in (1, 2):
        raise ValueError(f"a page shows one or two traces, got {len(traces)}")
    for trace in traces:
        _check(Path(trace))
    before, after = _template().split(_MARK)
    script, end = after.split(_PARTS_MARK)
    parts: list[Iterator[str]] = []
    with open(out, "w", encoding="utf-8", newline="\n") as page:
        page.write(before)
        for index, trace in enumerate(traces):
            parted = _list_parts(Path(trace))
            if parted is None:
                page.writelines(_elements(Path(trace), index))
            else:
                page.write(_head_element(parted, index))
                parts.append(_part_elements(parted, index))
        # The script runs before the browser has read the parts, which it shows as they come.
        page.write(script)
        for elements in parts:
            page.writelines(elements)
        page.write(end)


def server_page() -> bytes:
    """Return the page for a local server, which reads traces from the server's URL."""
    page = _template().replace("connect-src 'none'", "connect-src 'self'")
    return page.replace(_MARK, _SERVER).replace(_PARTS_MARK, "").encode()


def _template() -> str:
    return resources.files(__name__).joinpath("viewer.html").read_text(encoding="utf-8")


def _check(trace: Path) -> None:
    size = trace.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(
            f"{trace} has {size:,} bytes; a page holds at most {_MAX_BYTES:,}: "
            "use weft trace open, which reads only what is visible"
        )
    with trace.open("rb") as file:
        check_file_header(file.read(16), os.fspath(trace))


class _Parts(NamedTuple):
    """The chunks of a large trace in the order of the page.

    Attributes:
      head: chunks that the page needs at first.
      parts: all others, as groups of about a megabyte.
      step: id of the step that the page begins with, or None.
    """

    trace: Path
    head: Sequence[ChunkHeader]
    parts: Sequence[Sequence[ChunkHeader]]
    step: int | None


def _list_parts(trace: Path) -> _Parts | None:
    """Return the chunks of a trace; None if it is small or damaged; it is then read completely."""
    with TraceFile(trace) as file:
        levels = file.levels()
        if not levels or file.warnings:
            return None
        headers = file.chunk_headers()
        step, begin, end = _typical_step(file)
    coarsest = levels[-1]
    head = [h for h in headers if h.type in _HEAD or h.level == coarsest]
    in_head = {header.offset for header in head}
    remaining = [header for header in headers if header.offset not in in_head]

    def order(header: ChunkHeader) -> tuple[bool, bool, int]:
        is_near = header.first <= end and header.last >= begin
        return header.type != ChunkType.LEVELS, not is_near, header.offset

    parts: list[list[ChunkHeader]] = [[]]
    size = 0
    for header in sorted(remaining, key=order):
        if size > _PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(header)
        size += header.stored_size
    return _Parts(trace, head, parts, step)


def _typical_step(file: TraceFile) -> tuple[int | None, int, int]:
    """Return the id and the times of the median step of the most frequent label."""
    events = file.step_events()
    events = events.compress(events["step"] != NO_STEP)
    if not len(events):
        return None, 0, 0
    labels: dict[str, int] = {}
    codes = [labels.setdefault(step.label, len(labels)) for step in file.records.steps]
    event_codes = np.array(codes)[events["step"]]
    events = events.compress(event_codes == np.bincount(event_codes).argmax())
    order = np.argsort(events["end"] - events["start"], kind="stable")
    event = events[order[len(order) // 2]]
    return int(event["step"]), int(event["start"]), int(event["end"])


def _head_element(parts: _Parts, index: int) -> str:
    """Return the element with the first chunks of a trace, and the places of all of them."""
    rows: list[list[int | str]] = []
    groups = [(-1, len(FILE_HEADER), parts.head), *[(i, 0, p) for i, p in enumerate(parts.parts)]]
    for number, offset, headers in groups:
        for header in headers:
            size = stored_bytes(header)
            row: list[int | str] = [number, offset, size, header.type, header.level, header.rows]
            rows.append([*row, str(header.first), str(header.last)])
            offset += size
    with parts.trace.open("rb") as file:
        data = FILE_HEADER + b"".join(_read_chunk(file, header) for header in parts.head)
    name = html.escape(parts.trace.name, quote=True)
    chunks = html.escape(json.dumps(rows, separators=(",", ":")), quote=True)
    step = "" if parts.step is None else f' data-step="{parts.step}"'
    return (
        f'<script type="application/octet-stream" class="trace" data-index="{index}" '
        f'data-name="{name}" data-chunks="{chunks}"{step}>{_encode(data)}</script>\n'
    )


def _part_elements(parts: _Parts, index: int) -> Iterator[str]:
    """Yield the elements of the parts: comments, which browsers read faster than elements."""
    with parts.trace.open("rb") as file:
        for number, headers in enumerate(parts.parts):
            data = b"".join(_read_chunk(file, header) for header in headers)
            yield f'<i hidden id="part-{index}-{number}"><!--{_encode(data)}--></i>\n'


def _read_chunk(file: BinaryIO, header: ChunkHeader) -> bytes:
    file.seek(header.offset)
    return file.read(stored_bytes(header))


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _elements(trace: Path, index: int) -> Iterator[str]:
    """Yield the elements that hold the bytes of a file."""
    name = html.escape(trace.name, quote=True)
    with trace.open("rb") as file:
        while part := file.read(_PART):
            yield (
                f'<script type="application/octet-stream" class="trace" data-index="{index}" '
                f'data-name="{name}">{_encode(part)}</script>\n'
            )
