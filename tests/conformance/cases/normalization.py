"""Batch and local response normalization against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import FLOATS, Array, Case, Raw, normal, uniform

EPSILON = 0.01
LOOSE = {
    "float64": (1e-5, 1e-5),
    "float32": (2e-4, 2e-4),
    "float16": (1e-2, 1e-2),
    "bfloat16": (5e-2, 5e-2),
}


def _shaped(vector: Array, first: bool) -> Array:
    return vector.reshape(-1, 1, 1) if first else vector


def _forward(first: bool, training: bool, reserved: int) -> Any:
    def expected(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Any:
        axes = (0, 2, 3) if first else (0, 1, 2)
        unbiased = variance
        if training:
            mean, variance = x.mean(axes), x.var(axes)
            unbiased = x.var(axes, ddof=1)
        unit = (x - _shaped(mean, first)) / np.sqrt(_shaped(variance, first) + EPSILON)
        y = unit * _shaped(scale, first) + _shaped(offset, first)
        return (y, mean, unbiased, mean, variance, *[np.zeros(0)] * (reserved - 2))

    return expected


def _backward(first: bool, training: bool) -> Any:
    def expected(
        grad: Array, x: Array, scale: Array, mean: Array, variance: Array, *_: Array
    ) -> Any:
        axes = (0, 2, 3) if first else (0, 1, 2)
        inverse = 1 / np.sqrt(_shaped(variance, first) + EPSILON)
        unit = (x - _shaped(mean, first)) * inverse
        by_scale, by_offset = (grad * unit).sum(axes), grad.sum(axes)
        by_x = grad
        if training:
            count = x.size / scale.size
            by_x = by_x - _shaped(by_offset, first) / count
            by_x = by_x - unit * _shaped(by_scale, first) / count
        by_x = by_x * _shaped(scale, first) * inverse
        return by_x, by_scale, by_offset, np.zeros(0), np.zeros(0)

    return expected


def _batch_norm(version: str, first: bool, training: bool) -> list[Case]:
    shape = (3, 2, 4, 5) if first else (3, 4, 5, 2)
    axes = (0, 2, 3) if first else (0, 1, 2)
    reserved = 3 if version == "V3" else 2
    x, grad = normal(*shape), normal(*shape, seed=1)
    scale, offset = uniform(0.5, 2, 2), normal(2)
    mean, variance = normal(2, seed=5), uniform(0.5, 2, 2, seed=6)
    attrs: dict[str, Any] = {"epsilon": EPSILON, "is_training": training}
    if first:
        attrs["data_format"] = "NCHW"
    label = f"{'first' if first else 'last'}-{'training' if training else 'inference'}"
    dtypes = ("float64",) if version else ("float32", "float64")
    rest: dict[str, Any] = {"dtypes": dtypes, "tolerance": {"float32": (2e-5, 2e-5)}}
    used = (x.mean(axes), x.var(axes)) if training else (mean, variance)
    spaces = [*used, *[np.zeros(0)] * (reserved - 2)]
    wanted = [0, 1, 2] if training else [0, 1, 2, 3, 4]
    return [
        Case(
            f"FusedBatchNorm{version}",
            [x, scale, offset, mean, variance],
            attrs,
            _forward(first, training, reserved),
            grad=wanted,
            order=1 if training else 2,
            label=label,
            **rest,
        ),
        Case(
            f"FusedBatchNormGrad{version}",
            [grad, x, scale, *spaces],
            attrs,
            _backward(first, training),
            grad=[0, 2] if training else wanted,
            order=1,
            label=label,
            **rest,
        ),
    ]


def _half(dtype: str) -> Case:
    """Images of a narrow type with statistics in float32."""
    vectors = [uniform(0.5, 2, 2), normal(2), normal(2, seed=5), uniform(0.5, 2, 2, seed=6)]
    return Case(
        "FusedBatchNormV3",
        [normal(3, 4, 5, 2), *[Raw(v, "float32", constant=False) for v in vectors]],
        {"epsilon": EPSILON},
        _forward(False, True, 3),
        dtypes=(dtype,),
        tolerance=LOOSE,
        grad=False,
        label=dtype,
    )


def _near(value: Array, radius: int) -> Array:
    result = np.zeros_like(value)
    depth = value.shape[-1]
    for c in range(depth):
        result[..., c] = value[..., max(0, c - radius) : c + radius + 1].sum(-1)
    return result


def _lrn(radius: int, bias: float, alpha: float, beta: float) -> list[Case]:
    def forward(x: Array) -> Array:
        return x / (bias + alpha * _near(x * x, radius)) ** beta

    def backward(grad: Array, x: Array, y: Array) -> Array:
        norms = bias + alpha * _near(x * x, radius)
        shares = _near(grad * y / norms, radius)
        return grad * norms**-beta - 2 * alpha * beta * x * shares

    attrs = {"depth_radius": radius, "bias": bias, "alpha": alpha, "beta": beta}
    x = normal(2, 3, 2, 6)
    label = f"{radius}-{beta}"
    return [
        Case("LRN", [x], attrs, forward, tolerance=LOOSE, dtypes=FLOATS, label=label),
        Case(
            "LRNGrad",
            [normal(*x.shape, seed=1), x, forward(x)],
            attrs,
            backward,
            tolerance=LOOSE,
            dtypes=FLOATS,
            label=label,
        ),
    ]


CASES = [
    case
    for version in ("", "V2", "V3")
    for first in (False, True)
    for training in (True, False)
    for case in _batch_norm(version, first, training)
]
CASES += [_half("float16"), _half("bfloat16")]
CASES += _lrn(1, 1.0, 0.5, 0.75) + _lrn(2, 2.0, 0.25, 0.5) + _lrn(9, 1.0, 0.1, 0.6)
