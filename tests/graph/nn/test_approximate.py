"""The largest and smallest elements, of which a share would do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

X = np.random.default_rng(0).permutation(60).reshape(3, 4, 5).astype(np.float32)


@pytest.mark.parametrize("axis", [-1, 2, 0, 1, -2])
def test_all_are_found_along_each_axis(axis: int) -> None:
    ascending = np.sort(X, axis)
    places = np.argsort(X, axis)
    largest = wf.nn.approx_max_k(X, 2, axis)
    smallest = wf.math.approx_min_k(X, 2, axis)
    same = wf.approx_top_k(X, 2, axis, is_max_k=False)
    with wf.Session() as session:
        high, low, again = session.run([largest, smallest, same])
    np.testing.assert_array_equal(high[0], np.flip(ascending, axis).take([0, 1], axis))
    np.testing.assert_array_equal(high[1], np.flip(places, axis).take([0, 1], axis))
    for found in (low, again):
        np.testing.assert_array_equal(found[0], ascending.take([0, 1], axis))
        np.testing.assert_array_equal(found[1], places.take([0, 1], axis))


def test_gradients_and_narrow_types() -> None:
    x = wf.constant(X[0], wf.bfloat16)
    values, _ = wf.nn.approx_min_k(x, 1, 0)
    (slope,) = wf.gradients(values, x)
    with wf.Session() as session:
        found = session.run(slope).astype(np.float32)
    np.testing.assert_array_equal(found, X[0] == X[0].min(0))


def test_what_is_refused() -> None:
    unknown = wf.placeholder(wf.float32)
    calls: list[Any] = [
        lambda: wf.nn.approx_max_k(X, 6),
        lambda: wf.nn.approx_max_k(X, 1, 3),
        lambda: wf.nn.approx_max_k(X, 1, recall_target=0.0),
        lambda: wf.nn.approx_max_k(unknown, 1, 0),
        lambda: wf.nn.approx_max_k([1, 2], 1),
    ]
    for call in calls:
        with pytest.raises((wf.errors.InvalidArgumentError, TypeError)):
            call()
