"""The viewer: one HTML page that shows traces without a network.

`viewer.html` is built from packages/trace/viewer.
"""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from weft_trace.chunks import check_file_header

_MARK: Final = "<!--TRACES-->"
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
    with open(out, "w", encoding="utf-8", newline="\n") as page:
        page.write(before)
        for index, trace in enumerate(traces):
            for element in _elements(Path(trace), index):
                page.write(element)
        page.write(after)


def server_page() -> bytes:
    """Return the page for a local server, which reads traces from the server's URL."""
    page = _template().replace("connect-src 'none'", "connect-src 'self'")
    return page.replace(_MARK, _SERVER).encode()


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


def _elements(trace: Path, index: int) -> Iterator[str]:
    """Yield the elements that hold the bytes of a file."""
    name = html.escape(trace.name, quote=True)
    with trace.open("rb") as file:
        while part := file.read(_PART):
            data = base64.b64encode(part).decode("ascii")
            yield (
                f'<script type="application/octet-stream" class="trace" data-index="{index}" '
                f'data-name="{name}">{data}</script>\n'
            )
