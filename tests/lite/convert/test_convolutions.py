"""Convolutions and products of all sizes on each instruction set, compared with the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import OpKind

DRAW = np.random.default_rng(0)


def weights(*shape: int) -> Any:
    return DRAW.normal(size=shape).astype("float32")


def check(shape: list[int], build: Callable[[Any], Any]) -> list[OpKind]:
    """Compare all instruction sets with the session; return the kinds of ops."""
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, shape, name="x")
        y = build(x)
        value = DRAW.normal(size=shape).astype("float32")
        wanted = session.run(y, {x: value})
        content = Converter.from_session(session, [x], [y]).convert()
    for threads in (1, 2):
        interpreter = Interpreter(model_content=content, num_threads=threads)
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
        names = set()
        for i in range(8):
            name = interpreter._library.wl_use_instruction_set(interpreter._handle, i)
            names.add(name)
            interpreter.invoke()
            got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
            most = np.abs(wanted).max()
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-5 * most, err_msg=str(name))
        assert len(names - {None}) > 1
    return [OpKind(op.kind) for op in decode(content).model.ops]


@pytest.mark.parametrize(
    ("size", "depth", "channels"), [(7, 96, 80), (9, 96, 80), (15, 128, 70), (30, 96, 64)]
)
def test_filters_that_are_larger_than_a_cache(size: int, depth: int, channels: int) -> None:
    """Few results meet all of a part of the filter, many results share what is read of it."""
    filters = weights(3, 3, depth, channels)
    kinds = check([1, size, size, depth], lambda x: wf.nn.conv2d(x, filters, [1, 1, 1, 1], "SAME"))
    assert kinds == [OpKind.Conv2D]


@pytest.mark.parametrize("rows", [1, 13, 64, 150])
def test_matrices_that_are_larger_than_a_cache(rows: int) -> None:
    matrix = weights(600, 130)
    assert check([rows, 600], lambda x: wf.matmul(x, matrix)) == [OpKind.FullyConnected]


@pytest.mark.parametrize("channels", [1, 7, 16, 24, 40, 77])
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 1), (2, 1)])
def test_filters_of_each_channel(channels: int, size: int, stride: int) -> None:
    filters = weights(size, size, channels, 1)
    kinds = check(
        [2, 9, 11, channels],
        lambda x: wf.nn.depthwise_conv2d(x, filters, [1, stride, stride, 1], "SAME"),
    )
    assert OpKind.DepthwiseConv2D in kinds or channels == 1


def test_the_bias_of_a_convolution_of_one_dimension_is_fused() -> None:
    filters, bias = weights(3, 8, 20), weights(20)
    kinds = check(
        [2, 30, 8],
        lambda x: wf.nn.relu(wf.nn.conv1d(x, filters, 1, "VALID", dilations=4) + bias),
    )
    assert kinds == [OpKind.ExpandDims, OpKind.Conv2D, OpKind.Squeeze]


def test_a_reshape_that_changes_the_channels_keeps_the_bias_apart() -> None:
    filters, bias = weights(1, 1, 8, 20), weights(10)
    kinds = check(
        [2, 5, 4, 8],
        lambda x: wf.reshape(wf.nn.conv2d(x, filters, [1, 1, 1, 1], "SAME"), [2, 40, 10]) + bias,
    )
    assert kinds[-1] is OpKind.Add
