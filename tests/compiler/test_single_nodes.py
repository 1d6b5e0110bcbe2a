"""Nodes that are compiled even if a region has no other node, as their kernels take longer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

IMAGES, FILTERS, RESULTS = (2, 9, 9, 4), (3, 3, 4, 8), (2, 9, 9, 8)
STRIDES = [1, 1, 1, 1]
NODES: dict[str, Any] = {
    "Conv2D": (lambda x, w, g: wf.nn.conv2d(x, w, STRIDES, "SAME")),
    "Conv2DBackpropInput": (
        lambda x, w, g: wf.nn.conv2d_backprop_input(IMAGES, w, g, STRIDES, "SAME")
    ),
    "Conv2DBackpropFilter": (
        lambda x, w, g: wf.nn.conv2d_backprop_filter(x, FILTERS, g, STRIDES, "SAME")
    ),
}


def _compiled(session: wf.Session, node: Any, feeds: Any) -> list[str]:
    return [op for region in session.explain(node, list(feeds)).compiled for _, op in region]


@pytest.mark.parametrize("op", NODES)
def test_a_convolution_alone(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    feeds = {
        wf.placeholder(wf.float32, shape): rng.standard_normal(shape).astype(np.float32)
        for shape in (IMAGES, FILTERS, RESULTS)
    }
    node = NODES[op](*feeds)
    found = []
    for mode in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Session() as session:
            assert _compiled(session, node, feeds) == ([op] if mode == "now" else [])
            found.append(session.run(node, feeds))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_a_product_of_integers_alone(
    dtype: Any, transposed: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    rng = np.random.default_rng(1)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, (37, 37), dtype) for _ in range(2))
    x, y = wf.placeholder(dtype, [None, 37]), wf.placeholder(dtype, [None, 37])
    product = wf.matmul(x, y, *transposed)
    with wf.Session() as session:
        assert _compiled(session, product, [x, y]) == ["MatMul"]
        found = session.run(product, {x: a, y: b})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            found, (a.T if transposed[0] else a) @ (b.T if transposed[1] else b)
        )


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_a_softmax_alone(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).standard_normal((5, 7)).astype(np.float32)
    x = wf.placeholder(wf.float32, [None, 7])
    node = getattr(wf.nn, op)(x)
    results = []
    for mode in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Session() as session:
            assert len(_compiled(session, node, [x])) == (mode == "now")
            results.append(session.run(node, {x: values}))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)
