"""Depthwise convolutions of arrays in unusual layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("multiplier", [1, 2])
def test_strides_of_axes_of_one_element_say_nothing(
    multiplier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy gives a new axis the stride 0."""
    monkeypatch.setenv("WEFT_JIT", "off")
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, None])
        filters = np.ones((2, 2, 1, multiplier), np.float32)
        image = (x * 1.0)[None, :, :, None]
        y = wf.nn.depthwise_conv2d(image, filters, [1, 1, 1, 1], "VALID")
        found = session.run(y, {x: np.arange(12.0).reshape(3, 4)})
    want = np.array([[10.0, 14.0, 18.0], [26.0, 30.0, 34.0]])[None, :, :, None]
    np.testing.assert_array_equal(found, np.repeat(want, multiplier, 3))


@pytest.mark.parametrize("stride", [1, 2])
def test_shapes_may_change_from_step_to_step(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fed weights change as well; constant ones, and values derived from them, stay."""
    monkeypatch.setenv("WEFT_JIT", "off")
    rng = np.random.default_rng(0)
    known = rng.standard_normal((3, 3, 2, 2))
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float64, [None, None, None, 2])
        fed = wf.placeholder(wf.float64, [None, None, 2, 2])
        strides = [1, stride, stride, 1]
        ys = [wf.nn.depthwise_conv2d(x, w, strides, "SAME") for w in (known, fed)]
        for high, width in [(5, 7), (4, 1030), (5, 7), (1, 1)]:
            image, other = (
                rng.standard_normal((2, high, width, 2)),
                rng.standard_normal(known.shape),
            )
            found = session.run(ys, {x: image, fed: other})
            for got, w in zip(found, (known, other), strict=True):
                np.testing.assert_allclose(got, _depthwise(image, w, stride), atol=1e-12)


def _depthwise(x: Array, w: Array, stride: int) -> Array:
    """Return the sum over all taps of their products with the inputs, with padding SAME."""
    counts = [-(-n // stride) for n in x.shape[1:3]]
    more = [max((c - 1) * stride + 3 - n, 0) for c, n in zip(counts, x.shape[1:3], strict=True)]
    x = np.pad(x, [(0, 0), *[(m // 2, m - m // 2) for m in more], (0, 0)])
    total = np.zeros((len(x), *counts, 2, 2))
    for k, row in enumerate(w):
        for at, tap in enumerate(row):
            ends = [place + (c - 1) * stride + 1 for place, c in zip((k, at), counts, strict=True)]
            total += x[:, k : ends[0] : stride, at : ends[1] : stride, :, None] * tap
    return total.reshape(*total.shape[:3], 4)
