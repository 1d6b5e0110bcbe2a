"""Functions that are spelt out become one op, in each of their spellings; others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite.convert import Converter
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import OpKind

SHAPE = [2, 3, 40]
COLUMNS = np.linspace(-2, 3, 40).astype("float32")
HALVES: list[Callable[[Any, Any], Any]] = [
    lambda x, gate: 0.5 * x * gate,
    lambda x, gate: x * (gate * 0.5),
    lambda x, gate: (gate * x) * 0.5,
]
CUBES: list[Callable[[Any], Any]] = [
    lambda x: 0.044715 * wf.pow(x, 3.0),
    lambda x: x * x * x * 0.044715,
    lambda x: 0.044715 * (x * wf.square(x)),
    lambda x: 0.044715 * x * x * x,
]


def moments(x: Any, axes: Any = -1, keep: bool = True) -> tuple[Any, Any]:
    mean = wf.reduce_mean(x, axes, keepdims=keep)
    return mean, wf.reduce_mean(wf.square(x - mean), axes, keepdims=keep)


def standard(x: Any, root: bool) -> Any:
    mean, spread = moments(x)
    return (x - mean) / wf.sqrt(spread + 0.01) if root else (x - mean) * wf.rsqrt(spread + 0.01)


def normalized(x: Any) -> Any:
    mean, spread = wf.nn.moments(x, [2], keepdims=True)
    return wf.nn.batch_normalization(x, mean, spread, COLUMNS, COLUMNS[::-1].copy(), 1e-3)


JOINED: list[tuple[OpKind, Callable[[Any], Any]]] = [
    (OpKind.Silu, wf.nn.swish),
    (OpKind.Silu, lambda x: wf.sigmoid(x) * x),
    *[(OpKind.Gelu, lambda x, h=h: h(x, 1.0 + wf.erf(x / 2.0**0.5))) for h in HALVES],
    (OpKind.Gelu, lambda x: 0.5 * x * (wf.erf(0.5**0.5 * x) + 1.0)),
    *[
        (OpKind.Gelu, lambda x, c=c: 0.5 * x * (1.0 + wf.tanh((2 / np.pi) ** 0.5 * (x + c(x)))))
        for c in CUBES
    ],
    (OpKind.HardSwish, lambda x: x * wf.nn.relu6(x + 3.0) / 6.0),
    (OpKind.HardSwish, lambda x: x * (wf.nn.relu6(3.0 + x) * (1 / 6))),
    (OpKind.HardSwish, lambda x: wf.nn.relu6(x + 3.0) / 6.0 * x),
    (OpKind.HardSwish, lambda x: (1 / 6) * x * wf.clip_by_value(x + 3.0, 0.0, 6.0)),
    (OpKind.LayerNorm, normalized),
    (OpKind.LayerNorm, lambda x: standard(x, True) * COLUMNS + COLUMNS[::-1].copy()),
    (OpKind.LayerNorm, lambda x: COLUMNS + COLUMNS * standard(x, False)),
    (OpKind.LayerNorm, lambda x: standard(x, True)),
    (OpKind.LayerNorm, lambda x: standard(x, False)),
    (OpKind.L2Normalize, lambda x: wf.nn.l2_normalize(x, -1)),
    (OpKind.L2Normalize, lambda x: wf.nn.l2_normalize(x, 2, epsilon=99.0)),
]
APART: list[Callable[[Any], Any]] = [
    lambda x: x * wf.sigmoid(2.0 * x),
    lambda x: 0.5 * x * (1.0 + wf.erf(x / 1.4)),
    lambda x: 0.4 * x * (1.0 + wf.erf(x / 2.0**0.5)),
    lambda x: 0.5 * x * (1.0 + wf.tanh(0.8 * (x + 0.044715 * wf.pow(x, 3.0)))),
    lambda x: (x - moments(x, 1)[0]) * wf.rsqrt(moments(x, 1)[1] + 0.01),
    lambda x: (x - moments(x, -1)[0]) * wf.rsqrt(moments(x, 1)[1] + 0.01),
    lambda x: (x - moments(x[0])[0]) * wf.rsqrt(moments(x)[1] + 0.01),
    lambda x: x * wf.nn.relu6(x + 2.0) / 6.0,
    lambda x: x * wf.nn.relu6(x + 3.0) / 5.0,
    lambda x: wf.nn.l2_normalize(x, 1),
    lambda x: wf.nn.l2_normalize(x, [1, 2]),
]


def converted(function: Callable[[Any], Any]) -> list[OpKind]:
    """The ops, after a trial on numbers that nothing happens to be right for."""
    value = np.random.default_rng(1).normal(0.3, 2, SHAPE).astype("float32")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, SHAPE, name="x")
        content = Converter(x.graph, [x], [function(x)]).convert({"x": value}, limit=1e-5)
    return [OpKind(op.kind) for op in decode(content).model.ops]


@pytest.mark.parametrize(("kind", "function"), JOINED)
def test_one_op(kind: OpKind, function: Callable[[Any], Any]) -> None:
    assert converted(function) == [kind]


@pytest.mark.parametrize("function", APART)
def test_what_is_only_near_stays(function: Callable[[Any], Any]) -> None:
    assert len(converted(function)) > 1
    fused = {OpKind.Silu, OpKind.Gelu, OpKind.HardSwish, OpKind.LayerNorm, OpKind.L2Normalize}
    assert not fused & set(converted(function))


def test_what_is_read_besides_stays() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, SHAPE, name="x")
        gate = wf.sigmoid(x)
        content = Converter(x.graph, [x], [x * gate, gate]).convert()
    kinds = {OpKind(op.kind) for op in decode(content).model.ops}
    assert kinds == {OpKind.Silu, OpKind.Sigmoid}
