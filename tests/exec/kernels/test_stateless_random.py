"""Moments and quantiles of random numbers that depend on a seed alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors

N = 20000
SEED = [3, 4]


def test_moments() -> None:
    random = wf.random
    rows = {
        "gamma": (random.stateless_gamma([N, 2], SEED, [0.5, 4.0], 2.0), [0.25, 2], [0.125, 1]),
        "poisson": (random.stateless_poisson([N, 2], SEED, [0.5, 40.0]), [0.5, 40], [0.5, 40]),
        "binomial": (
            random.stateless_binomial([N, 2], SEED, [4, 100], [0.5, 0.1]), [2, 10], [1, 9]
        ),
    }  # fmt: skip
    with wf.Session() as session:
        for name, (draws, mean, variance) in rows.items():
            found = session.run(draws).astype(float)
            np.testing.assert_array_equal(found, session.run(draws), err_msg=name)
            np.testing.assert_allclose(found.mean(0), mean, rtol=0.05, err_msg=name)
            np.testing.assert_allclose(found.var(0), variance, rtol=0.08, err_msg=name)


def test_classes_have_their_probabilities() -> None:
    logits = np.log([[0.2, 0.8], [0.5, 0.5]])
    draws = wf.Session().run(wf.random.stateless_categorical(logits, N, SEED, wf.int32))
    assert draws.dtype == np.int32
    np.testing.assert_allclose(draws.mean(1), [0.8, 0.5], atol=0.02)


def test_truncated_normal_numbers_have_their_quantiles() -> None:
    lows, highs = np.array([-1.0, 5.0, 12.0]), np.array([2.0, 6.0, 13.0])
    drawn = wf.random.stateless_parameterized_truncated_normal(
        [N, 3], SEED, wf.constant(1.0, wf.float64), 1.0, lows, highs
    )
    found = wf.Session().run(drawn)
    assert (found >= lows).all() and (found <= highs).all()

    def above(x: float) -> float:
        return math.erfc((x - 1) / math.sqrt(2)) / 2

    for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
        middle = float(np.median(found[:, i]))
        share = (above(low) - above(middle)) / (above(low) - above(high))
        assert abs(share - 0.5) < 0.02


def test_seeds_of_seeds_and_orders() -> None:
    random = wf.random
    for dtype in (wf.int32, wf.int64):
        seed = wf.constant(SEED, dtype)
        parts = [random.experimental.stateless_split(seed, 3)]
        folded = [random.experimental.stateless_fold_in(seed, i) for i in (0, 1)]
        parts.append(wf.stack(folded))
        seeds = wf.Session().run(wf.concat(parts, 0))
        assert seeds.dtype == dtype.as_numpy_dtype
        assert len({tuple(row) for row in seeds.tolist()}) == 5
    orders = [random.experimental.stateless_shuffle(np.arange(50), [i, 1]) for i in (0, 0, 1)]
    first, again, other = wf.Session().run(orders)
    assert first.tolist() == again.tolist() != other.tolist() and sorted(other) == list(range(50))


def test_bad_parameters_are_refused() -> None:
    with wf.Session() as session:
        for says, draws in (
            ("alpha must be positive", wf.random.stateless_gamma([2], SEED, -1.0)),
            ("probs must be in", wf.random.stateless_binomial([2], SEED, 3.0, 1.5)),
            ("do not broadcast", wf.random.stateless_poisson([2], SEED, [1.0, 2.0, 3.0])),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=says):
                session.run(draws)
    with pytest.raises(errors.InvalidArgumentError, match="seed"):
        wf.random.stateless_poisson([2], [1, 2, 3], 1.0)
