"""The plan of the arena: results reuse the memory of dead operands."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_lite.schema.codec import decode

BYTES = 4 * 64


def converted(inputs: list[Any], outputs: list[Any], bounds: Any = None) -> bytes:
    with wf.Session() as session:
        return Converter.from_session(session, inputs, outputs, bounds).convert()


def places(content: bytes) -> dict[str, int]:
    return {tensor.name: tensor.offset for tensor in decode(content).model.tensors}


def test_a_chain_needs_two_places() -> None:
    """Inputs keep theirs, so that an invocation may be repeated."""
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [64], name="x")
        h = wf.exp(wf.tanh(x), name="h")
        y = wf.nn.relu(wf.reshape(h * 3.0 - 1.0, [8, 8]), name="y")
        content = converted([x], [y])
    model = decode(content).model
    assert model.arena_size == 2 * BYTES
    runner = Interpreter(model_content=content).get_signature_runner()
    value = np.linspace(-1, 1, 64).astype("float32")
    want = np.maximum(np.exp(np.tanh(value)) * 3 - 1, 0).reshape(8, 8)
    for _ in range(2):
        np.testing.assert_allclose(runner(x=value)["y"], want, 1e-5)


def test_an_operand_that_is_read_later_keeps_its_place() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [64], name="x")
        h = wf.tanh(x, name="h")
        i = wf.exp(h, name="i")
        content = converted([x], [wf.subtract(i, h, name="y")])
    found = places(content)
    assert found["h"] != found["i"] == found["y"]


def test_what_may_broadcast_takes_no_place_of_open_size() -> None:
    """At the bound both have one size, and below it one may be repeated for the other."""
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 4], name="x")
        z = wf.placeholder(wf.float32, [None, 4], name="z")
        y = wf.add(wf.exp(wf.tanh(x)), wf.tanh(z), name="y")
        content = converted([x, z], [y], {"x": [16, 4], "z": [16, 4]})
    found = places(content)
    assert found["Exp"] == found["Tanh"] != found["y"]
    interpreter = Interpreter(model_content=content)
    one, many = np.ones([1, 4], "float32"), np.ones([5, 4], "float32")
    for first, second in ((one, many), (many, one), (many, many)):
        interpreter.resize_tensor_input(0, first.shape)
        interpreter.resize_tensor_input(1, second.shape)
        got = interpreter.get_signature_runner()(x=first, z=second)["y"]
        np.testing.assert_allclose(got, np.full([5, 4], np.exp(np.tanh(1)) + np.tanh(1)), 1e-5)
