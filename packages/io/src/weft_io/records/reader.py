"""Sequential reading of records from many files, the base of the reader ops.

A reader receives file names and requests for records. Its state is the current file and its
position there. A reader that is restored from a serialized state, also in another process,
continues with the next record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from weft_io.records import reader_state
from weft_io.records.fixed import FixedLengthSource
from weft_io.records.reader_state import ReaderState
from weft_io.records.text_lines import LineSource
from weft_io.records.tfrecord import OVERHEAD, TFRecordSource
from weft_io.records.whole_files import read_file
from weft_tensor import errors

Settings = Mapping[str, Any]
Records = tuple[list[bytes], list[bytes]]
"""The keys and values of records, in lists of equal length."""


class Source(Protocol):
    """The records of one file.

    Attributes:
      offset: the position of the first record that was not returned; the unit depends on the
        source.
    """

    offset: int

    def read_chunk(self) -> list[bytes]:
        """Return some records; an empty list at the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class _Values:
    """A source of values in memory."""

    def __init__(self, values: list[bytes], offset: int) -> None:
        self._values = values[offset:]
        self.offset = offset

    def read_chunk(self) -> list[bytes]:
        values, self._values = self._values, []
        self.offset += len(values)
        return values

    def close(self) -> None:
        self._values = []


def _name(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _parquet(path: bytes, offset: int, settings: Settings) -> Source:
    from weft_io.records.parquet import ParquetSource

    return ParquetSource(_name(path), settings["columns"], offset)


OpenSource = Callable[[bytes, int, Settings], Source]

_OPEN: Final[dict[str, OpenSource]] = {
    "IdentityReader": lambda path, offset, settings: _Values([path], offset),
    "WholeFileReader": lambda path, offset, settings: _Values([read_file(_name(path))], offset),
    "ParquetReader": _parquet,
    "TextLineReader": lambda path, offset, settings: LineSource(_name(path), "", offset),
    "TFRecordReader": lambda path, offset, settings: TFRecordSource(
        _name(path), settings["compression_type"], offset
    ),
    "FixedLengthRecordReader": lambda path, offset, settings: FixedLengthSource(
        _name(path),
        settings["record_bytes"],
        settings["header_bytes"],
        settings["footer_bytes"],
        settings["hop_bytes"],
        settings["encoding"],
        offset,
    ),
}


_SINGLE: Final = ("IdentityReader", "WholeFileReader")
"""The kinds of readers with one record per file."""
_BY_OFFSET: Final = ("TFRecordReader", "ParquetReader")
"""The kinds of readers whose keys contain byte offsets; other kinds count records."""


_MAY_GO_ON: Final = (
    errors.DataLossError,  # of one record; the source can continue
    errors.UnavailableError,
    errors.DeadlineExceededError,
    errors.ResourceExhaustedError,
)


class FileReader:
    """A file being read, and the position in it.

    A position is the start of a chunk, and the number of its records that were returned.

    Args:
      kind: kind of reader.
      path: the file's name.
      settings: settings of the reader.
      place: the
        position to start at.
    """

    def __init__(
        self, kind: str, path: bytes, settings: Settings, position: reader_state.ReaderPosition
    ) -> None:
        self._kind = kind
        self._settings = settings
        self.path = path
        self._source: Source | None = None
        self._base = position.base
        self._num_taken = 0
        self._to_skip = position.taken
        self._number = position.number
        self._chunk: list[bytes] = []
        self._offset = position.base
        self._headers = (
            settings.get("skip_header_lines", 0) if position == reader_state.START else 0
        )

    @property
    def is_done(self) -> bool:
        """True if it is known that no record follows."""
        return bool(self._chunk) and self._num_taken == len(self._chunk) and self._kind in _SINGLE

    @property
    def is_open(self) -> bool:
        """True if the file could be opened, so that records may follow a damaged one."""
        return self._source is not None

    @property
    def position(self) -> reader_state.ReaderPosition:
        """The position where reading continues later."""
        return reader_state.ReaderPosition(
            self._base, self._num_taken + self._to_skip, self._number
        )

    def take(self, limit: int) -> Records:
        """Return up to `limit` records; empty lists at the end of the file.

        Raises: OpError: the file cannot be opened, or a record is damaged.
        """
        self._skip_to_position()
        if self._num_taken == len(self._chunk) and not self._next_chunk():
            return [], []
        values = self._chunk[self._num_taken : self._num_taken + limit]
        self._num_taken += len(values)
        return self._keys(values), values

    def _skip_to_position(self) -> None:
        """Skip header lines, and the records that were returned before a restart."""
        while self._to_skip or self._headers:
            if self._num_taken == len(self._chunk) and not self._next_chunk():
                self._check_all_skipped()
                return
            passed = min(self._to_skip or self._headers, len(self._chunk) - self._num_taken)
            if self._to_skip:
                self._to_skip -= passed
                self._offset += self._size_of(self._chunk[:passed])
            else:
                self._headers -= passed
                self._number += passed
            self._num_taken += passed

    def _check_all_skipped(self) -> None:
        num_missing, self._to_skip, self._headers = self._to_skip, 0, 0
        if num_missing:
            raise errors.DataLossError(
                f"{_name(self.path)} ends at offset {self._base}, {num_missing} records before the "
                "position to resume from",
                details={"file": _name(self.path), "offset": self._base},
            )

    def _next_chunk(self) -> bool:
        if self._source is None:
            if b"\0" in self.path:
                raise errors.InvalidArgumentError(f"there is no file named {_name(self.path)!r}")
            self._source = _OPEN[self._kind](self.path, self._base, self._settings)
        self._base = self._offset = self._source.offset
        self._chunk, self._num_taken = [], 0
        self._chunk = self._source.read_chunk()
        return bool(self._chunk)

    def _size_of(self, values: list[bytes]) -> int:
        """Return the distance that a list of records advances the offset."""
        if self._kind == "TFRecordReader":
            return sum(map(len, values)) + OVERHEAD * len(values)
        return len(values)

    def _keys(self, values: list[bytes]) -> list[bytes]:
        if self._kind in _SINGLE:
            return [self.path] * len(values)
        first = self._number
        self._number += len(values)
        if self._kind == "TextLineReader":
            first += 1
        elif self._kind in _BY_OFFSET:
            keys = []
            for value in values:
                keys.append(b"%b:%d" % (self.path, self._offset))
                self._offset += self._size_of([value])
            return keys
        return [b"%b:%d" % (self.path, first + i) for i in range(len(values))]

    def close(self) -> None:
        """Close the file."""
        if self._source is not None:
            self._source.close()


class Reader:
    """A reader of one kind, which reads a sequence of files.

    Not thread-safe.

    Args:
      kind: "TFRecordReader", "TextLineReader", "FixedLengthRecordReader", "WholeFileReader",
        "ParquetReader", "IdentityReader".
      settings: settings for each kind, in this order: `compression_type`; `skip_header_lines`;
        `record_bytes`, `header_bytes`, `footer_bytes`, `hop_bytes`, `encoding`; none; `columns`;
        none.
    Attributes:
      records_produced, work_units_completed: counters, from the last reset on.
    """

    def __init__(self, kind: str, settings: Settings) -> None:
        self.kind = kind
        self.settings = dict(settings)
        self.records_produced = 0
        self.work_units_completed = 0
        self._file: FileReader | None = None
        self._waiting: deque[tuple[bytes, reader_state.ReaderPosition]] = deque()
        self._error: errors.OpError | None = None

    @property
    def needs_work(self) -> bool:
        """True if `read` requires another file first."""
        return self._file is None and not self._waiting and self._error is None

    def start(self, path: bytes) -> None:
        """Add a file to read after the previous ones."""
        self._waiting.append((path, reader_state.START))

    def read(self, limit: int) -> Records:
        """Return the next records of the file, up to `limit`; empty lists at its end.

        Raises: OpError: the file cannot be read and is skipped; or a record is damaged, and the
          next call continues after it; or the file is unreachable, and the next call tries again.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._file is None:
            name, position = self._waiting.popleft()
            self._file = FileReader(self.kind, name, self.settings, position)
        keys: list[bytes] = []
        values: list[bytes] = []
        while self._file is not None and len(values) < limit:
            try:
                records = self._file.take(limit - len(values))
            except errors.OpError as failure:
                self._handle_failure(failure, bool(values))
                break
            keys += records[0]
            values += records[1]
            if not records[0] or self._file.is_done:
                self._finish()
        self.records_produced += len(values)
        return keys, values

    def _handle_failure(self, error: errors.OpError, later: bool) -> None:
        """Drop a file that cannot be read, unless it may be readable later."""
        if not isinstance(error, _MAY_GO_ON) or (
            isinstance(error, errors.DataLossError) and self._file and not self._file.is_open
        ):
            self._close_file()
        if not later:
            raise error
        self._error = error

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _finish(self) -> None:
        self._close_file()
        self.work_units_completed += 1

    def reset(self) -> None:
        """Reset the reader, abandoning its current file."""
        self._close_file()
        self._waiting.clear()
        self._error = None
        self.records_produced = self.work_units_completed = 0

    close = reset

    def serialize(self) -> bytes:
        """Serialize the state."""
        state = ReaderState(
            kind=self.kind,
            settings=self.settings,
            records_produced=self.records_produced,
            work_units_completed=self.work_units_completed,
            current=None if self._file is None else (self._file.path, self._file.position),
            waiting=list(self._waiting),
        )
        return reader_state.encode(state)

    def restore(self, *data: bytes) -> None:
        """Restore the states of readers of the same kind and settings.

        With several states, it finishes the current files one after the other, and its counters are
        their sums. Without any, it starts from the beginning.

        Raises:
          DataLossError: the bytes are damaged; the reader is unchanged.
          InvalidArgumentError: they are not a state, or the state of another reader.
        """
        states = [self._validate(reader_state.decode(item)) for item in data]
        self.reset()
        started = [state.current for state in states if state.current is not None]
        self._waiting.extend(started[1:])
        for state in states:
            self.records_produced += state.records_produced
            self.work_units_completed += state.work_units_completed
            self._waiting.extend(state.waiting)
        if started:
            path, position = started[0]
            self._file = FileReader(self.kind, path, self.settings, position)

    def _validate(self, state: ReaderState) -> ReaderState:
        if state.kind != self.kind or state.settings != self.settings:
            raise errors.InvalidArgumentError(
                f"the state of a {self.kind} with settings {self.settings} is required, got that "
                f"of a {state.kind} with {dict(state.settings)}"
            )
        return state
