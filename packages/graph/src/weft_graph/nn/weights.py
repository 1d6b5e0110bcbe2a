"""Checks and broadcasting of the weights of losses and metrics."""

from __future__ import annotations

from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import array, control, reduction, shapes
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims, is_fully_defined


def _fits(weights: Dims, values: Dims) -> bool | None:
    """Return True if weights have rank 0, or the rank of the values with equal sizes or 1.

    Return None if the static shapes do not determine it.
    """
    if weights == ():
        return True
    if weights is None or values is None:
        return None
    if len(weights) != len(values):
        return False
    pairs = list(zip(weights, values, strict=True))
    if any(w is not None and v is not None and w not in (1, v) for w, v in pairs):
        return False
    return True if all(w == 1 or (w is not None and w == v) for w, v in pairs) else None


def broadcast_checks(weights: Output, values: Output) -> list[Node]:
    """Return control inputs that check the weights at run time, if static shapes are not enough.

    Raises: InvalidArgumentError: the static shapes do not broadcast.
    """
    fits = _fits(weights.dims, values.dims)
    if fits is False:
        raise errors.InvalidArgumentError(
            f"weights must be a scalar, or have the rank of the values and each size equal or 1; "
            f"got weights {format_dims(weights.dims)} for values {format_dims(values.dims)}"
        )
    if fits:
        return []
    pair = [shapes.shape(weights), shapes.shape(values)]
    if weights.dims is None or values.dims is None:
        broadcast_shape = out("BroadcastArgs", pair)
        good = out("Equal", [shapes.size(broadcast_shape), shapes.size(pair[1])])
        joined = out("Prod", [out("Cast", [broadcast_shape], {"DstT": "int64"}), [0]])
        good = out(
            "LogicalAnd", [good, out("Equal", [joined, shapes.size(values, out_type="int64")])]
        )
    else:
        equal_sizes = out("Equal", pair)
        single = out("Equal", [pair[0], 1])
        good = reduction.reduce_all(out("LogicalOr", [equal_sizes, single]))
    text = "weights must broadcast to values; the shapes of weights and values are"
    return [control.Assert(good, [text, *pair])]


def spread(weights: Output, values: Output) -> Output:
    """Broadcast weights to the shape of the values."""
    if is_fully_defined(weights.dims) and weights.dims == values.dims:
        return weights
    return out("Mul", [weights, array.ones_like(values, dtype=weights.dtype)])


def match_ranks(
    labels: Output,
    predictions: Output,
    weights: Output | None,
    expected_difference: int = 0,
    expand_weights: bool = False,
) -> tuple[Output, Output, Output | None]:
    """Match ranks by dropping an extra last axis of size 1 of labels, predictions or weights.

    Args:
      labels, predictions: any type.
      weights: any type, or None.
      expected_difference: the rank of predictions minus that of labels.
      expand_weights: add a missing last axis to weights.
    """
    if labels.dims is not None and predictions.dims is not None:
        difference = len(predictions.dims) - len(labels.dims) - expected_difference
        if difference == 1 and predictions.dims[-1] in (1, None):
            predictions = shapes.squeeze(predictions, [-1])
        elif difference == -1 and labels.dims[-1] in (1, None):
            labels = shapes.squeeze(labels, [-1])
    if weights is not None and weights.dims is None and labels.dims:
        weights = _drop_last_axis(weights, len(labels.dims))
    if weights is None or not weights.dims or labels.dims is None:
        return labels, predictions, weights
    extra = len(weights.dims) - len(labels.dims)
    if extra == 1 and weights.dims[-1] in (1, None):
        weights = shapes.squeeze(weights, [-1])
    elif extra == -1 and expand_weights:
        weights = shapes.expand_dims(weights, -1)
    return labels, predictions, weights


def _drop_last_axis(weights: Output, rank: int) -> Output:
    """Drop the last axis of weights of unknown rank if it has size 1 and exceeds `rank`."""
    shape = shapes.shape(weights)
    extra = out("Equal", [shapes.rank(weights), rank + 1])
    ends = out(
        "Cast", [out("LogicalAnd", [extra, out("Equal", [shape[-1:], [1]])])], {"DstT": "int32"}
    )
    return shapes.reshape(weights, shape[: shapes.size(shape) - out("Sum", [ends, [0]])])
