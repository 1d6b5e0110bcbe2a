"""Products of small integers against those of NumPy's widest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw

import weft as wf


def _bytes(dtype: str, *shape: int) -> Raw:
    """Bytes of which many are the least or the largest."""
    draw = np.random.default_rng((len(dtype), *shape))
    limits = np.iinfo(dtype)
    found = draw.integers(limits.min, limits.max + 1, shape)
    ends = draw.choice([limits.min, limits.max], shape)
    return Raw(np.where(draw.random(shape) < 0.4, ends, found).astype(dtype))


def _zero(value: Any) -> Raw:
    return Raw(np.array(value, np.int32))


def _product(a: Array, b: Array, a_zero: Array, b_zero: Array) -> Array:
    return np.matmul(a.astype(np.int64) - a_zero, b.astype(np.int64) - b_zero).astype(np.int32)


def _matmul(a: Raw, b: Raw, a_zero: Any = 0, b_zero: Any = 0) -> Case:
    given = [a, b, _zero(a_zero), _zero(b_zero)]
    return Case("MatMulInteger", given, None, _product, dtypes=("",), grad=False)


def _reference(attrs: dict[str, Any], depthwise: bool) -> Callable[..., Array]:
    """By a convolution of float64, in which sums are exact."""

    def conv(x: Array, w: Array, zero: Array) -> Array:
        settings = {k: v for k, v in attrs.items() if k != "explicit_paddings"}
        padding = settings.pop("padding")
        if padding == "EXPLICIT":
            pads = attrs["explicit_paddings"]
            padding = [pads[i : i + 2] for i in range(0, 8, 2)]
        with wf.Graph().as_default(), wf.Session() as session:
            function = wf.nn.depthwise_conv2d_native if depthwise else wf.nn.conv2d
            y = function(
                x.astype(np.float64) - zero, w.astype(np.float64), padding=padding, **settings
            )
            return session.run(y).astype(np.int32)

    return conv


def _conv(op: str, x: Raw, w: Raw, zero: int, **attrs: Any) -> Case:
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME"} | attrs
    expected = _reference(attrs, op.startswith("Depthwise"))
    return Case(op, [x, w, _zero(zero)], attrs, expected, dtypes=("",), grad=False)


FILTERS = {"Conv2DInteger": (3, 2, 3, 5), "DepthwiseConv2dInteger": (3, 2, 3, 2)}
CASES = [
    _matmul(_bytes("uint8", 5, 7), _bytes("int8", 7, 33)),
    _matmul(_bytes("int8", 3, 2, 5, 9), _bytes("int8", 9, 4), 3, -2),
    _matmul(_bytes("uint8", 2, 1, 3, 6), _bytes("uint8", 4, 6, 5), 130, [[[9, 0, 255, 7, 1]]]),
    _matmul(_bytes("int8", 4, 300), _bytes("uint8", 300, 2), [[1], [-128], [127], [0]], 128),
    _matmul(_bytes("uint8", 3, 0), _bytes("int8", 0, 2), 3, 1),
    _matmul(_bytes("uint8", 0, 3), _bytes("int8", 3, 2)),
    *[
        case
        for op, filters in FILTERS.items()
        for case in (
            _conv(op, _bytes("uint8", 2, 7, 30, 3), _bytes("int8", *filters), 0),
            _conv(op, _bytes("int8", 2, 7, 9, 3), _bytes("int8", *filters), -7,
                  strides=[1, 2, 2, 1]),
            _conv(op, _bytes("uint8", 1, 7, 9, 3), _bytes("int8", *filters), 130,
                  padding="VALID", dilations=[1, 2, 2, 1]),
            _conv(op, _bytes("int8", 1, 7, 9, 3), _bytes("uint8", *filters), 4,
                  padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 3, 0, 0, 0]),
            _conv(op, _bytes("uint8", 1, 3, 7, 9), _bytes("int8", *filters), 4,
                  data_format="NCHW"),
        )
    ],
]  # fmt: skip
"""Sums of 300 products are not exact in float32."""
