"""Base classes of feature columns, and the features of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import not_equal
from weft_graph.ops.gather import gather_nd
from weft_graph.ops.masks import where
from weft_graph.ops.shapes import expand_dims, shape
from weft_graph.ops.sparse_shapes import expand_dims as expand_sparse_dims
from weft_tensor import dtypes, errors

Spec = dict[str, Any]
"""Descriptions of features for `parse_example`, by key."""


class Weights(NamedTuple):
    """Settings of the variables of a layer.

    Attributes:
      collections: the collections of the variables.
      trainable: train the variables.
    """

    collections: Sequence[str]
    trainable: bool


class SparseIds(NamedTuple):
    """The categories of a batch.

    Attributes:
      ids: int64, shape (N, M); negative ids are ignored.
      weights: a float for each id, or None for ones.
    """

    ids: SparseTensor
    weights: SparseTensor | None = None


class FeatureColumn:
    """A description of features."""

    name: str

    @property
    def parse_example_spec(self) -> Spec:
        """The features that the column reads, as `parse_example` takes them."""
        raise NotImplementedError

    @property
    def scope_name(self) -> str:
        """Name of the scope of its variables."""
        return self.name.replace(":", "_")


class CategoricalColumn(FeatureColumn):
    """A column of categories, represented by integers below `num_buckets`."""

    num_buckets: int

    def sparse_ids(self, features: Features) -> SparseIds:
        """Return the categories of a batch."""
        raise NotImplementedError


class DenseColumn(FeatureColumn):
    """A column of numbers with the shape (N, *variable_shape)."""

    variable_shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Number of values of one example."""
        return int(np.prod(self.variable_shape, dtype=np.int64))

    def dense(self, features: Features, weights: Weights) -> Output:
        """Return the values of a batch."""
        raise NotImplementedError


class Features:
    """The features of a batch, and the results of columns that others share.

    Args:
      features: tensors and SparseTensors by key.
    """

    def __init__(self, features: Mapping[str, Any]) -> None:
        self._features = features
        self._results: dict[Any, Any] = {}

    def get(self, key: str) -> Any:
        """Return a feature with at least rank 2.

        Raises: InvalidArgumentError: there is no such feature, or it has rank 0.
        """
        return self.shared(key, lambda: self._read(key))

    def shared(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return a result that is computed once for a batch."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    def sparse(self, key: str) -> SparseTensor:
        """Return a feature as a SparseTensor; "" and -1 represent missing values."""
        return self.shared(("sparse", key), lambda: to_sparse(self.get(key)))  # type: ignore[no-any-return]

    def _read(self, key: str) -> Any:
        if key not in self._features:
            raise errors.InvalidArgumentError(
                f"there is no feature {key!r}; the features are {', '.join(self._features)}"
            )
        value = self._features[key]
        if not isinstance(value, SparseTensor):
            value = convert_to_tensor(value)
        rank = value.shape.rank if hasattr(value.shape, "rank") else value.shape.ndims
        if rank == 0:
            raise errors.InvalidArgumentError(f"feature {key!r} must have a batch axis, got rank 0")
        if rank != 1:
            return value
        expand = expand_sparse_dims if isinstance(value, SparseTensor) else expand_dims
        return expand(value, -1)


def to_sparse(value: Any) -> SparseTensor:
    """Convert a dense feature to a SparseTensor, without "" and -1."""
    if isinstance(value, SparseTensor):
        return value
    missing = "" if value.dtype == dtypes.string else -1
    ignored = convert_to_tensor(missing, value.dtype)
    indices = where(not_equal(value, ignored))
    return SparseTensor(indices, gather_nd(value, indices), shape(value, out_type=dtypes.int64))


def with_values(sparse: SparseTensor, values: Output) -> SparseTensor:
    """Return a SparseTensor with other values."""
    return SparseTensor(sparse.indices, values, sparse.dense_shape)


def to_int64(values: Output) -> Output:
    """Return integers as int64."""
    return values if values.dtype == dtypes.int64 else cast(values, dtypes.int64)


def checked_dtype(dtype: Any, key: str) -> dtypes.DType:
    """Return the type of a categorical feature.

    Raises: InvalidArgumentError: it is neither string nor an integer.
    """
    result = dtypes.as_dtype(dtype)
    if result != dtypes.string and not result.is_integer:
        raise errors.InvalidArgumentError(
            f"feature {key!r} must have dtype string or an integer type, got {result.name}"
        )
    return result


def require_categorical(column: Any, user: str) -> None:
    """Check a column. Raises: InvalidArgumentError: it is not categorical."""
    if not isinstance(column, CategoricalColumn):
        raise errors.InvalidArgumentError(
            f"{user} requires a categorical column, such as categorical_column_with_identity, "
            f"got {column!r}"
        )
