"""Readers: ops that read records of files whose names come from a queue."""

from __future__ import annotations

__all__ = [
    "FixedLengthRecordReader",
    "IdentityReader",
    "ReaderBase",
    "TFRecordReader",
    "TextLineReader",
    "WholeFileReader",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.node import Node, Output
from weft_io.ops import readers as ops
from weft_io.queues.queue import QueueBase
from weft_io.records.options import TFRecordOptions
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer


class ReaderBase:
    r"""Reads records of files, one file after the other.

    At the end of a file it dequeues the next name from the queue passed to `read`, waiting if
    necessary without blocking a thread. If a file cannot be read, that `read` fails, and the next
    one continues after the damaged record or with the next file.

    Args:
      reader_ref: the reader's handle, resource, shape ().
      supports_serialize: True if the state can be serialized; True for all readers here.

    Examples:
      >>> wf.Session().run(wf.write_file("ab.txt", "a\nb\n"))
      >>> names = wf.FIFOQueue(1, [wf.string], shapes=[[]])
      >>> reader = wf.TextLineReader()
      >>> keys, values = reader.read_up_to(names, 10)
      >>> with wf.Session() as session:
      ...     session.run(names.enqueue("ab.txt"))
      ...     session.run(values)
      ...     session.run(reader.num_records_produced())
      array([b'a', b'b'], dtype=object)
      np.int64(2)
    """

    def __init__(self, reader_ref: Output, supports_serialize: bool = False) -> None:
        self._reader_ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Output:
        """The handle."""
        return self._reader_ref

    @property
    def supports_serialize(self) -> bool:
        """True if `serialize_state` and `restore_state` work."""
        return self._supports_serialize

    def read(self, queue: Any, name: str | None = None) -> tuple[Output, ...]:
        """Return the next record.

        Args:
          queue: a queue of strings of shape (), or its handle: the file names.
        Returns: (key, value), strings of shape (); the key contains the file and the position.
        Raises: InvalidTypeError: it is not a queue of one string.
        Raises (when it runs): OutOfRangeError: the queue is closed and empty; NotFoundError,
          DataLossError, ...: the file cannot be read.
        """
        return ops.reader_read(self._reader_ref, _handle(queue), name)

    def read_up_to(
        self, queue: Any, num_records: Any, name: str | None = None
    ) -> tuple[Output, ...]:
        """Return the next records of one file; fewer than `num_records` at its end.

        Args:
          queue: as for `read`.
          num_records: int64, shape ().
        Returns: (keys, values), strings of shape (n,), n at least 1 unless `num_records` is 0.
        Raises (when it runs): as for `read`.
        """
        return ops.reader_read_up_to(self._reader_ref, _handle(queue), num_records, name)

    def num_records_produced(self, name: str | None = None) -> Output:
        """Return the number of records read: int64, shape ()."""
        return ops.reader_num_records_produced(self._reader_ref, name)

    def num_work_units_completed(self, name: str | None = None) -> Output:
        """Return the number of files read to their end: int64, shape ()."""
        return ops.reader_num_work_units_completed(self._reader_ref, name)

    def serialize_state(self, name: str | None = None) -> Output:
        """Return the state for `restore_state`, without names in queues: string, shape ()."""
        return ops.reader_serialize_state(self._reader_ref, name)

    def restore_state(self, state: Any, name: str | None = None) -> Node:
        """Continue after the last record that the serialized reader had read.

        With several states, the reader reads the remaining records of all those readers, file by
        file. A program can therefore continue with another number of readers.

        Args:
          state: string, shape () or (n,): states of readers of the same kind and settings.
        Raises (when it runs): InvalidArgumentError, DataLossError: it is not a state of such a
          reader, or is damaged.
        """
        return ops.reader_restore_state(self._reader_ref, state, name)

    def reset(self, name: str | None = None) -> Node:
        """Reset the reader to its initial state, abandoning its current file."""
        return ops.reader_reset(self._reader_ref, name)


def _handle(queue: Any) -> Any:
    if isinstance(queue, Output):
        return queue
    if not isinstance(queue, QueueBase):
        raise errors.InvalidTypeError(
            "a reader requires a queue of file names, such as the result of "
            f"string_input_producer, got {queue!r}"
        )
    if [dtype.base_dtype for dtype in queue.dtypes] != [dtypes.string]:
        raise errors.InvalidTypeError(
            "a reader requires a queue of one string, the name of a file, got one of "
            f"{[dtype.name for dtype in queue.dtypes]}"
        )
    return queue.queue_ref


class WholeFileReader(ReaderBase):
    """A reader whose records are whole files, with file names as keys.

    Examples:
      >>> wf.Session().run(wf.write_file("whole.txt", "all of it"))
      >>> names = wf.FIFOQueue(1, [wf.string], shapes=[[]])
      >>> key, value = wf.WholeFileReader().read(names)
      >>> with wf.Session() as session:
      ...     session.run(names.enqueue("whole.txt"))
      ...     session.run([key, value])
      [b'whole.txt', b'all of it']
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(ops.whole_file_reader(name=name), supports_serialize=True)


class IdentityReader(ReaderBase):
    """A reader whose keys and values are the names from the queue.

    Examples:
      >>> work = wf.FIFOQueue(1, [wf.string], shapes=[[]])
      >>> key, value = wf.IdentityReader().read(work)
      >>> with wf.Session() as session:
      ...     session.run(work.enqueue("item 1"))
      ...     session.run([key, value])
      [b'item 1', b'item 1']
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(ops.identity_reader(name=name), supports_serialize=True)


class TextLineReader(ReaderBase):
    r"""A reader of text files, one record per line.

    Records exclude "\n" and "\r\n". A key is `file:number`, counted from 1.

    Args:
      skip_header_lines: number of lines to skip at the beginning of each file.
    Raises: InvalidArgumentError: `skip_header_lines` is negative.

    Examples:
      >>> wf.Session().run(wf.write_file("lines.txt", "one\ntwo\n"))
      >>> queue = wf.train.string_input_producer(["lines.txt"], shuffle=False)
      >>> key, value = wf.TextLineReader().read(queue)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     coordinator = wf.train.Coordinator()
      ...     threads = wf.train.start_queue_runners(session, coordinator)
      ...     session.run(value)
      ...     coordinator.request_stop()
      ...     coordinator.join(threads)
      b'one'
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        skipped = check_integer(
            0 if skip_header_lines is None else skip_header_lines, "skip_header_lines", 0
        )
        super().__init__(ops.text_line_reader(skipped, name=name), supports_serialize=True)


class FixedLengthRecordReader(ReaderBase):
    """A reader of fixed-length records; a key is `file:number`, counted from 0.

    Args:
      record_bytes: length of a record.
      header_bytes, footer_bytes: bytes to skip at both ends of each file.
      hop_bytes: distance between the starts of records; `record_bytes` by default.
      encoding: "", "ZLIB" or "GZIP".
    Raises: InvalidArgumentError: `record_bytes` is not positive, another number is negative, or the
      encoding is unknown.

    Examples:
      >>> wf.Session().run(wf.write_file("pairs", "[aabb]"))
      >>> names = wf.FIFOQueue(1, [wf.string], shapes=[[]])
      >>> reader = wf.FixedLengthRecordReader(2, header_bytes=1, footer_bytes=1)
      >>> keys, values = reader.read_up_to(names, 10)
      >>> with wf.Session() as session:
      ...     session.run(names.enqueue("pairs"))
      ...     session.run([keys, values])
      [array([b'pairs:0', b'pairs:1'], dtype=object), array([b'aa', b'bb'], dtype=object)]
    """

    def __init__(
        self,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        hop_bytes: int | None = None,
        name: str | None = None,
        encoding: str | None = None,
    ) -> None:
        length = check_integer(record_bytes, "record_bytes", 1)
        header = check_integer(0 if header_bytes is None else header_bytes, "header_bytes", 0)
        footer = check_integer(0 if footer_bytes is None else footer_bytes, "footer_bytes", 0)
        hop = check_integer(0 if hop_bytes is None else hop_bytes, "hop_bytes", 0)
        handle = ops.fixed_length_record_reader(
            length, header, footer, hop, encoding or "", name=name
        )
        super().__init__(handle, supports_serialize=True)


class TFRecordReader(ReaderBase):
    """A reader of TFRecord files with verified checksums; a key is `file:offset`.

    Args:
      options: TFRecordOptions, or a compression.
    Raises: InvalidArgumentError: the compression is unknown.

    Examples:
      >>> with wf.python_io.TFRecordWriter("read.tfrecord") as writer:
      ...     writer.write(b"first")
      >>> names = wf.FIFOQueue(1, [wf.string], shapes=[[]])
      >>> key, value = wf.TFRecordReader().read(names)
      >>> with wf.Session() as session:
      ...     session.run(names.enqueue("read.tfrecord"))
      ...     session.run([key, value])
      [b'read.tfrecord:0', b'first']
    """

    def __init__(self, name: str | None = None, options: Any = None) -> None:
        compression = TFRecordOptions.get_compression_type_string(options)
        super().__init__(ops.tf_record_reader(compression, name=name), supports_serialize=True)


class ParquetReader(ReaderBase):
    """A reader of Parquet files; records are rows as serialized `Example`s, keys are `file:row`.

    `parse_example` parses a batch of them. Integers and booleans become int64 features, floats
    become float features, strings and binaries become bytes features. A list becomes a feature of
    several values, and a null a missing feature. Requires the extra `parquet`.

    Args:
      columns: names of the columns to read; all by default. `a.b` is a field of a nested column.
    Raises: InvalidArgumentError: `columns` are not names; when it runs: a column does not exist.

    Examples:
      >>> from pyarrow import parquet, table
      >>> parquet.write_table(table({"x": [1, 2]}), "rows.parquet")
      >>> names = wf.FIFOQueue(1, [wf.string], shapes=[[]])
      >>> keys, rows = wf.io.ParquetReader(["x"]).read_up_to(names, 10)
      >>> parsed = wf.parse_example(rows, {"x": wf.FixedLenFeature([], wf.int64)})
      >>> with wf.Session() as session:
      ...     session.run(names.enqueue("rows.parquet"))
      ...     session.run(parsed)
      {'x': array([1, 2])}
    """

    def __init__(self, columns: Sequence[str] | None = None, name: str | None = None) -> None:
        super().__init__(ops.parquet_reader(columns or (), name=name), supports_serialize=True)
