"""Support vector machines, for all rows and all vectors at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_graph.control_flow.loop import while_loop
from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import abs as absolute, clip_by_value
from weft_graph.ops.array import fill
from weft_graph.ops.comparison import greater, greater_equal, less, logical_not
from weft_graph.ops.elementary import exp, sigmoid
from weft_graph.ops.gather import gather, one_hot
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.matmul import matmul, matvec
from weft_graph.ops.permutation import transpose
from weft_graph.ops.powers import pow as power, square
from weft_graph.ops.reduction import argmax, reduce_any, reduce_max, reduce_sum
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_graph.ops.trigonometry import tanh
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.scores import class_labels, select_labels, to_floats, transform_scores
from weft_tensor import dtypes, errors

_ML: Final = "ai.onnx.ml"

Array = np.ndarray[Any, Any]


def _table(operation: Operation, name: str, *dims: int) -> Array:
    """Return the numbers of an attribute as an array; one size may be -1.

    Raises: InvalidArgumentError: the number of elements does not match.
    """
    result = np.array(operation.required(name), np.float32)
    known_count = int(np.prod([item for item in dims if item != -1]))
    if (
        not result.size
        or result.size % known_count
        or (-1 not in dims and result.size != known_count)
    ):
        raise errors.InvalidArgumentError(
            f"{operation.op}: {name} of {result.size} numbers does not have the shape {list(dims)}"
        )
    return result.reshape(dims)


def _kernels(operation: Operation, x: Output, vectors: Array) -> Output:
    """Apply the kernel function to rows and support vectors, (rows, vectors)."""
    kind = operation.attribute("kernel_type", "LINEAR")
    parameters = operation.attribute("kernel_params") or [0.0, 0.0, 0.0]
    if len(parameters) != 3:
        raise errors.InvalidArgumentError(
            f"{operation.op}: kernel_params must be gamma, coef0 and degree, got {parameters}"
        )
    gamma, offset, degree = parameters
    if kind == "RBF":
        return exp(-gamma * _distances(x, vectors))
    dots = matmul(x, constant(vectors.T.copy()))
    if kind == "LINEAR":
        return dots
    if kind == "POLY":
        return power(gamma * dots + offset, degree)
    if kind == "SIGMOID":
        result: Output = tanh(gamma * dots + offset)
        return result
    raise errors.InvalidArgumentError(f"{operation.op}: unknown kernel_type {kind!r}")


def _distances(x: Output, vectors: Array) -> Output:
    """Return squared distances, computed in float64 because the squares cancel."""
    exact, rows = vectors.astype(np.float64), cast(x, dtypes.float64)
    dots = matmul(rows, constant(exact.T.copy()))
    sums = reduce_sum(square(rows), 1, True) + constant(np.square(exact).sum(1))
    return cast(sums - 2.0 * dots, dtypes.float32)


# ------------------------------------------------------------------------------- regression


@importer("SVMRegressor", domain=_ML)
def _regressor(operation: Operation) -> Output:
    x, count = to_floats(operation.require_rank(2)), operation.attribute("n_supports", 0)
    weights = _table(operation, "coefficients", -1, 1)
    if count > 0:
        weights = _table(operation, "coefficients", count, 1)
        x = _kernels(operation, x, _table(operation, "support_vectors", count, -1))
    result = matmul(x, constant(weights)) + constant(_table(operation, "rho", 1))
    if operation.attribute("one_class", 0):
        return where_v2(greater(result, 0.0), constant(1.0), constant(-1.0))
    return transform_scores(result, operation.attribute("post_transform", "NONE"))


# --------------------------------------------------------------------------- classification


@importer("SVMClassifier", domain=_ML)
def _classifier(operation: Operation) -> list[Output]:
    x, count = to_floats(operation.require_rank(2)), len(class_labels(operation))
    if count < 2:
        raise errors.InvalidArgumentError("SVMClassifier requires labels of two classes or more")
    kind = operation.attribute("post_transform", "NONE")
    per_class = operation.attribute("vectors_per_class") or []
    if not sum(per_class):
        weights = _table(operation, "coefficients", count, -1)
        scores = matmul(x, constant(weights.T.copy())) + _table(operation, "rho", -1)[0]
        return [select_labels(operation, argmax(scores, 1)), transform_scores(scores, kind)]
    if len(per_class) != count or min(per_class) < 0:
        raise errors.InvalidArgumentError(
            f"SVMClassifier: vectors_per_class has {per_class} for {count} classes"
        )
    scores = _duels(operation, x, per_class)
    table = _Pairs(count)
    votes = reduce_sum(cast(table.expand_pairs(greater(scores, 0.0), logical_not), dtypes.int32), 2)
    chosen = select_labels(operation, argmax(votes, 1))
    if operation.attribute("prob_a"):
        return [chosen, transform_scores(_probabilities(operation, scores, table), kind)]
    if count > 2:
        return [chosen, transform_scores(scores, kind)]
    return [chosen, transform_scores(concat([-scores, scores], 1), kind)]


def _duels(operation: Operation, x: Output, per_class: list[int]) -> Output:
    """Return the score of each pair of classes, (rows, pairs)."""
    count, total = len(per_class), sum(per_class)
    kernels = _kernels(operation, x, _table(operation, "support_vectors", total, -1))
    weights = _table(operation, "coefficients", count - 1, total)
    parts, begin = [], 0
    for size in per_class:
        own_weights = weights[:, begin : begin + size]
        parts.append(matmul(kernels[:, begin : begin + size], constant(own_weights.T.copy())))
        begin += size
    first, second = np.triu_indices(count, 1)
    sums = concat(parts, 1)  # class c against others is at c * (count - 1)
    class_sums = gather(sums, constant(first * (count - 1) + second - 1), axis=1)
    opposite_sums = gather(sums, constant(second * (count - 1) + first), axis=1)
    return class_sums + opposite_sums + constant(_table(operation, "rho", len(first)))


class _Pairs:
    """The values of pairs of classes, as matrices over classes."""

    def __init__(self, count: int) -> None:
        first, second = np.triu_indices(count, 1)
        self._pair_index = np.zeros((count, count), np.int32)
        self._pair_index[first, second] = self._pair_index[second, first] = np.arange(len(first))
        self._upper_mask = np.triu(np.ones((count, count), bool), 1)
        self._lower_mask = self._upper_mask.T.copy()
        self.count = count

    def expand_pairs(self, values: Output, opposite: Any) -> Output:
        """Expand (rows, pairs) to (rows, classes, classes): opposite below the diagonal."""
        pair_values = gather(values, constant(self._pair_index), axis=1)
        zero = constant(np.zeros((), values.dtype.numpy))
        lower_triangle = where_v2(constant(self._lower_mask), opposite(pair_values), zero)
        return where_v2(constant(self._upper_mask), pair_values, lower_triangle)


def _probabilities(operation: Operation, scores: Output, table: _Pairs) -> Output:
    """Compute class probabilities from pairwise probabilities."""
    pairs = table.count * (table.count - 1) // 2
    slope, offset = (_table(operation, name, pairs) for name in ("prob_a", "prob_b"))
    won = clip_by_value(sigmoid(-(scores * slope + offset)), 1e-7, 1 - 1e-7)
    return _couple(table.expand_pairs(won, lambda item: 1.0 - item), table.count)


def _couple(won: Output, count: int) -> Output:
    """Couple pairwise probabilities to class probabilities, as libsvm does.

    Args:
      won: the probability of each class against each other class, (rows, classes, classes).
    """
    lost = transpose(won, [0, 2, 1])
    squares = reduce_sum(square(lost), 2)
    diagonal = constant(np.eye(count, dtype=np.float32))
    matrix = diagonal * expand_dims(squares, 2) - lost * won

    def refine(index: Output, p: Output, products: Output, quadratic: Output) -> list[Output]:
        own_weights, product = gather(squares, index, axis=1), gather(products, index, axis=1)
        change = (quadratic - product) / own_weights
        quadratic = (quadratic + change * (change * own_weights + 2.0 * product)) / square(
            1.0 + change
        )
        change = expand_dims(change, 1)
        total = 1.0 + change
        products = (products + change * gather(matrix, index, axis=1)) / total
        return [index + 1, (p + change * one_hot(index, count)) / total, products, quadratic]

    def step(iteration: Output, p: Output, running: Output) -> list[Output]:
        products = matvec(matrix, p)
        quadratic = reduce_sum(p * products, 1)
        max_error = reduce_max(absolute(products - expand_dims(quadratic, 1)), 1)
        running = greater_equal(max_error, 0.005 / count)
        begin = [constant(0), p, products, quadratic]
        _, better, _, _ = while_loop(lambda place, *_: less(place, count), refine, begin)
        return [iteration + 1, where_v2(expand_dims(running, 1), better, p), running]

    rows = shape(won)[0]
    even = fill(stack([rows, count]), constant(1.0 / count, dtypes.float32))
    begin = [constant(0), even, fill(reshape(rows, [1]), constant(True))]
    limit = max(100, count)
    _, match, _ = while_loop(
        lambda iteration, _, running: less(iteration, limit) & reduce_any(running), step, begin
    )
    result: Output = match
    return result
