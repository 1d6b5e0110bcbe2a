"""Reading of whole files."""

from __future__ import annotations

import io

from weft_io.records.streams import open_stream, read_exactly

_STEP = 1 << 20


def read_file(path: str) -> bytes:
    """Return all bytes of a file.

    Args:
      path: local, or a URL that fsspec knows.
    Raises: NotFoundError, PermissionDeniedError, FailedPreconditionError (a directory), ...
    """
    stream = open_stream(path)
    try:
        size = stream.remaining()
        data = read_exactly(stream, size) if size else b""
        chunk = stream.read(_STEP)  # pipes have no size, and files grow
        if not chunk:
            return data
        buffer = io.BytesIO()
        buffer.write(data)
        while chunk:
            buffer.write(chunk)
            chunk = stream.read(_STEP)
        return buffer.getvalue()
    finally:
        stream.close()
