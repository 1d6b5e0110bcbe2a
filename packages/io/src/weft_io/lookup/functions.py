"""Tables from files and lists, as in `tf.contrib.lookup`."""

from __future__ import annotations

__all__ = [
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.ops.casting import cast
from weft_graph.ops.sequence import range as numbers
from weft_graph.ops.shapes import size
from weft_io.lookup.initializers import (
    KeyValueTensorInitializer,
    TextFileIdTableInitializer,
    TextFileIndex,
    TextFileStringTableInitializer,
    outermost_graph,
)
from weft_io.lookup.tables import StaticHashTable
from weft_io.lookup.vocabulary import FastHashSpec, HasherSpec, IdTableWithHashBuckets
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer


def _add_buckets(
    table: StaticHashTable, buckets: int, hasher: HasherSpec, key_dtype: Any, name: str | None
) -> Any:
    if not buckets:
        return table
    return IdTableWithHashBuckets(table, buckets, hasher, name, key_dtype)


def _check_file(vocabulary_file: Any, vocab_size: int | None) -> None:
    if not isinstance(vocabulary_file, Output) and not vocabulary_file:
        raise errors.InvalidArgumentError("`vocabulary_file` must be specified and not empty")
    if vocab_size is not None:
        check_integer(vocab_size, "vocab_size", 1)


def _ids_of(dtype: Any) -> Any:
    """Return the key type of a table: int64 for all integers."""
    requested_dtype = dtypes.as_dtype(dtype)
    if not requested_dtype.is_integer and requested_dtype is not dtypes.string:
        raise errors.InvalidTypeError(
            f"only integer and string keys are supported, got {requested_dtype.name}"
        )
    return dtypes.int64 if requested_dtype.is_integer else requested_dtype


def index_table_from_file(
    vocabulary_file: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: Any = dtypes.string,
    name: str | None = None,
    key_column_index: int = TextFileIndex.WHOLE_LINE,
    value_column_index: int = TextFileIndex.LINE_NUMBER,
    delimiter: str = "\t",
) -> Any:
    """Return a table from the lines of a file to their numbers.

    Args:
      vocabulary_file: string, shape ().
      num_oov_buckets: number of buckets for unknown words; 0 to return `default_value` for them.
      vocab_size: number of lines to read; None for all.
      default_value: the value of unknown words.
      hasher_spec: the hash function that assigns words to buckets.
      key_dtype: element type of the words: string or an integer.
      name: name of the nodes.
      key_column_index, value_column_index, delimiter: as for `TextFileInitializer`.
    Returns: a table with `lookup`, int64.
    """
    check_integer(num_oov_buckets, "num_oov_buckets", 0)
    _check_file(vocabulary_file, vocab_size)
    lines = TextFileIdTableInitializer(
        vocabulary_file,
        key_column_index,
        value_column_index,
        vocab_size,
        delimiter,
        key_dtype=_ids_of(key_dtype),
    )
    table = StaticHashTable(lines, default_value if not num_oov_buckets else -1, name)
    return _add_buckets(table, num_oov_buckets, hasher_spec, key_dtype, name)


def index_table_from_tensor(
    vocabulary_list: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = None,
    name: str | None = None,
) -> Any:
    """Return a table from words to their indices in a list.

    Args:
      vocabulary_list: string or integers, shape (n,).
      num_oov_buckets, default_value, hasher_spec, name: as for `index_table_from_file`.
      dtype: element type of the words; string for a list by default.
    Returns: a table with `lookup`, int64.
    """
    if vocabulary_list is None:
        raise errors.InvalidArgumentError("`vocabulary_list` must be specified")
    check_integer(num_oov_buckets, "num_oov_buckets", 0)
    with outermost_graph():
        words = convert_to_tensor(vocabulary_list, dtype)
        ids = _ids_of(words.dtype)
        words_of_ids = words if ids is words.dtype else cast(words, ids)
        indices = numbers(cast(size(words), dtypes.int64))
    pairs = KeyValueTensorInitializer(words_of_ids, indices, name="table_init")
    table = StaticHashTable(pairs, default_value if not num_oov_buckets else -1, name)
    if num_oov_buckets or words.dtype is ids:
        return _add_buckets(table, num_oov_buckets, hasher_spec, words.dtype, name)
    return IdTableWithHashBuckets(table, 0, hasher_spec, name, words.dtype)


def index_to_string_table_from_file(
    vocabulary_file: Any,
    vocab_size: int | None = None,
    default_value: Any = "UNK",
    name: str | None = None,
    key_column_index: int = TextFileIndex.LINE_NUMBER,
    value_column_index: int = TextFileIndex.WHOLE_LINE,
    delimiter: str = "\t",
) -> StaticHashTable:
    """Return a table from line numbers to the lines of a file.

    Args:
      vocabulary_file: string, shape ().
      vocab_size: number of lines to read; None for all.
      default_value: the value of unknown numbers.
      name: name of the nodes.
      key_column_index, value_column_index, delimiter: as for `TextFileInitializer`.
    Returns: a table with `lookup`, from int64 to string.
    """
    _check_file(vocabulary_file, vocab_size)
    lines = TextFileStringTableInitializer(
        vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter
    )
    return StaticHashTable(lines, default_value, name)


def index_to_string_table_from_tensor(
    vocabulary_list: Any, default_value: Any = "UNK", name: str | None = None
) -> StaticHashTable:
    """Return a table from indices in a list to its words.

    Args:
      vocabulary_list: string, shape (n,).
      default_value: the value of unknown indices.
      name: name of the nodes.
    Returns: a table with `lookup`, from int64 to string.
    """
    if vocabulary_list is None:
        raise errors.InvalidArgumentError("`vocabulary_list` argument must be specified")
    with outermost_graph():
        words = convert_to_tensor(vocabulary_list, dtypes.string)
        indices = numbers(cast(size(words), dtypes.int64))
    pairs = KeyValueTensorInitializer(indices, words, name="table_init")
    return StaticHashTable(pairs, default_value, name)
