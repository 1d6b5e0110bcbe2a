"""Layers that read feature columns, and the descriptions that parse them."""

from __future__ import annotations

__all__ = ["input_layer", "linear_model", "make_parse_example_spec"]

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.nn.safe_embedding import safe_embedding_lookup_sparse
from weft_graph.ops.arithmetic import add_n
from weft_graph.ops.join import concat
from weft_graph.ops.matmul import matmul
from weft_graph.ops.nn import bias_add
from weft_graph.ops.shapes import reshape
from weft_graph.variables.initializers import Zeros
from weft_graph.variables.scope import get_variable, variable_scope
from weft_io.feature_column.base import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    Features,
    Spec,
    Weights,
)
from weft_tensor import dtypes, errors


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> Output:
    """Return the values of dense columns side by side, in the order of the columns' names.

    Args:
      features: tensors and SparseTensors by key.
      feature_columns: dense columns. Wrap a categorical column with `indicator_column` or
        `embedding_column`.
      weight_collections: further collections for the variables.
      trainable: train the variables.
      cols_to_vars: filled with the variables of each column.
      cols_to_output_tensors: filled with the values of each column.
    Returns: float32, shape (N, sum of the columns' sizes).
    Raises: InvalidArgumentError: a column is not dense, two have the same name, or a feature is
      missing.

    Examples:
      >>> age = wf.feature_column.numeric_column("age")
      >>> wf.Session().run(wf.feature_column.input_layer({"age": [1.0, 2.0]}, [age]))
      array([[1.],
             [2.]], dtype=float32)
    """
    columns = _sorted(feature_columns)
    for column in columns:
        if not isinstance(column, DenseColumn):
            raise errors.InvalidArgumentError(
                f"input_layer requires dense columns, got {column.name!r}; wrap it with "
                "indicator_column or embedding_column"
            )
    reader, weights = Features(features), _weights(weight_collections, trainable)
    values = []
    with variable_scope(None, default_name="input_layer"):
        for column in columns:
            with variable_scope(None, default_name=column.scope_name) as scope:
                dense = column.dense(reader, weights)
                values.append(reshape(dense, [-1, column.num_elements]))
            if cols_to_vars is not None:
                cols_to_vars[column] = _variables_in(scope.name)
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[column] = values[-1]
        return concat(values, 1)


def linear_model(
    features: Mapping[str, Any],
    feature_columns: Any,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> Output:
    """Return a linear function of columns: a weight for each category and each number, and a bias.

    Args:
      features: tensors and SparseTensors by key.
      feature_columns: dense and categorical columns.
      units: number of results for an example.
      sparse_combiner: "sum", "mean" or "sqrtn" of the weights of an example's categories.
      weight_collections: further collections for the variables.
      trainable: train the variables.
      cols_to_vars: filled with the variables of each column, and of "bias".
    Returns: float32, shape (N, units).
    Raises: InvalidArgumentError: two columns have the same name, or a feature is missing.

    Examples:
      >>> age = wf.feature_column.numeric_column("age")
      >>> y = wf.feature_column.linear_model({"age": [1.0, 2.0]}, [age])
      >>> [variable.name for variable in wf.trainable_variables()]
      ['linear_model/age/weights:0', 'linear_model/bias_weights:0']
    """
    reader, weights = Features(features), _weights(weight_collections, trainable)
    sums = []
    with variable_scope(None, default_name="linear_model") as outer:
        for column in _sorted(feature_columns):
            with variable_scope(None, default_name=column.scope_name) as scope:
                sums.append(_weighted_sum(column, reader, weights, units, sparse_combiner))
            if cols_to_vars is not None:
                cols_to_vars[column] = _variables_in(scope.name)
        bias = _variable("bias_weights", [units], weights)
        if cols_to_vars is not None:
            named = f"{outer.name}/bias_weights"
            cols_to_vars["bias"] = _variables_in(named)
        return bias_add(add_n(sums), bias)


def make_parse_example_spec(feature_columns: Iterable[FeatureColumn]) -> Spec:
    """Return the features that columns read, for `parse_example`.

    Args:
      feature_columns: the columns.
    Raises: InvalidArgumentError: columns read the same feature in different ways.

    Examples:
      >>> age = wf.feature_column.numeric_column("age")
      >>> wf.feature_column.make_parse_example_spec([age])["age"].shape
      (1,)
    """
    spec: Spec = {}
    for column in feature_columns:
        _check(column)
        for key, value in column.parse_example_spec.items():
            if spec.setdefault(key, value) != value:
                raise errors.InvalidArgumentError(
                    f"columns read the feature {key!r} in different ways: {spec[key]} and {value}"
                )
    return spec


def _weighted_sum(
    column: FeatureColumn, features: Features, weights: Weights, units: int, combiner: str
) -> Output:
    if isinstance(column, CategoricalColumn):
        table = _variable("weights", [column.num_buckets, units], weights)
        ids, id_weights = column.sparse_ids(features)
        return safe_embedding_lookup_sparse(table, ids, id_weights, combiner)
    assert isinstance(column, DenseColumn)
    values = reshape(column.dense(features, weights), [-1, column.num_elements])
    return matmul(values, _variable("weights", [column.num_elements, units], weights))


def _variable(name: str, dims: Sequence[int], weights: Weights) -> Any:
    return get_variable(
        name, dims, dtypes.float32, Zeros(),
        trainable=weights.trainable, collections=weights.collections,
    )  # fmt: skip


def _weights(collections: Sequence[str] | None, trainable: bool) -> Weights:
    required = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return Weights(list(dict.fromkeys([*(collections or ()), *required])), trainable)


def _variables_in(scope: str) -> list[Any]:
    return list(get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope))


def _sorted(feature_columns: Any) -> list[Any]:
    """Return columns in the order of their names.

    Raises: InvalidArgumentError: there are none, one is no column, or two have the same name.
    """
    is_single = isinstance(feature_columns, FeatureColumn)
    columns = [feature_columns] if is_single else list(feature_columns)
    if not columns:
        raise errors.InvalidArgumentError("feature_columns must have at least one column, got none")
    by_name: dict[str, FeatureColumn] = {}
    for column in columns:
        _check(column)
        if column.name in by_name:
            raise errors.InvalidArgumentError(f"two feature columns have the name {column.name!r}")
        by_name[column.name] = column
    return [by_name[name] for name in sorted(by_name)]


def _check(column: Any) -> None:
    if not isinstance(column, FeatureColumn):
        raise errors.InvalidArgumentError(f"a feature column is required, got {column!r}")
