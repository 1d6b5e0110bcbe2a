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
PLACES = [[i, 2 * j] for i, row in enumerate(SETS) for j in range(len(row))]
WEIGHTS = RNG.random(6)
BEST = np.argsort(-SCORES)[:, :3]


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def sparse_labels() -> wf.SparseTensor:
    flat = [label for row in SETS for label in row]
    return wf.SparseTensor(PLACES, wf.constant(flat, wf.int64), [6, 6])


def updated(metric: Any, times: int = 2) -> float:
    value, update = metric
    with wf.Session() as session:
        session.run(wf.local_variables_initializer())
        updates = [session.run(update) for _ in range(times)]
        found = session.run(value)
    assert updates[-1] == found
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
    averages = []
    for labels, best in zip(SETS, BEST.tolist(), strict=True):
        hits = [label in labels for label in best]
        points = [sum(hits[: i + 1]) / (i + 1) for i in range(3) if hits[i]]
        averages.append(sum(points) / max(min(len(labels), 3), 1))
    metric = metrics.average_precision_at_k(sparse_labels(), SCORES, 3)
    assert updated(metric) == pytest.approx(np.mean(averages))
    metric = metrics.sparse_average_precision_at_k(sparse_labels(), SCORES, 3, WEIGHTS)
    assert updated(metric) == pytest.approx(np.average(averages, weights=WEIGHTS))


def test_average_precision_of_dense_labels() -> None:
    scores = np.array([[0.5, 0.4, 0.3]], np.float32)
    known = {(1, 0): 1.0, (1, 1): 0.25, (0, 5): 1.0, (-1, 2): 0.0}
    for labels, wanted in known.items():
        metric = metrics.average_precision_at_k(wf.constant([labels], wf.int64), scores, 2)
        assert updated(metric) == wanted


def test_labels_without_an_axis_of_their_own() -> None:
    labels = wf.SparseTensor([[0], [2]], wf.constant([1, 2], wf.int64), [3])
    best = [[1], [0], [0]]
    assert updated(metrics.recall_at_top_k(labels, best)) == 0.5
    assert updated(metrics.precision_at_top_k(labels, best)) == pytest.approx(1 / 3)


def test_ranks_that_do_not_fit_are_refused() -> None:
    for labels in (wf.zeros([2, 3, 1, 1], wf.int64), wf.placeholder(wf.int64)):
        with pytest.raises(errors.InvalidArgumentError):
            metrics.recall_at_k(labels, SCORES, 3)
