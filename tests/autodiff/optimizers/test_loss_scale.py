"""Scales of losses: how they adapt, and steps that are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

EXPERIMENTAL = wf.train.experimental


def test_dynamic_scale_follows_the_gradients() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        scale = EXPERIMENTAL.DynamicLossScale(4.0, increment_period=2, multiplier=4.0)
        grad = wf.placeholder(wf.float32, [None])
        sparse = wf.IndexedSlices(grad, wf.range(wf.size(grad)))
        update, finite = scale.update([None, wf.constant(1.0), sparse])
        session.run(wf.global_variables_initializer())
        seen = []
        for value in (1.0, 2.0, 3.0, np.inf, 1.0, np.nan, np.nan, 1.0, 1.0, 1.0):
            ok, _ = session.run([finite, update], {grad: [1.0, value]})
            assert ok == np.isfinite(value)
            seen.append(float(session.run(scale())))
        assert wf.trainable_variables() == []
    assert seen == [4, 16, 16, 4, 4, 1, 1, 1, 4, 4]


def test_scale_stays_finite() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        scale = EXPERIMENTAL.DynamicLossScale(3e38, increment_period=1)
        update, _ = scale.update([wf.constant(1.0)])
        session.run(wf.global_variables_initializer())
        session.run(update)
        assert session.run(scale()) == np.float32(3e38)


@pytest.mark.parametrize("resource", [False, True])
def test_optimizer_leaves_steps_out(resource: bool) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.Variable([1.0, -2.0], use_resource=resource)
        table = wf.Variable(wf.ones([3, 2]), use_resource=resource)
        factor = wf.placeholder(wf.float32, [])
        loss = factor * wf.reduce_sum(x * x) + wf.reduce_sum(wf.gather(table, [1]))
        inner = wf.train.AdamOptimizer(0.1)
        optimizer = EXPERIMENTAL.MixedPrecisionLossScaleOptimizer(
            inner, EXPERIMENTAL.DynamicLossScale(1024.0, increment_period=100)
        )
        counter = wf.train.get_or_create_global_step()
        train = optimizer.minimize(loss, counter)
        session.run(wf.global_variables_initializer())
        for value, steps in ((np.inf, 0), (1.0, 1), (np.nan, 1), (1.0, 2)):
            session.run(train, {factor: value})
            assert session.run(counter) == steps
        found = session.run([x, table])
        assert optimizer.get_slot_names() == ["m", "v"]
        assert optimizer.get_slot(x, "m") is not None and optimizer.variables()
    np.testing.assert_allclose(found[0], [0.8, -1.8], atol=1e-3)
    assert (found[1][1] < 1).all() and (found[1][[0, 2]] == 1).all()


def test_small_gradients_of_float16_survive() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant(1.0, wf.float16)
        wrapped = EXPERIMENTAL.MixedPrecisionLossScaleOptimizer(
            wf.train.GradientDescentOptimizer(1.0), 1024.0
        )
        v = wf.Variable(1.0)
        small = wf.constant(2.0**-20)
        loss = wf.cast(wf.cast(v, wf.float16) * x, wf.float32) * small
        pairs = wrapped.compute_gradients(loss)
        session.run(wf.global_variables_initializer())
        assert session.run(pairs[0][0]) == 2.0**-20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EXPERIMENTAL.FixedLossScale(0.5), "at least 1, got 0.5"),
        (lambda: EXPERIMENTAL.DynamicLossScale(multiplier=0.5), "at least 1, got 32768.0, 2000"),
        (lambda: EXPERIMENTAL.MixedPrecisionLossScaleOptimizer(None, 1.0), "must be an optimizer"),
        (
            lambda: EXPERIMENTAL.MixedPrecisionLossScaleOptimizer(
                wf.train.GradientDescentOptimizer(1.0), "static"
            ),
            "or 'dynamic', got 'static'",
        ),
    ],
)
def test_what_is_no_scale_is_refused(make: Any, message: str) -> None:
    with wf.Graph().as_default():
        kinds = (wf.errors.InvalidArgumentError, TypeError)
        with pytest.raises(kinds, match=message):
            make()


def test_configurations_make_the_same_scales() -> None:
    with wf.Graph().as_default():
        for scale in (EXPERIMENTAL.FixedLossScale(8.0), EXPERIMENTAL.DynamicLossScale(4.0, 7, 3.0)):
            again = type(scale).from_config(scale.get_config())
            assert repr(again) == repr(scale)
