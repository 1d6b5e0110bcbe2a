"""Convolutions in compiled regions: values and gradients are those of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler.ir.program import Allocate, For, walk
from weft_compiler.lower.region import lower
from weft_compiler.passes.pipeline import optimize
from weft_graph.ir.code_generators import RegionRequest

PADS = [[0, 0], [2, 0], [1, 3], [0, 0]]
ROWS = [
    # images, height, width, channels, filter, strides, dilation, padding, layout, dtype
    ((2, 9, 9, 5), (3, 3, 5, 7), 1, 1, "SAME", "NHWC", "float32"),
    ((3, 14, 33, 8), (3, 2, 8, 64), 1, 1, "VALID", "NHWC", "float64"),
    ((2, 13, 16, 4), (3, 3, 4, 6), 2, 3, "SAME", "NHWC", "float64"),
    ((2, 16, 16, 4), (3, 3, 4, 6), 2, 2, "SAME", "NHWC", "float32"),
    ((1, 8, 8, 3), (1, 1, 3, 33), 2, 1, "SAME", "NHWC", "float32"),
    ((2, 20, 21, 3), (3, 3, 3, 32), 2, 1, PADS, "NHWC", "float32"),
    ((2, 13, 14, 17), (3, 2, 17, 5), 2, 1, "SAME", "NHWC", "float32"),
    ((2, 7, 12, 1), (3, 12, 1, 4), 1, 1, "VALID", "NHWC", "float32"),
    ((2, 11, 10, 2), (3, 2, 2, 5), 2, 3, PADS, "NHWC", "float64"),
    ((2, 5, 12, 11), (3, 3, 5, 4), 1, 1, "SAME", "NCHW", "float32"),
    ((0, 9, 9, 5), (3, 3, 5, 7), 1, 1, "SAME", "NHWC", "float32"),
    ((2, 9, 9, 5), (3, 3, 5, 0), 1, 1, "SAME", "NHWC", "float32"),
]


def check(
    monkeypatch: pytest.MonkeyPatch, op: str, build: Any, *arrays: Any, wanted: int = 3
) -> None:
    """Compare a function and its gradients, which have so many nodes of a kind, both ways."""
    found = {}
    for jit in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", jit)
        with wf.Graph().as_default():
            given = [wf.placeholder(array.dtype, array.shape) for array in arrays]
            result = wf.nn.relu(build(*given) + 0.5)
            fetches = [result, *wf.gradients(wf.reduce_sum(result * result), given)]
            with wf.Session() as session:
                feeds = dict(zip(given, arrays, strict=True))
                found[jit] = session.run(fetches, feeds)
                regions = str(session.explain(fetches, given).compiled) if jit == "now" else ""
    assert regions.count(op) >= wanted
    for got, want in zip(found["now"], found["off"], strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        bound = 1e-4 if want.dtype == np.float32 else 1e-11
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound * np.abs(want).max(initial=0))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_convolutions_of_all_kinds(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, filters, stride, dilation, padding, layout, dtype = row
    random = np.random.default_rng(3)
    x, w = (random.normal(size=size).astype(dtype) for size in (shape, filters))

    def build(x: Any, w: Any) -> Any:
        both = [stride, stride], [dilation, dilation]
        strides, dilations = ([1, *each, 1] if layout == "NHWC" else [1, 1, *each] for each in both)
        return wf.nn.conv2d(x, w, strides, padding, data_format=layout, dilations=dilations)

    check(monkeypatch, "Conv2D", build, x, w)


@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dtype"),
    [
        ((2, 9, 9, 5), (3, 3, 5, 1), 1, "SAME", "float32"),
        ((2, 16, 15, 16), (3, 3, 16, 1), 2, "SAME", "float32"),
        ((2, 14, 15, 8), (3, 2, 8, 2), 1, "VALID", "float64"),
        ((1, 8, 8, 4), (5, 5, 4, 3), 3, "SAME", "float32"),
    ],
)
def test_depthwise_convolutions_of_all_kinds(
    shape: Any, filters: Any, stride: int, padding: str, dtype: str, monkeypatch: Any
) -> None:
    random = np.random.default_rng(3)
    x, w = (random.normal(size=size).astype(dtype) for size in (shape, filters))

    def build(x: Any, w: Any) -> Any:
        return wf.nn.depthwise_conv2d(x, w, [1, stride, stride, 1], padding)

    check(monkeypatch, "DepthwiseConv2dNative", build, x, w)


def test_what_follows_a_convolution_takes_each_row_while_it_is_in_the_cache() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [2, 30, 30, 8])
        filters = wf.constant(np.ones((3, 3, 8, 16), np.float32))
        y = wf.nn.relu(wf.nn.conv2d(x, filters, [1, 1, 1, 1], "SAME") + 0.5)
        nodes = [
            node for node in graph.get_operations() if node.type in ("Conv2D", "AddV2", "Relu")
        ]
        inputs = list(
            dict.fromkeys(s for node in nodes for s in node.inputs if s.node not in nodes)
        )
        shapes = [tuple(each.shape.as_list()) for each in inputs]
        program = optimize(lower(RegionRequest(nodes, inputs, [y], shapes))).program
    assert sum(isinstance(each, For) for each in program.body) == 1
    (row,) = [each.buffer for each in walk(program.body) if isinstance(each, Allocate)]
    assert row.shape == (30, 16)
    assert (1, 3, 3, 8, 32) in [value.shape for value in program.constants.values()]


@pytest.mark.parametrize("mode", ["off", "now"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("build", "image", "taps", "strides"),
    [
        pytest.param(wf.nn.conv2d, (6, 6, 3), (3, 3, 3, 4), [1, 1], id="few channels"),
        pytest.param(wf.nn.conv2d, (14, 14, 32), (3, 3, 32, 32), [1, 1], id="winograd"),
        pytest.param(wf.nn.conv2d, (9, 7, 16), (3, 5, 16, 32), [1, 3], id="strides"),
        pytest.param(wf.nn.depthwise_conv2d, (7, 7, 4), (3, 3, 4, 2), [1, 1], id="depthwise"),
        pytest.param(wf.nn.conv3d, (4, 6, 6, 8), (3, 3, 3, 8, 8), [1, 1, 1], id="volumes"),
    ],
)
def test_an_infinite_weight_reaches_what_its_tap_meets(
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    padding: str,
    build: Any,
    image: tuple[int, ...],
    taps: tuple[int, ...],
    strides: list[int],
) -> None:
    """A gradient by the input has no terms for places outside of the windows: 0 times inf."""
    monkeypatch.setenv("WEFT_JIT", mode)
    draw = np.random.default_rng(5)
    x, w = np.ones((2, *image), "f4"), draw.standard_normal(taps).astype("f4")
    w.reshape(-1, *taps[-2:])[0, 0, 0] = np.inf
    with wf.Graph().as_default(), wf.Session() as session:
        images, filters = wf.placeholder("float32", x.shape), wf.placeholder("float32", w.shape)
        y = build(images * 1, filters, strides=[1, *strides, 1], padding=padding)
        upstream = wf.placeholder("float32", y.shape)
        gradient = wf.gradients(y, images, upstream)[0] * 1
        feeds = {images: x, filters: w, upstream: np.ones(y.shape.as_list(), "f4")}
        found = session.run(gradient, feeds)
    # The first tap of a window meets every `stride`th place from the first, so many as there are.
    met = np.isposinf(found[..., 0]).sum()
    inside = [
        sum(0 <= i * s - _before(n, k, s, padding) < n for i in range(count))
        for n, k, s, count in zip(image, taps, strides, y.shape.as_list()[1:], strict=False)
    ]
    assert met == 2 * np.prod(inside) and not np.isnan(found).any()
    assert np.isfinite(found[..., 1:]).all()


def _before(size: int, taps: int, stride: int, padding: str) -> int:
    if padding == "VALID":
        return 0
    return max((-(-size // stride) - 1) * stride + taps - size, 0) // 2
