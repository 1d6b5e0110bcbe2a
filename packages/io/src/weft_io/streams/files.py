"""Datasets of the records of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft_io.streams.stream import Element, Root, Source, Stream, count_in, fields


class RecordFile(Protocol):
    """A file that is read in pieces; see `weft_io.records`.

    Attributes:
      offset: offset of the first record that was not returned.
    """

    offset: int

    def read_chunk(self) -> list[bytes]:
        """Return some records; an empty list at the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


Open = Callable[[str, int], RecordFile]
"""A function from a path and an offset to the open file."""


class RecordsSource(Source):
    """The records of files, one file after another.

    Args:
      kind: kind of the files, in saved states.
      paths: paths of the files.
      open_file: function that opens a file.
    """

    def __init__(self, kind: str, paths: Sequence[str], open_file: Open) -> None:
        self.kind = kind
        self.paths = tuple(paths)
        self.open = open_file

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the records."""
        return _RecordsStream(self)


class _RecordsStream(Stream):
    def __init__(self, source: RecordsSource) -> None:
        self.kind = source.kind  # type: ignore[misc]
        self._source = source
        self._next_file = 0
        self._file: RecordFile | None = None
        self._records: list[bytes] = []
        self._num_taken = 0
        self._base = 0  # offset of the first of `_records`
        self._num_earlier: int | None = (
            0  # records of the file before these, where they were counted
        )

    def get(self) -> Element | None:
        while self._num_taken >= len(self._records):
            if not self._read():
                return None
        self._num_taken += 1
        return (self._records[self._num_taken - 1],)

    def pull(self, limit: int) -> list[Element]:
        while self._num_taken >= len(self._records):
            if not self._read():
                return []
        start = self._num_taken
        self._num_taken = min(len(self._records), start + limit)
        return list(zip(self._records[start : self._num_taken], strict=True))

    def location(self) -> str:
        if self._file is None or not self._num_taken:
            return ""
        path = self._source.paths[self._next_file - 1]
        label = "line" if self.kind == "TextLine" else "record"
        if self._num_earlier is None:
            return f"{label} {self._num_taken} from byte {self._base} of {path}"
        return f"{label} {self._num_earlier + self._num_taken} of {path}"

    def _read(self) -> bool:
        """Read a piece, or open the next file; return False after the last file."""
        if self._file is None:
            if self._next_file >= len(self._source.paths):
                return False
            self._next_file += 1
            self._file = self._source.open(self._source.paths[self._next_file - 1], 0)
            self._num_earlier, self._records = 0, []
        if self._num_earlier is not None:
            self._num_earlier += len(self._records)
        self._records, self._num_taken = [], 0
        self._base = self._file.offset
        self._records = self._file.read_chunk()
        if not self._records:
            self._file.close()
            self._file = None
        return True

    def save(self) -> Any:
        """Return the number of opened files, and the position in the last one."""
        position = None if self._file is None else [self._base, self._num_taken]
        return [self._next_file, position]

    def restore(self, state: Any) -> None:
        number, position = fields(state, int, None)
        self._next_file = count_in(number, len(self._source.paths), "the number of files")
        if position is None:
            return
        base, num_read = fields(position, int, int)
        count_in(base, 1 << 62, "an offset")
        count_in(self._next_file - 1, len(self._source.paths), "the number of the file")
        self._file = self._source.open(self._source.paths[self._next_file - 1], base)
        self._num_earlier = None
        self._skip(count_in(num_read, 1 << 62, "the number of records"))

    def _skip(self, count: int) -> None:
        """Skip records from the current position."""
        assert self._file is not None
        while count > 0:
            self._base = self._file.offset
            self._records = self._file.read_chunk()
            self._num_taken = min(count, len(self._records))
            if not self._records:
                return
            count -= self._num_taken

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._records = []
