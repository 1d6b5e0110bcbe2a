"""Convolutions of each channel by itself, of arrays in unusual layouts."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


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
