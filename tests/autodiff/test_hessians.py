"""Second derivatives against finite differences; derivatives of gamma-distributed numbers."""

from __future__ import annotations

import numpy as np

import weft as wf


def test_second_derivatives_of_several_points() -> None:
    x, m = wf.placeholder(wf.float64, [3]), wf.placeholder(wf.float64)
    y = wf.reduce_sum(wf.exp(x) * x[::-1]) + wf.reduce_sum(m**3) * x[0]
    second = wf.hessians(y, [x, m]) + wf.hessians(x[0], x)
    assert second[0].shape == [3, 3]
    at = np.array([0.1, 0.2, 0.3])
    point = {x: at, m: np.arange(4.0).reshape(2, 2)}
    with wf.Session() as session:
        of_x, of_m, none = session.run(second, point)
    e = np.exp(at)
    want = np.diag(e * at[::-1])
    want += np.diag(e)[::-1] + np.diag(e)[:, ::-1]
    np.testing.assert_allclose(of_x, want)
    np.testing.assert_allclose(of_m.reshape(4, 4), np.diag(6 * np.arange(4.0)) * 0.1)
    assert not none.any() and none.shape == (3, 3)


def test_gamma_numbers_move_with_their_shape_parameter() -> None:
    """The mean of draws is alpha / beta: it rises by 1 / beta and by -alpha / beta ** 2."""
    for dtype in (wf.float16, wf.float32, wf.float64):
        alpha, beta = wf.constant([0.5, 3.0, 40.0], dtype), wf.constant(2.0, dtype)
        draws = wf.random_gamma([20000], alpha, beta, dtype, seed=1)
        assert draws.shape == [20000, 3]
        slopes = wf.gradients(wf.cast(draws, wf.float64) / 20000, [alpha, beta])
        with wf.Session() as session:
            by_alpha, by_beta = session.run(slopes)
        if dtype is not wf.float16:  # whose sums are of small terms
            np.testing.assert_allclose(by_alpha, [0.5, 0.5, 0.5], rtol=0.03)
            np.testing.assert_allclose(by_beta, -43.5 / 4, rtol=0.03)
