"""Tables that map every word to an id; words outside the vocabulary get a hash bucket."""

from __future__ import annotations

__all__ = ["StaticVocabularyTable"]

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_graph.ir.builder import constant, create
from weft_graph.ir.node import Node, Output
from weft_graph.ops.arithmetic import add
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import less
from weft_graph.ops.gather import gather, tensor_scatter_nd_update
from weft_graph.ops.masks import where
from weft_graph.ops.shapes import reshape, shape, squeeze
from weft_graph.ops.string_conversion import (
    as_string,
    string_to_hash_bucket_fast,
    string_to_hash_bucket_strong,
)
from weft_io.lookup.initializers import TableInitializerBase
from weft_io.lookup.tables import LookupInterface, StaticHashTable, apply_to_values
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.dtypes import DType


class HasherSpec(NamedTuple):
    """The hash function for words outside a vocabulary.

    Attributes:
      hasher: "fasthash" or "stronghash".
      key: two integers, for "stronghash".
    """

    hasher: str
    key: tuple[int, int] | None = None


FastHashSpec = HasherSpec("fasthash")
"""A fast hash, equal on all machines."""


class StrongHashSpec(HasherSpec):
    """A hash that is unpredictable without the key.

    Args:
      key: two non-negative integers.
    Raises: InvalidArgumentError: `key` is not a pair of non-negative integers.
    """

    def __new__(cls, key: Sequence[int]) -> StrongHashSpec:
        """Check the key."""
        key_list = list(key) if isinstance(key, list | tuple) else []
        if len(key_list) != 2:
            raise errors.InvalidArgumentError(f"key must have size 2, got {key!r}")
        first, second = (check_integer(item, "key", 0) for item in key_list)
        return super().__new__(cls, "stronghash", (first, second))


class IdTableWithHashBuckets(LookupInterface):
    """Ids of words: those of a table, followed by hash buckets for all other words.

    Args:
      table: from words to int64, default -1; None if all words go to buckets.
      num_oov_buckets: number of buckets.
      hasher_spec: the hash function of the buckets.
      name: name of the nodes.
      key_dtype: element type of the words, string or an integer; defaults to that of the table.
    Raises: InvalidTypeError: types do not match; InvalidArgumentError: there is neither a table nor
      a bucket.
    """

    def __init__(
        self,
        table: StaticHashTable | None,
        num_oov_buckets: int,
        hasher_spec: HasherSpec = FastHashSpec,
        name: str | None = None,
        key_dtype: Any = None,
    ) -> None:
        default_dtype = dtypes.string if table is None else table.key_dtype
        dtype = default_dtype if key_dtype is None else dtypes.as_dtype(key_dtype)
        if default_dtype not in (dtypes.int64, dtypes.string):
            raise errors.InvalidTypeError(
                f"Invalid table key dtype, expected int64 or string, got {default_dtype.name}"
            )
        fits = dtype.is_integer or dtype is dtypes.string
        if not fits or (table is not None and dtype.is_integer != default_dtype.is_integer):
            raise errors.InvalidTypeError(
                "Invalid key dtype, expected "
                f"{'integer' if default_dtype.is_integer else 'string'} but got "
                f"{dtype.name}"
            )
        if table is not None and table.value_dtype is not dtypes.int64:
            raise errors.InvalidTypeError(
                f"Invalid value_dtype, expected int64 but got {table.value_dtype.name}"
            )
        if not isinstance(hasher_spec, HasherSpec):
            raise errors.InvalidTypeError(
                f"`hasher_spec` must be of type HasherSpec, got {hasher_spec!r}"
            )
        if table is None and num_oov_buckets == 0:
            raise errors.InvalidArgumentError("a table is required if num_oov_buckets is 0")
        self._num_oov_buckets = check_integer(num_oov_buckets, "num_oov_buckets", 0)
        self._table = table
        self._hasher = hasher_spec
        self._table_name = name
        super().__init__(dtype, dtypes.int64)

    @property
    def name(self) -> str:
        """The name of the table of the words."""
        return self._table_name or (self._table.name if self._table is not None else "buckets")

    @property
    def initializer(self) -> Node:
        """The node that fills the table."""
        return create("NoOp", ()) if self._table is None else self._table.initializer

    @property
    def init(self) -> Node:
        """The initializer, under its deprecated name."""
        return self.initializer

    @property
    def resource_handle(self) -> Output | None:
        """The handle of the table of the words."""
        return None if self._table is None else self._table.resource_handle

    def size(self, name: str | None = None) -> Any:
        """Return the number of ids: int64, shape ().

        Args:
          name: name of the node.
        """
        if self._table is None:
            return constant(self._num_oov_buckets, dtypes.int64, name=name or "Size")
        return add(self._table.size(), self._num_oov_buckets, name=name)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the ids of words.

        Args:
          keys: keys of the table's type, any shape; or a sparse tensor.
          name: name of the nodes.
        Returns: int64, shape of `keys`; sparse if `keys` is.
        Raises: InvalidTypeError: the keys are of another type.
        """
        return apply_to_values(keys, lambda dense: self._ids(self._key_tensor(dense)))

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)

    def _ids(self, keys: Output) -> Output:
        if self._table is None:
            return self._buckets(keys)
        words = cast(keys, dtypes.int64) if self._table.key_dtype is dtypes.int64 else keys
        ids: Output = self._table.lookup(words)
        if not self._num_oov_buckets:
            return ids
        # Only unknown words are hashed, since hashing is slow.
        flat = reshape(ids, [-1])
        positions = where(less(flat, 0))
        missing = gather(reshape(keys, [-1]), squeeze(positions, [1]))
        buckets = add(self._buckets(missing), self._table.size())
        result = reshape(tensor_scatter_nd_update(flat, positions, buckets), shape(ids))
        result.set_shape(keys.shape)
        return result

    def _buckets(self, keys: Output) -> Output:
        words = keys if keys.dtype is dtypes.string else as_string(keys)
        count = self._num_oov_buckets
        if self._hasher.key is None:
            return string_to_hash_bucket_fast(words, count)
        return string_to_hash_bucket_strong(words, count, self._hasher.key)


class StaticVocabularyTable(IdTableWithHashBuckets):
    """Ids of words: those of a vocabulary, followed by hash buckets for all other words.

    Args:
      initializer: the words with their ids, which are 0 to n - 1: int64; None if all words go to
        buckets.
      num_oov_buckets: number of buckets; an unknown word gets the bucket of its hash.
      lookup_key_dtype: type of the keys of `lookup`: string or an integer; that of the words by
        default.
      name: name of the nodes.
    Raises: InvalidTypeError: types do not match; InvalidArgumentError: `num_oov_buckets` is below
      1.

    Examples:
      >>> words = wf.lookup.KeyValueTensorInitializer(["to", "be"], [0, 1], value_dtype=wf.int64)
      >>> table = wf.lookup.StaticVocabularyTable(words, num_oov_buckets=1)
      >>> with wf.Session() as session:
      ...     session.run(table.initializer)
      ...     session.run(table.lookup(["be", "or", "not", "to"]))
      array([1, 2, 2, 0])
    """

    def __init__(
        self,
        initializer: Any,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        if check_integer(num_oov_buckets, "num_oov_buckets") <= 0:
            raise errors.InvalidArgumentError(
                f"`num_oov_buckets` must be > 0; use StaticHashTable, got {num_oov_buckets}"
            )
        table = None
        if initializer is not None:
            _check_ids(initializer)
            table = StaticHashTable(initializer, -1, name)
        super().__init__(table, num_oov_buckets, FastHashSpec, name, lookup_key_dtype)


def _check_ids(initializer: Any) -> None:
    if isinstance(initializer, TableInitializerBase) and initializer.value_dtype is dtypes.int64:
        return
    dtype: DType | Any = getattr(initializer, "value_dtype", initializer)
    raise errors.InvalidTypeError(f"Invalid `value_dtype`, expected int64 but got {dtype!r}")
