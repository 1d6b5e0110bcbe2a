"""Streaming means: metrics that accumulate values in local variables."""

from __future__ import annotations

__all__ = [
    "accuracy",
    "mean",
    "mean_absolute_error",
    "mean_cosine_distance",
    "mean_relative_error",
    "mean_squared_error",
    "mean_tensor",
    "percentage_below",
    "root_mean_squared_error",
]

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.collections_keys import GraphKeys, add_to_collections
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.nn.weights import broadcast_checks, match_ranks, spread
from weft_graph.ops import array, casting, identity, shapes, state
from weft_graph.ops.reduction import reduce_sum
from weft_graph.variables.base import Variable, VariableAggregation, VariableSynchronization
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims, merge_dims

Metric = tuple[Any, Any]


def metric_variable(
    shape: Sequence[int], dtype: Any, validate_shape: bool = True, name: str | None = None
) -> Variable:
    """Create a local variable of zeros in the collection of metric variables.

    Args:
      shape: shape of the variable.
      dtype: element type.
      validate_shape: False to leave the variable's shape unknown.
      name: name in the current name scope.
    """
    return Variable(
        lambda: array.zeros(list(shape), dtype),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        validate_shape=validate_shape,
        name=name,
        synchronization=VariableSynchronization.ON_READ,
        aggregation=VariableAggregation.SUM,
    )


def accumulate(variable: Variable, value: Output) -> Output:
    """Return the variable's value after adding `value`."""
    updated: Output = state.assign_add(variable, value)
    return updated


def collect(value: Any, update: Any, metrics_collections: Any, updates_collections: Any) -> Metric:
    """Add a value and its update to the caller's collections."""
    if metrics_collections:
        add_to_collections(metrics_collections, value)
    if updates_collections:
        add_to_collections(updates_collections, update)
    return value, update


def align_ranks(
    labels: Any, predictions: Any, weights: Any = None
) -> tuple[Output, Output, Output | None]:
    """Match the ranks of labels, predictions and weights by dropping last axes of size 1.

    Raises: InvalidArgumentError: labels and predictions differ in shape.
    """
    labels, predictions = convert_to_tensor(labels), convert_to_tensor(predictions)
    factor = None if weights is None else convert_to_tensor(weights)
    labels, predictions, factor = match_ranks(labels, predictions, factor, expand_weights=True)
    try:
        merge_dims(labels.dims, predictions.dims)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"labels and predictions must have the same shape, got "
            f"{format_dims(labels.dims)} and "
            f"{format_dims(predictions.dims)}"
        ) from None
    return labels, predictions, factor


def apply_weights(values: Output, weights: Any) -> tuple[Output, Output | None]:
    """Return values times weights, and the weights broadcast to the values, or None."""
    if weights is None:
        return values, None
    factor = casting.cast(convert_to_tensor(weights), values.dtype)
    _, values, matched = match_ranks(values, values, factor, expand_weights=True)
    assert matched is not None
    with get_default_graph().control_dependencies(broadcast_checks(matched, values)):
        full = spread(matched, values)
    return out("Mul", [values, full]), full


def ratio(numerator: Any, denominator: Any, name: str) -> Output:
    """Return a quotient, or 0 where the denominator is not positive."""
    return out("DivNoNan", [numerator, out("Maximum", [denominator, 0.0])], name=name)


def _scope_with_checks(products: Output, weights: Output | None) -> AbstractContextManager[Any]:
    """Open a scope in which updates run only after the checks of the weights."""
    control_inputs = [] if weights is None else [products]
    return get_default_graph().control_dependencies(control_inputs)


# ------------------------------------------------------------------------------- means


def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the weighted mean of all values so far.

    Args:
      values: numeric, any shape.
      weights: rank 0, or the rank of `values` with each size equal or 1.
      metrics_collections, updates_collections: collections to add the value and the update to.
      name: name of the variable scope.
    Returns: the mean, float32 and rank 0; and the update op, which adds `values` and returns the
      new mean.
    Raises: InvalidArgumentError: the weights do not broadcast.

    Examples:
      >>> value, update = wf.metrics.mean([1.0, 3.0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      2.0
    """
    with variable_scope(name, "mean", (values, weights)):
        values = casting.cast(convert_to_tensor(values), dtypes.float32)
        total = metric_variable([], dtypes.float32, name="total")
        count = metric_variable([], dtypes.float32, name="count")
        products, full = apply_weights(values, weights)
        if full is None:
            count_increment = casting.cast(shapes.size(values), dtypes.float32)
        else:
            count_increment = reduce_sum(full)
        new_total = accumulate(total, reduce_sum(products))
        with _scope_with_checks(products, full):
            new_count = accumulate(count, count_increment)
        value = ratio(total, count, "value")
        update = ratio(new_total, new_count, "update_op")
        return collect(value, update, metrics_collections, updates_collections)


def mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the elementwise weighted mean of all values so far.

    Args:
      values: numeric; the shape must be known.
      weights, metrics_collections, updates_collections, name: as for `mean`.
    Returns: float32, shape of `values`; and the update.
    Raises: InvalidArgumentError: the shape of `values` is not known.

    Examples:
      >>> value, update = wf.metrics.mean_tensor([1.0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      array([1.], dtype=float32)
    """
    with variable_scope(name, "mean", (values, weights)):
        values = casting.cast(convert_to_tensor(values), dtypes.float32)
        if values.dims is None or None in values.dims:
            raise errors.InvalidArgumentError(
                f"mean_tensor requires values of known shape, got {format_dims(values.dims)}"
            )
        shape = [size or 0 for size in values.dims]
        total = metric_variable(shape, dtypes.float32, name="total_tensor")
        count = metric_variable(shape, dtypes.float32, name="count_tensor")
        products, full = apply_weights(values, weights)
        new_total = accumulate(total, products)
        with _scope_with_checks(products, full):
            new_count = accumulate(count, array.ones_like(values) if full is None else full)
        value = ratio(total, count, "value")
        update = ratio(new_total, new_count, "update_op")
        return collect(value, update, metrics_collections, updates_collections)


def _mean_of(
    name: str | None,
    default: str,
    labels: Any,
    predictions: Any,
    weights: Any,
    error: Callable[[Output, Output], Output],
    collections: tuple[Any, Any],
) -> Metric:
    """Return the mean of an error function of float32 labels and predictions."""
    labels, predictions, factor = align_ranks(labels, predictions, weights)
    labels = casting.cast(labels, dtypes.float32)
    predictions = casting.cast(predictions, dtypes.float32)
    return mean(error(labels, predictions), factor, *collections, name or default)


def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of predictions that equal their labels.

    Args:
      labels, predictions: any type, the same shape.
      weights, metrics_collections, updates_collections, name: as for `mean`.
    Returns: as for `mean`.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> value, update = wf.metrics.accuracy([1, 2, 3], [1, 2, 0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      0.667
    """
    labels, predictions, factor = align_ranks(labels, predictions, weights)
    if labels.dtype.base_dtype is not predictions.dtype.base_dtype:
        predictions = casting.cast(predictions, labels.dtype.base_dtype)
    correct = casting.cast(out("Equal", [predictions, labels]), dtypes.float32)
    return mean(correct, factor, metrics_collections, updates_collections, name or "accuracy")


def mean_absolute_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of abs(predictions - labels); arguments as for `accuracy`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.mean_absolute_error([1.0], [3.0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      2.0
    """

    def error(labels: Output, predictions: Output) -> Output:
        return out("Abs", [out("Sub", [predictions, labels])])

    collections = metrics_collections, updates_collections
    return _mean_of(name, "mean_absolute_error", labels, predictions, weights, error, collections)


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of (predictions - labels) ** 2; arguments as for `accuracy`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.mean_squared_error([1.0], [3.0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      4.0
    """

    def error(labels: Output, predictions: Output) -> Output:
        return out("SquaredDifference", [labels, predictions])

    collections = metrics_collections, updates_collections
    return _mean_of(name, "mean_squared_error", labels, predictions, weights, error, collections)


def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the root of the mean of (predictions - labels) ** 2; arguments as for `accuracy`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.root_mean_squared_error([1.0], [3.0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      2.0
    """
    value, update = mean_squared_error(
        labels, predictions, weights, None, None, name or "root_mean_squared_error"
    )
    value, update = out("Sqrt", [value]), out("Sqrt", [update])
    return collect(value, update, metrics_collections, updates_collections)


def mean_relative_error(
    labels: Any,
    predictions: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of abs(labels - predictions) / normalizer, with 0 where the normalizer is 0.

    Args:
      normalizer: the shape of `labels`.
      labels, predictions, ...: as for `accuracy`.

    Examples:
      >>> value, update = wf.metrics.mean_relative_error([1.0], [2.0], [1.0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      np.float32(1.0)
    """
    scale = casting.cast(convert_to_tensor(normalizer), dtypes.float32)

    def error(labels: Output, predictions: Output) -> Output:
        return out("DivNoNan", [out("Abs", [out("Sub", [labels, predictions])]), scale])

    collections = metrics_collections, updates_collections
    return _mean_of(name, "mean_relative_error", labels, predictions, weights, error, collections)


def mean_cosine_distance(
    labels: Any,
    predictions: Any,
    dim: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of 1 - sum(labels * predictions) along an axis, for unit vectors.

    Args:
      dim: the axis.
      labels, predictions, ...: as for `accuracy`.

    Examples:
      >>> value, update = wf.metrics.mean_cosine_distance([[1.0, 0.0]], [[0.0, 1.0]], 1)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      np.float32(1.0)
    """
    labels, predictions, factor = align_ranks(labels, predictions, weights)
    labels = casting.cast(labels, dtypes.float32)
    products = out("Mul", [casting.cast(predictions, dtypes.float32), labels])
    cosines = reduce_sum(products, [dim], keepdims=True)
    value, update = mean(cosines, factor, None, None, name or "mean_cosine_distance")
    value, update = out("Sub", [1.0, value]), out("Sub", [1.0, update])
    return collect(value, update, metrics_collections, updates_collections)


def percentage_below(
    values: Any,
    threshold: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of values below a threshold.

    Args:
      values: real, any shape.
      threshold: same dtype; broadcasts with `values`.
      weights, metrics_collections, updates_collections, name: as for `mean`.
    Returns: float32, rank 0; and the update.

    Examples:
      >>> value, update = wf.metrics.percentage_below([1.0, 3.0], 2.0)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      np.float32(0.5)
    """
    is_below = casting.cast(out("Less", [convert_to_tensor(values), threshold]), dtypes.float32)
    collections = metrics_collections, updates_collections
    return mean(is_below, weights, *collections, name or "percentage_below_threshold")


def current(variable: Variable, name: str | None = None) -> Output:
    """Return the variable's value as a separate tensor."""
    return identity.identity(variable, name=name)
