"""Chains of int8 ops as lookups in tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.schema import codec
from weft_lite.schema.enums import OpKind

Array = Any
X = np.linspace(-3, 3, 2048, dtype=np.float32).reshape(1, 2048)

CHAINS: dict[str, Callable[[Any], Any]] = {
    "affine": lambda x: x * 0.5 + 1.0,
    "hard sigmoid": lambda x: wf.nn.relu6(x + 3.0) * (1 / 6),
    "reversed": lambda x: 2.0 - wf.tanh(1.5 * x),
    "softplus": lambda x: wf.nn.softplus(wf.square(x) - 2.0),
    "clipped": lambda x: wf.minimum(wf.maximum(wf.abs(x), 0.5), 2.0) * -1.0,
}


def converted(function: Callable[[Any], Any], calibration: Array) -> tuple[bytes, Array]:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, X.shape, name="x")
        y = function(x)
        converter = wf.lite.Converter.from_session(session, [x], [y])
        content = converter.convert(calibration=[{"x": calibration}])
        return content, session.run(y, {x: calibration})


def kinds(content: bytes) -> list[OpKind]:
    return [OpKind(op.kind) for op in codec.decode(content)[0].ops]


def result(content: bytes, x: Array) -> Array:
    (y,) = Interpreter(model_content=content).get_signature_runner()(x=x).values()
    return y


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_one_lookup_with_a_single_rounding(name: str) -> None:
    content, expected = converted(CHAINS[name], X)
    assert kinds(content) == [OpKind.Quantize, OpKind.Lookup, OpKind.Dequantize]
    model, _ = codec.decode(content)
    steps = [t.quantization.scales[0] for t in model.tensors if t.quantization]
    slope = np.abs(np.diff(expected) / np.diff(X)).max()
    limit = steps[0] / 2 * slope + steps[-1] / 2
    np.testing.assert_allclose(result(content, X), expected, atol=1.05 * limit + 1e-6)


def test_a_value_with_two_readers_ends_a_chain() -> None:
    def function(x: Any) -> Any:
        h = wf.tanh(x * 0.5)
        return wf.sigmoid(h) + wf.nn.relu(h)

    content, expected = converted(function, X)
    assert kinds(content).count(OpKind.Lookup) == 1
    np.testing.assert_allclose(result(content, X), expected, atol=0.03)


def test_a_number_that_is_not_constant_gives_the_same_as_many() -> None:
    """The kernel computes a table for a large operand, and element by element for a small one."""
    for op in (wf.add, wf.subtract, wf.multiply, wf.maximum, wf.squared_difference):
        with wf.Graph().as_default(), wf.Session() as session:
            x = wf.placeholder(wf.float32, [None], name="x")
            n = wf.placeholder(wf.float32, [1], name="n")
            many = {"x": X[0], "n": np.array([0.7], "f")}
            converter = wf.lite.Converter.from_session(
                session, [x, n], [op(x, n), op(n, x)], bounds={"x": [2048]}
            )
            content = converter.convert(calibration=[many])
        interpreter = Interpreter(model_content=content)
        whole = interpreter.get_signature_runner()(**many)
        parts = []
        for part in np.split(X[0], 4):
            interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], [512])
            parts.append(interpreter.get_signature_runner()(x=part, n=many["n"]))
        for name, expected in whole.items():
            np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), expected)
