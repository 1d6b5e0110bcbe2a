"""Datasets of tables: CSV files, databases, and batches of examples in files."""

from __future__ import annotations

__all__ = [
    "CsvDataset",
    "SqlDataset",
    "TFRecordWriter",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "parse_example_dataset",
]

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Node, Output
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.dataset import Dataset
from weft_io.data.files_datasets import TFRecordDataset
from weft_io.data.transformations import parallel_interleave, shuffle_and_repeat
from weft_io.files import gfile
from weft_io.input.parsing import parse_example
from weft_io.records.options import TFRecordOptions
from weft_io.streams.prefetching import AUTOTUNE
from weft_io.streams.tabular import CsvRecords
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

_BUFFER = 4 * 1024 * 1024
_CSV_TYPES = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.string)


def _compression(compression_type: Any) -> Output:
    if isinstance(compression_type, str):
        compression_type = TFRecordOptions.get_compression_type_string(compression_type)
    compression = "" if compression_type is None else compression_type
    return arguments.scalar(compression, dtypes.string, "compression_type")


class CsvDataset(Dataset):
    r"""The records of CSV files: tuples of scalars.

    A field in double quotes may contain delimiters and line ends.

    Args:
      filenames: string, shape () or (n,).
      record_defaults: per column its element type if a value is required, else a tensor with its
        default value; float32, float64, int32, int64 or string.
      compression_type: string, shape (): "", "ZLIB" or "GZIP".
      buffer_size: accepted and ignored.
      header: whether each file begins with a line of names.
      field_delim: one byte.
      use_quote_delim: True if double quotes are interpreted.
      na_value: a text that marks missing values, in addition to the empty text.
      select_cols: the numbers of the columns to return, ascending; all by default.
    Raises: InvalidTypeError: a type is not supported; InvalidArgumentError: the numbers of columns
      do not match; when it is iterated: InvalidArgumentError: a record is malformed, with its file
      and number.

    Examples:
      >>> wf.Session().run(wf.write_file("people.csv", "ann,30\nbob,\n"))
      >>> rows = wf.data.experimental.CsvDataset("people.csv", [wf.string, [0]]).batch(2)
      >>> wf.Session().run(rows.make_one_shot_iterator().get_next())
      (array([b'ann', b'bob'], dtype=object), array([30,  0], dtype=int32))
    """

    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: Any = None,
        buffer_size: Any = None,
        header: Any = False,
        field_delim: Any = ",",
        use_quote_delim: Any = True,
        na_value: Any = "",
        select_cols: Sequence[int] | None = None,
    ) -> None:
        names = convert_to_tensor(arguments.encode_paths(filenames), dtypes.string)
        defaults = [_record_default(value) for value in record_defaults]
        columns = list(select_cols or ())
        if columns and len(columns) != len(defaults):
            raise errors.InvalidArgumentError(
                "select_cols and record_defaults must have the same length, got "
                f"{len(columns)} and "
                f"{len(defaults)}"
            )
        form = tuple([specs.Spec(default.dtype, ()) for default in defaults])
        inputs = [
            names,
            _compression(compression_type),
            arguments.scalar(
                _BUFFER if buffer_size is None else buffer_size, dtypes.int64, "buffer_size", 1
            ),
            arguments.scalar(header, dtypes.bool_, "header"),
            arguments.scalar(field_delim, dtypes.string, "field_delim"),
            arguments.scalar(use_quote_delim, dtypes.bool_, "use_quote_delim"),
            arguments.scalar(na_value, dtypes.string, "na_value"),
            convert_to_tensor(columns, dtypes.int64),
            defaults,
        ]
        result = Dataset._create("CSVDataset", inputs, specs.attrs_of(form), form)
        super().__init__(result._variant_tensor, form)


def _record_default(value: Any) -> Output:
    if isinstance(value, DType | type):
        default = convert_to_tensor([], dtypes.as_dtype(value))
    else:
        default = convert_to_tensor(value)
    if default.dtype not in _CSV_TYPES:
        raise errors.InvalidTypeError(
            f"a column must be one of {', '.join(dtype.name for dtype in _CSV_TYPES)}, got "
            f"{default.dtype.name}"
        )
    if len(default.dims or ()) > 1:
        raise errors.InvalidArgumentError(
            f"a default must have rank 0 or 1, got shape {format_dims(default.dims)}"
        )
    return default


class SqlDataset(Dataset):
    """The rows of a query of an SQLite database: tuples of scalars.

    Args:
      driver_name: string, shape (): "sqlite".
      data_source_name: string, shape (): the database file, opened read-only.
      query: string, shape ().
      output_types: a tuple of the element types of the columns: strings, numbers or bools.
    Raises (when it is iterated): NotFoundError: the file does not exist; InvalidArgumentError: the
      query is malformed, or its columns differ.

    Examples:
      >>> import sqlite3
      >>> with sqlite3.connect("people.db") as database:
      ...     _ = database.execute("CREATE TABLE people (name TEXT, age INTEGER)")
      ...     _ = database.execute("INSERT INTO people VALUES ('ann', 30)")
      >>> rows = wf.data.experimental.SqlDataset(
      ...     "sqlite", "people.db", "SELECT name, age FROM people", (wf.string, wf.int32)
      ... )
      >>> wf.Session().run(rows.make_one_shot_iterator().get_next())
      (b'ann', np.int32(30))
    """

    def __init__(
        self, driver_name: Any, data_source_name: Any, query: Any, output_types: Any
    ) -> None:
        inputs = [
            arguments.scalar(driver_name, dtypes.string, "driver_name"),
            arguments.scalar(
                arguments.encode_paths(data_source_name), dtypes.string, "data_source_name"
            ),
            arguments.scalar(query, dtypes.string, "query"),
        ]
        types = arguments.to_list(output_types, "output_types")
        form = tuple([specs.Spec(dtypes.as_dtype(dtype), ()) for dtype in types])
        result = Dataset._create("SqlDataset", inputs, specs.attrs_of(form), form)
        super().__init__(result._variant_tensor, form)


class TFRecordWriter:
    """Writes datasets to TFRecord files.

    Args:
      filename: string, shape ().
      compression_type: string, shape (): "", "ZLIB" or "GZIP".

    Examples:
      >>> words = wf.data.Dataset.from_tensor_slices(["one", "two"])
      >>> wf.Session().run(wf.data.experimental.TFRecordWriter("words.tfrecord").write(words))
      >>> rows = wf.data.TFRecordDataset("words.tfrecord").batch(2)
      >>> wf.Session().run(rows.make_one_shot_iterator().get_next())
      array([b'one', b'two'], dtype=object)
    """

    def __init__(self, filename: Any, compression_type: Any = None) -> None:
        self._filename = arguments.scalar(
            arguments.encode_paths(filename), dtypes.string, "filename"
        )
        self._compression = _compression(compression_type)

    def write(self, dataset: Dataset) -> Node:
        """Return a node that writes all elements of a dataset.

        Args:
          dataset: a dataset of scalar strings.
        Raises: InvalidTypeError: its elements are of another form.
        """
        spec = dataset._element if isinstance(dataset, Dataset) else dataset
        if not isinstance(spec, specs.Spec) or spec.dtype is not dtypes.string or spec.dims:
            raise errors.InvalidTypeError(
                f"`dataset` must be a dataset of scalar strings, got {dataset!r}"
            )
        inputs = [dataset._variant_tensor, self._filename, self._compression]
        return create("DatasetToTFRecord", inputs)


# ---------------------------------------------------------------------------- examples


def parse_example_dataset(
    features: Mapping[str, Any], num_parallel_calls: Any = 1
) -> Callable[[Dataset], Dataset]:
    """Parse batches of serialized examples, as `parse_example` does.

    Args:
      features: the requested features, as for `parse_example`.
      num_parallel_calls: number of batches parsed concurrently.
    Returns: a function for `Dataset.apply`, from strings of shape (n,).
    Raises: InvalidTypeError: the elements are not strings.

    Examples:
      >>> feature = wf.train.Feature(int64_list=wf.train.Int64List(value=[7]))
      >>> example = wf.train.Example(features=wf.train.Features(feature={"n": feature}))
      >>> features = {"n": wf.FixedLenFeature([], wf.int64)}
      >>> parse = wf.data.experimental.parse_example_dataset(features)
      >>> rows = wf.data.Dataset.from_tensors([example.SerializeToString()]).apply(parse)
      >>> wf.Session().run(rows.make_one_shot_iterator().get_next())
      {'n': array([7])}
    """
    if not features:
        raise errors.InvalidArgumentError("`features` must be a non-empty dict")

    def apply(dataset: Dataset) -> Dataset:
        spec = dataset._element
        if not isinstance(spec, specs.Spec) or spec.dtype is not dtypes.string:
            raise errors.InvalidTypeError(
                f"the elements must be serialized examples in string vectors, got {spec!r}"
            )
        return dataset.map(lambda batch: parse_example(batch, features), num_parallel_calls)

    return apply


def make_batched_features_dataset(
    file_pattern: Any,
    batch_size: int,
    features: Mapping[str, Any],
    reader: Any = TFRecordDataset,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int = AUTOTUNE,
    reader_num_threads: int = 1,
    parser_num_threads: int = 2,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Return batches of the parsed examples in files.

    Args:
      file_pattern: a pattern of file names, or a list of them.
      batch_size: number of examples in a batch.
      features: the requested features, as for `parse_example`.
      reader: creates the dataset of a file, whose elements are strings or pairs (key, string).
      label_key: the feature to return separately, as the second item of a pair.
      reader_args: further arguments of `reader`.
      num_epochs: number of passes over the files; None for no limit.
      shuffle: True if the order of files and examples is random.
      shuffle_buffer_size, shuffle_seed: buffer size and seed of the order.
      prefetch_buffer_size: number of prefetched batches.
      reader_num_threads: number of files read concurrently.
      parser_num_threads: number of batches parsed concurrently.
      sloppy_ordering: accepted for compatibility; files are always read in order.
      drop_final_batch: drop a last batch that is smaller.
    Raises: InvalidArgumentError: `label_key` is not a feature.

    Examples:
      >>> feature = wf.train.Feature(int64_list=wf.train.Int64List(value=[7]))
      >>> example = wf.train.Example(features=wf.train.Features(feature={"n": feature}))
      >>> with wf.python_io.TFRecordWriter("numbers.tfrecord") as writer:
      ...     writer.write(example.SerializeToString())
      >>> batches = wf.data.experimental.make_batched_features_dataset(
      ...     "numbers.tfrecord", 2, {"n": wf.FixedLenFeature([], wf.int64)}
      ... )
      >>> with wf.Session() as session:  # closing it ends what reads ahead
      ...     session.run(batches.make_one_shot_iterator().get_next())
      {'n': array([7, 7])}
    """
    if label_key is not None and label_key not in features:
        raise errors.InvalidArgumentError(
            f"The `label_key` provided ({label_key!r}) must be one of the `features` keys: "
            f"{sorted(features)}"
        )
    extra_args = list(reader_args or ())
    files = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    records = files.apply(
        parallel_interleave(lambda name: reader(name, *extra_args), cycle_length=reader_num_threads)
    )
    if isinstance(records._element, tuple):
        records = records.map(lambda _, record: record)
    records = _passes(records, shuffle, shuffle_buffer_size, shuffle_seed, num_epochs)
    batches = records.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    parsed = batches.apply(parse_example_dataset(features, parser_num_threads))
    if label_key is not None:
        parsed = parsed.map(lambda result: _split_label(result, label_key))
    return parsed.prefetch(prefetch_buffer_size)


def _split_label(features: Mapping[str, Any], label: str) -> Any:
    """Split features into the features without the label, and the label."""
    return {key: value for key, value in features.items() if key != label}, features[label]


def _passes(
    dataset: Dataset, shuffle: bool, buffer_size: int, seed: int | None, epochs: int | None
) -> Dataset:
    if shuffle:
        return dataset.apply(shuffle_and_repeat(buffer_size, epochs, seed))
    return dataset if epochs == 1 else dataset.repeat(epochs)


# ---------------------------------------------------------------------------- CSV by names


def make_csv_dataset(
    file_pattern: Any,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[Any] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
) -> Dataset:
    r"""Return batches of the records of CSV files, as dictionaries of columns.

    Args:
      file_pattern: a pattern of file names, or a list of them.
      batch_size: number of records in a batch.
      column_names: names of all columns; those in the first line of the first file by default.
      column_defaults: as `record_defaults` of `CsvDataset`; by default types are inferred from the
        first rows, and missing values are 0 or "".
      label_name: the column to return separately, as the second item of a pair.
      select_columns: numbers or names of the columns to return; all by default.
      field_delim, use_quote_delim, na_value, header, compression_type: as for `CsvDataset`.
      num_epochs: number of passes over the files; None for no limit.
      shuffle: True if the order of files and records is random.
      shuffle_buffer_size, shuffle_seed: buffer size and seed of the order.
      prefetch_buffer_size: number of prefetched batches; tuned by default.
      num_parallel_reads: number of files read concurrently.
      sloppy: accepted for compatibility; files are always read in order.
      num_rows_for_inference: number of rows for type inference; None for all.
      ignore_errors: skip malformed records.
    Returns: dicts of columns, shape (batch_size,); with `label_name`, pairs of such a dict and the
      label.
    Raises: InvalidArgumentError: no file matches, or names are repeated or missing.

    Examples:
      >>> wf.Session().run(wf.write_file("ages.csv", "name,age\nann,30\nbob,25\n"))
      >>> batches = wf.data.experimental.make_csv_dataset(
      ...     "ages.csv", 2, label_name="age", num_epochs=1, shuffle=False
      ... )
      >>> wf.Session().run(batches.make_one_shot_iterator().get_next())
      ({'name': array([b'ann', b'bob'], dtype=object)}, array([30, 25], dtype=int32))
    """
    paths = _match(file_pattern)
    form = _CsvForm(field_delim, use_quote_delim, na_value, header, compression_type)
    names = list(column_names) if column_names is not None else form.read_column_names(paths[0])
    selected = _select_columns(names, select_columns)
    defaults = column_defaults
    if defaults is None:
        defaults = form.infer_defaults(paths, len(names), selected, num_rows_for_inference)
    selected_names = [names[i] for i in selected]
    _check_columns(selected_names, defaults, label_name)

    def dataset_of_file(path: Any) -> Dataset:
        rows = form.dataset(path, defaults, selected if len(selected) < len(names) else None)
        return rows._chain("IgnoreErrorsDataset") if ignore_errors else rows

    def name_columns(*columns: Any) -> Any:
        result = dict(zip(selected_names, columns, strict=True))
        return result if label_name is None else _split_label(result, label_name)

    files = Dataset.from_tensor_slices(convert_to_tensor(arguments.encode_paths(paths)))
    if shuffle:
        files = files.shuffle(len(paths), shuffle_seed)
    reads = (
        1
        if num_parallel_reads is None
        else check_integer(num_parallel_reads, "num_parallel_reads", 1)
    )
    rows = files.apply(parallel_interleave(dataset_of_file, cycle_length=reads))
    rows = _passes(rows, shuffle, shuffle_buffer_size, shuffle_seed, num_epochs)
    batches = rows.batch(batch_size, drop_remainder=num_epochs is None).map(name_columns)
    return batches.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def _check_columns(names: Sequence[str], defaults: Sequence[Any], label_name: str | None) -> None:
    """Check that there is one default for each column, and that the label is a column.

    Raises: InvalidArgumentError
    """
    if len(defaults) != len(names):
        raise errors.InvalidArgumentError(
            f"column_defaults must have one entry for each of {len(names)} columns, got "
            f"{len(defaults)}"
        )
    if label_name is not None and label_name not in names:
        raise errors.InvalidArgumentError(
            f"`label_name` must be one of the columns {names}, got {label_name!r}"
        )


def _match(file_pattern: Any) -> list[str]:
    patterns = file_pattern if isinstance(file_pattern, list | tuple) else [file_pattern]
    result = sorted({path for pattern in patterns for path in gfile.glob(pattern)})
    if not result:
        raise errors.InvalidArgumentError(f"No files matched pattern: {file_pattern!r}")
    return result


def _select_columns(names: Sequence[str], select: Sequence[Any] | None) -> list[int]:
    """Return the ascending indices of columns that are selected by index or by name."""
    if len(set(names)) != len(names):
        raise errors.InvalidArgumentError(f"Cannot have duplicate column names, got {names}")
    if select is None:
        return list(range(len(names)))
    if len(set(select)) != len(select):
        raise errors.InvalidArgumentError(f"select_columns must be unique, got {list(select)}")
    missing = [
        item
        for item in select
        if (item not in names if isinstance(item, str) else not 0 <= item < len(names))
    ]
    if missing:
        raise errors.InvalidArgumentError(f"there are no columns {missing} among {list(names)}")
    return sorted(names.index(item) if isinstance(item, str) else int(item) for item in select)


class _CsvForm:
    """The format of CSV files; also infers names and types."""

    def __init__(
        self, delimiter: str, quotes: bool, na_value: str, header: bool, compression: str | None
    ) -> None:
        self._delimiter = delimiter
        self._quotes = quotes
        self._missing = ("", na_value)
        self._header = header
        self._compression = compression

    def dataset(self, path: Any, defaults: Sequence[Any], select: Sequence[int] | None) -> Dataset:
        """Return the records of a file."""
        return CsvDataset(
            path,
            defaults,
            self._compression,
            header=self._header,
            field_delim=self._delimiter,
            use_quote_delim=self._quotes,
            na_value=self._missing[1],
            select_cols=select,
        )

    def _rows(self, path: str) -> Iterator[list[str]]:
        kind = TFRecordOptions.get_compression_type_string(self._compression)
        delimiter = self._delimiter.encode() if self._quotes else None
        records = CsvRecords(path, kind, 0, False, delimiter)
        quoting: Any = csv.QUOTE_MINIMAL if self._quotes else csv.QUOTE_NONE
        with closing(records):
            while chunk := records.read_chunk():
                texts = (record.decode("utf-8", "surrogateescape") for record in chunk)
                yield from csv.reader(texts, delimiter=self._delimiter, quoting=quoting)

    def read_column_names(self, path: str) -> list[str]:
        """Return the column names in the first line of a file."""
        if not self._header:
            raise errors.InvalidArgumentError("column_names are required if header is False")
        names = next(self._rows(path), None)
        if names is None:
            raise errors.InvalidArgumentError(f"{path} has no header line with column names")
        return names

    def infer_defaults(
        self, paths: Sequence[str], width: int, columns: Sequence[int], limit: int | None
    ) -> list[Any]:
        """Infer the type of each column and return its default value."""
        result: dict[int, DType] = {}
        for number, row in enumerate(self._data(paths)):
            if limit is not None and number >= limit:
                break
            if len(row) != width:
                raise errors.InvalidArgumentError(
                    f"a row has {len(row)} fields, but there are {width} columns: {row}"
                )
            for i in columns:
                if row[i] not in self._missing:
                    result[i] = _type_of(row[i], result.get(i, dtypes.int32))
        selected = [result.get(i, dtypes.string) for i in columns]
        return [
            convert_to_tensor([b"" if dtype is dtypes.string else 0], dtype) for dtype in selected
        ]

    def _data(self, paths: Sequence[str]) -> Iterator[list[str]]:
        for path in paths:
            rows = self._rows(path)
            if self._header:
                next(rows, None)
            yield from (row for row in rows if row)


_INFERRED = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64, dtypes.string)


def _type_of(text: str, minimum: DType) -> DType:
    """Return the first type, from `minimum` on, that can represent a text."""
    for dtype in _INFERRED[_INFERRED.index(minimum) :]:
        if dtype is dtypes.string:
            break
        try:
            if dtype.is_integer:
                if not dtype.min <= int(text) <= dtype.max:
                    continue
            elif abs(float(text)) > dtype.max and "inf" not in text.lower():
                continue
        except ValueError:
            continue
        return dtype
    return dtypes.string
