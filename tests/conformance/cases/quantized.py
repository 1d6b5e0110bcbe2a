"""Arithmetic of quantized tensors, compared with the real numbers that they represent."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw

import weft as wf

ENDS = [np.float32(end) for end in (-1.5, 3.0, -2.0, 1.0)]
LEAST = -(2.0**31)
STEPS = (4.5 / 255, 3.0 / 255)
ZEROS = (85, 170)  # the integers that stand for 0


def _as(dtype: str) -> Any:
    """Plain integers as a quantized type, which no array has."""
    return lambda value: wf.bitcast(value, getattr(wf, dtype))


def _bytes(*shape: int, seed: int = 0) -> Raw:
    return Raw(np.random.default_rng((seed, *shape)).integers(0, 256, shape).astype(np.uint8))


def _case(
    op: str, values: list[Raw], ends: list[Any], expected: Any, attrs: Any = None,
    dtype: str = "quint8",
) -> Case:  # fmt: skip
    return Case(
        op,
        [*values, *[Raw(np.float32(end)) for end in ends]],
        attrs,
        expected,
        dtypes=("",),
        prepare={i: _as(dtype) for i in range(len(values))},
        grad=False,
    )


def _products(result: Array) -> tuple[Array, Array, Array]:
    step = STEPS[0] * STEPS[1]
    return result, np.array(LEAST * step), np.array(-(LEAST + 1) * step)


def _conv(x: Array, taps: Array, *_: Any) -> tuple[Array, Array, Array]:
    x, taps = x.astype(np.int64) - ZEROS[0], taps.astype(np.int64) - ZEROS[1]
    result = np.zeros((x.shape[0], x.shape[1] - 1, x.shape[2] - 1, taps.shape[3]), np.int64)
    for i, j in np.ndindex(*result.shape[1:3]):
        result[:, i, j] = np.einsum("nhwc,hwco->no", x[:, i : i + 2, j : j + 2], taps)
    return _products(result)


def _pool(fold: Any) -> Any:
    def pool(x: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
        parts = x.astype(np.int64).reshape(x.shape[0], -1, 2, x.shape[2] // 2, 2, x.shape[3])
        return np.trunc(fold(parts, axis=(2, 4))), low, high

    return pool


def _sum(room: int) -> Any:
    def add(x: Array, y: Array, *_: Any) -> tuple[Array, Array, Array]:
        high = 3.0 * room
        step = 2 * high / (2.0**32 - 1)
        parts = [
            np.round((v.astype(float) - zero) * size / step)
            for v, zero, size in zip((x, y), ZEROS, STEPS, strict=True)
        ]
        return parts[0] + parts[1], np.array(-high), np.array(high)

    return add


BIG = Raw(np.array([-(2**30), 0, 2**29, 2**30], np.int32))
WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
CASES = [
    _case(
        "QuantizedMatMul",
        [_bytes(3, 4), _bytes(4, 2)],
        ENDS,
        lambda a, b, *_: _products((a.astype(int) - ZEROS[0]) @ (b.astype(int) - ZEROS[1])),
    ),
    _case(
        "QuantizedMul",
        [_bytes(3, 4), _bytes(4)],
        ENDS,
        lambda a, b, *_: _products((a.astype(int) - ZEROS[0]) * (b.astype(int) - ZEROS[1])),
    ),
    _case("QuantizedAdd", [_bytes(3, 4), _bytes(4)], ENDS, _sum(1 << 14)),
    _case(
        "QuantizedBiasAdd",
        [_bytes(3, 4), _bytes(4)],
        ENDS,
        _sum(1 << 17),
        {"out_type": wf.qint32},
    ),
    _case(
        "QuantizedConv2D",
        [_bytes(2, 4, 5, 3), _bytes(2, 2, 3, 2)],
        ENDS,
        _conv,
        {"strides": [1] * 4, "padding": "VALID"},
    ),
    _case(
        "QuantizedRelu",
        [_bytes(3, 4)],
        ENDS[:2],
        lambda x, low, high: (np.maximum(x, ZEROS[0]), low, high),
    ),
    _case(
        "QuantizedRelu6",
        [_bytes(3, 4)],
        [-1.5 * 4, 3.0 * 4],
        lambda x, low, high: (np.clip(x, ZEROS[0], ZEROS[0] + 85), low, high),
    ),
    _case(
        "QuantizedReluX",
        [_bytes(3, 4)],
        [1.5, *ENDS[:2]],
        lambda x, _, low, high: (np.clip(x, ZEROS[0], ZEROS[0] + 85), low, high),
    ),
    _case("QuantizedMaxPool", [_bytes(2, 4, 6, 3)], ENDS[:2], _pool(np.max), WINDOW),
    _case("QuantizedAvgPool", [_bytes(2, 4, 6, 3)], ENDS[:2], _pool(np.mean), WINDOW),
    _case(
        "Requantize",
        [BIG],
        [-8.0, 8.0, -4.0, 6.2],
        lambda *_: (np.array([0, 100, 150, 200]), np.array(-4.0), np.array(6.2)),
        {"out_type": wf.quint8},
        "qint32",
    ),
    _case(
        "QuantizeDownAndShrinkRange",
        [BIG],
        [-8.0, 8.0],
        lambda *_: (np.array([0, 128, 192, 255]), np.array(-4.0), np.array(4.0)),
        {"out_type": wf.quint8},
        "qint32",
    ),
    _case(
        "RequantizationRange",
        [BIG],
        [-8.0, 8.0],
        lambda *_: (np.array(-4.0), np.array(4.0)),
        None,
        "qint32",
    ),
]
