"""Columns of numbers."""

from __future__ import annotations

__all__ = [
    "bucketized_column",
    "embedding_column",
    "indicator_column",
    "numeric_column",
    "shared_embedding_columns",
]

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft_graph.ir.builder import create
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.nn.safe_embedding import safe_embedding_lookup_sparse
from weft_graph.ops.casting import cast
from weft_graph.ops.gather import one_hot, scatter_nd
from weft_graph.ops.join import stack, tile
from weft_graph.ops.reduction import reduce_sum
from weft_graph.ops.sequence import range as numbers
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_graph.ops.sparse import sparse_tensor_to_dense
from weft_graph.ops.sparse_shapes import sparse_merge
from weft_graph.variables.initializers import TruncatedNormal
from weft_graph.variables.scope import get_variable
from weft_io.feature_column.base import (
    CategoricalColumn,
    DenseColumn,
    Features,
    SparseIds,
    Spec,
    Weights,
    require_categorical,
)
from weft_io.input.parsing import FixedLenFeature
from weft_io.saving.warm_start import init_from_checkpoint
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer

_COMBINERS = ("mean", "sqrtn", "sum")


@dataclass(frozen=True)
class _NumericColumn(DenseColumn):
    name: str
    variable_shape: tuple[int, ...]
    default_value: Any
    dtype: dtypes.DType
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def parse_example_spec(self) -> Spec:
        return {self.name: FixedLenFeature(self.variable_shape, self.dtype, self.default_value)}

    def dense(self, features: Features, weights: Weights) -> Output:
        return features.shared(self, lambda: self._values(features))  # type: ignore[no-any-return]

    def _values(self, features: Features) -> Output:
        value = features.get(self.name)
        if isinstance(value, SparseTensor):
            raise errors.InvalidArgumentError(
                f"numeric_column {self.name!r} requires a dense feature, got a SparseTensor"
            )
        if self.normalizer_fn is not None:
            value = self.normalizer_fn(value)
        return cast(value, dtypes.float32)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _BucketizedColumn(DenseColumn, CategoricalColumn):
    source: _NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.source.name}_bucketized"

    @property
    def parse_example_spec(self) -> Spec:
        return self.source.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.source.variable_shape, len(self.boundaries) + 1)

    @property
    def num_buckets(self) -> int:  # type: ignore[override]
        return (len(self.boundaries) + 1) * self.source.num_elements

    def _buckets(self, features: Features) -> Output:
        def compute() -> Output:
            value = self.source.dense(features, Weights((), True))
            return create("Bucketize", [value], {"boundaries": list(self.boundaries)}).outputs[0]

        return features.shared(self, compute)  # type: ignore[no-any-return]

    def dense(self, features: Features, weights: Weights) -> Output:
        return one_hot(self._buckets(features), len(self.boundaries) + 1, 1.0, 0.0)

    def sparse_ids(self, features: Features) -> SparseIds:
        buckets = self._buckets(features)
        count, width = shape(buckets)[0], self.source.num_elements
        rows = reshape(tile(expand_dims(numbers(count), 1), [1, width]), [-1])
        columns = tile(numbers(width), [count])
        ids = reshape(buckets, [-1]) + (len(self.boundaries) + 1) * columns
        indices = cast(stack([rows, columns], 1), dtypes.int64)
        dense_shape = cast(stack([count, width]), dtypes.int64)
        return SparseIds(SparseTensor(indices, cast(ids, dtypes.int64), dense_shape))


@dataclass(frozen=True)
class _IndicatorColumn(DenseColumn):
    column: CategoricalColumn

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.column.name}_indicator"

    @property
    def parse_example_spec(self) -> Spec:
        return self.column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.column.num_buckets,)

    def dense(self, features: Features, weights: Weights) -> Output:
        return features.shared(self, lambda: self._counts(features))  # type: ignore[no-any-return]

    def _counts(self, features: Features) -> Output:
        ids, id_weights = self.column.sparse_ids(features)
        depth = self.column.num_buckets
        if id_weights is not None:
            merged = sparse_merge(ids, id_weights, depth)
            return scatter_nd(merged.indices, merged.values, merged.dense_shape)
        positions = sparse_tensor_to_dense(ids, -1)
        return reduce_sum(one_hot(positions, depth, 1.0, 0.0), [-2])


@dataclass(frozen=True)
class _EmbeddingColumn(DenseColumn):
    """An embedding; `shared_name` is the collection of a table that several columns share."""

    column: CategoricalColumn
    dimension: int
    combiner: str
    initializer: Any
    checkpoint: str | None
    checkpoint_tensor: str | None
    max_norm: float | None
    trainable: bool
    shared_name: str = ""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.column.name}_{'shared_' if self.shared_name else ''}embedding"

    @property
    def scope_name(self) -> str:
        return self.shared_name or super().scope_name

    @property
    def parse_example_spec(self) -> Spec:
        return self.column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dimension,)

    def dense(self, features: Features, weights: Weights) -> Output:
        ids, id_weights = self.column.sparse_ids(features)
        return safe_embedding_lookup_sparse(
            self._table(weights), ids, id_weights, self.combiner, max_norm=self.max_norm
        )

    def _table(self, weights: Weights) -> Any:
        graph = get_default_graph()
        if self.shared_name and (tables := graph.get_collection(self.shared_name)):
            return tables[0]
        table = get_variable(
            "embedding_weights",
            [self.column.num_buckets, self.dimension],
            dtypes.float32,
            self.initializer or TruncatedNormal(0.0, 1 / math.sqrt(self.dimension)),
            trainable=self.trainable and weights.trainable,
            collections=weights.collections,
        )
        if self.shared_name:
            graph.add_to_collection(self.shared_name, table)
        if self.checkpoint is not None:
            init_from_checkpoint(self.checkpoint, {self.checkpoint_tensor: table})
        return table


# --------------------------------------------------------------------------- public functions


def numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: Any = None,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> DenseColumn:
    """Return a column of a numeric feature.

    Args:
      key: the feature's key.
      shape: shape of the feature of one example.
      default_value: for `parse_example`: the value of examples without the feature.
      dtype: type of the feature, an integer or floating-point type.
      normalizer_fn: function from the feature's tensor to the column's.
    Raises: InvalidArgumentError: the type is not numeric.

    Examples:
      >>> age = wf.feature_column.numeric_column("age", normalizer_fn=lambda x: x / 100.0)
      >>> wf.Session().run(wf.feature_column.input_layer({"age": [[50.0], [25.0]]}, [age]))
      array([[0.5 ],
             [0.25]], dtype=float32)
    """
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_floating or kind.is_integer):
        raise errors.InvalidArgumentError(
            f"dtype of {key!r} must be an integer or floating-point type, got {kind.name}"
        )
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    dims = tuple(check_integer(size, "shape", 1) for size in sizes)
    default = default_value
    if default is not None:
        default = np.broadcast_to(np.asarray(default), dims).tolist()
        default = tuple(default) if isinstance(default, list) and len(dims) == 1 else default
    return _NumericColumn(key, dims, default, kind, normalizer_fn)


def bucketized_column(source_column: DenseColumn, boundaries: Sequence[float]) -> Any:
    """Return a column of the intervals between boundaries that contain a numeric feature.

    Args:
      source_column: a numeric column with a shape of rank 1.
      boundaries: ascending numbers. Intervals contain their left boundary.
    Returns: a column that is both dense, with one-hot values, and categorical.
    Raises: InvalidArgumentError: the source is no such column, or the boundaries do not ascend.

    Examples:
      >>> age = wf.feature_column.numeric_column("age")
      >>> column = wf.feature_column.bucketized_column(age, [18, 65])
      >>> wf.Session().run(wf.feature_column.input_layer({"age": [[10.0], [65.0]]}, [column]))
      array([[1., 0., 0.],
             [0., 0., 1.]], dtype=float32)
    """
    if not isinstance(source_column, _NumericColumn) or len(source_column.variable_shape) != 1:
        raise errors.InvalidArgumentError(
            f"source_column must be a numeric_column with a shape of rank 1, got {source_column!r}"
        )
    limits = tuple(boundaries or ())
    if not limits or any(a >= b for a, b in itertools.pairwise(limits)):
        raise errors.InvalidArgumentError(f"boundaries must ascend, got {list(limits)}")
    return _BucketizedColumn(source_column, limits)


def indicator_column(categorical_column: CategoricalColumn) -> DenseColumn:
    """Return a column of the number of times that each category occurs, or of its weights' sum.

    Args:
      categorical_column: the categories.

    Examples:
      >>> ids = wf.feature_column.categorical_column_with_identity("id", 3)
      >>> column = wf.feature_column.indicator_column(ids)
      >>> wf.Session().run(wf.feature_column.input_layer({"id": [[0, 2], [1, 1]]}, [column]))
      array([[1., 0., 1.],
             [0., 2., 0.]], dtype=float32)
    """
    require_categorical(categorical_column, "indicator_column")
    return _IndicatorColumn(categorical_column)


def embedding_column(
    categorical_column: CategoricalColumn,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> DenseColumn:
    """Return a column of rows of a trained table, one for each category.

    Args:
      categorical_column: the categories.
      dimension: size of a row.
      combiner: "mean", "sqrtn" or "sum" of the rows of an example's categories.
      initializer: initializer of the table; by default truncated normal with deviation
        1/√dimension.
      ckpt_to_load_from, tensor_name_in_ckpt: checkpoint, and name in it, of initial values.
      max_norm: rows with a larger norm are scaled to it.
      trainable: train the table.
    Raises: InvalidArgumentError: the combiner is unknown, or only one of the checkpoint's arguments
      is given.

    Examples:
      >>> ids = wf.feature_column.categorical_column_with_identity("id", 2)
      >>> column = wf.feature_column.embedding_column(ids, 3, initializer=wf.ones_initializer())
      >>> x = wf.feature_column.input_layer({"id": [1]}, [column])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(x)
      array([[1., 1., 1.]], dtype=float32)
    """
    require_categorical(categorical_column, "embedding_column")
    _check_embedding(combiner, ckpt_to_load_from, tensor_name_in_ckpt)
    return _EmbeddingColumn(
        categorical_column, check_integer(dimension, "dimension", 1), combiner, initializer,
        ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable,
    )  # fmt: skip


def shared_embedding_columns(
    categorical_columns: Sequence[CategoricalColumn],
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> list[DenseColumn]:
    """Return embedding columns that share one table.

    Args:
      categorical_columns: the categories, with equal numbers of buckets.
      dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable:
        as for `embedding_column`.
      shared_embedding_collection_name: name of the collection that has the table; by default made
        from the names of the columns.
    Returns: one column for each of `categorical_columns`.
    Raises: InvalidArgumentError: as for `embedding_column`, or the numbers of buckets differ.

    Examples:
      >>> make = wf.feature_column.categorical_column_with_identity
      >>> a, b = wf.feature_column.shared_embedding_columns([make("seen", 9), make("next", 9)], 4)
      >>> x = wf.feature_column.input_layer({"seen": [1], "next": [2]}, [a, b])
      >>> [variable.name for variable in wf.global_variables()]
      ['input_layer/next_seen_shared_embedding/embedding_weights:0']
    """
    for column in categorical_columns:
        require_categorical(column, "shared_embedding_columns")
    _check_embedding(combiner, ckpt_to_load_from, tensor_name_in_ckpt)
    counts = {column.name: column.num_buckets for column in categorical_columns}
    if len(set(counts.values())) != 1:
        raise errors.InvalidArgumentError(
            f"categorical_columns must have equal numbers of buckets, got {counts}"
        )
    name = shared_embedding_collection_name
    if not name:
        name = "_".join(sorted(counts)) + "_shared_embedding"
    size = check_integer(dimension, "dimension", 1)
    return [
        _EmbeddingColumn(
            column, size, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm,
            trainable, name,
        )
        for column in categorical_columns
    ]  # fmt: skip


def _check_embedding(combiner: str, checkpoint: str | None, tensor: str | None) -> None:
    if combiner not in _COMBINERS:
        raise errors.InvalidArgumentError(
            f"combiner must be one of {', '.join(_COMBINERS)}, got {combiner!r}"
        )
    if (checkpoint is None) != (tensor is None):
        raise errors.InvalidArgumentError(
            "ckpt_to_load_from and tensor_name_in_ckpt must be given together, got "
            f"{checkpoint!r} and {tensor!r}"
        )
