"""Convolutions whose shapes change from step to step."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import weft as wf

Array = np.ndarray[Any, Any]
WINDOWS = [("SAME", 1, 1), ("VALID", 2, 1), ("SAME", 2, 1), ("VALID", 1, 2)]


@pytest.mark.parametrize(("padding", "stride", "dilation"), WINDOWS)
def test_shapes_may_change_from_step_to_step(
    padding: str, stride: int, dilation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small images are one product, large ones several."""
    monkeypatch.setenv("WEFT_JIT", "off")
    rng = np.random.default_rng(1)
    shapes = [(2, 6, 7, 3), (2, 90, 70, 3), (0, 6, 7, 3), (2, 6, 7, 3), (1, 5, 5, 1)]
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float64, [None, None, None, None])
        w = wf.placeholder(wf.float64, [None, None, None, None])
        y = wf.nn.conv2d(
            x, w, [1, stride, stride, 1], padding, dilations=[1, dilation, dilation, 1]
        )
        for (*rest, channels), taps in product(shapes, [(3, 2), (1, 1)]):
            image = rng.standard_normal((*rest, channels))
            filters = rng.standard_normal((*taps, channels, 4))
            found = session.run(y, {x: image, w: filters})
            want = _convolution(image, filters, padding, stride, dilation)
            np.testing.assert_allclose(found, want, atol=1e-12)


def _convolution(x: Array, w: Array, padding: str, stride: int, dilation: int) -> Array:
    """Return the sum over all taps of their products with the inputs."""
    extents = [(k - 1) * dilation + 1 for k in w.shape[:2]]
    counts = [
        -(-n // stride) if padding == "SAME" else (n - e) // stride + 1
        for n, e in zip(x.shape[1:3], extents, strict=True)
    ]
    if padding == "SAME":
        every = zip(counts, extents, x.shape[1:3], strict=True)
        more = [max((c - 1) * stride + e - n, 0) for c, e, n in every]
        x = np.pad(x, [(0, 0), *[(m // 2, m - m // 2) for m in more], (0, 0)])
    total = np.zeros((len(x), *counts, w.shape[-1]))
    for tap in product(*map(range, w.shape[:2])):
        rows, columns = (
            slice(t * dilation, t * dilation + (c - 1) * stride + 1, stride)
            for t, c in zip(tap, counts, strict=True)
        )
        total += x[:, rows, columns] @ w[tap]
    return total
