"""Lookup tables filled from datasets."""

from __future__ import annotations

__all__ = ["DatasetInitializer", "index_table_from_dataset", "table_from_dataset"]

from typing import Any

from weft_graph.ir.builder import create
from weft_graph.ir.node import Node, Output
from weft_io.data import specs
from weft_io.data.dataset import Dataset
from weft_io.lookup.initializers import TableInitializerBase
from weft_io.lookup.tables import StaticHashTable
from weft_io.lookup.vocabulary import FastHashSpec, HasherSpec, IdTableWithHashBuckets
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer


class DatasetInitializer(TableInitializerBase):
    """An initializer that fills a table from a dataset of pairs.

    Args:
      dataset: a dataset of scalar pairs (key, value).
    Raises: InvalidTypeError: its elements are not such pairs.

    Examples:
      >>> pairs = wf.data.Dataset.from_tensor_slices((["a", "b"], [1, 2]))
      >>> table = wf.lookup.StaticHashTable(wf.data.experimental.DatasetInitializer(pairs), -1)
      >>> with wf.Session() as session:
      ...     session.run(table.initializer)
      ...     session.run(table.lookup(["b", "c"]))
      array([ 2, -1], dtype=int32)
    """

    def __init__(self, dataset: Dataset) -> None:
        form = dataset._element if isinstance(dataset, Dataset) else dataset
        pair = isinstance(form, tuple) and len(form) == 2
        if not pair or not all(isinstance(s, specs.Spec) and not s.dims for s in form):
            raise errors.InvalidTypeError(
                f"a dataset of pairs of scalars is required, got {dataset!r}"
            )
        super().__init__(form[0].dtype, form[1].dtype)
        self._dataset = dataset

    def _add_records(self, handle: Output) -> Node:
        return create("InitializeTableFromDataset", [handle, self._dataset._variant_tensor])


def table_from_dataset(
    dataset: Dataset | None = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: Any = None,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Return a table with the pairs of a dataset.

    Args:
      dataset: a dataset of scalar pairs (key, value).
      num_oov_buckets: number of buckets for missing keys; 0 to return `default_value` for them.
      vocab_size: number of pairs to read; None for all.
      default_value: the value of missing keys.
      hasher_spec: the hash function that assigns keys to buckets.
      key_dtype: element type of the keys: string or an integer.
      name: name of the nodes.
    Returns: a table with `lookup`.
    Raises: InvalidArgumentError: an argument is missing or out of its range.

    Examples:
      >>> pairs = wf.data.Dataset.from_tensor_slices((["a", "b"], [10, 20]))
      >>> table = wf.data.experimental.table_from_dataset(pairs, default_value=0)
      >>> with wf.Session() as session:
      ...     session.run(wf.tables_initializer())
      ...     session.run(table.lookup(["b", "c"]))
      array([20,  0], dtype=int32)
    """
    if not isinstance(dataset, Dataset):
        raise errors.InvalidTypeError(f"a Dataset is required, got {dataset!r}")
    if default_value is None and not num_oov_buckets:
        raise errors.InvalidArgumentError(
            "`default_value` is required if there are no out-of-vocabulary buckets"
        )
    check_integer(num_oov_buckets, "num_oov_buckets", 0)
    if vocab_size is not None:
        dataset = dataset.take(check_integer(vocab_size, "vocab_size", 1))
    pairs = DatasetInitializer(dataset)
    table = StaticHashTable(pairs, -1 if num_oov_buckets else default_value, name)
    if not num_oov_buckets:
        return table
    return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, name, key_dtype)


def index_table_from_dataset(
    dataset: Dataset | None = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Return a table from the elements of a dataset to their indices.

    Args:
      dataset: a dataset of scalar words.
      num_oov_buckets, vocab_size, default_value, hasher_spec, key_dtype, name: as of
        `table_from_dataset`.
    Returns: a table with `lookup`, int64.

    Examples:
      >>> words = wf.data.Dataset.from_tensor_slices(["to", "be"])
      >>> table = wf.data.experimental.index_table_from_dataset(words)
      >>> with wf.Session() as session:
      ...     session.run(wf.tables_initializer())
      ...     session.run(table.lookup(["be", "or"]))
      array([ 1, -1])
    """
    if not isinstance(dataset, Dataset):
        raise errors.InvalidTypeError(f"a Dataset is required, got {dataset!r}")
    numbered = dataset.enumerate().map(lambda number, word: (word, number))
    return table_from_dataset(
        numbered, num_oov_buckets, vocab_size, default_value, hasher_spec, key_dtype, name
    )
