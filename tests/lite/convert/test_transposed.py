"""Transposed convolutions: sub-pixel convolutions where sizes are known, in float and in int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.schema import codec
from weft_lite.schema.enums import OpKind

Array = Any


def kinds(content: bytes) -> list[OpKind]:
    return [OpKind(op.kind) for op in codec.decode(content)[0].ops]


def converted(kernel: int, stride: int, padding: str, size: int, **options: Any) -> bytes:
    """A file of a transposed convolution with bias and activation, which `convert` verifies."""
    with wf.Graph().as_default(), wf.Session() as session:
        wf.set_random_seed(1)
        x = wf.placeholder(wf.float32, [2, size, size + 1, 3], name="x")
        y = wf.layers.conv2d_transpose(
            x,
            4,
            kernel,
            stride,
            padding,
            activation=wf.nn.relu,
            bias_initializer=wf.random_normal_initializer(),
        )
        session.run(wf.global_variables_initializer())
        content: bytes = wf.lite.Converter.from_session(session, [x], [y]).convert(**options)
        return content


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
def test_subpixels_compute_what_the_session_does(kernel: int, stride: int, padding: str) -> None:
    for size in (1, 5):
        content = converted(kernel, stride, padding, size, limit=1e-5)
        assert kinds(content)[0] is OpKind.Conv2D
        assert set(kinds(content)[1:]) <= {OpKind.DepthToSpace, OpKind.Slice}


def test_bytes_stay_bytes() -> None:
    samples = [{"x": np.random.default_rng(0).standard_normal((2, 5, 6, 3)).astype("f")}]
    ops = kinds(converted(3, 2, "valid", 5, calibration=samples))
    assert ops == [
        OpKind.Quantize, OpKind.Conv2D, OpKind.DepthToSpace, OpKind.Slice, OpKind.Dequantize,
    ]  # fmt: skip


def test_open_sizes_use_the_kernel() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1, None, None, 3], name="x")
        y = wf.layers.conv2d_transpose(x, 4, 3, 2, "same", name="up")
        session.run(wf.global_variables_initializer())
        bounds = {"x": [1, 8, 8, 3]}
        content = wf.lite.Converter.from_session(session, [x], [y], bounds).convert()
        assert OpKind.Conv2DTranspose in kinds(content)
        interpreter = Interpreter(model_content=content)
        for size in (3, 8):
            value = np.ones((1, size, size, 3), "float32")
            interpreter.resize_tensor_input(0, value.shape)
            (actual,) = interpreter.get_signature_runner()(x=value).values()
            np.testing.assert_allclose(actual, session.run(y, {x: value}), rtol=1e-5, atol=1e-6)
