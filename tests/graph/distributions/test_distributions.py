"""Distributions against their densities, and everything else against the densities and draws.

The logarithms of densities are compared with formulas; means, variances, entropies, divergences and
cumulative probabilities with sums over values, or integrals, of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft_tensor import errors

Array = np.ndarray[Any, Any]
D = wf.distributions
lgamma = np.vectorize(math.lgamma, otypes=[float])


class Row(NamedTuple):
    """A batch of two distributions.

    Attributes:
      make: makes it from a function that makes constants.
      log_prob: of values, by NumPy.
      values: all or nearly all that have probability, on a grid.
      step: that of the grid; 1 for numbers that are counted.
    """

    make: Callable[[Any], Any]
    log_prob: Callable[[Array], Array]
    values: Array
    step: float = 1.0


def _grid(low: float, high: float, count: int) -> tuple[Array, float]:
    step = (high - low) / count
    return low + step * (np.arange(count) + 0.5), step


def _triples(total: int) -> Array:
    return np.array(
        [(a, b, total - a - b) for a in range(total + 1) for b in range(total + 1 - a)], float
    )


A, B = np.array([2.5, 4.0]), np.array([0.5, 2.0])
P = np.array([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3]])
TRIPLES = _triples(4)


def _combinations(x: Array) -> Array:
    return math.lgamma(5) - lgamma(x + 1).sum(-1)


def _mixed(x: Array) -> Array:
    a = 4 * P
    parts = lgamma(a + x[:, None]) - lgamma(a)
    norm = lgamma(a.sum(-1)) - lgamma(a.sum(-1) + 4)
    return parts.sum(-1) + norm + _combinations(x)[:, None]


ROWS = {
    "Normal": Row(lambda c: D.Normal(c(A), c(B)), lambda x: -0.5 * ((x - A) / B) ** 2
                  - np.log(B * np.sqrt(2 * np.pi)), *_grid(-20, 20, 2000)),
    "Laplace": Row(lambda c: D.Laplace(c(A), c(B)), lambda x: -np.abs(x - A) / B
                   - np.log(2 * B), *_grid(-30, 40, 3500)),
    "Uniform": Row(lambda c: D.Uniform(c(B), c(A)), lambda x: np.log(
        np.where((x >= B) & (x < A), 1 / (A - B), 0)), *_grid(0, 5, 2000)),
    "Gamma": Row(lambda c: D.Gamma(c(A), c(B)), lambda x: A * np.log(B) - lgamma(A)
                 + (A - 1) * np.log(x) - B * x, *_grid(0, 80, 4000)),
    "Exponential": Row(lambda c: D.Exponential(c(B)), lambda x: np.log(B) - B * x,
                       *_grid(0, 80, 4000)),
    "Beta": Row(lambda c: D.Beta(c(A), c(B + 1)), lambda x: (A - 1) * np.log(x) + B * np.log1p(-x)
                - lgamma(A) - lgamma(B + 1) + lgamma(A + B + 1), *_grid(0, 1, 2000)),
    "StudentT": Row(lambda c: D.StudentT(c(A + 6), c(B), c(A)), lambda x: lgamma(A / 2 + 3.5)
                    - lgamma(A / 2 + 3) - np.log(A * np.sqrt(np.pi * (A + 6)))
                    - (A + 7) / 2 * np.log1p(((x - B) / A) ** 2 / (A + 6)),
                    *_grid(-200, 200, 5000)),
    "Bernoulli": Row(lambda c: D.Bernoulli(probs=c(B / 3)), lambda x: np.log(
        np.where(x == 1, B / 3, 1 - B / 3)), np.array([0.0, 1.0])),
    "Categorical": Row(lambda c: D.Categorical(logits=c(np.log(P) + 1)),
                       lambda x: np.log(P.T[x[:, 0].astype(int)]), np.arange(3.0)),
    "Multinomial": Row(lambda c: D.Multinomial(c(np.array(4.0)), probs=c(P)), lambda x: (
        x[:, None] * np.log(P)).sum(-1) + _combinations(x)[:, None], TRIPLES),
    "DirichletMultinomial": Row(lambda c: D.DirichletMultinomial(c(np.array([4.0, 4])), c(4 * P)),
                                _mixed, TRIPLES),
}  # fmt: skip


def _double(value: Any) -> Any:
    return wf.constant(value, wf.float64)


@pytest.mark.parametrize("name", ROWS)
def test_a_distribution_agrees_with_its_density(name: str) -> None:
    row = ROWS[name]
    single = row.values.ndim == 1
    values = row.values[:, None] if single else row.values
    with (
        wf.Graph().as_default(),
        wf.Session() as session,
        Parts() as parts,
        np.errstate(all="ignore"),
    ):
        made = row.make(_double)
        given = wf.constant(values if single else values[:, None], made.dtype)
        want = row.log_prob(values)
        weights = np.exp(want) * row.step
        np.testing.assert_allclose(weights.sum(0), 1, rtol=1e-3)
        with parts.part("densities"):
            logs, probs = session.run([made.log_prob(given), made.prob(given)])
            np.testing.assert_allclose(logs, want, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(probs * row.step, weights, rtol=1e-9, atol=1e-12)
        _check_statistics(session, parts, made, values, weights)
        with parts.part("entropy"):
            if hasattr(made, "_entropy"):
                mean = -np.where(weights > 0, weights * want, 0).sum(0)
                np.testing.assert_allclose(session.run(made.entropy()), mean, rtol=2e-3)
        with parts.part("cumulative probabilities"):
            if hasattr(made, "_cdf"):
                _check_cumulative(session, made, given, weights, row.step)
        with parts.part("draws"):
            _check_draws(session, made, name)


def _check_statistics(session: Any, parts: Any, made: Any, values: Array, weights: Array) -> None:
    means = np.tensordot(weights, values, (0, 0))
    squares = np.tensordot(weights, values[:, :, None] * values[:, None], (0, 0))
    spread = squares - means[:, :, None] * means[:, None]
    vector = bool(made.event_shape.as_list())
    for what, want in (
        ("mean", means if vector else means[:, 0]),
        ("variance", np.diagonal(spread, 0, 1, 2) if vector else spread[:, 0, 0]),
        ("covariance", spread),
    ):
        if hasattr(made, f"_{what}") and (what != "covariance" or vector):
            with parts.part(what):
                found = session.run(getattr(made, what)())
                np.testing.assert_allclose(found, want, rtol=5e-3, atol=1e-3)
                if what == "variance":
                    deviations = session.run(made.stddev())
                    np.testing.assert_allclose(deviations, np.sqrt(found), rtol=1e-6)


def _check_cumulative(session: Any, made: Any, given: Any, weights: Array, step: float) -> None:
    shift = 0.0 if step == 1.0 else step / 2
    below, beyond, log = session.run(
        [f(given + shift) if shift else f(given)
         for f in (made.cdf, made.survival_function, made.log_cdf)]
    )  # fmt: skip
    np.testing.assert_allclose(below, weights.cumsum(0), atol=2e-3)
    np.testing.assert_allclose(below + beyond, 1, rtol=1e-6)
    np.testing.assert_allclose(np.exp(log), below, atol=1e-9)
    if hasattr(made, "_quantile"):
        chances = wf.constant([[0.01], [0.3], [0.5], [0.98]], wf.float64)
        again = session.run(made.cdf(made.quantile(chances)))
        np.testing.assert_allclose(again, np.broadcast_to([[0.01], [0.3], [0.5], [0.98]], (4, 2)))


def _check_draws(session: Any, made: Any, name: str) -> None:
    draws = made.sample([20000], seed=7)
    event = made.event_shape.as_list()
    assert draws.shape == [20000, 2, *event] and draws.dtype == made.dtype
    assert made.sample(seed=1).shape == [2, *event]
    assert made.sample((3, 1)).shape == [3, 1, 2, *event]
    found = session.run(draws).astype(float)
    if name == "Categorical":
        np.testing.assert_allclose((found == 1).mean(0), P[:, 1], atol=0.02)
        return
    mean, deviation = (x.astype(float) for x in session.run([made.mean(), made.stddev()]))
    np.testing.assert_allclose((found.mean(0) - mean) / deviation, 0 * mean, atol=0.04)
    np.testing.assert_allclose(found.std(0) / deviation, 1 + 0 * mean, atol=0.06)


def test_dirichlet() -> None:
    with wf.Session() as session:
        made = D.Dirichlet(_double(4 * P))
        draws = made.sample(20000, seed=1)
        found, mean, spread, entropy, logs = session.run(
            [draws, made.mean(), made.covariance(), made.entropy(), made.log_prob(draws)]
        )
    want = lgamma(4.0) - lgamma(4 * P).sum(-1) + ((4 * P - 1) * np.log(found)).sum(-1)
    np.testing.assert_allclose(logs, want, rtol=1e-8)
    np.testing.assert_allclose(found.sum(-1), 1)
    np.testing.assert_allclose(mean, P)
    np.testing.assert_allclose(found.mean(0), P, atol=0.01)
    np.testing.assert_allclose(np.cov(found[:, 1].T), spread[1], atol=2e-3)
    np.testing.assert_allclose(-logs.mean(0), entropy, atol=0.03)


def test_divergences_are_means_of_log_ratios() -> None:
    pairs = [
        (D.Normal(0.0, 1.0), D.Normal(1.0, 2.0)),
        (D.Gamma(2.0, 1.0), D.Gamma(3.0, 0.5)),
        (D.Exponential(2.0), D.Exponential(0.5)),
        (D.Beta(2.0, 3.0), D.Beta(1.5, 1.0)),
        (D.Bernoulli(probs=0.2), D.Bernoulli(logits=0.3)),
        (D.Categorical(probs=[0.2, 0.8]), D.Categorical(probs=[0.5, 0.5])),
        (D.Dirichlet([1.0, 2.0]), D.Dirichlet([2.0, 2.5])),
    ]
    with wf.Session() as session, Parts() as parts:
        for a, b in pairs:
            with parts.part(type(a).__name__):
                draws = a.sample(40000, seed=3)
                ratio = wf.reduce_mean(a.log_prob(draws) - b.log_prob(draws))
                exact, mean = session.run([a.kl_divergence(b), ratio])
                np.testing.assert_allclose(mean, exact, rtol=0.05)
                crossed, entropy = session.run([a.cross_entropy(b), a.entropy()])
                np.testing.assert_allclose(crossed, entropy + exact, rtol=1e-5)
    with pytest.raises(errors.UnimplementedError, match="Normal from Gamma"):
        D.kl_divergence(pairs[0][0], pairs[1][0])


def test_gradients_flow_through_draws() -> None:
    with wf.Session() as session, Parts() as parts:
        for make, slope in (
            (lambda a: D.Normal(a, 2.0), 1.0),
            (lambda a: D.Gamma(a, 2.0), 0.5),
            (lambda a: D.Laplace(a, 2.0), 1.0),
            (lambda a: D.Uniform(a, 9.0), 0.5),
            (lambda a: D.StudentT(5.0, a, 2.0), 1.0),
            (lambda a: D.Beta(a, 3.0), 3 / 25),
        ):
            a = wf.constant(2.0)
            made = make(a)
            with parts.part(made.name):
                assert made.reparameterization_type is D.FULLY_REPARAMETERIZED
                (found,) = wf.gradients(wf.reduce_mean(made.sample(20000, seed=2)), a)
                np.testing.assert_allclose(session.run(found), slope, rtol=0.05)
    a = wf.constant([0.0])
    assert wf.gradients(wf.cast(D.Bernoulli(a).sample(), wf.float32), a) == [None]


def test_far_tails_of_the_normal_distribution() -> None:
    normal = D.Normal(wf.constant(0.0, wf.float64), 1.0)
    found = wf.Session().run(normal.log_cdf([-30.0, -20.0, -5.0, 0.0, 9.0]))
    want = [-454.3212439955, -203.9171553710, math.log(math.erfc(5 / math.sqrt(2)) / 2),
            math.log(0.5), -math.erfc(9 / math.sqrt(2)) / 2]  # fmt: skip
    np.testing.assert_allclose(found, want, rtol=1e-10)


def test_what_is_not_defined() -> None:
    with wf.Session() as session:
        assert np.isnan(session.run(D.StudentT(1.0, 0.0, 1.0).mean()))
        assert np.isinf(session.run(D.StudentT(2.0, 0.0, 1.0).variance()))
        assert np.isnan(session.run(D.Beta(0.5, 2.0).mode()))
        strict = D.Gamma(0.5, 2.0, allow_nan_stats=False)
        with pytest.raises(errors.InvalidArgumentError, match="mode of Gamma"):
            session.run(strict.mode())
        scale = wf.placeholder(wf.float32, [])
        checked = D.Normal(0.0, scale, validate_args=True)
        with pytest.raises(errors.InvalidArgumentError):
            session.run(checked.sample(), {scale: -1.0})
    with pytest.raises(errors.InvalidArgumentError, match="either logits or probs"):
        D.Bernoulli()
    with pytest.raises(errors.UnimplementedError, match="mean is not defined for Categorical"):
        D.Categorical(probs=[0.5, 0.5]).mean()
    with pytest.raises(errors.AlreadyExistsError):
        D.RegisterKL(D.Normal, D.Normal)(lambda a, b, name: a)


def test_copies_and_shapes() -> None:
    scale = wf.placeholder(wf.float32, [None, 3])
    normal = D.Normal(wf.zeros([3]), scale)
    assert normal.batch_shape.as_list() == [None, 3] and normal.event_shape == []
    wider = normal.copy(loc=wf.ones([3]))
    draws = wider.sample([4])
    assert draws.shape.as_list()[1:] == [None, 3] or draws.shape.dims is None
    with wf.Session() as session:
        point = {scale: np.ones((2, 3))}
        shape, mean, found = session.run([wider.batch_shape_tensor(), wider.mean(), draws], point)
        assert shape.tolist() == [2, 3] and found.shape == (4, 2, 3)
        assert (mean == 1).all()
        scalars = [D.Normal(0.0, 1.0).is_scalar_batch(), D.Dirichlet([1.0]).is_scalar_event()]
        assert session.run(scalars) == [True, False]
    assert "Normal" in repr(normal) and D.Exponential(2.0).copy(rate=3.0).name == "Exponential"


def test_a_negative_scale_of_students_is_as_a_positive_one() -> None:
    x = np.array([0.0, 1.0, 2.5], "f")
    positive, negative = (wf.distributions.StudentT(3.0, 1.0, scale) for scale in (2.0, -2.0))
    wanted, got = wf.Session().run(
        [[d.prob(x), d.cdf(x), d.log_cdf(x)] for d in (positive, negative)]
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_how_many_draws_may_be_known_late() -> None:
    count = wf.placeholder(wf.int32)
    draws = wf.distributions.Bernoulli(probs=[0.2, 0.6]).sample(count, seed=1)
    session = wf.Session()
    assert session.run(draws, {count: 3}).shape == (3, 2)
    assert session.run(draws, {count: [3, 4]}).shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("make", "value", "message"),
    [
        (lambda: D.Bernoulli(probs=[0.5], validate_args=True), [-1], "non-negative"),
        (lambda: D.Bernoulli(probs=[0.5], validate_args=True), [2], "0 or 1"),
        (
            lambda: D.Bernoulli(probs=[0.5], dtype=wf.float32, validate_args=True),
            [0.5],
            "fractional",
        ),
        (lambda: D.Dirichlet([1.0, 2.0], validate_args=True), [-0.5, 1.5], "positive"),
        (lambda: D.Dirichlet([1.0, 2.0], validate_args=True), [0.5, 0.4], "sum to 1"),
        (lambda: D.Multinomial(2.0, probs=[0.5, 0.5], validate_args=True), [0.5, 1.5], "fraction"),
        (
            lambda: D.DirichletMultinomial(2.0, [0.5, 0.5], validate_args=True),
            [0.5, 1.5],
            "fraction",
        ),
        (lambda: D.Gamma(2.0, 1.0, validate_args=True), -1.0, "positive"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Any, value: Any, message: str) -> None:
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match=message):
        session.run(make().prob(value))


def test_shapes_of_parameters() -> None:
    assert D.Normal.param_static_shapes([2, 3]) == {"loc": [2, 3], "scale": [2, 3]}
    assert D.Bernoulli.param_static_shapes(wf.TensorShape([4])) == {"logits": [4]}
    late = wf.placeholder(wf.int32, [2])
    with wf.Session() as session:
        found = session.run(D.Uniform.param_shapes(late), {late: [5, 6]})
    assert {name: shape.tolist() for name, shape in found.items()} == {
        "low": [5, 6],
        "high": [5, 6],
    }
    with pytest.raises(errors.InvalidArgumentError, match="must be known"):
        D.Normal.param_static_shapes(late)
    with pytest.raises(NotImplementedError, match="Categorical"):
        D.Categorical.param_shapes([2])


def test_a_divergence_of_ones_own_is_given_as_it_is() -> None:
    class Named(D.Normal):
        pass

    D.RegisterKL(Named, Named)(lambda a, b, name=None: name)
    assert D.kl_divergence(Named(0.0, 1.0), Named(0.0, 1.0), name="own") == "own"
