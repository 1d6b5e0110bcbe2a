"""Pooling of many images at once returns the same as of each image alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

IMAGES = 150

WINDOWS = (
    ("SAME", [1, 3, 3, 1], [1, 2, 2, 1]),
    ("SAME", [1, 2, 4, 1], [1, 1, 3, 1]),
    ("VALID", [1, 2, 2, 1], [1, 2, 2, 1]),
    ("VALID", [1, 2, 1, 1], [1, 3, 2, 1]),
    ("VALID", [1, 1, 1, 3], [1, 1, 1, 3]),
)


def _images(kind: str) -> Any:
    random = np.random.default_rng(3)
    x = random.normal(size=(IMAGES, 5, 6, 3))
    if kind == "int32":
        return np.round(3 * x).astype(np.int32)
    if kind in ("ties", "odd"):
        x = np.round(x)
    if kind == "odd":
        x[random.random(x.shape) < 0.1] = np.nan
        x[random.random(x.shape) < 0.2] = -np.inf
    return x.astype(np.float32)


def _pools(batch: Any, padding: str, ksize: Any, strides: Any) -> list[Any]:
    attrs = {"ksize": ksize, "strides": strides, "padding": padding}
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant(batch)
        y = wf.raw_ops.MaxPool(input=x, **attrs)
        up = wf.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=x, **attrs)
        found = [y, up, wf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=up, **attrs)]
        if batch.dtype.kind == "f":
            found.append(wf.raw_ops.AvgPool(value=x, **attrs))
            found += wf.raw_ops.MaxPoolWithArgmax(input=x, **attrs)
        return session.run(found)  # type: ignore[no-any-return]  # because fetches are Any


@pytest.mark.parametrize("kind", ["float32", "ties", "odd", "int32"])
@pytest.mark.parametrize(("padding", "ksize", "strides"), WINDOWS)
def test_images_at_once_as_one_by_one(kind: str, padding: str, ksize: Any, strides: Any) -> None:
    batch = _images(kind)
    at_once = _pools(batch, padding, ksize, strides)
    for n in (0, IMAGES // 2, IMAGES - 1):
        alone = _pools(batch[n : n + 1], padding, ksize, strides)
        for all_of_them, one in zip(at_once, alone, strict=True):
            np.testing.assert_allclose(all_of_them[n : n + 1], one, rtol=1e-6, atol=1e-6)


def test_a_window_whose_size_is_fed() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        image = wf.reshape(wf.range(16.0), [1, 4, 4, 1])
        size, window = wf.placeholder(wf.int32, []), wf.placeholder(wf.int32, [4])
        pooled = wf.nn.max_pool(image, window, [1, 2, 2, 1], "VALID")
        of_size = wf.nn.max_pool(image, [1, size, size, 1], 2, "VALID")
        (slope,) = wf.gradients(pooled, image)
        for n, values in ((1, [0, 2, 8, 10]), (2, [5, 7, 13, 15]), (3, [10]), (2, [5, 7, 13, 15])):
            fed = {window: [1, n, n, 1], size: n}
            found, other, grad = session.run([pooled, of_size, slope], fed)
            assert found.ravel().tolist() == other.ravel().tolist() == values
            assert np.flatnonzero(grad).tolist() == values
        for wrong in ([1, 0, 2, 1], [1, -1, 2, 1]):
            with pytest.raises(wf.errors.InvalidArgumentError, match="positive numbers"):
                session.run(pooled, {window: wrong})
        with pytest.raises(wf.errors.InvalidArgumentError):
            wf.nn.max_pool(image, size, 2, "VALID")
        known = wf.nn.max_pool(image, wf.constant([1, 2, 2, 1]), 2, "VALID")
        assert known.op.type == "MaxPool" and known.dims == (1, 2, 2, 1)
