"""Schedules against their formulas, over steps, types of steps, and switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from weft_autodiff.optimizers import learning_rate_decay as decay
from weft_autodiff.optimizers.training_util import create_global_step
from weft_exec import Session
from weft_graph.ir import builder
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops import array
from weft_graph.ops.state import assign_add
from weft_graph.variables.reference import global_variables_initializer
from weft_tensor import dtypes, errors

STEPS = [0, 1, 5, 9, 10, 11, 25, 30, 100]


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    graph = Graph()
    with graph.as_default():
        yield graph


def values(make: Callable[[Any], Output], steps: list[int] = STEPS) -> list[float]:
    step = array.placeholder(dtypes.int64, [])
    rate = make(step)
    assert rate.dims == () and rate.dtype is dtypes.float32
    with Session() as session:
        return [float(session.run(rate, {step: s})) for s in steps]


def half_wave(part: float) -> float:
    return 0.5 * (1 + np.cos(np.pi * part))


def restarts(step: int, first: int, t_mul: float, m_mul: float) -> float:
    start, length, height = 0.0, float(first), 1.0
    while step >= start + length:
        start += length
        length *= t_mul
        height *= m_mul
    return height * half_wave((step - start) / length)


CASES: list[tuple[str, Callable[[Any], Output], Callable[[int], float]]] = [
    (
        "exponential",
        lambda s: decay.exponential_decay(0.1, s, 10, 0.5),
        lambda s: 0.1 * 0.5 ** (s / 10),
    ),
    (
        "exponential-staircase",
        lambda s: decay.exponential_decay(0.1, s, 10, 0.5, staircase=True),
        lambda s: 0.1 * 0.5 ** (s // 10),
    ),
    (
        "natural",
        lambda s: decay.natural_exp_decay(0.1, s, 10, 0.5),
        lambda s: 0.1 * np.exp(-0.5 * s / 10),
    ),
    (
        "natural-staircase",
        lambda s: decay.natural_exp_decay(0.1, s, 10, 0.5, staircase=True),
        lambda s: 0.1 * np.exp(-0.5 * (s // 10)),
    ),
    (
        "inverse",
        lambda s: decay.inverse_time_decay(0.1, s, 10, 0.5),
        lambda s: 0.1 / (1 + 0.5 * s / 10),
    ),
    (
        "inverse-staircase",
        lambda s: decay.inverse_time_decay(0.1, s, 10, 0.5, staircase=True),
        lambda s: 0.1 / (1 + 0.5 * (s // 10)),
    ),
    (
        "polynomial",
        lambda s: decay.polynomial_decay(0.1, s, 10, 0.01, power=2.0),
        lambda s: 0.09 * (1 - min(s, 10) / 10) ** 2 + 0.01,
    ),
    (
        "polynomial-cycle",
        lambda s: decay.polynomial_decay(0.1, s, 10, 0.01, cycle=True),
        lambda s: 0.09 * (1 - s / (10 * max(1, -(-s // 10)))) + 0.01,
    ),
    (
        "cosine",
        lambda s: decay.cosine_decay(0.1, s, 10, alpha=0.2),
        lambda s: 0.1 * (0.8 * half_wave(min(s, 10) / 10) + 0.2),
    ),
    (
        "restarts",
        lambda s: decay.cosine_decay_restarts(0.1, s, 10, m_mul=0.5, alpha=0.1),
        lambda s: 0.1 * (0.9 * restarts(s, 10, 2.0, 0.5) + 0.1),
    ),
    (
        "restarts-equal",
        lambda s: decay.cosine_decay_restarts(0.1, s, 10, t_mul=1.0),
        lambda s: 0.1 * restarts(s, 10, 1.0, 1.0),
    ),
    (
        "restarts-tensor",
        lambda s: decay.cosine_decay_restarts(0.1, s, 10, t_mul=builder.constant(3.0)),
        lambda s: 0.1 * restarts(s, 10, 3.0, 1.0),
    ),
    (
        "restarts-tensor-equal",
        lambda s: decay.cosine_decay_restarts(0.1, s, 10, t_mul=builder.constant(1.0)),
        lambda s: 0.1 * restarts(s, 10, 1.0, 1.0),
    ),
    (
        "linear-cosine",
        lambda s: decay.linear_cosine_decay(0.1, s, 10, 0.7, 0.2, 0.03),
        lambda s: 0.1 * ((0.2 + 1 - min(s, 10) / 10) * half_wave(1.4 * min(s, 10) / 10) + 0.03),
    ),
    (
        "piecewise",
        lambda s: decay.piecewise_constant(s, [5, 10, 30], [1.0, 0.5, 0.25, 0.125]),
        lambda s: 1.0 if s <= 5 else 0.5 if s <= 10 else 0.25 if s <= 30 else 0.125,
    ),
]


@pytest.mark.parametrize(
    ("make", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_values(make: Callable[[Any], Output], wanted: Callable[[int], float]) -> None:
    np.testing.assert_allclose(values(make), [wanted(s) for s in STEPS], rtol=1e-5, atol=1e-8)


def test_noise() -> None:
    def make(step: Any) -> Output:
        return decay.noisy_linear_cosine_decay(0.1, step, 10, initial_variance=0.01)

    with Session() as session:
        rate = make(builder.constant(3))
        found = [session.run(rate) for _ in range(200)]
    deviation = np.sqrt(0.01 / 4**0.55) * half_wave(0.3) * 0.1
    assert np.std(found) == pytest.approx(deviation, rel=0.25)
    assert np.mean(found) == pytest.approx(0.1 * (0.7 * half_wave(0.3) + 0.001), rel=0.05)


def test_with_a_global_step(graph: Graph) -> None:
    step = create_global_step()
    rate = decay.exponential_decay(1.0, step, 1, 0.5)
    following = assign_add(step, 1)
    assert rate.name == "ExponentialDecay:0"
    with Session() as session:
        session.run(global_variables_initializer())
        assert session.run(rate) == 1.0
        session.run(following)
        assert session.run(rate) == 0.5


def test_python_numbers_and_other_types() -> None:
    wide = builder.constant(0.1, dtypes.float64)
    rate = decay.polynomial_decay(
        wide, 5, builder.constant(10), builder.constant(0.0, dtypes.float64)
    )
    assert rate.dtype is dtypes.float64
    with Session() as session:
        assert session.run(rate) == pytest.approx(0.05)


def test_piecewise_with_tensors_and_floats() -> None:
    x = array.placeholder(dtypes.float64, [])
    choices = [builder.constant(7), builder.constant(8)]
    found = decay.piecewise_constant(x, [0.5], choices)
    assert found.dtype is dtypes.int32
    with Session() as session:
        assert [session.run(found, {x: v}) for v in (0.25, 0.5, 0.75)] == [7, 7, 8]
    step = builder.constant(3, dtypes.int64)
    found = decay.piecewise_constant(step, [builder.constant(2)], [1.0, 2.0])
    with Session() as session:
        assert session.run(found) == 2.0


def test_refusals() -> None:
    with pytest.raises(ValueError, match="one more value"):
        decay.piecewise_constant(1, [1, 2], [0.1, 0.2])
    with pytest.raises(TypeError, match="int64"):
        decay.piecewise_constant(builder.constant(1, dtypes.int64), [0.5], [0.1, 0.2])
    with pytest.raises(ValueError, match="global_step is required for ExponentialDecay"):
        decay.exponential_decay(0.1, None, 10, 0.5)
    with pytest.raises(errors.InvalidArgumentError, match="global_step is required"):
        decay.cosine_decay(0.1, None, 10)
