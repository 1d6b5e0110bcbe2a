"""Metrics: values over several batches, local variables, weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft_graph.metrics.top_k as best_k
from weft_exec.session.session import Session
from weft_graph import metrics
from weft_graph.ir.collections_keys import GraphKeys, get_collection
from weft_graph.ir.graph import Graph
from weft_graph.metrics.classes import confusion_matrix
from weft_graph.ops.array import placeholder
from weft_graph.variables.reference import local_variables, local_variables_initializer
from weft_tensor import errors

RNG = np.random.default_rng(11)
LABELS = RNG.integers(0, 2, (3, 20))
SCORES = np.clip(0.6 * LABELS + RNG.uniform(0, 0.7, (3, 20)), 0, 1).astype(np.float32)
WEIGHTS = RNG.uniform(0, 2, (3, 20)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def stream(make: Any, *batches: Any) -> tuple[Any, Any, Any]:
    """The value before, the last update, and the value after all batches."""
    kinds = {"f": "float32", "i": "int64", "b": "bool"}
    feeds = [placeholder(kinds[b.dtype.kind], [None, *b.shape[2:]]) for b in batches]
    value, update = make(*feeds)
    with Session() as session:
        session.run(local_variables_initializer())
        before = session.run(value)
        for step in zip(*batches, strict=True):
            last = session.run(update, dict(zip(feeds, step, strict=True)))
        return before, last, session.run(value)


def check(
    make: Any, want: Any, *batches: Any, rtol: float = 1e-5, without_data: float = 0.0
) -> None:
    before, last, after = stream(make, *batches)
    np.testing.assert_allclose(before, np.full_like(before, without_data))
    np.testing.assert_allclose(last, want, rtol=rtol)
    np.testing.assert_allclose(after, want, rtol=rtol)


# ------------------------------------------------------------------------------- means


def test_mean_and_its_variables() -> None:
    check(metrics.mean, SCORES.mean(), SCORES)
    assert [v.op.name for v in local_variables()] == ["mean/total", "mean/count"]
    assert len(get_collection(GraphKeys.METRIC_VARIABLES)) == 2
    assert get_collection(GraphKeys.GLOBAL_VARIABLES) == []
    check(metrics.mean, np.average(SCORES, weights=WEIGHTS), SCORES, WEIGHTS)
    assert local_variables()[2].op.name == "mean_1/total"


def test_a_name_and_collections() -> None:
    value, update = metrics.mean(
        SCORES, metrics_collections=["m"], updates_collections="u", name="loss"
    )
    assert local_variables()[0].op.name == "loss/total"
    assert value.name == "loss/value:0" and update.name == "loss/update_op:0"
    assert get_collection("m") == [value] and get_collection("u") == [update]


def test_mean_tensor() -> None:
    value, update = metrics.mean_tensor(placeholder("float32", [4], name="x"))
    with Session() as session:
        session.run(local_variables_initializer())
        for row in (np.arange(4), np.ones(4)):
            session.run(update, {"x:0": row})
        np.testing.assert_allclose(session.run(value), [0.5, 1, 1.5, 2])
    with pytest.raises(errors.InvalidArgumentError, match="known shape"):
        metrics.mean_tensor(placeholder("float32", [None]))


def test_accuracy() -> None:
    guesses = (SCORES > 0.5).astype(np.int64)
    right = guesses == LABELS
    check(metrics.accuracy, right.mean(), LABELS, guesses)
    check(metrics.accuracy, np.average(right, weights=WEIGHTS), LABELS, guesses, WEIGHTS)
    check(metrics.accuracy, right.mean(), LABELS[..., None], guesses)
    with pytest.raises(errors.InvalidArgumentError, match="the same shape"):
        metrics.accuracy(LABELS, guesses[:2])


def test_errors() -> None:
    y = LABELS.astype(np.float32)
    check(metrics.mean_absolute_error, np.abs(y - SCORES).mean(), y, SCORES)
    check(metrics.mean_squared_error, ((y - SCORES) ** 2).mean(), y, SCORES)
    weighted = np.sqrt(np.average((y - SCORES) ** 2, weights=WEIGHTS))
    check(metrics.root_mean_squared_error, weighted, y, SCORES, WEIGHTS)
    relative = np.abs(y - SCORES)[y > 0].sum() / y.size
    check(metrics.mean_relative_error, relative, y, SCORES, y)
    check(lambda x: metrics.percentage_below(x, 0.5), (SCORES < 0.5).mean(), SCORES)


def test_mean_cosine_distance() -> None:
    y, p = [RNG.standard_normal((3, 5, 2)).astype(np.float32) for _ in range(2)]
    _, last, after = stream(lambda a, b: metrics.mean_cosine_distance(a, b, 1), y, p)
    np.testing.assert_allclose([last, after], 1 - (y * p).sum(2).mean(), rtol=1e-5)


# ------------------------------------------------------------------------------ counts


def _table(weights: Any) -> dict[str, Any]:
    y, p = LABELS > 0, SCORES > 0.5
    return {
        "true_positives": (weights * (y & p)).sum(),
        "false_positives": (weights * (~y & p)).sum(),
        "true_negatives": (weights * (~y & ~p)).sum(),
        "false_negatives": (weights * (y & ~p)).sum(),
    }


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_and_their_ratios(weighted: bool) -> None:
    table = _table(WEIGHTS if weighted else 1)
    batches = [LABELS, SCORES > 0.5, *([WEIGHTS] if weighted else [])]
    for name, want in table.items():
        check(getattr(metrics, name), want, *batches)
        inner = getattr(metrics, f"{name}_at_thresholds")
        given = [LABELS, SCORES, *([WEIGHTS] if weighted else [])]

        def at(y: Any, p: Any, w: Any = None, inner: Any = inner) -> Any:
            return inner(y, p, [0.5, 2.0], w)

        _, last, after = stream(at, *given)
        np.testing.assert_allclose([last[0], after[0]], want, rtol=1e-5)
        if name.endswith("positives"):
            assert after[1] == 0
    tp, fp = table["true_positives"], table["false_positives"]
    check(metrics.precision, tp / (tp + fp), *batches)
    check(metrics.recall, tp / (tp + table["false_negatives"]), *batches)


def test_ratios_at_thresholds() -> None:
    thresholds = [0.2, 0.5, 0.8]
    y = LABELS > 0
    hits = [(y & (t < SCORES)).sum() for t in thresholds]
    precision = [h / (t < SCORES).sum() for h, t in zip(hits, thresholds, strict=True)]
    check(lambda a, b: metrics.precision_at_thresholds(a, b, thresholds), precision, LABELS, SCORES)
    recall = np.array(hits) / y.sum()
    check(lambda a, b: metrics.recall_at_thresholds(a, b, thresholds), recall, LABELS, SCORES)


# ------------------------------------------------------------------------------ curves


def _roc() -> float:
    """The probability that a positive is ranked above a negative."""
    positive, negative = SCORES[LABELS > 0], SCORES[LABELS == 0]
    wins = (positive[:, None] > negative).sum() + 0.5 * (positive[:, None] == negative).sum()
    return float(wins / (positive.size * negative.size))


def test_areas() -> None:
    _, last, after = stream(metrics.auc, LABELS, SCORES)
    assert abs(last - _roc()) < 0.01 and last == after
    low, high = [
        stream(lambda a, b, m=m: metrics.auc(a, b, summation_method=m), LABELS, SCORES)[2]
        for m in ("minoring", "majoring")
    ]
    assert low <= after <= high
    for method in ("trapezoidal", "careful_interpolation"):
        area = stream(
            lambda a, b, m=method: metrics.auc(a, b, curve="PR", summation_method=m),
            LABELS,
            SCORES,
        )[2]
        order = np.argsort(-SCORES.ravel())
        ranked = LABELS.ravel()[order]
        average = (np.cumsum(ranked) / np.arange(1, 61))[ranked > 0].mean()
        assert abs(area - average) < 0.03
    perfect = stream(metrics.auc, LABELS, LABELS.astype(np.float32))[2]
    np.testing.assert_allclose(perfect, 1, rtol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="curve must be"):
        metrics.auc(LABELS, SCORES, curve="LIFT")
    with pytest.raises(errors.InvalidArgumentError, match="summation_method"):
        metrics.auc(LABELS, SCORES, summation_method="careful_interpolation")


def test_sensitivity_and_specificity() -> None:
    y = LABELS > 0
    edges = np.array([-1e-7, *(np.arange(1, 199) / 199), 1 + 1e-7], np.float32)
    sensitivity = np.array([(y & (t < SCORES)).sum() / y.sum() for t in edges])
    specificity = np.array([(~y & (t >= SCORES)).sum() / (~y).sum() for t in edges])
    want = sensitivity[np.argmin(np.abs(specificity - 0.8))]
    check(lambda a, b: metrics.sensitivity_at_specificity(a, b, 0.8), want, LABELS, SCORES)
    distance = np.abs(sensitivity - 0.9).astype(np.float32)
    want = specificity[np.flatnonzero(distance == distance.min())[-1]]
    check(lambda a, b: metrics.specificity_at_sensitivity(a, b, 0.9), want, LABELS, SCORES)
    labels, scores = np.array([[1, 0, 1, 1]]), np.array([[0.9, 0.6, 0.4, 0.2]], np.float32)
    for metric, value, want in (
        (metrics.sensitivity_at_specificity, 0.5, 1 / 3),  # 0 and 1 are as near: from above
        (metrics.specificity_at_sensitivity, 0.5, 1),
        (metrics.specificity_at_sensitivity, 1.0, 0),
    ):
        check(lambda a, b, m=metric, v=value: m(a, b, v), want, labels, scores)  # type: ignore[misc]
    with pytest.raises(errors.InvalidArgumentError, match="specificity must be"):
        metrics.sensitivity_at_specificity(LABELS, SCORES, 1.5)


# ----------------------------------------------------------------------------- classes


def _confusion(labels: Any, guesses: Any, count: int) -> Any:
    matrix = np.zeros((count, count), np.int64)
    np.add.at(matrix, (labels.ravel(), guesses.ravel()), 1)
    return matrix


def test_confusion_matrix() -> None:
    labels, guesses = RNG.integers(0, 4, (2, 30))
    with Session() as session:
        for classes in (4, None):
            got = session.run(confusion_matrix(labels, guesses, classes))
            np.testing.assert_array_equal(got, _confusion(labels, guesses, 4))
        weighted = confusion_matrix([1, 1], [0, 0], 2, "float32", weights=[0.5, 1.0])
        assert session.run(weighted).tolist() == [[0, 0], [1.5, 0]]
        with pytest.raises(errors.InvalidArgumentError, match="predictions must be in"):
            session.run(confusion_matrix([1, 1], [0, 4], 2))


def test_class_means() -> None:
    labels, guesses = RNG.integers(0, 4, (2, 3, 30))
    matrix = _confusion(labels, guesses, 5)
    right = np.diag(matrix)
    union = matrix.sum(0) + matrix.sum(1) - right
    _, last, after = stream(lambda a, b: metrics.mean_iou(a, b, 5), labels, guesses)
    np.testing.assert_array_equal(last, matrix)
    np.testing.assert_allclose(after, (right[:4] / union[:4]).mean(), rtol=1e-5)

    def make(a: Any, b: Any) -> Any:
        return metrics.mean_per_class_accuracy(a, b, 4)

    _, last, after = stream(make, labels, guesses)
    each = right[:4] / matrix.sum(1)[:4]
    np.testing.assert_allclose(last, each, rtol=1e-5)
    np.testing.assert_allclose(after, each.mean(), rtol=1e-5)


@pytest.mark.parametrize("class_id", [None, 2])
def test_the_best_k(class_id: int | None) -> None:
    labels = RNG.integers(-1, 7, (3, 10, 2))  # -1 and 6 are no classes, and never found
    scores = RNG.standard_normal((3, 10, 6)).astype(np.float32)
    right = extra = missed = 0
    for row, values in zip(labels.reshape(-1, 2), scores.reshape(-1, 6), strict=True):
        wanted, found = set(row.tolist()), set(np.argsort(-values)[:3].tolist())
        if class_id is not None:
            wanted, found = wanted & {class_id}, found & {class_id}
        right += len(wanted & found)
        extra += len(found - wanted)
        missed += len(wanted - found)
    for metric, other in ((best_k.precision_at_k, extra), (best_k.recall_at_k, missed)):

        def make(a: Any, b: Any, metric: Any = metric) -> Any:
            return metric(a, b, 3, class_id)

        check(make, right / (right + other), labels, scores, without_data=np.nan)
