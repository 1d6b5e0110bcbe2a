"""Compiled 3-D convolutions, compared with their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.both_ways import agree, by_both, compiled_ops

import weft as wf
from weft_graph.ir.node import Output

LIMITS = {"float32": (2e-5, 2e-4), "float64": (1e-11, 1e-11), "float16": (2e-2, 2e-2)}
WINDOWS: list[dict[str, Any]] = [
    {"x": (2, 4, 5, 6, 3), "w": (3, 2, 3, 3, 4), "stride": (2, 1, 2), "padding": "SAME"},
    {"x": (3, 3, 4, 4, 5), "w": (1, 1, 1, 5, 9), "padding": "VALID"},
    {"x": (1, 7, 8, 5, 2), "w": (2, 3, 2, 2, 17), "dilation": (3, 1, 2), "padding": "VALID"},
    {"x": (2, 3, 12, 11, 16), "w": (3, 3, 3, 16, 32), "padding": "SAME"},
    {"x": (2, 5, 4, 3, 1), "w": (2, 4, 3, 1, 8), "stride": (3, 1, 1), "padding": "VALID"},
    {"x": (0, 4, 4, 4, 3), "w": (2, 2, 2, 3, 4), "padding": "SAME"},
    {"x": (2, 4, 4, 4, 0), "w": (2, 2, 2, 0, 4), "padding": "SAME"},
    {"x": (2, 4, 4, 4, 3), "w": (2, 2, 2, 3, 0), "padding": "VALID"},
]


def spread(value: Sequence[int]) -> list[int]:
    return [1, *value, 1]


@pytest.mark.parametrize("dtype", ["float32", *[
    pytest.param(each, marks=pytest.mark.long) for each in ("float64", "float16")
]])  # fmt: skip
@pytest.mark.parametrize(
    "of",
    [
        pytest.param(of, id=str(at), marks=() if at in (0, 3, 6) else pytest.mark.long)
        for at, of in enumerate(WINDOWS)
    ],
)
def test_volumes_and_their_gradients(
    monkeypatch: pytest.MonkeyPatch, of: dict[str, Any], dtype: str
) -> None:
    made, draw = compiled_ops(monkeypatch), np.random.default_rng(0)
    x, w = ((draw.standard_normal(of[each]) / 2).astype(dtype) for each in "xw")
    strides, dilations = (spread(of.get(each, (1, 1, 1))) for each in ("stride", "dilation"))

    def build(x: Output, w: Output) -> Sequence[Output]:
        y = wf.nn.conv3d(x, w, strides, of["padding"], dilations=dilations)
        slope = np.random.default_rng(1).standard_normal(y.shape.as_list())
        return [y, *wf.gradients(y, [x, w], [wf.constant(slope.astype(dtype))])]

    want, got = by_both(monkeypatch, build, x, w)
    agree(got, want, *LIMITS[dtype])
    assert made >= {"Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"}


def test_infinities_reach_what_sees_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = np.ones((2, 4, 6, 6, 32), "f"), np.ones((3, 3, 3, 32, 32), "f")
    x[0, 2, 3, 3, 5], x[1, 0, 0, 0, 0] = np.inf, np.nan
    want, got = by_both(monkeypatch, lambda x, w: [wf.nn.conv3d(x, w, 1, "SAME") * 2.0], x, w)
    agree(got, want, 2e-5, 2e-5)


def test_known_filters_with_channels_first(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(2)
    x, w = draw.standard_normal((2, 3, 4, 5, 6)), draw.standard_normal((2, 3, 3, 3, 5))

    def build(x: Output) -> Sequence[Output]:
        filters = wf.constant(w)
        y = wf.nn.conv3d(x, filters, spread((1, 2, 1)), "SAME", "NCDHW")
        return [y * 2.0, *wf.gradients(wf.reduce_sum(y * y), [x])]

    want, got = by_both(monkeypatch, build, x)
    agree(got, want, 1e-11, 1e-11)
