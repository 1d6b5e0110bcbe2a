"""TFRecord files without a graph: `tf.python_io`."""

from __future__ import annotations

__all__ = ["tf_record_batches", "tf_record_iterator"]

from collections.abc import Iterator
from typing import Any

from weft_io.files.systems import PathLike, as_path
from weft_io.records.options import TFRecordOptions
from weft_io.records.tfrecord import TFRecordSource
from weft_tensor import errors
from weft_tensor.arguments import check_integer


def tf_record_iterator(path: PathLike, options: Any = None) -> Iterator[bytes]:
    """Yield the records of a TFRecord file, each verified.

    Args:
      path: local, or a URL that fsspec knows.
      options: TFRecordOptions, or a compression ("GZIP").
    Raises: NotFoundError, ...; DataLossError: a record is damaged or incomplete; the message has
      its position.

    Examples:
      >>> with wf.python_io.TFRecordWriter("records.tfrecord") as writer:
      ...     writer.write(b"first")
      >>> list(wf.python_io.tf_record_iterator("records.tfrecord"))
      [b'first']
    """
    for records in _chunks(path, options):
        yield from records


def tf_record_batches(
    path: PathLike, batch_size: int, options: Any = None
) -> Iterator[list[bytes]]:
    """Yield the records of a TFRecord file in lists of `batch_size`; the last one may be shorter.

    This is much faster than reading one by one, for example for `parse_example`.

    Args:
      path: local, or a URL that fsspec knows.
      batch_size: number of records in a list, positive.
      options: TFRecordOptions, or a compression ("GZIP").
    Raises: as `tf_record_iterator`; the records before the damaged one come first.

    Examples:
      >>> with wf.python_io.TFRecordWriter("three.tfrecord") as writer:
      ...     for record in (b"a", b"b", b"c"):
      ...         writer.write(record)
      >>> list(wf.io.tf_record_batches("three.tfrecord", 2))
      [[b'a', b'b'], [b'c']]
    """
    return _batches(path, check_integer(batch_size, "batch_size", 1), options)


def _batches(path: PathLike, batch_size: int, options: Any) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    try:
        for records in _chunks(path, options):
            batch += records
            full = len(batch) - len(batch) % batch_size
            for index in range(0, full, batch_size):
                yield batch[index : index + batch_size]
            del batch[:full]
    except errors.DataLossError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _chunks(path: PathLike, options: Any) -> Iterator[list[bytes]]:
    compression = TFRecordOptions.get_compression_type_string(options)
    source = TFRecordSource(as_path(path), compression)
    try:
        while records := source.read_chunk():
            yield records
    finally:
        source.close()
