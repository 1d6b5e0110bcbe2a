"""Datasets of the records of files."""

from __future__ import annotations

__all__ = ["FixedLengthRecordDataset", "TFRecordDataset", "TextLineDataset"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Output
from weft_io import arguments
from weft_io.data.dataset import Dataset
from weft_io.data.specs import Spec
from weft_io.records.options import TFRecordOptions
from weft_io.streams.prefetching import AUTOTUNE
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims

_BUFFER = 262144


def _size(
    value: Any, label: str, minimum: int, otherwise: int | None = None, auto: int | None = None
) -> Output:
    if value is None and otherwise is not None:
        value = otherwise
    return arguments.scalar(value, dtypes.int64, label, minimum, auto)


def _buffer(buffer_size: Any) -> Output:
    return _size(buffer_size, "buffer_size", 0, _BUFFER)


def _compression(compression_type: Any) -> Output:
    if isinstance(compression_type, str):
        compression_type = TFRecordOptions.get_compression_type_string(compression_type)
    compression = "" if compression_type is None else compression_type
    return arguments.scalar(compression, dtypes.string, "compression_type")


def _names(filenames: Any) -> Any:
    if isinstance(filenames, Dataset):
        return filenames
    names = convert_to_tensor(arguments.encode_paths(filenames), dtypes.string)
    if names.dims is not None and len(names.dims) > 1:
        raise errors.InvalidArgumentError(
            f"filenames must have rank 0 or 1, got shape {format_dims(names.dims)}"
        )
    return names


def _records(op: str, filenames: Any, remaining: list[Any], num_parallel_reads: Any) -> Any:
    """Return the handle of a dataset of records, for file names or a dataset of file names."""
    names = _names(filenames)
    inner = Spec(dtypes.string, ())

    def make_dataset(name: Any) -> Dataset:
        return Dataset(create(op, [name, *remaining]).outputs[0], inner)

    if num_parallel_reads is not None:
        reads = _size(num_parallel_reads, "num_parallel_reads", 1, auto=AUTOTUNE)
        if not isinstance(names, Dataset):
            names = Dataset.from_tensor_slices(create("Reshape", [names, [-1]]).outputs[0])
        interleave = names.interleave(
            make_dataset, cycle_length=num_parallel_reads, num_parallel_calls=reads
        )
        return interleave._variant_tensor
    if isinstance(names, Dataset):
        return names.flat_map(make_dataset)._variant_tensor
    return create(op, [names, *remaining]).outputs[0]


class TFRecordDataset(Dataset):
    """The records of TFRecord files, in order: string, shape ().

    Args:
      filenames: string, shape () or (n,), or a dataset of such.
      compression_type: string, shape (): "", "ZLIB" or "GZIP".
      buffer_size: accepted and ignored.
      num_parallel_reads: number of files to read at once; their records are interleaved.

    Examples:
      >>> with wf.python_io.TFRecordWriter("some.tfrecord") as writer:
      ...     writer.write(b"first")
      >>> record = wf.data.TFRecordDataset("some.tfrecord").make_one_shot_iterator().get_next()
      >>> wf.Session().run(record)
      b'first'
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
    ) -> None:
        remaining = [_compression(compression_type), _buffer(buffer_size)]
        handle = _records("TFRecordDataset", filenames, remaining, num_parallel_reads)
        super().__init__(handle, Spec(dtypes.string, ()))


class TextLineDataset(Dataset):
    r"""The lines of text files, without their ends, in order: string, shape ().

    Args:
      filenames, compression_type, buffer_size, num_parallel_reads: as for `TFRecordDataset`.

    Examples:
      >>> wf.Session().run(wf.write_file("text.txt", "one\ntwo\n"))
      >>> line = wf.data.TextLineDataset("text.txt").make_one_shot_iterator().get_next()
      >>> wf.Session().run(line)
      b'one'
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
    ) -> None:
        remaining = [_compression(compression_type), _buffer(buffer_size)]
        handle = _records("TextLineDataset", filenames, remaining, num_parallel_reads)
        super().__init__(handle, Spec(dtypes.string, ()))


class FixedLengthRecordDataset(Dataset):
    """The records of files with fixed-length records, in order: string, shape ().

    Args:
      filenames: as for `TFRecordDataset`.
      record_bytes: int64, shape (): length of a record.
      header_bytes, footer_bytes: number of bytes to skip at the start and end of each file; 0 by
        default.
      buffer_size, compression_type, num_parallel_reads: as for `TFRecordDataset`.
    Raises: InvalidArgumentError: `record_bytes` is not positive, another number is negative, or the
      compression is unknown; when it runs: NotFoundError: a file does not exist; DataLossError: the
      size of a file is not a multiple of the record size.

    Examples:
      >>> wf.Session().run(wf.write_file("fixed", "#aabb"))
      >>> dataset = wf.data.FixedLengthRecordDataset("fixed", record_bytes=2, header_bytes=1)
      >>> record = wf.data.make_one_shot_iterator(dataset).get_next()
      >>> wf.Session().run(record)
      b'aa'
    """

    def __init__(
        self,
        filenames: Any,
        record_bytes: Any,
        header_bytes: Any = None,
        footer_bytes: Any = None,
        buffer_size: Any = None,
        compression_type: Any = None,
        num_parallel_reads: Any = None,
    ) -> None:
        remaining = [
            _size(header_bytes, "header_bytes", 0, 0),
            _size(record_bytes, "record_bytes", 1),
            _size(footer_bytes, "footer_bytes", 0, 0),
            _buffer(buffer_size),
            _compression(compression_type),
        ]
        handle = _records("FixedLengthRecordDatasetV2", filenames, remaining, num_parallel_reads)
        super().__init__(handle, Spec(dtypes.string, ()))
