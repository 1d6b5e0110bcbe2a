"""Parsing of batches of CSV lines to one column per field (RFC 4180)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_tensor import errors
from weft_tensor.dtypes import DType

Array = np.ndarray[Any, Any]
Column = Sequence[bytes]

_QUOTE: Final = 0x22


class CsvDecoder:
    """Splits records into fields and converts them.

    Args:
      types: element type of each requested column: float32, float64, int32, int64 or string.
      delimiter: one byte.
      quotes: True if a field may be in double quotes; it may then contain delimiters, line ends,
        and doubled double quotes.
      na_value: a text that marks a missing field, in addition to the empty text.
      select: ascending indices of the requested columns; all columns if empty.
      blank: True if an empty record has one empty field instead of none.
    Attributes:
      delimiter, quotes: the arguments.
    """

    def __init__(
        self,
        types: Sequence[DType],
        delimiter: bytes = b",",
        quotes: bool = True,
        na_value: bytes = b"",
        select: Sequence[int] = (),
        blank: bool = False,
    ) -> None:
        self._types = tuple(types)
        self.delimiter = delimiter
        self.quotes = quotes
        self._missing = (b"", na_value)
        self._select = tuple(select)
        self._blank_fields = [b""] if blank else []

    def decode(self, records: Sequence[bytes], defaults: Sequence[Any]) -> list[Array]:
        """Return the columns of records.

        Args:
          defaults: per column the default of a missing field, or None if it is required.
        Returns: per column an array of shape (n,).
        Raises: InvalidArgumentError: a record has another number of fields, a quote is not closed,
          or a field is missing or not a number.
        """
        rows = [self._fields(record, i) for i, record in enumerate(records)]
        columns: Sequence[Column] = list(zip(*rows, strict=True)) or [()] * len(self._types)
        return [
            self._convert(column, dtype, default, k)
            for k, (column, dtype, default) in enumerate(
                zip(columns, self._types, defaults, strict=True)
            )
        ]

    # ---------------------------------------------------------------------- splitting

    def _fields(self, record: bytes, row: int) -> list[bytes]:
        """Return the requested fields of one record."""
        if (self.quotes and b'"' in record) or b"\n" in record or b"\r" in record:
            fields = self._scan(record, row)
        else:
            fields = record.split(self.delimiter) if record else self._blank_fields
        expected = self._select
        result = [fields[i] for i in expected if i < len(fields)] if expected else fields
        if len(result) != len(self._types):
            raise _field_error(f"Expect {len(self._types)} fields but have {len(result)}", row)
        return result

    def _scan(self, record: bytes, row: int) -> list[bytes]:
        """Split a record that has quotes or line ends within fields."""
        fields: list[bytes] = []
        limit = self._select[-1] + 1 if self._select else -1
        index, end = 0, len(record)
        while index < end and len(fields) != limit:
            if record[index] in b"\r\n":
                index += 1
                continue
            if self.quotes and record[index] == _QUOTE:
                field, index = self._quote(record, index + 1, row)
            else:
                stop = record.find(self.delimiter, index)
                stop = end if stop < 0 else stop
                field, index = record[index:stop], stop + 1
                if b"\n" in field or b"\r" in field or (self.quotes and b'"' in field):
                    raise _field_error("Unquoted fields cannot have quotes/CRLFs inside", row)
            fields.append(field)
        if index == end and len(fields) != limit and record.endswith(self.delimiter):
            fields.append(b"")
        return fields

    def _quote(self, record: bytes, index: int, row: int) -> tuple[bytes, int]:
        """Return the quoted field that begins at `index`, and the index after its delimiter."""
        parts: list[bytes] = []
        while True:
            stop = record.find(b'"', index)
            if stop < 0:
                raise _field_error(
                    "Quoted field has to end with quote followed by delim or end", row
                )
            parts.append(record[index:stop])
            following = record[stop + 1 : stop + 2]
            if following != b'"':
                break
            parts.append(b'"')
            index = stop + 2
        if following not in (b"", self.delimiter):
            raise _field_error("Quote inside a string has to be escaped by another quote", row)
        return b"".join(parts), stop + 2

    # --------------------------------------------------------------------- converting

    def _convert(self, column: Column, dtype: DType, default: Any, k: int) -> Array:
        missing = [i for i, field in enumerate(column) if field in self._missing]
        if missing and default is None:
            raise _field_error(f"Field {k} is required but missing", missing[0])
        result = np.empty(len(column), dtype.numpy)
        if dtype.numpy.hasobject:
            result[:] = column
            if missing:
                result[missing] = default
            return result
        parse = _integer if dtype.is_integer else _real
        texts = list(column)
        for i in missing:
            texts[i] = b"0"
        try:
            result[:] = _parse(texts, parse)
        except (ValueError, OverflowError):
            raise _first_wrong(texts, parse, dtype, k) from None
        if missing:
            result[missing] = default
        return result


def _parse(texts: Column, parse: Callable[[bytes], Any]) -> Any:
    """Parse numbers with Python's parser if it accepts all texts, otherwise with `parse`."""
    if b"_" in b"".join(texts):
        raise ValueError("an underscore")
    plain: Any = int if parse is _integer else float
    try:
        return list(map(plain, texts))
    except ValueError:
        return [parse(text) for text in texts]


def _integer(text: bytes) -> int:
    if b"_" in text:
        raise ValueError("an underscore")
    return int(text)


def _real(text: bytes) -> float:
    if b"_" in text:
        raise ValueError("an underscore")
    if b"x" in text.lower():
        return float.fromhex(text.decode("ascii", "strict"))
    return float(text)


def _first_wrong(
    texts: Column, parse: Callable[[bytes], Any], dtype: DType, k: int
) -> errors.InvalidArgumentError:
    for row, text in enumerate(texts):
        try:
            np.array([parse(text)], dtype.numpy)
        except (ValueError, OverflowError):
            excerpt = text[:100].decode("utf-8", "backslashreplace")
            return _field_error(f"Field {k} is not a valid {dtype.name}: {excerpt!r}", row)
    return _field_error(f"Field {k} is not a valid {dtype.name}", 0)


def _field_error(label: str, row: int) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"{label} in record {row}", details={"record": row})
