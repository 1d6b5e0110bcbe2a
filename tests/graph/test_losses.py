"""Losses: values, weights, reductions, collections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft_exec.session.session import Session
from weft_graph import layers, losses, nn
from weft_graph.ir.collections_keys import GraphKeys, get_collection
from weft_graph.ir.graph import Graph
from weft_graph.losses import Reduction
from weft_graph.ops.array import placeholder
from weft_tensor import errors

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


Y, P = RNG.uniform(0.1, 0.9, (2, 4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("loss", "want"),
    [
        (losses.absolute_difference, lambda y, p: np.abs(y - p)),
        (losses.mean_squared_error, lambda y, p: (y - p) ** 2),
        (losses.hinge_loss, lambda y, p: np.maximum(1 - (2 * y - 1) * p, 0)),
        (
            losses.log_loss,
            lambda y, p: -y * np.log(p + 1e-7) - (1 - y) * np.log(1 - p + 1e-7),
        ),
        (
            losses.huber_loss,
            lambda y, p: np.where(np.abs(y - p) <= 1, (y - p) ** 2 / 2, np.abs(y - p) - 0.5),
        ),
        (
            losses.sigmoid_cross_entropy,
            lambda y, p: np.maximum(p, 0) - p * y + np.log1p(np.exp(-np.abs(p))),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_elementwise_losses(loss: Any, want: Any) -> None:
    for scale in (1, 5):
        wanted = want(Y, P * scale) if loss is not losses.log_loss else want(Y, P)
        predictions = P if loss is losses.log_loss else P * scale
        value = loss(Y, predictions)
        assert value.dims == ()
        np.testing.assert_allclose(run(value), wanted.mean(), rtol=1e-5)
        each = loss(Y, predictions, reduction=Reduction.NONE)
        np.testing.assert_allclose(run(each), wanted, rtol=1e-4, atol=1e-6)


def test_reductions() -> None:
    values, weights = normal(4, 3), np.array([[2.0], [0.0], [1.0], [0.0]], np.float32)
    products = values * weights
    wanted = {
        Reduction.NONE: products,
        Reduction.SUM: products.sum(),
        Reduction.SUM_OVER_BATCH_SIZE: products.sum() / 12,
        Reduction.MEAN: products.sum() / 9,
        Reduction.SUM_BY_NONZERO_WEIGHTS: products.sum() / 6,
    }
    for reduction, want in wanted.items():
        got = run(losses.compute_weighted_loss(values, weights, reduction=reduction))
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert run(losses.compute_weighted_loss(values, 0.0)) == 0
    with pytest.raises(errors.InvalidArgumentError, match="reduction must be one of"):
        losses.compute_weighted_loss(values, reduction="average")


def test_weights_must_fit() -> None:
    for weights in (normal(3), normal(4, 2), normal(4, 1, 1)):
        with pytest.raises(errors.InvalidArgumentError, match="weights must be a scalar"):
            losses.compute_weighted_loss(normal(4, 3), weights)


@pytest.mark.parametrize("shape", [[None, None], None])
def test_weights_are_checked_at_run_time(shape: Any) -> None:
    weights = placeholder("float32", shape)
    loss = losses.compute_weighted_loss(placeholder("float32", [None, 3], name="x"), weights)
    x = "x:0"
    np.testing.assert_allclose(run(loss, {x: np.ones((2, 3)), weights: np.ones((2, 1))}), 1)
    with pytest.raises(errors.InvalidArgumentError):
        run(loss, {x: np.ones((2, 3)), weights: np.ones((3, 3))})


def test_softmax_losses() -> None:
    logits, labels = normal(4, 5), np.array([0, 4, 2, 2])
    each = -np.log(softmax(logits))[np.arange(4), labels]
    onehot = np.eye(5, dtype=np.float32)[labels]
    weights = np.array([1, 0, 2, 3], np.float32)
    wanted = (each * weights).sum() / 3
    for loss in (
        losses.softmax_cross_entropy(onehot, logits, weights),
        losses.sparse_softmax_cross_entropy(labels, logits, weights),
        losses.sparse_softmax_cross_entropy(labels[:, None], logits, weights[:, None]),
    ):
        np.testing.assert_allclose(run(loss), wanted, rtol=1e-5)
    smooth = losses.softmax_cross_entropy(onehot, logits, label_smoothing=0.1)
    target = onehot * 0.9 + 0.1 / 5
    np.testing.assert_allclose(
        run(smooth), -(target * np.log(softmax(logits))).sum(1).mean(), rtol=1e-5
    )


def test_label_smoothing_of_sigmoids() -> None:
    logits = normal(4, 3)
    smooth = losses.sigmoid_cross_entropy(np.ones((4, 3), int), logits, label_smoothing=0.2)
    plain = nn.sigmoid_cross_entropy_with_logits(
        labels=np.full((4, 3), 0.9, np.float32), logits=logits
    )
    smooth, plain = run([smooth, plain])
    np.testing.assert_allclose(smooth, plain.mean(), rtol=1e-5)


def test_cosine_distance() -> None:
    y, p = (Y / np.linalg.norm(Y, axis=1, keepdims=True), P)
    got = run(losses.cosine_distance(y, p, axis=1))
    np.testing.assert_allclose(got, (1 - (y * p).sum(1)).mean(), rtol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="requires an axis"):
        losses.cosine_distance(y, p)


def test_mean_pairwise_squared_error() -> None:
    weights = np.array([1.0, 0.0, 2.0, 1.0], np.float32)
    want = 0.0
    for row, weight in enumerate(weights):
        d = P[row] - Y[row]
        pairs = [(d[i] - d[j]) ** 2 for i in range(3) for j in range(3) if i != j]
        want += weight * np.mean(pairs)
    got = run(losses.mean_pairwise_squared_error(Y, P, weights))
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_shapes_and_arguments_are_checked() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"the same shape, got \[4,3\] and \[4\]"):
        losses.mean_squared_error(Y, P[:, 0])
    with pytest.raises(errors.InvalidArgumentError, match="requires labels and predictions"):
        losses.mean_squared_error(None, P)


def test_losses_are_collected() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="at least one loss"):
        losses.get_total_loss()
    a = losses.mean_squared_error(Y, P)
    b = losses.absolute_difference(Y, P, scope="named")
    losses.hinge_loss(Y, P, loss_collection=None)
    assert losses.get_losses() == get_collection(GraphKeys.LOSSES) == [a, b]
    assert losses.get_losses(scope="named") == [b]
    layers.dense(Y, 2, kernel_regularizer=lambda w: 0.0 * nn.l2_loss(w) + 3.0)
    assert len(losses.get_regularization_losses()) == 1
    total, plain, extra, a, b = run(
        [
            losses.get_total_loss(),
            losses.get_total_loss(add_regularization_losses=False),
            losses.get_regularization_loss(),
            a,
            b,
        ],
        {"dense/kernel/read:0": np.zeros((3, 2))},
    )
    np.testing.assert_allclose([total, plain, extra], [a + b + 3, a + b, 3], rtol=1e-6)
