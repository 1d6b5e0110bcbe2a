"""Tables under the names and with the arguments of `tf.contrib.lookup`."""

from __future__ import annotations

__all__ = [
    "FastHashSpec",
    "HashTable",
    "HasherSpec",
    "IdTableWithHashBuckets",
    "KeyValueTensorInitializer",
    "LookupInterface",
    "MutableDenseHashTable",
    "MutableHashTable",
    "StrongHashSpec",
    "TableInitializerBase",
    "TextFileIdTableInitializer",
    "TextFileIndex",
    "TextFileInitializer",
    "TextFileStringTableInitializer",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
]

from typing import Any

from weft_io.lookup import functions, tables
from weft_io.lookup.functions import index_table_from_file, index_to_string_table_from_file
from weft_io.lookup.initializers import (
    KeyValueTensorInitializer,
    TableInitializerBase,
    TextFileIdTableInitializer,
    TextFileIndex,
    TextFileInitializer,
    TextFileStringTableInitializer,
)
from weft_io.lookup.tables import LookupInterface, StaticHashTable
from weft_io.lookup.vocabulary import (
    FastHashSpec,
    HasherSpec,
    IdTableWithHashBuckets,
    StrongHashSpec,
)
from weft_tensor import dtypes


class HashTable(StaticHashTable):
    """A `StaticHashTable` that sessions can share.

    Args:
      initializer, default_value, name: as for `StaticHashTable`.
      shared_name: the name it is shared under among sessions.
    """

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        shared_name: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(initializer, default_value, name, shared_name=shared_name)


class MutableHashTable(tables.MutableHashTable):
    """A `lookup.experimental.MutableHashTable` that sessions can share.

    Args:
      key_dtype, value_dtype, default_value, name, checkpoint: as for that class.
      shared_name: the name it is shared under among sessions.
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        shared_name: str | None = None,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(
            key_dtype, value_dtype, default_value, name, checkpoint, shared_name=shared_name
        )


class MutableDenseHashTable(tables.DenseHashTable):
    """A `lookup.experimental.DenseHashTable` that sessions can share.

    Args:
      key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets, name,
        checkpoint: as for that class.
      shared_name: the name it is shared under among sessions.
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        shared_name: str | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(
            key_dtype,
            value_dtype,
            default_value,
            empty_key,
            deleted_key,
            initial_num_buckets,
            name,
            checkpoint,
            shared_name=shared_name,
        )


def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Return a table from words to their indices in a list; see `lookup.functions`.

    Args:
      mapping: string or integers, shape (n,).
      num_oov_buckets, default_value, hasher_spec, dtype, name: as for the function there.
    """
    return functions.index_table_from_tensor(
        mapping, num_oov_buckets, default_value, hasher_spec, dtype, name
    )


def index_to_string_table_from_tensor(
    mapping: Any, default_value: Any = "UNK", name: str | None = None
) -> StaticHashTable:
    """Return a table from indices in a list to its words; see `lookup.functions`.

    Args:
      mapping: string, shape (n,).
      default_value, name: as for the function there.
    """
    return functions.index_to_string_table_from_tensor(mapping, default_value, name)
