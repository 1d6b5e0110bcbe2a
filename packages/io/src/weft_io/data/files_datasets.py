"""Datasets of the records of files."""

from __future__ import annotations

from typing import Any

from weft_graph.builder import convert_to_tensor, create
from weft_io.data.dataset import Dataset
from weft_io.data.specs import Spec
from weft_tensor import dtypes

_BUFFER = 262144


def _default(value: Any, otherwise: Any, dtype: Any) -> Any:
    return convert_to_tensor(otherwise if value is None else value, dtype)


def _names(filenames: Any) -> Any:
    if isinstance(filenames, Dataset):
        return filenames
    return convert_to_tensor(filenames, dtypes.string)


def _records(op: str, filenames: Any, rest: list[Any]) -> Any:
    """The handle of a dataset of records; files named by a dataset are read as it names them."""
    names = _names(filenames)
    if not isinstance(names, Dataset):
        return create(op, [names, *rest]).outputs[0]
    inner = Spec(dtypes.string, ())

    def one(name: Any) -> Dataset:
        return Dataset(create(op, [name, *rest]).outputs[0], inner)

    return names.flat_map(one)._variant_tensor


class TFRecordDataset(Dataset):
    """The records of TFRecord files, in order: string, shape ().

    Args:
      filenames: string, shape () or (n,), or a dataset of such.
      compression_type: string, shape (): "", "ZLIB" or "GZIP".
      buffer_size: accepted; files are read in pieces of a size that is fast.
      num_parallel_reads: read so many files at once, their records in turns.
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
    ) -> None:
        rest = [
            _default(compression_type, "", dtypes.string),
            _default(buffer_size, _BUFFER, dtypes.int64),
        ]
        if num_parallel_reads is None:
            handle = _records("TFRecordDataset", filenames, rest)
        else:
            names = _names(filenames)
            if not isinstance(names, Dataset):
                names = Dataset.from_tensor_slices(create("Reshape", [names, [-1]]).outputs[0])
            inner = Spec(dtypes.string, ())
            handle = names.interleave(
                lambda name: Dataset(create("TFRecordDataset", [name, *rest]).outputs[0], inner),
                cycle_length=num_parallel_reads,
                num_parallel_calls=num_parallel_reads,
            )._variant_tensor
        super().__init__(handle, Spec(dtypes.string, ()))


class TextLineDataset(Dataset):
    """The lines of text files, without their ends, in order: string, shape ().

    Args:
      filenames, compression_type, buffer_size: as for `TFRecordDataset`.
    """

    def __init__(
        self, filenames: Any, compression_type: Any = None, buffer_size: Any = None
    ) -> None:
        rest = [
            _default(compression_type, "", dtypes.string),
            _default(buffer_size, _BUFFER, dtypes.int64),
        ]
        super().__init__(_records("TextLineDataset", filenames, rest), Spec(dtypes.string, ()))


class FixedLengthRecordDataset(Dataset):
    """The records of files whose records have one length, in order: string, shape ().

    Args:
      filenames: as for `TFRecordDataset`.
      record_bytes: int64, shape (): length of a record.
      header_bytes, footer_bytes: what to leave out at the ends of each file; 0 by default.
      buffer_size, compression_type: as for `TFRecordDataset`.
    """

    def __init__(
        self,
        filenames: Any,
        record_bytes: Any,
        header_bytes: Any = None,
        footer_bytes: Any = None,
        buffer_size: Any = None,
        compression_type: Any = None,
    ) -> None:
        rest = [
            _default(header_bytes, 0, dtypes.int64),
            convert_to_tensor(record_bytes, dtypes.int64),
            _default(footer_bytes, 0, dtypes.int64),
            _default(buffer_size, _BUFFER, dtypes.int64),
            _default(compression_type, "", dtypes.string),
        ]
        handle = _records("FixedLengthRecordDatasetV2", filenames, rest)
        super().__init__(handle, Spec(dtypes.string, ()))
