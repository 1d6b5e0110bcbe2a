"""Text files with one record per line."""

from __future__ import annotations

from typing import Final

from weft_io.records.streams import PIECE, Stream, open_stream, refuse_inflated
from weft_tensor import errors

_END: Final = b"\n"


class LineSource:
    r"""The lines of one file, without their line ends "\\n" or "\\r\\n".

    Args:
      path: local, or a URL that fsspec knows.
      compression: "", "ZLIB" or "GZIP".
      offset: start of the first line to read, in the decompressed bytes.
      returns: keep the "\r" of a line end "\r\n".
    Attributes:
      offset: offset of the first line that `read_chunk` has not returned.
    Raises: NotFoundError, PermissionDeniedError, ...
    """

    def __init__(
        self, path: str, compression: str = "", offset: int = 0, returns: bool = False
    ) -> None:
        self.offset = offset
        self._strip = list if returns else _strip_returns
        self._stream: Stream = open_stream(path, compression, offset)
        self._parts: list[bytes] = []  # of a line whose end was not read yet
        self._num_started = 0  # how many bytes they have together
        self._has_ended = False

    def read_chunk(self) -> list[bytes]:
        """Return the lines of the next piece of the file; an empty list at its end.

        Raises: DataLossError: the compressed data is damaged, or a line in it is too long.
        """
        while piece := self._read():
            if _END not in piece:
                self._extend_line(piece)
                continue
            lines = piece.split(_END)
            if self._parts:
                lines[0] = b"".join([*self._parts, lines[0]])
            last = lines.pop()
            self._parts = [last] if last else []
            self._num_started = len(last)
            self.offset += sum(map(len, lines)) + len(lines)
            return self._strip(lines)
        last = b"".join(self._parts)
        self._parts, self._num_started = [], 0
        self.offset += len(last)
        return self._strip([last]) if last else []

    def _extend_line(self, piece: bytes) -> None:
        """Extend the incomplete line."""
        self._parts.append(piece)
        self._num_started += len(piece)
        if self._stream.remaining() is None:
            try:
                refuse_inflated(self._stream.path, self._num_started)
            except errors.DataLossError:
                self._parts, self._has_ended = [], True
                raise

    def _read(self) -> bytes:
        try:
            return b"" if self._has_ended else self._stream.read(PIECE)
        except errors.DataLossError:  # a line that was begun is lost
            self._parts = []
            raise

    def close(self) -> None:
        """Close the file; do nothing if it is closed."""
        self._stream.close()


def _strip_returns(lines: list[bytes]) -> list[bytes]:
    return [line[:-1] if line[-1:] == b"\r" else line for line in lines]
