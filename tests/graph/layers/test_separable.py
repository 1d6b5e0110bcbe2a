"""Separable convolutions of signals against NumPy, in both layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Array, normal

import weft as wf


def _separable(x: Array, depthwise: Array, pointwise: Array, stride: int, rate: int) -> Array:
    """Without padding; x has shape (N, W, C)."""
    taps = depthwise.shape[0]
    count = (x.shape[1] - (taps - 1) * rate - 1) // stride + 1
    found = np.zeros((x.shape[0], count, *depthwise.shape[1:]))
    for i in range(count):
        window = x[:, i * stride : i * stride + (taps - 1) * rate + 1 : rate]
        found[:, i] = np.einsum("nkc,kcm->ncm", window, depthwise)
    return np.asarray(found.reshape(*found.shape[:2], -1) @ pointwise[0])


@pytest.mark.parametrize(("stride", "rate"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("first", [False, True])
def test_separable_convolution_of_signals(first: bool, stride: int, rate: int) -> None:
    x = normal(2, 9, 3)
    with wf.Graph().as_default(), wf.Session() as session:
        fed = wf.placeholder(wf.float64, [None, 3, 9] if first else [None, 9, 3])
        y = wf.layers.separable_conv1d(
            fed, 4, 2, stride, dilation_rate=rate, depth_multiplier=2,
            data_format="channels_first" if first else "channels_last",
        )  # fmt: skip
        variables = wf.global_variables()
        shapes = [(v.op.name, v.shape.as_list()) for v in variables]
        session.run(wf.global_variables_initializer())
        values: list[Any] = session.run(variables)
        found = session.run(y, {fed: x.swapaxes(1, 2) if first else x})
    assert shapes == [
        ("separable_conv1d/depthwise_kernel", [2, 3, 2]),
        ("separable_conv1d/pointwise_kernel", [1, 6, 4]),
        ("separable_conv1d/bias", [4]),
    ]
    wanted = _separable(x, values[0], values[1], stride, rate)
    np.testing.assert_allclose(found.swapaxes(1, 2) if first else found, wanted, rtol=1e-9)
    assert y.shape.as_list()[1:] == list(found.shape[1:])


def test_a_layer_keeps_its_settings() -> None:
    with wf.Graph().as_default():
        settings = {
            f"{part}_{kind}": abs
            for part in ("depthwise", "pointwise")
            for kind in ("initializer", "regularizer", "constraint")
        }
        layer = wf.layers.SeparableConv2D(2, wf.TensorShape([2, 3]), **settings)
        assert layer.kernel_size == (2, 3)
        assert all(getattr(layer, name) is abs for name in settings)
