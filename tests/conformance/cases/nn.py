"""Activations, biases, softmax and the fused losses against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import INTEGERS, Array, Case, Raw, integers, normal

SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772
KINKED = normal(4, 5) + 0.05 * np.sign(normal(4, 5))
AROUND_SIX = np.array([[-3.0, 0.5, 5.5], [6.5, 9.0, 2.0]])
SCALARS = np.array(0.7)


def _leaky(alpha: float) -> Any:
    return lambda x: np.where(x > 0, x, alpha * x)


def _leaky_grad(alpha: float) -> Any:
    return lambda g, x: np.where(x > 0, g, alpha * g)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _log_softmax(x: Array) -> Array:
    return np.log(_softmax(x))


def _cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    loss = -(labels * _log_softmax(logits)).sum(-1)
    return loss, _softmax(logits) - labels


def _sparse_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    return _cross_entropy(logits, np.eye(logits.shape[-1])[labels])


def _bias_first(x: Array, b: Array) -> Array:
    return x + b.reshape(-1, *[1] * (x.ndim - 2))


def _sum_first(g: Array) -> Array:
    return g.sum((0, *range(2, g.ndim)))


G = normal(4, 5, seed=9)
NEAR = {"float16": (4e-3, 1e-2), "bfloat16": (3e-2, 5e-2)}
FIRST = {"data_format": "NCHW"}

CASES = [
    Case("Relu", [KINKED], expected=lambda x: np.maximum(x, 0)),
    Case("Relu", [SCALARS], expected=lambda x: np.maximum(x, 0), label="scalar"),
    Case("Relu", [normal(40, 50)], expected=lambda x: np.maximum(x, 0), grad=False, label="large"),
    Case(
        "Relu",
        [integers(-5, 5, 3, 4)],
        expected=lambda x: np.maximum(x, 0),
        dtypes=INTEGERS,
        label="integers",
    ),
    Case("Relu6", [AROUND_SIX], expected=lambda x: np.clip(x, 0, 6)),
    Case("Elu", [KINKED], expected=lambda x: np.where(x < 0, np.expm1(x), x)),
    Case(
        "Selu",
        [KINKED],
        expected=lambda x: SCALE * np.where(x < 0, ALPHA * np.expm1(x), x),
    ),
    Case("Softplus", [3 * KINKED], expected=lambda x: np.log1p(np.exp(x))),
    Case(
        "Softplus",
        [np.array([-800.0, -50.0, 50.0, 800.0])],
        expected=lambda x: np.logaddexp(x, 0),
        dtypes=("float32", "float64"),
        grad=False,
        label="extremes",
    ),
    Case("Softsign", [KINKED], expected=lambda x: x / (1 + np.abs(x))),
    *[
        Case("LeakyRelu", [KINKED], {"alpha": alpha}, _leaky(alpha), label=str(alpha))
        for alpha in (0.25, -0.5, 1.5)
    ],
    *[
        Case("LeakyReluGrad", [G, KINKED], {"alpha": alpha}, _leaky_grad(alpha), label=str(alpha))
        for alpha in (0.25, 1.5)
    ],
    Case("ReluGrad", [G, KINKED], expected=lambda g, x: np.where(x > 0, g, 0)),
    Case(
        "ReluGrad",
        [integers(0, 9, 6), integers(-5, 5, 6)],
        expected=lambda g, x: np.where(x > 0, g, 0),
        dtypes=INTEGERS,
        label="integers",
    ),
    Case(
        "Relu6Grad",
        [normal(2, 3, seed=9), AROUND_SIX],
        expected=lambda g, x: np.where((x > 0) & (x < 6), g, 0),
    ),
    Case("EluGrad", [G, KINKED], expected=lambda g, y: np.where(y < 0, g * (y + 1), g)),
    Case(
        "SeluGrad",
        [G, KINKED],
        expected=lambda g, y: np.where(y < 0, g * (y + SCALE * ALPHA), g * SCALE),
    ),
    Case("SoftplusGrad", [G, KINKED], expected=lambda g, x: g / (1 + np.exp(-x))),
    Case("SoftsignGrad", [G, KINKED], expected=lambda g, x: g / (1 + np.abs(x)) ** 2),
    Case("BiasAdd", [normal(2, 3, 4, 5), normal(5)], expected=lambda x, b: x + b),
    Case("BiasAdd", [normal(6, 5), normal(5)], expected=lambda x, b: x + b, label="matrix"),
    Case(
        "BiasAdd",
        [integers(0, 50, 3, 4), integers(0, 50, 4)],
        expected=lambda x, b: x + b,
        dtypes=("int32", "uint8"),
        label="integers",
    ),
    Case("BiasAdd", [normal(2, 5, 3, 4), normal(5)], FIRST, _bias_first, label="first"),
    Case("BiasAdd", [normal(2, 5, 3), normal(5)], FIRST, _bias_first, label="first-3"),
    Case("BiasAddGrad", [normal(2, 3, 4, 5)], {}, lambda g: g.sum((0, 1, 2)), tolerance=NEAR),
    Case("BiasAddGrad", [normal(64, 8)], {}, lambda g: g.sum(0), tolerance=NEAR, label="folded"),
    Case("BiasAddGrad", [normal(2, 5, 3, 4)], FIRST, _sum_first, tolerance=NEAR, label="first"),
    Case("L2Loss", [normal(4, 5)], expected=lambda t: (t * t).sum() / 2),
    Case("L2Loss", [SCALARS], expected=lambda t: t * t / 2, label="scalar"),
    Case("Softmax", [normal(4, 5)], expected=_softmax),
    Case("Softmax", [normal(2, 3, 5)], expected=_softmax, label="rank3"),
    Case("Softmax", [normal(6)], expected=_softmax, label="vector"),
    Case("Softmax", [500 * normal(3, 4)], expected=_softmax, grad=False, label="extremes"),
    Case("LogSoftmax", [normal(4, 5)], expected=_log_softmax, tolerance=NEAR),
    Case(
        "SoftmaxCrossEntropyWithLogits",
        [normal(4, 5), _softmax(normal(4, 5, seed=3))],
        expected=_cross_entropy,
        tolerance=NEAR,
    ),
    Case(
        "SoftmaxCrossEntropyWithLogits",
        [normal(4, 5), _softmax(normal(1, 5, seed=3))],
        expected=_cross_entropy,
        tolerance=NEAR,
        label="broadcast",
    ),
    *[
        Case(
            "SparseSoftmaxCrossEntropyWithLogits",
            [normal(4, 5), Raw([0, 4, 2, 2], dtype, constant=False)],
            expected=_sparse_cross_entropy,
            tolerance=NEAR,
            label=dtype,
        )
        for dtype in ("int32", "int64")
    ],
]
