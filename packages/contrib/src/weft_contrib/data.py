"""`tf.contrib.data`: datasets and their transformations."""

from __future__ import annotations

__all__ = [
    "AUTOTUNE",
    "CheckpointInputPipelineHook",
    "Counter",
    "CsvDataset",
    "Dataset",
    "FixedLengthRecordDataset",
    "Iterator",
    "Optional",
    "RandomDataset",
    "Reducer",
    "SqlDataset",
    "TFRecordDataset",
    "TFRecordWriter",
    "TextLineDataset",
    "batch_and_drop_remainder",
    "bucket_by_sequence_length",
    "choose_from_datasets",
    "copy_to_device",
    "dense_to_sparse_batch",
    "enumerate_dataset",
    "get_next_as_optional",
    "get_single_element",
    "group_by_reducer",
    "group_by_window",
    "ignore_errors",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "make_saveable_from_iterator",
    "map_and_batch",
    "padded_batch_and_drop_remainder",
    "parallel_interleave",
    "parse_example_dataset",
    "prefetch_to_device",
    "rejection_resample",
    "sample_from_datasets",
    "scan",
    "shuffle_and_repeat",
    "sloppy_interleave",
    "unbatch",
    "unique",
]

from collections.abc import Callable
from typing import Any

from weft_io.data.dataset import Dataset
from weft_io.data.experimental import make_saveable_from_iterator
from weft_io.data.files_datasets import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from weft_io.data.grouping import (
    Reducer,
    bucket_by_sequence_length,
    dense_to_sparse_batch,
    group_by_reducer,
    group_by_window,
)
from weft_io.data.interleaving import (
    Counter,
    RandomDataset,
    choose_from_datasets,
    rejection_resample,
    sample_from_datasets,
)
from weft_io.data.iterator import Iterator
from weft_io.data.optional import Optional, get_next_as_optional
from weft_io.data.tabular import (
    CsvDataset,
    SqlDataset,
    TFRecordWriter,
    make_batched_features_dataset,
    make_csv_dataset,
    parse_example_dataset,
)
from weft_io.data.transformations import (
    copy_to_device,
    enumerate_dataset,
    get_single_element,
    ignore_errors,
    map_and_batch,
    parallel_interleave,
    prefetch_to_device,
    scan,
    shuffle_and_repeat,
    unbatch,
    unique,
)
from weft_io.streams.prefetching import AUTOTUNE
from weft_io.training.input_hooks import CheckpointInputPipelineHook

Transformation = Callable[[Dataset], Dataset]


def batch_and_drop_remainder(batch_size: Any) -> Transformation:
    """Return a transformation that batches elements and drops a last smaller batch.

    Args:
      batch_size: integer of rank 0, at least 1.
    Returns: a function for `Dataset.apply`; shapes of its elements begin with `batch_size`.

    Examples:
      >>> numbers = wf.contrib.data.Dataset.range(5)
      >>> pairs = numbers.apply(wf.contrib.data.batch_and_drop_remainder(2))
      >>> wf.Session().run(pairs.make_one_shot_iterator().get_next())
      array([0, 1])
    """
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Transformation:
    """Return a transformation that batches padded elements and drops a last smaller batch.

    Args:
      batch_size: integer of rank 0, at least 1.
      padded_shapes, padding_values: as for `Dataset.padded_batch`.
    Returns: a function for `Dataset.apply`; shapes of its elements begin with `batch_size`.

    Examples:
      >>> rows = wf.contrib.data.Dataset.range(1, 4).map(lambda n: wf.fill([n], n))
      >>> pairs = rows.apply(wf.contrib.data.padded_batch_and_drop_remainder(2, [None]))
      >>> wf.Session().run(pairs.make_one_shot_iterator().get_next())
      array([[1, 0],
             [2, 2]])
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def sloppy_interleave(map_func: Any, cycle_length: int, block_length: int = 1) -> Transformation:
    """Return a transformation that interleaves datasets in an unspecified order.

    Args:
      map_func: function from an element to a dataset.
      cycle_length: number of datasets that are read concurrently.
      block_length: number of consecutive elements from one dataset.
    Returns: a function for `Dataset.apply`.

    Examples:
      >>> twice = wf.contrib.data.sloppy_interleave(lambda n: wf.data.Dataset.from_tensors(n), 2)
      >>> numbers = wf.contrib.data.Dataset.range(3).apply(twice)
      >>> int(wf.Session().run(numbers.make_one_shot_iterator().get_next())) in range(3)
      True
    """
    return parallel_interleave(map_func, cycle_length, block_length, sloppy=True)
