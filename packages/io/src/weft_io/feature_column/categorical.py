"""Columns of categories."""

from __future__ import annotations

__all__ = [
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "crossed_column",
    "weighted_categorical_column",
]

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import control_dependencies
from weft_graph.ops.casting import cast
from weft_graph.ops.checks import assert_greater_equal, assert_less
from weft_graph.ops.comparison import greater_equal, less, logical_and
from weft_graph.ops.identity import identity
from weft_graph.ops.masks import where_v2
from weft_graph.ops.sparse_cross import cross_hashed
from weft_graph.ops.string_conversion import as_string, string_to_hash_bucket_fast
from weft_io.feature_column.base import (
    CategoricalColumn,
    FeatureColumn,
    Features,
    SparseIds,
    Spec,
    checked_dtype,
    require_categorical,
    to_int64,
    with_values,
)
from weft_io.files.paths import as_path, read_bytes
from weft_io.input.parsing import VarLenFeature
from weft_io.lookup.functions import index_table_from_file, index_table_from_tensor
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer


@dataclass(frozen=True)
class _KeyColumn(CategoricalColumn):
    """A categorical column of one feature."""

    name: str
    num_buckets: int
    dtype: dtypes.DType

    @property
    def parse_example_spec(self) -> Spec:
        return {self.name: VarLenFeature(self.dtype)}

    def sparse_ids(self, features: Features) -> SparseIds:
        return features.shared(self, lambda: SparseIds(self._ids(features)))  # type: ignore[no-any-return]

    def _ids(self, features: Features) -> Any:
        sparse = features.sparse(self.name)
        is_string = sparse.values.dtype == dtypes.string
        if is_string != (self.dtype == dtypes.string):
            raise errors.InvalidArgumentError(
                f"feature {self.name!r} must be {'string' if not is_string else 'integers'} as its "
                f"column says, got {sparse.values.dtype.name}"
            )
        return with_values(sparse, self._to_ids(sparse.values))

    def _to_ids(self, values: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class _HashedColumn(_KeyColumn):
    def _to_ids(self, values: Any) -> Any:
        texts = values if values.dtype == dtypes.string else as_string(values)
        return string_to_hash_bucket_fast(texts, self.num_buckets)


@dataclass(frozen=True)
class _ListColumn(_KeyColumn):
    vocabulary: tuple[Any, ...]
    default_value: int
    num_oov_buckets: int

    def _to_ids(self, values: Any) -> Any:
        dtype = dtypes.int64 if self.dtype.is_integer else self.dtype
        table = index_table_from_tensor(
            list(self.vocabulary), self.num_oov_buckets, self.default_value, dtype=dtype
        )
        return table.lookup(to_int64(values) if self.dtype.is_integer else values)


@dataclass(frozen=True)
class _FileColumn(_KeyColumn):
    path: str
    size: int
    default_value: int
    num_oov_buckets: int

    def _to_ids(self, values: Any) -> Any:
        dtype = dtypes.int64 if self.dtype.is_integer else self.dtype
        table = index_table_from_file(
            self.path, self.num_oov_buckets, self.size, self.default_value, key_dtype=dtype
        )
        return table.lookup(to_int64(values) if self.dtype.is_integer else values)


@dataclass(frozen=True)
class _IdentityColumn(_KeyColumn):
    default_value: int | None

    def _to_ids(self, values: Any) -> Any:
        ids = to_int64(values)
        zero = convert_to_tensor(0, dtypes.int64)
        limit = convert_to_tensor(self.num_buckets, dtypes.int64)
        if self.default_value is not None:
            is_valid = logical_and(greater_equal(ids, zero), less(ids, limit))
            return where_v2(is_valid, ids, convert_to_tensor(self.default_value, dtypes.int64))
        checks = [
            assert_greater_equal(ids, zero, message=f"{self.name}: ids must not be negative"),
            assert_less(ids, limit, message=f"{self.name}: ids must be below num_buckets"),
        ]
        with control_dependencies(checks):
            return identity(ids)


@dataclass(frozen=True)
class _WeightedColumn(CategoricalColumn):
    column: CategoricalColumn
    weight_key: str
    dtype: dtypes.DType

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.column.name}_weighted_by_{self.weight_key}"

    @property
    def num_buckets(self) -> int:  # type: ignore[override]
        return self.column.num_buckets

    @property
    def parse_example_spec(self) -> Spec:
        spec = self.column.parse_example_spec
        if self.weight_key in spec:
            raise errors.InvalidArgumentError(
                f"the weights of {self.column.name!r} have the key {self.weight_key!r}, "
                "which is also the key of its categories"
            )
        return {**spec, self.weight_key: VarLenFeature(self.dtype)}

    def sparse_ids(self, features: Features) -> SparseIds:
        ids = self.column.sparse_ids(features).ids
        weights = features.sparse(self.weight_key)
        if not weights.values.dtype.is_floating:
            weights = with_values(weights, cast(weights.values, dtypes.float32))
        return SparseIds(ids, weights)


@dataclass(frozen=True)
class _CrossedColumn(CategoricalColumn):
    keys: tuple[Any, ...]
    num_buckets: int
    hash_key: int | None

    @property
    def name(self) -> str:  # type: ignore[override]
        return "_X_".join(sorted(_leaf_names(self)))

    @property
    def parse_example_spec(self) -> Spec:
        spec: Spec = {}
        for key in self.keys:
            is_name = isinstance(key, str)
            spec.update({key: VarLenFeature(dtypes.string)} if is_name else key.parse_example_spec)
        return spec

    def sparse_ids(self, features: Features) -> SparseIds:
        return features.shared(self, lambda: SparseIds(self._ids(features)))  # type: ignore[no-any-return]

    def _ids(self, features: Features) -> Any:
        operands = []
        for key in _leaves(self):
            if isinstance(key, str):
                operands.append(features.get(key))
                continue
            ids = key.sparse_ids(features)
            if ids.weights is not None:
                raise errors.InvalidArgumentError(
                    f"crossed_column accepts no weighted columns, got {key.name}"
                )
            operands.append(ids.ids)
        return cross_hashed(operands, self.num_buckets, self.hash_key)


def _leaves(column: _CrossedColumn) -> Iterator[Any]:
    """Return the keys and columns of a cross; inner crosses are replaced by theirs."""
    for key in column.keys:
        if isinstance(key, _CrossedColumn):
            yield from _leaves(key)
        else:
            yield key


def _leaf_names(column: _CrossedColumn) -> list[str]:
    return [key if isinstance(key, str) else key.name for key in _leaves(column)]


# --------------------------------------------------------------------------- public functions


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = dtypes.string
) -> CategoricalColumn:
    """Return a column whose categories are hashes of a feature.

    Args:
      key: the feature's key.
      hash_bucket_size: number of buckets.
      dtype: string, or an integer type; integers are hashed as text.

    Examples:
      >>> words = wf.feature_column.categorical_column_with_hash_bucket("words", 10)
      >>> column = wf.feature_column.indicator_column(words)
      >>> x = wf.feature_column.input_layer({"words": [["a", "b"]]}, [column])
      >>> wf.Session().run(wf.reduce_sum(x))
      np.float32(2.0)
    """
    buckets = check_integer(hash_bucket_size, "hash_bucket_size", 1)
    return _HashedColumn(key, buckets, checked_dtype(dtype, key))


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Any,
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> CategoricalColumn:
    """Return a column whose categories are positions in a list.

    Args:
      key: the feature's key.
      vocabulary_list: distinct words or integers.
      dtype: the feature's type; by default that of the list.
      default_value: category of other values, -1 to ignore them.
      num_oov_buckets: number of buckets for other values, behind those of the list; requires
        `default_value` -1.
    Raises: InvalidArgumentError: the list is empty or has equal entries, or its type does not fit.

    Examples:
      >>> make = wf.feature_column.categorical_column_with_vocabulary_list
      >>> column = wf.feature_column.indicator_column(make("color", ["red", "blue"]))
      >>> x = wf.feature_column.input_layer({"color": ["blue", "green"]}, [column])
      >>> with wf.Session() as session:
      ...     session.run(wf.tables_initializer())
      ...     session.run(x)
      array([[0., 1.],
             [0., 0.]], dtype=float32)
    """
    words = () if vocabulary_list is None else tuple(vocabulary_list)
    if not words or len(set(words)) < len(words):
        raise errors.InvalidArgumentError(
            f"vocabulary_list of {key!r} must have distinct entries, got {list(words)}"
        )
    kind = dtypes.string if isinstance(words[0], str | bytes) else dtypes.int64
    if not isinstance(words[0], str | bytes):
        kind = dtypes.as_dtype(np.asarray(words).dtype)
    dtype = checked_dtype(dtype or kind, key)
    if (dtype == dtypes.string) != (checked_dtype(kind, key) == dtypes.string):
        raise errors.InvalidArgumentError(
            f"vocabulary_list of {key!r} has {kind.name}, which does not fit dtype {dtype.name}"
        )
    buckets = _out_of_vocabulary(num_oov_buckets, default_value)
    return _ListColumn(key, len(words) + buckets, dtype, words, default_value, buckets)


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = dtypes.string,
) -> CategoricalColumn:
    r"""Return a column whose categories are line numbers in a file.

    Args:
      key: the feature's key.
      vocabulary_file: the path, with one value per line.
      vocabulary_size: number of lines to use; by default all.
      num_oov_buckets: number of buckets for other values.
      default_value: category of other values; -1, the default, ignores them.
      dtype: the feature's type.

    Examples:
      >>> with open("words.txt", "w") as file:
      ...     _ = file.write("red\nblue\n")
      >>> column = wf.feature_column.categorical_column_with_vocabulary_file("color", "words.txt")
      >>> column.num_buckets
      2
    """
    if vocabulary_size is None:
        vocabulary_size = len(read_bytes(as_path(vocabulary_file)).splitlines())
    default = -1 if default_value is None else default_value
    size = check_integer(vocabulary_size, "vocabulary_size", 1)
    buckets = _out_of_vocabulary(num_oov_buckets, default)
    kind = checked_dtype(dtype, key)
    return _FileColumn(key, size + buckets, kind, str(vocabulary_file), size, default, buckets)


def _out_of_vocabulary(num_oov_buckets: int, default_value: int) -> int:
    if num_oov_buckets and default_value != -1:
        raise errors.InvalidArgumentError(
            f"num_oov_buckets and default_value exclude each other, got {num_oov_buckets} and "
            f"{default_value}"
        )
    return int(check_integer(num_oov_buckets, "num_oov_buckets", 0))


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> CategoricalColumn:
    """Return a column whose categories are the values of an integer feature.

    Args:
      key: the feature's key.
      num_buckets: number of categories.
      default_value: category of values outside of [0, num_buckets); None makes them an error.
    Raises: InvalidArgumentError: `default_value` is not a category.

    Examples:
      >>> column = wf.feature_column.categorical_column_with_identity("id", 3, default_value=0)
      >>> hot = wf.feature_column.indicator_column(column)
      >>> wf.Session().run(wf.feature_column.input_layer({"id": [2, 7]}, [hot]))
      array([[0., 0., 1.],
             [1., 0., 0.]], dtype=float32)
    """
    count = check_integer(num_buckets, "num_buckets", 1)
    if default_value is not None and not 0 <= default_value < count:
        raise errors.InvalidArgumentError(
            f"default_value of {key!r} must be in [0, {count}), got {default_value}"
        )
    return _IdentityColumn(key, count, dtypes.int64, default_value)


def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: Any = dtypes.float32
) -> CategoricalColumn:
    """Return a column of categories with a weight for each value.

    Args:
      categorical_column: the categories.
      weight_feature_key: key of the feature of the weights, which has the same indices.
      dtype: type of the weights.

    Examples:
      >>> ids = wf.feature_column.categorical_column_with_identity("id", 3)
      >>> column = wf.feature_column.weighted_categorical_column(ids, "frequency")
      >>> column.name
      'id_weighted_by_frequency'
    """
    require_categorical(categorical_column, "weighted_categorical_column")
    return _WeightedColumn(categorical_column, weight_feature_key, dtypes.as_dtype(dtype))


def crossed_column(
    keys: Any, hash_bucket_size: int, hash_key: int | None = None
) -> CategoricalColumn:
    """Return a column whose categories are hashes of combinations of features.

    Args:
      keys: two or more keys of string or integer features, and categorical columns without hash
        buckets.
      hash_bucket_size: number of buckets.
      hash_key: initial value of the hash.
    Raises: InvalidArgumentError: there are fewer than two keys, or a column has hash buckets.

    Examples:
      >>> column = wf.feature_column.crossed_column(["city", "job"], 1000)
      >>> column.name
      'city_X_job'
    """
    items = tuple(keys or ())
    if len(items) < 2:
        raise errors.InvalidArgumentError(f"keys must have at least 2 entries, got {keys!r}")
    for item in items:
        is_column = isinstance(item, FeatureColumn)
        if not isinstance(item, str) and not isinstance(item, CategoricalColumn):
            raise errors.InvalidArgumentError(
                f"keys must be names of features or categorical columns, got {item!r}"
            )
        if is_column and isinstance(item, _HashedColumn):
            raise errors.InvalidArgumentError(
                f"crossed_column accepts no column with hash buckets, got {item.name}: hashing "
                f"twice loses information; pass the key {item.name!r} instead"
            )
    return _CrossedColumn(items, check_integer(hash_bucket_size, "hash_bucket_size", 1), hash_key)
