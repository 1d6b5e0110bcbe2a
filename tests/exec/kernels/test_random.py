from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from weft_exec.kernels import philox
from weft_exec.session.session import Session
from weft_graph.ir import builder
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ir.random_seed import get_seed, set_random_seed
from weft_graph.ops import random
from weft_tensor import dtypes, errors

Array = np.ndarray[Any, Any]
N = 200_000
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def draw(make: Any, count: int = 1) -> list[Array]:
    with Graph().as_default() as graph:
        output: Output = make()
    session = Session(graph=graph)
    return [session.run(output) for _ in range(count)]


def ks_distance(sample: Array, cdf: Any) -> float:
    """The Kolmogorov-Smirnov distance times √n: above 1.95 with probability 0.001."""
    ordered = np.sort(sample.reshape(-1).astype(float))
    expected = cdf(ordered)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    gap = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    return float(gap * math.sqrt(len(ordered)))


def normal_cdf(x: Array) -> Array:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


def truncated_cdf(x: Array) -> Array:
    low, high = normal_cdf(np.array([-2.0, 2.0]))
    return (normal_cdf(x) - low) / (high - low)


# --------------------------------------------------------------------------- definition


def words(key: tuple[int, int], execution: int, count: int) -> Array:
    counter = np.array([0, 0, execution, 0], np.uint64)
    return np.random.Philox(key=np.array(key, np.uint64), counter=counter).random_raw(count)


@pytest.mark.parametrize("size", (1, 2, 5, 3000))
def test_uniforms_are_the_stated_bits(size: int) -> None:
    with Graph().as_default() as graph:
        graph.seed = 3
        output = random.random_uniform([size], seed=4)
        wide = random.random_uniform([size], dtype=dtypes.float64, seed=4)
    session = Session(graph=graph)
    for execution in range(3):
        raw = words((3, 4), execution, size)
        halves = [half for word in raw.tolist() for half in (word & 0xFFFFFFFF, word >> 32)]
        wanted = [(half >> 8) * 2.0**-24 for half in halves[:size]]
        assert session.run(output).tolist() == wanted
        assert session.run(wide).tolist() == [(word >> 11) * 2.0**-53 for word in raw.tolist()]


def test_words_are_those_of_philox() -> None:
    stream = philox.RandomStream("r", (3, 4))
    assert stream.run(lambda more: more(4)).tolist() == words((3, 4), 0, 4).tolist()
    assert stream.run(lambda more: more(4)).tolist() == words((3, 4), 1, 4).tolist()
    assert reference_philox((1, 0, 0, 0), (3, 4)) == words((3, 4), 0, 4).tolist()


def reference_philox(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    """Philox4x64-10 in Python's integers, from its definition (Salmon et al., 2011)."""
    mask = 2**64 - 1
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [
            (second >> 64) ^ c[1] ^ k[0],
            second & mask,
            (first >> 64) ^ c[3] ^ k[1],
            first & mask,
        ]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return c


def test_integers_are_the_stated_ones() -> None:
    (got,) = draw(lambda: random.random_uniform([100], -5, 12, dtypes.int32, seed=9))
    raw = words((87654321, 9), 0, 100)
    assert got.tolist() == [-5 + word % 17 for word in raw.tolist()]


def test_integers_over_the_whole_range() -> None:
    low, high = dtypes.int64.min, dtypes.int64.max
    (got,) = draw(lambda: random.random_uniform([N], low, high, dtypes.int64, seed=9))
    assert got.min() < -(2**62) and got.max() > 2**62
    assert abs(float((got > 0).mean()) - 0.5) < 0.005


# --------------------------------------------------------------------------- determinism


def test_equal_programs_give_equal_streams() -> None:
    def program() -> list[Array]:
        with Graph().as_default() as graph:
            set_random_seed(7)
            outputs = [random.random_normal([5]), random.random_normal([5])]
        session = Session(graph=graph)
        return [session.run(output) for output in outputs * 2]

    first, second = program(), program()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len({array.tobytes() for array in first}) == 4


def test_the_stream_survives_new_executables_and_starts_over_with_the_session() -> None:
    with Graph().as_default() as graph:
        output = random.random_uniform([4], seed=1)
        other = builder.constant(1.0)
    session = Session(graph=graph)
    first = session.run(output)
    second, _ = session.run([output, other])
    assert not np.array_equal(first, second)
    fresh = Session(graph=graph)
    np.testing.assert_array_equal(fresh.run([output, other])[0], first)
    np.testing.assert_array_equal(fresh.run(output), second)


def test_the_count_can_be_saved_and_restored() -> None:
    with Graph().as_default() as graph:
        output = random.random_uniform([4], seed=1)
    session = Session(graph=graph)
    session.run(output)
    (stream,) = session._resources.resources(philox.RandomStream)
    saved = stream.count
    wanted = session.run(output)
    stream.count = saved
    np.testing.assert_array_equal(session.run(output), wanted)


def test_without_seeds_sessions_differ() -> None:
    with Graph().as_default() as graph:
        output = random.random_uniform([4])
    first, second = Session(graph=graph).run(output), Session(graph=graph).run(output)
    assert not np.array_equal(first, second)


def test_seed_rules() -> None:
    with Graph().as_default() as graph:
        assert get_seed(None) == (None, None)
        assert get_seed(5) == (87654321, 5)
        set_random_seed(2)
        assert get_seed(5) == (2, 5)
        assert get_seed(None) == (2, len(graph.nodes))
        set_random_seed(0)
        assert get_seed(0) == (0, 2**31 - 1)
        assert get_seed(2**31 + 4) == (0, 5)


def test_stateless_numbers_depend_on_the_seed_alone() -> None:
    a, b = draw(lambda: random.stateless_random_normal([6], [1, -2]), 2)
    np.testing.assert_array_equal(a, b)
    (c,) = draw(lambda: random.stateless_random_normal([6], [1, -3]))
    assert not np.array_equal(a, c)
    (u,) = draw(lambda: random.stateless_random_uniform([3], [3, 4]))
    assert u[0] == (int(words((3, 4), 0, 1)[0]) & 0xFFFFFFFF) // 256 * 2.0**-24


# --------------------------------------------------------------------------- distributions


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_uniform_moments(dtype: Any) -> None:
    (x,) = draw(lambda: random.random_uniform([N], dtype=dtype, seed=11))
    wide = x.astype(float)
    grid = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype.name, 0.0)
    assert wide.min() >= 0 and wide.max() < 1
    assert abs(wide.mean() + grid / 2 - 0.5) < 4 * math.sqrt(1 / 12 / N)
    assert abs(wide.var() - 1 / 12) < 0.001
    if not grid:
        assert ks_distance(x, lambda v: v) < 1.95


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_normal_moments(dtype: Any) -> None:
    (x,) = draw(lambda: random.random_normal([N], dtype=dtype, seed=12))
    wide = x.astype(float)
    assert abs(wide.mean()) < 4 / math.sqrt(N)
    assert abs(wide.var() - 1) < 4 * math.sqrt(2 / N)
    assert abs((wide**3).mean()) < 4 * math.sqrt(15 / N)
    assert abs((wide**4).mean() - 3) < 4 * math.sqrt(96 / N)
    if dtype.size >= 4:
        assert ks_distance(x[:20_000], normal_cdf) < 1.95
        assert 3.8 < np.abs(wide).max() < 6


def test_halves_of_a_draw_are_independent() -> None:
    (x,) = draw(lambda: random.random_normal([2, N], seed=13))
    limit = 4 / math.sqrt(N)
    assert abs(np.corrcoef(x[0], x[1])[0, 1]) < limit
    assert abs(np.corrcoef(x[0] ** 2, x[1] ** 2)[0, 1]) < limit
    assert abs(np.corrcoef(x[0][1:], x[0][:-1])[0, 1]) < limit


def test_executions_are_independent() -> None:
    a, b = draw(lambda: random.random_normal([N], seed=13), 2)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(N)


def test_truncated_normal() -> None:
    (x,) = draw(lambda: random.truncated_normal([N], 1.0, 3.0, seed=14))
    assert np.abs(x - 1.0).max() <= 6
    assert ks_distance((x[:20_000] - 1.0) / 3.0, truncated_cdf) < 1.95
    assert abs(x.std() / 3.0 - 0.8796) < 0.005


def test_scaled_uniform_stays_in_range() -> None:
    (x,) = draw(lambda: random.random_uniform([N], -3.0, 5.0, seed=1))
    assert x.min() >= -3 and x.max() < 5 and abs(x.mean() - 1) < 0.03
    (y,) = draw(lambda: random.random_uniform([4], builder.constant(2.0), 3.0, seed=1))
    assert ((y >= 2) & (y < 3)).all()


def test_integers_are_even() -> None:
    (x,) = draw(lambda: random.random_uniform([N], 0, 10, dtypes.int64, seed=3))
    counts = np.bincount(x, minlength=10)
    assert ((counts - N / 10) ** 2 / (N / 10)).sum() < 27.9  # chi-square, 9 degrees, p = 0.001


def test_shuffle_permutes_evenly() -> None:
    with Graph().as_default() as graph:
        output = random.random_shuffle(np.arange(3 * 2000).reshape(2000, 3), seed=5)
        small = random.random_shuffle(np.arange(3), seed=6)
        words_ = random.random_shuffle(["a", "b", "c"], seed=6)
    session = Session(graph=graph)
    value = session.run(output)
    assert sorted(value[:, 0].tolist()) == list(range(0, 6000, 3))
    np.testing.assert_array_equal(value[:, 1], value[:, 0] + 1)
    assert sorted(session.run(words_).tolist()) == [b"a", b"b", b"c"]
    seen = [tuple(session.run(small).tolist()) for _ in range(1200)]
    counts = [seen.count(order) for order in set(seen)]
    assert len(counts) == 6 and min(counts) > 140


def test_multinomial_follows_the_logits() -> None:
    probabilities = np.array([[0.1, 0.2, 0.7], [0.0, 0.5, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities) + 5
    (x,) = draw(lambda: random.multinomial(logits, 40_000, seed=5))
    for row, wanted in zip(x, probabilities, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 40_000, wanted, atol=0.01)
    assert x.dtype == np.int64


def test_gamma_and_poisson_moments() -> None:
    (x,) = draw(lambda: random.random_gamma([50_000], [0.5, 4.0], 2.0, seed=5))
    np.testing.assert_allclose(x.mean(0), [0.25, 2.0], rtol=0.03)
    np.testing.assert_allclose(x.var(0), [0.125, 1.0], rtol=0.06)
    (y,) = draw(lambda: random.random_poisson([0.5, 30.0], [50_000], seed=5))
    np.testing.assert_allclose(y.mean(0), [0.5, 30.0], rtol=0.03)
    np.testing.assert_allclose(y.var(0), [0.5, 30.0], rtol=0.06)


def test_random_crop() -> None:
    image = np.arange(60).reshape(10, 6)
    crops = draw(lambda: random.random_crop(image, [3, 6], seed=5), 20)
    starts = {int(crop[0, 0]) // 6 for crop in crops}
    assert all(crop.shape == (3, 6) for crop in crops)
    assert len(starts) > 3 and max(starts) <= 7
    with Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="random_crop"):
        random.random_crop(image, [11, 6])


# --------------------------------------------------------------------------- errors


def test_bad_arguments() -> None:
    with Graph().as_default():
        with pytest.raises(errors.InvalidArgumentError, match="needs maxval"):
            random.random_uniform([3], dtype=dtypes.int32)
        with pytest.raises(errors.InvalidArgumentError, match="seed must have shape"):
            random.stateless_random_normal([3], [1, 2, 3])
        with pytest.raises(errors.InvalidTypeError):
            random.random_normal([3], dtype=dtypes.int32)
    with pytest.raises(errors.InvalidArgumentError, match="minval must be below maxval"):
        draw(lambda: random.random_uniform([3], 5, 5, dtypes.int32))


def test_shapes_may_be_computed() -> None:
    with Graph().as_default() as graph:
        size = builder.out("AddV2", [builder.constant([1, 2]), builder.constant([2, 0])])
        output = random.random_normal(size)
    assert Session(graph=graph).run(output).shape == (3, 2)


def test_gamma_draws_have_a_logarithm() -> None:
    import weft as wf

    tiny = wf.random_gamma([2000], 1e-3, seed=1)
    scaled = wf.random_gamma([2000], 1e-3, beta=1e3, seed=1)
    none = wf.random_gamma([2000], 0.0, seed=1)
    for draws in wf.Session().run([tiny, scaled, none]):
        assert draws.min() >= np.finfo(np.float32).tiny and draws.max() < 1e3
