"""Vocabulary files: columns of text files as keys and values of tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_io.records.columns import to_strings
from weft_io.records.text_lines import LineSource
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

WHOLE_LINE: Final = -2
LINE_NUMBER: Final = -1
_INTEGER: Final = re.compile(rb"\s*[+-]?[0-9]+\s*")


class Vocabulary:
    """The lines of one text file.

    Args:
      path: the file's path.
      limit: number of lines to read, which must exist; -1 for all.
      delimiter: one byte, between columns.
      offset: added to line numbers.
    Raises: NotFoundError, ...: the file does not exist; InvalidArgumentError: the file has fewer
      lines, or an empty line.
    """

    def __init__(self, path: str, limit: int, delimiter: bytes, offset: int = 0) -> None:
        self._path = path
        self._delimiter = delimiter
        self._offset = offset
        self._lines = _split_lines(path, limit)
        self._columns: list[list[bytes]] | None = None

    def location(self, i: int) -> str:
        """Return the location of pair i, for messages."""
        return f"line {i + 1} of {self._path}"

    def column(self, index: int, dtype: DType) -> np.ndarray[Any, Any]:
        """Return a column: shape (number of lines,).

        Args:
          index: index of the column, `WHOLE_LINE` or `LINE_NUMBER`.
          dtype: string, an integer, bool or a float.
        Raises: InvalidArgumentError: a line lacks the column, or its text is not of that type.
        """
        if index == LINE_NUMBER:
            return self._numbers(dtype)
        fields = self._lines if index == WHOLE_LINE else self._fields(index)
        if dtype is dtypes.string:
            return to_strings(fields)
        parse = _parser(dtype)
        values: list[Any] = []
        try:
            values.extend(map(parse, fields))
            return np.array(values, dtype.numpy)
        except (ValueError, OverflowError) as cause:
            position = self._first_bad(fields, dtype, parse)
            raise errors.InvalidArgumentError(
                f"Field {fields[position].decode('utf-8', 'replace')} in line {position + 1} of "
                f"{self._path} "
                f"is not a valid {dtype.name}."
            ) from cause

    @staticmethod
    def _first_bad(fields: Sequence[bytes], dtype: DType, parse: Callable[[bytes], Any]) -> int:
        for i, field in enumerate(fields):
            try:
                np.array([parse(field)], dtype.numpy)
            except (ValueError, OverflowError):
                return i
        return len(fields) - 1

    def _numbers(self, dtype: DType) -> np.ndarray[Any, Any]:
        if not dtype.is_integer:
            raise errors.InvalidArgumentError(
                f"line numbers have type int64, but {dtype.name} was requested"
            )
        return np.arange(self._offset, self._offset + len(self._lines)).astype(dtype.numpy)

    def _fields(self, index: int) -> list[bytes]:
        if self._columns is None:
            delimiter = self._delimiter
            self._columns = [line.split(delimiter) for line in self._lines]
        try:
            return [fields[index] for fields in self._columns]
        except IndexError:
            position = next(i for i, fields in enumerate(self._columns) if len(fields) <= index)
            raise errors.InvalidArgumentError(
                f"Invalid number of columns in {self._path} line {position + 1} "
                f"({self._lines[position].decode('utf-8', 'replace')}): expected at least "
                f"{index + 1} "
                f"got {len(self._columns[position])}"
            ) from None


def _split_lines(path: str, limit: int) -> list[bytes]:
    lines: list[bytes] = []
    source = LineSource(path)
    try:
        while (limit < 0 or len(lines) < limit) and (chunk_lines := source.read_chunk()):
            lines += chunk_lines
    finally:
        source.close()
    if limit >= 0:
        if len(lines) < limit:
            raise errors.InvalidArgumentError(
                f"Invalid vocab_size in {path}: expected {limit} but got {len(lines)}"
            )
        del lines[limit:]
    if b"" in lines:
        raise errors.InvalidArgumentError(
            f"Invalid content in {path}: empty line found at line {lines.index(b'') + 1}"
        )
    return lines


def _parser(dtype: DType) -> Callable[[bytes], Any]:
    if dtype.is_integer:
        return _integer
    if dtype.is_floating:
        return _real
    if dtype is dtypes.bool_:
        return _truth
    raise errors.InvalidArgumentError(
        f"columns of a file can be strings, numbers or bools, got {dtype.name}"
    )


def _integer(field: bytes) -> int:
    if not _INTEGER.fullmatch(field):  # Python's own integers may have underscores
        raise ValueError(field)
    return int(field)


def _real(field: bytes) -> float:
    if b"_" in field:
        raise ValueError(field)
    return float(field)


def _truth(field: bytes) -> bool:
    result = {b"true": True, b"1": True, b"false": False, b"0": False}.get(field.strip().lower())
    if result is None:
        raise ValueError(field)
    return result
