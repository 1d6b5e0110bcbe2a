"""Batch renormalization, virtual batches and adjustments against NumPy, over steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Array, normal

import weft as wf

EPSILON, MOMENTUM, RENORM = 1e-3, 0.9, 0.8
CLIPPING = {"rmin": 0.7, "rmax": 1.2, "dmax": 0.3}


class _Renormalized:
    """Batch renormalization of rows (Ioffe 2017), as TensorFlow 1.15 computes it."""

    def __init__(self, channels: int) -> None:
        self.mean, self.width = np.zeros(channels), np.ones(channels)
        self.moving_mean, self.moving_width = np.zeros(channels), np.ones(channels)

    @property
    def moving_variance(self) -> Array:
        return np.asarray(self.moving_width**2 - EPSILON)

    def train(self, x: Array) -> Array:
        mean, width = x.mean(0), np.sqrt(x.var(0) + EPSILON)
        usual = np.maximum(self.width, np.sqrt(EPSILON))
        ratio = np.clip(width / usual, CLIPPING["rmin"], CLIPPING["rmax"])
        distance = np.clip((mean - self.mean) / usual, -CLIPPING["dmax"], CLIPPING["dmax"])
        y = (x - mean) / width * ratio + distance
        self.mean += (1 - RENORM) * (mean - self.mean)
        self.width += (1 - RENORM) * (width - self.width)
        self.moving_mean += (1 - MOMENTUM) * (mean - self.moving_mean)
        self.moving_width += (1 - MOMENTUM) * (width - self.moving_width)
        return np.asarray(y)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_renorm(dynamic: bool, resource: bool) -> None:
    batches = [3 * normal(12, 4, seed=i) + i for i in range(4)]
    expected = _Renormalized(4)
    with wf.Graph().as_default(), wf.Session() as session:
        wf.get_variable_scope().set_use_resource(resource)
        x = wf.placeholder(wf.float64, [None, 4])
        training: Any = wf.placeholder_with_default(True, []) if dynamic else True
        y = wf.layers.batch_normalization(
            x, momentum=MOMENTUM, renorm=True, renorm_clipping=CLIPPING,
            renorm_momentum=RENORM, training=training,
        )  # fmt: skip
        names = [v.op.name for v in wf.global_variables()]
        assert [name.split("/")[1] for name in names[-5:]] == [
            "moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev",
        ]  # fmt: skip
        updates = wf.get_collection(wf.GraphKeys.UPDATE_OPS)
        (slope,) = wf.gradients(y * y, x)
        session.run(wf.global_variables_initializer())
        if dynamic:  # without training nothing moves, not even by epsilon
            values = [v for v in wf.global_variables() if "/moving_" in v.op.name]
            session.run(updates, {x: batches[0], training: False})
            for value, start in zip(session.run(values), (0, 1, 1), strict=True):
                assert (value == start).all()
        for batch in batches:
            found, grad, _ = session.run([y, slope, updates], {x: batch})
            np.testing.assert_allclose(found, expected.train(batch), rtol=1e-9)
            assert np.isfinite(grad).all()
        moving = [v for v in wf.global_variables() if "/moving_" in v.op.name]
        mean, variance, _ = session.run(moving)
        np.testing.assert_allclose(mean, expected.moving_mean, rtol=1e-9)
        np.testing.assert_allclose(variance, expected.moving_variance, rtol=1e-9)
        if dynamic:
            found, _ = session.run([y, updates], {x: batches[0], training: False})
            wanted = (batches[0] - mean) / np.sqrt(variance + EPSILON)
            np.testing.assert_allclose(found, wanted, rtol=1e-9)
            again = session.run(moving)
            assert (again[0] == mean).all() and (again[1] == variance).all()


@pytest.mark.parametrize("axis", [-1, 1])
def test_virtual_batches(axis: int) -> None:
    x = normal(6, 4, 3, 2)
    with wf.Graph().as_default(), wf.Session() as session:
        fed = wf.placeholder(wf.float64, [None, 4, 3, 2])
        layer = wf.layers.BatchNormalization(
            axis, momentum=MOMENTUM, virtual_batch_size=2, gamma_initializer=wf.ones_initializer()
        )
        y, frozen = layer(fed, training=True), layer(fed, training=False)
        updates = wf.get_collection(wf.GraphKeys.UPDATE_OPS)
        session.run(wf.global_variables_initializer())
        found, before = session.run([y, frozen], {fed: x})
        session.run(updates, {fed: x})
        mean = session.run(layer.moving_mean)
    parts = x.reshape(2, 3, 4, 3, 2)
    over = (0, 3, 4) if axis == 1 else (0, 2, 3)
    means = parts.mean(over, keepdims=True)
    deviations = np.sqrt(parts.var(over, keepdims=True) + EPSILON)
    np.testing.assert_allclose(found, ((parts - means) / deviations).reshape(x.shape), rtol=1e-9)
    np.testing.assert_allclose(before, x / np.sqrt(1 + EPSILON), rtol=1e-9)
    np.testing.assert_allclose(mean.ravel(), 0.1 * means.mean(1).ravel(), rtol=1e-9)


def test_adjustment() -> None:
    x = normal(6, 3)
    scale, offset = normal(6, 1, seed=1), normal(6, 1, seed=2)

    def adjustment(shape: Any) -> Any:
        return wf.constant(scale), wf.constant(offset)

    with wf.Graph().as_default(), wf.Session() as session:
        training = wf.placeholder(wf.bool, [])
        y = wf.layers.batch_normalization(
            wf.constant(x), adjustment=adjustment, training=training,
            beta_initializer=wf.constant_initializer(0.5), gamma_initializer=wf.ones_initializer(),
        )  # fmt: skip
        session.run(wf.global_variables_initializer())
        trained, frozen = (session.run(y, {training: flag}) for flag in (True, False))
    normalized = (x - x.mean(0)) / np.sqrt(x.var(0) + EPSILON)
    np.testing.assert_allclose(trained, normalized * scale + offset + 0.5, rtol=1e-9)
    np.testing.assert_allclose(frozen, x / np.sqrt(1 + EPSILON) + 0.5, rtol=1e-9)
