"""Metrics of the best k predictions on sparse labels, and average precision, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft import errors, metrics

RNG = np.random.default_rng(3)
SCORES = RNG.standard_normal((6, 5)).astype(np.float32)
SETS = [[1, 4], [], [0, 2, 3], [3], [9, 1], [4]]
WEIGHTS = RNG.random(6)
BEST = np.argsort(-SCORES)[:, :3]


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def sparse_labels(sets: list[list[int]] = SETS) -> wf.SparseTensor:
    flat = [label for row in sets for label in row]
    places = [[i, 2 * j] for i, row in enumerate(sets) for j in range(len(row))]
    return wf.SparseTensor(places, wf.constant(flat, wf.int64), [6, 6])


def updated(metric: Any, times: int = 2) -> float:
    value, update = metric
    with wf.Session() as session:
        session.run(wf.local_variables_initializer())
        updates = [session.run(update) for _ in range(times)]
        found = session.run(value)
    np.testing.assert_equal(updates[-1], found)
    return float(found)


def expected(kind: str, class_id: int | None) -> float:
    right = other = 0.0
    for labels, best, weight in zip(SETS, BEST.tolist(), WEIGHTS, strict=True):
        wanted, found = set(labels), set(best)
        if class_id is not None:
            wanted, found = wanted & {class_id}, found & {class_id}
        right += weight * len(wanted & found)
        other += weight * len(found - wanted if kind == "precision" else wanted - found)
    return right / (right + other)


def test_precision_and_recall_of_sparse_labels() -> None:
    with Parts() as parts:
        for kind in ("precision", "recall"):
            for class_id in (None, 4):
                with parts.part(f"{kind}, {class_id}"):
                    labels = sparse_labels()
                    scored = getattr(metrics, f"{kind}_at_k")
                    listed = getattr(metrics, f"{kind}_at_top_k")
                    wanted = pytest.approx(expected(kind, class_id), rel=1e-6)
                    assert updated(scored(labels, SCORES, 3, class_id, WEIGHTS)) == wanted
                    assert updated(listed(labels, BEST, 3, class_id, WEIGHTS)) == wanted


def test_average_precision() -> None:
    sets = [row or [2] for row in SETS]
    averages = []
    for labels, best in zip(sets, BEST.tolist(), strict=True):
        hits = [label in labels for label in best]
        points = [sum(hits[: i + 1]) / (i + 1) for i in range(3) if hits[i]]
        averages.append(sum(points) / min(len(labels), 3))
    metric = metrics.average_precision_at_k(sparse_labels(sets), SCORES, 3)
    assert updated(metric) == pytest.approx(np.mean(averages))
    metric = metrics.sparse_average_precision_at_k(sparse_labels(sets), SCORES, 3, WEIGHTS)
    assert updated(metric) == pytest.approx(np.average(averages, weights=WEIGHTS))


def test_average_precision_of_dense_labels() -> None:
    scores = np.array([[0.5, 0.4, 0.3]], np.float32)
    known = {(1, 0): 1.0, (1, 1): 0.25, (0, 5): 1.0, (-1, 2): 0.0, (-1, -1): np.nan}
    for labels, wanted in known.items():
        metric = metrics.average_precision_at_k(wf.constant([labels], wf.int64), scores, 2)
        np.testing.assert_equal(updated(metric), wanted)


def test_a_class_that_never_occurs_is_not_a_number() -> None:
    labels, scores = wf.constant([[0], [1]], wf.int64), np.eye(2, 4, dtype=np.float32)
    best = wf.constant([[0], [1]], wf.int64)
    for metric in (
        metrics.recall_at_k(labels, scores, 1, class_id=2),
        metrics.precision_at_k(labels, scores, 1, class_id=2),
        metrics.sparse_precision_at_k(labels, scores, 1, class_id=2),
        metrics.recall_at_top_k(labels, best, class_id=2),
        metrics.precision_at_top_k(labels, best, class_id=2),
        metrics.recall_at_k(labels, scores, 1, weights=0.0),
        metrics.precision_at_k(labels, scores, 1, weights=0.0),
        metrics.average_precision_at_k(sparse_labels(), SCORES, 3),  # the second set is empty
    ):
        assert np.isnan(updated(metric))


def test_without_data() -> None:
    labels, numbers = wf.constant([[0]], wf.int64), wf.constant([1.0])
    values = {
        np.nan: [
            metrics.recall_at_k(labels, [[1.0, 2.0]], 1),
            metrics.precision_at_k(labels, [[1.0, 2.0]], 1),
        ],
        0.0: [
            metrics.average_precision_at_k(labels, [[1.0, 2.0]], 1),
            metrics.accuracy(numbers, numbers),
            metrics.mean(numbers),
            metrics.mean_iou([0], [0], 2),
            metrics.mean_per_class_accuracy([0], [0], 2),
            metrics.mean_relative_error(numbers, numbers, numbers),
            metrics.mean_tensor(numbers),
            metrics.percentage_below(numbers, 0.5),
            metrics.precision(numbers, numbers),
            metrics.precision_at_thresholds(numbers, numbers, [0.5]),
            metrics.recall(numbers, numbers),
            metrics.recall_at_thresholds(numbers, numbers, [0.5]),
            metrics.root_mean_squared_error(numbers, numbers),
            metrics.sensitivity_at_specificity(numbers, numbers, 0.5),
            metrics.specificity_at_sensitivity(numbers, numbers, 0.5),
        ],
        1.0: [metrics.mean_cosine_distance(numbers, numbers, 0)],
    }
    with wf.Session() as session:
        session.run(wf.local_variables_initializer())
        for expected, pairs in values.items():
            for value in session.run([value for value, _ in pairs]):
                np.testing.assert_equal(value, np.full_like(value, expected))


def test_means_by_weights_below_zero_are_zero() -> None:
    assert updated(metrics.mean(wf.constant([1.0, 2.0]), weights=-1.0)) == 0


def test_labels_without_an_axis_of_their_own() -> None:
    labels = wf.SparseTensor([[0], [2]], wf.constant([1, 2], wf.int64), [3])
    best = [[1], [0], [0]]
    assert updated(metrics.recall_at_top_k(labels, best)) == 0.5
    assert updated(metrics.precision_at_top_k(labels, best)) == pytest.approx(1 / 3)


def test_ranks_that_do_not_fit_are_refused() -> None:
    for labels in (wf.zeros([2, 3, 1, 1], wf.int64), wf.placeholder(wf.int64)):
        with pytest.raises(errors.InvalidArgumentError):
            metrics.recall_at_k(labels, SCORES, 3)
