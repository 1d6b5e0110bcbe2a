"""Datasets of tables: CSV files and database queries."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft_io.records.csv import CsvDecoder
from weft_io.records.text_lines import LineSource
from weft_io.streams.files import RecordFile, RecordsSource
from weft_io.streams.stream import (
    Element,
    ForwardingStream,
    Root,
    Source,
    Stream,
    add_location,
    count_in,
    fields,
)
from weft_tensor import errors
from weft_tensor.dtypes import DType

# ---------------------------------------------------------------------------- CSV


class _Splitter:
    r"""Splits lines into records; a line may contain several records, and vice versa.

    A quote opens a quoted field only if it is the first byte of the field, so a stray quote damages
    only its own record. Records end at "\n", "\r\n" or "\r".

    Args:
      delimiter: one byte.
    """

    def __init__(self, delimiter: bytes) -> None:
        separator = re.escape(delimiter)
        quoted, unquoted = rb'(?:[^"]++|"")*+"', rb"[^%s\r]*+" % separator
        field = rb'(?>"%s%s|[^"%s\r]%s|)' % (quoted, unquoted, separator, unquoted)
        fields = rb"(?:%s%s)*+" % (separator, field)
        self._record = re.compile(field + fields)
        self._field_pattern = re.compile(quoted + unquoted + fields)

    def records(self, lines: Sequence[bytes], started: list[bytes]) -> list[bytes]:
        """Return the records that end in these lines.

        Args:
          started: the lines of an incomplete record, which is updated.
        """
        records: list[bytes] = []
        for line in lines:
            if started or b'"' in line:
                self._split(line, started, records)
            else:
                records += _split_at_returns(line)
        return records

    def _split(self, line: bytes, started: list[bytes], records: list[bytes]) -> None:
        index, pattern = 0, self._field_pattern if started else self._record
        while index < len(line) or not index:
            match = pattern.match(line, index)
            end = match.end() if match else index
            if match is None or line[end : end + 1] not in (b"", b"\r"):
                started.append(line[index:])  # a field in quotes that does not end here
                return
            records.append(b"\n".join([*started, line[index:end]]))
            started.clear()
            index, pattern = end + 1, self._record


def _split_at_returns(line: bytes) -> list[bytes]:
    return line.removesuffix(b"\r").split(b"\r") if b"\r" in line else [line]


class CsvRecords:
    """The records of one file: lines, joined if quotes enclose line ends.

    Args:
      path, compression, offset: as for `LineSource`.
      header: skip the first record.
      delimiter: one byte, if fields may be quoted; otherwise None.
    Attributes:
      offset: offset of the first record that was not returned.
    """

    def __init__(
        self, path: str, compression: str, offset: int, header: bool, delimiter: bytes | None
    ) -> None:
        self._lines = LineSource(path, compression, offset, returns=True)
        self._splitter = None if delimiter is None else _Splitter(delimiter)
        self._skips = header and not offset
        self.offset = offset

    def read_chunk(self) -> list[bytes]:
        """Return some records; an empty list at the end."""
        records: list[bytes] = []
        started: list[bytes] = []  # lines of an unfinished record
        while not records:
            lines = self._lines.read_chunk()
            if self._splitter is None:
                records = [record for line in lines for record in _split_at_returns(line)]
            else:
                records = self._complete_records(self._splitter, lines, started)
            if records and self._skips:
                self._skips = False
                del records[0]
            if not lines:
                break
        self.offset = self._lines.offset
        return records

    def _complete_records(
        self, splitter: _Splitter, lines: Sequence[bytes], started: list[bytes]
    ) -> list[bytes]:
        """Return the records of these lines, and the lines that complete the last record.

        With it, `offset` is always at the start of a record.
        """
        records = splitter.records(lines, started)
        while started and (lines := self._lines.read_chunk()):
            records += splitter.records(lines, started)
        if started:  # at the end of the file
            records.append(b"\n".join(started))
            started.clear()
        return records

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class CsvSource(Source):
    """The records of CSV files, one file after another.

    Args:
      paths: paths of the files.
      compression: "", "ZLIB" or "GZIP".
      header: whether each file begins with a header.
      decoder: decoder of the records.
      defaults: per column the default of a missing field, or None if it is required.
    """

    def __init__(
        self,
        paths: Sequence[str],
        compression: str,
        header: bool,
        decoder: CsvDecoder,
        defaults: Sequence[Any],
    ) -> None:
        self._decoder = decoder
        self._defaults = tuple(defaults)

        delimiter = decoder.delimiter if decoder.quotes else None

        def open_file(path: str, offset: int) -> RecordFile:
            return CsvRecords(path, compression, offset, header, delimiter)

        self._records = RecordsSource("Csv", paths, open_file)

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the fields of each record."""
        return _CsvStream(self._records.iterate(root), self._decoder, self._defaults)


class _CsvStream(ForwardingStream):
    kind = "CsvFields"

    def __init__(self, inner: Stream, decoder: CsvDecoder, defaults: Sequence[Any]) -> None:
        super().__init__(inner)
        self._decoder = decoder
        self._defaults = defaults

    def get(self) -> Element | None:
        record = self._input.get()
        if record is None:
            return None
        try:
            columns = self._decoder.decode(record, self._defaults)
        except errors.OpError as error:
            add_location(error, self._input.location())
            raise
        return tuple([column[0] for column in columns])


# ---------------------------------------------------------------------------- databases


class SqlSource(Source):
    """The rows of a query of an SQLite database.

    Args:
      path: the database file, opened read-only.
      query: the query in SQL.
      types: element type of each column.
    """

    def __init__(self, path: str, query: str, types: Sequence[DType]) -> None:
        self.path, self.query, self.types = path, query, tuple(types)

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the rows."""
        return _SqlStream(self)


class _SqlStream(Stream):
    """A stream of query rows; restored, it repeats the query and skips rows already read."""

    kind = "Sql"

    def __init__(self, source: SqlSource) -> None:
        self._source = source
        self._connection: sqlite3.Connection | None = None
        self._rows: sqlite3.Cursor | None = None
        self._num_returned = 0
        self._has_ended = False

    def get(self) -> Element | None:
        row = self._row()
        if row is None:
            self.close()
            return None
        self._num_returned += 1
        types = self._source.types
        if len(row) != len(types):
            raise errors.InvalidArgumentError(
                f"The number of columns in query result ({len(row)}) must match the number of "
                f"output types ({len(types)})."
            )
        return tuple([_sql_value(v, t, i) for i, (v, t) in enumerate(zip(row, types, strict=True))])

    def _row(self) -> Any:
        if self._has_ended:
            return None
        try:
            if self._rows is None:
                self._rows = self._begin()
            return self._rows.fetchone()
        except sqlite3.Error as error:
            self._has_ended = True
            raise errors.InvalidArgumentError(
                f"the query {self._source.query!r} of {self._source.path}: {error}"
            ) from error

    def _begin(self) -> sqlite3.Cursor:
        path = Path(self._source.path)
        if not path.is_file():
            raise errors.NotFoundError(f"{self._source.path}; No such file or directory")
        # A thread that reads ahead may begin what another one closes.
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
        )
        self._connection.text_factory = bytes
        return self._connection.execute(self._source.query)

    def save(self) -> Any:
        return [self._num_returned, self._has_ended]

    def restore(self, state: Any) -> None:
        num_given, has_ended = fields(state, int, bool)
        for _ in range(count_in(num_given, 1 << 62, "the number of rows")):
            if self._row() is None:
                break
            self._num_returned += 1
        self._has_ended = has_ended

    def close(self) -> None:
        connection, self._connection, self._rows = self._connection, None, None
        self._has_ended = True
        if connection is not None:
            connection.close()


def _sql_value(value: Any, dtype: DType, i: int) -> Any:
    """Convert a database value to a component; NULL becomes 0 or the empty string."""
    if dtype.numpy.hasobject:
        if isinstance(value, bytes):
            return value
        return b"" if value is None else str(value).encode()
    try:
        kind = dtype.numpy.type
        if value is None:
            return kind(0)
        number: Any = float(value) if dtype.is_floating else int(value)
        return kind(bool(number)) if kind is np.bool_ else kind(number)
    except (ValueError, OverflowError) as cause:
        raise errors.InvalidArgumentError(
            f"column {i} of a row must be {dtype.name}, got {value!r}"
        ) from cause
