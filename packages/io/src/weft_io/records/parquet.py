"""Parquet files, by pyarrow: columns as arrays, or rows as serialized examples.

Checksums of pages are verified if present (`write_page_checksum=True` of pyarrow's writer). The
footer has none, so damage to its names, types and sizes can go undetected; pages that contradict it
are errors.
"""

from __future__ import annotations

__all__ = ["parquet_batches"]

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from weft_exec.resources.file_access import file_roots, open_checked
from weft_graph import proto
from weft_io.files.systems import PathLike, as_path, is_url, locate
from weft_tensor import errors
from weft_tensor.arguments import check_integer
from weft_tensor.os_errors import convert_os_errors

Array = np.ndarray[Any, Any]

_ROWS: Final = 1024


def parquet_batches(
    path: PathLike,
    batch_size: int,
    columns: Sequence[str] | None = None,
    row_groups: Iterable[int] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Array]]:
    """Yield the rows of a Parquet file as arrays, in batches; the last batch may be shorter.

    One row group is in memory at a time. Requires the extra `parquet`.

    Args:
      path: local, or a URL that fsspec knows.
      batch_size: number of rows in a batch.
      columns: names of the columns to read; all by default; `a.b` is a field of a nested column.
      row_groups: numbers of the row groups to read, in this order; all by default.
      defaults: replacements of nulls, by column. Without a default, nulls of float columns are NaN,
        and other nulls are errors.
    Yields: column to array: of shape (n,) and the column's type; strings and binaries are bytes,
      dates and times are the stored integers, and lists of equal length become shape (n, k).
    Raises: NotFoundError, ...; InvalidArgumentError: a column or row group does not exist, lists
      differ in length, or nulls have no default; DataLossError: the file is damaged.

    Examples:
      >>> from pyarrow import parquet, table
      >>> parquet.write_table(table({"x": [1, 2, 3], "y": ["a", None, "c"]}), "xy.parquet")
      >>> for batch in wf.io.parquet_batches("xy.parquet", 2, defaults={"y": ""}):
      ...     print(batch)
      {'x': array([1, 2]), 'y': array([b'a', b''], dtype=object)}
      {'x': array([3]), 'y': array([b'c'], dtype=object)}
    """
    size = check_integer(batch_size, "batch_size", 1)
    return _batches(path, size, columns, row_groups, dict(defaults or {}))


def _batches(
    path: PathLike,
    batch_size: int,
    columns: Sequence[str] | None,
    row_groups: Iterable[int] | None,
    defaults: dict[str, Any],
) -> Iterator[dict[str, Array]]:
    file = ParquetFile(as_path(path), columns)
    try:
        selected = range(file.groups) if row_groups is None else row_groups
        arrays: dict[str, Array] = {}
        for group in selected:
            for batch in file.batches(group, batch_size):
                arrays = _join(arrays, _arrays(batch, defaults, file.path))
                while arrays and len(next(iter(arrays.values()))) >= batch_size:
                    yield {name: array[:batch_size] for name, array in arrays.items()}
                    arrays = {name: array[batch_size:] for name, array in arrays.items()}
        if arrays and len(next(iter(arrays.values()))):
            yield arrays
    finally:
        file.close()


def _join(first: dict[str, Array], second: dict[str, Array]) -> dict[str, Array]:
    if not first or not len(next(iter(first.values()))):
        return second
    return {name: np.concatenate([array, second[name]]) for name, array in first.items()}


class ParquetFile:
    """An open Parquet file; only its footer has been read.

    Args:
      path: local, or a URL that fsspec supports.
      columns: names of the columns to read; None for all.
    Attributes:
      groups: number of row groups.
    Raises: UnimplementedError: pyarrow is not installed; InvalidArgumentError: a column does not
      exist; DataLossError: it is not a Parquet file.
    """

    def __init__(self, path: str, columns: Sequence[str] | None = None) -> None:
        self.path = path
        parquet = _pyarrow_parquet()
        self._stream = _open_file(path)
        with self._guard("its footer", 0):
            self._file = parquet.ParquetFile(
                self._stream, page_checksum_verification=True, pre_buffer=is_url(path)
            )
            self.groups: int = self._file.num_row_groups
        self._columns = None if columns is None else list(columns)
        self._check_columns()

    def _check_columns(self) -> None:
        schema = self._file.schema
        leaves = [schema.column(i).path for i in range(len(schema))]
        for name in self._columns or ():
            if not any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaves):
                raise errors.InvalidArgumentError(
                    f"{self.path} has no column {name!r}; it has {', '.join(leaves)}"
                )

    def rows_of(self, group: int) -> int:
        """Return the number of rows of a row group."""
        rows: int = self._file.metadata.row_group(group).num_rows
        return rows

    def batches(self, group: int, size: int) -> Iterator[Any]:
        """Yield the rows of one row group as pyarrow tables of up to `size` rows.

        Raises: InvalidArgumentError: the row group does not exist; DataLossError: it is damaged.
        """
        import pyarrow as pa

        if not 0 <= group < self.groups:
            raise errors.InvalidArgumentError(
                f"{self.path} has {self.groups} row groups, got the number {group}"
            )
        label, offset = f"row group {group}", self._offset_of(group)
        with self._guard(label, offset):
            batches = self._file.iter_batches(size, [group], self._columns, use_threads=False)
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                yield pa.Table.from_batches([batch])
            if rows != self.rows_of(group):
                raise self._damaged_error(
                    label, offset, f"has {rows} of {self.rows_of(group)} rows"
                )

    def _offset_of(self, group: int) -> int:
        metadata = self._file.metadata.row_group(group)
        if not metadata.num_columns:
            return 0
        # Of some damage to it pyarrow makes an error when it reads, but aborts the process here.
        first = self._file.schema.column(0).path
        with self._guard(f"the first column of row group {group}", 0):
            try:
                next(self._file.iter_batches(1, [group], [first], use_threads=False), None)
            except OSError as error:
                if "page_ordinal" not in str(error):  # its page came, which is read again
                    raise
        column = metadata.column(0)
        offset: int = column.dictionary_page_offset or column.data_page_offset
        return offset

    @contextmanager
    def _guard(self, label: str, offset: int) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except pa.ArrowNotImplementedError as cause:
            raise errors.UnimplementedError(f"{self.path}, {label}: {cause}") from cause
        except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as cause:
            raise self._damaged_error(label, offset, str(cause)) from cause

    def _damaged_error(self, label: str, offset: int, reason: str) -> errors.DataLossError:
        return errors.DataLossError(
            f"{self.path} is damaged in {label}, from offset {offset} on: {reason}",
            details={"file": self.path, "offset": offset},
        )

    def close(self) -> None:
        """Close the file; do nothing if it is closed."""
        self._stream.close()


def _open_file(path: str) -> Any:
    """Open a file for pyarrow; local files use its own class, which reads without the GIL."""
    import pyarrow as pa

    fs, inner = locate(path)
    with convert_os_errors("reading", path):
        if is_url(path):
            return fs.open(inner, "rb")
        if fs.stat(inner).is_directory:
            raise IsADirectoryError(f"{path} is a directory")
        if file_roots() is None:
            return pa.OSFile(inner, "rb")
        file = open_checked(inner, os.O_RDONLY)  # by its number, as it was looked at
        try:
            return pa.OSFile(f"/proc/self/fd/{file}", "rb")
        finally:
            os.close(file)


def _pyarrow_parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as cause:
        raise errors.UnimplementedError(
            "Parquet files require pyarrow: pip install 'weftml-io[parquet]'"
        ) from cause
    return parquet


# ------------------------------------------------------------------------------ columns


def _arrays(table: Any, defaults: dict[str, Any], path: str) -> dict[str, Array]:
    return {name: _array(column, name, defaults, path) for name, column in _flat(table)}


def _flat(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a table by name; fields of nested columns are named `a.b`."""
    import pyarrow as pa

    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    for name, column in zip(table.schema.names, table.columns, strict=True):
        chunk = column.combine_chunks()
        yield name, chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk


def _array(column: Any, name: str, defaults: dict[str, Any], path: str) -> Array:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _matrix(column, name, defaults, path)
    if column.null_count and not (pa.types.is_floating(kind) and name not in defaults):
        if name not in defaults:
            raise errors.InvalidArgumentError(
                f"{path}: column {name!r} of type {kind} has nulls; give a replacement in "
                "`defaults`"
            )
        column = _fill(column, name, defaults[name], path)
    if _is_text(kind):
        texts: Array = column.cast(pa.large_binary()).to_numpy(zero_copy_only=False)
        return texts.astype(object)
    stored = _stored_type(kind)
    if stored is None:
        raise errors.InvalidArgumentError(
            f"{path}: column {name!r} has the type {kind}, which tensors do not support"
        )
    column = column if stored == kind else column.cast(stored)
    return np.array(column.to_numpy(zero_copy_only=False))


def _fill(column: Any, name: str, default: Any, path: str) -> Any:
    import pyarrow as pa

    try:
        return column.fill_null(default)
    except (pa.ArrowException, TypeError, ValueError) as cause:
        raise errors.InvalidArgumentError(
            f"{path}: column {name!r} has the type {column.type}; {default!r} cannot replace its "
            f"nulls: {cause}"
        ) from cause


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    t = pa.types
    tests = (t.is_string, t.is_large_string, t.is_binary, t.is_large_binary)
    return any(test(kind) for test in (*tests, t.is_fixed_size_binary))


def _stored_type(kind: Any) -> Any:
    """Return the numeric type of returned values of a Parquet type, or None."""
    import pyarrow as pa

    t = pa.types
    if t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind):
        return kind
    if t.is_date32(kind) or t.is_time32(kind):
        return pa.int32()
    if t.is_timestamp(kind) or t.is_date64(kind) or t.is_time64(kind) or t.is_duration(kind):
        return pa.int64()
    return None


def _matrix(column: Any, name: str, defaults: dict[str, Any], path: str) -> Array:
    from pyarrow import compute

    lengths = compute.list_value_length(column)
    if lengths.null_count or len(lengths.unique()) > 1:
        raise errors.InvalidArgumentError(
            f"{path}: the lists of column {name!r} have different lengths; read such columns "
            "with ParquetReader and a VarLenFeature"
        )
    values = _array(column.flatten(), name, defaults, path)
    return values.reshape(len(column), lengths[0].as_py() if len(column) else 0)


# --------------------------------------------------------------------------------- rows


class ParquetSource:
    """The rows of one file as serialized `Example`s.

    Args:
      path: local, or a URL that fsspec supports.
      columns: names of the columns to read; all if empty.
      offset: the first row to read.
    Attributes:
      offset: the first row that `read_chunk` has not returned.
    Raises: as `ParquetFile`.
    """

    def __init__(self, path: str, columns: Sequence[str] = (), offset: int = 0) -> None:
        self._file = ParquetFile(path, columns or None)
        self._group = 0
        self._batches: Iterator[Any] | None = None
        self.offset = 0
        while self._group < self._file.groups and self._group_ends_before(offset):
            self.offset += self._file.rows_of(self._group)
            self._group += 1
        self._skip = offset - self.offset
        self.offset = offset

    def _group_ends_before(self, row: int) -> bool:
        return self.offset + self._file.rows_of(self._group) <= row

    def read_chunk(self) -> list[bytes]:
        """Return some rows; an empty list at the end.

        Raises: DataLossError: a row group is damaged; the next call continues with the next one.
        """
        while self._group < self._file.groups:
            table = self._next_table()
            if table is None:
                continue
            if self._skip:
                skipped = min(self._skip, table.num_rows)
                self._skip -= skipped
                table = table.slice(skipped)
            if table.num_rows:
                self.offset += table.num_rows
                return examples_of(table, self._file.path)
        return []

    def _next_table(self) -> Any:
        """Return the next rows of the row group; None at its end."""
        group = self._group
        if self._batches is None:
            self._batches = self._file.batches(group, _ROWS)
        try:
            table = next(self._batches, None)
        except errors.OpError:
            self._next_group()
            raise
        if table is None:
            self._next_group()
        return table

    def _next_group(self) -> None:
        """Continue with the first row of the next group."""
        self._group += 1
        self._batches = None
        self._skip = 0
        self.offset = sum(self._file.rows_of(i) for i in range(self._group))

    def close(self) -> None:
        """Close the file; do nothing if it is closed."""
        self._batches = None
        self._file.close()


def examples_of(table: Any, path: str) -> list[bytes]:
    """Convert the rows of a pyarrow table to serialized `Example`s.

    Raises: InvalidArgumentError: the type of a column cannot be a feature.
    """
    fields = [_features(name, column, path) for name, column in _flat(table)]
    rows = []
    for row in range(table.num_rows):
        message = proto.Example()
        features = message.features.feature
        for name, kind, values in fields:
            value = values[row]
            if value is not None:
                getattr(features[name], kind).value.extend(value)
        rows.append(message.SerializeToString())
    return rows


def _features(name: str, column: Any, path: str) -> tuple[str, str, list[Any]]:
    """Return the name of a column, the kind of its features, and values or None per row."""
    import pyarrow as pa

    t = pa.types
    kind = column.type
    nested = t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)
    element = kind.value_type if nested else kind
    if _is_text(element):
        feature, target = "bytes_list", pa.large_binary()
    elif t.is_floating(element):
        feature, target = "float_list", pa.float32()
    elif _stored_type(element) is not None:
        feature, target = "int64_list", pa.int64()
    else:
        raise errors.InvalidArgumentError(
            f"{path}: column {name!r} has the type {kind}, which features do not support"
        )
    try:
        values = column.cast(pa.list_(target) if nested else target).to_pylist()
    except pa.ArrowInvalid as cause:
        raise errors.InvalidArgumentError(
            f"{path}: column {name!r} of type {kind} does not fit {target}: {cause}"
        ) from cause
    if nested:
        if any(value is not None and None in value for value in values):
            raise errors.InvalidArgumentError(
                f"{path}: the lists of column {name!r} hold nulls, which features do not support"
            )
        return name, feature, values
    return name, feature, [None if value is None else [value] for value in values]
