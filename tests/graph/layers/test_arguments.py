"""Layers, cells and variables with invalid arguments: a table of calls and messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import layers, nn
from weft_tensor import errors

TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError
cells = nn.rnn_cell


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def _matrix() -> Any:
    return wf.ones([2, 3])


def _image() -> Any:
    return wf.ones([1, 4, 4, 3])


def _dense(**given: Any) -> Callable[[], Any]:
    return lambda: layers.dense(_matrix(), **({"units": 2} | given))


def _conv(**given: Any) -> Callable[[], Any]:
    return lambda: layers.conv2d(_image(), **({"filters": 2, "kernel_size": 2} | given))


def _variable(**given: Any) -> Callable[[], Any]:
    return lambda: wf.get_variable(**({"name": "v", "shape": [2]} | given))


def _scope(**given: Any) -> Callable[[], Any]:
    return lambda: wf.variable_scope("scope", **given)


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # Sizes and counts
    (_dense(units=2.5), TYPE, "units must be an integer, got 2.5"),
    (_dense(units=-1), VALUE, "units must be at least 0, got -1"),
    (_dense(units=None), TYPE, "units must be an integer, got None"),
    (_conv(filters=2.5), TYPE, "filters must be an integer, got 2.5"),
    (_conv(kernel_size=(2, 2.5)), TYPE, "kernel_size must be an integer, got 2.5"),
    (
        _conv(kernel_size=(2, 2, 2)),
        VALUE,
        "kernel_size must be 2 integers, or one integer; got (2, 2, 2)",
    ),
    (_conv(strides=0), VALUE, "strides must be at least 1, got 0"),
    (_conv(dilation_rate=1.5), TYPE, "dilation_rate must be an integer, got 1.5"),
    (_conv(padding=1), VALUE, "padding must be 'valid' or 'same', got 1"),
    (lambda: layers.SeparableConv2D(2, 2, depth_multiplier=1.5), TYPE, "got 1.5"),
    (lambda: layers.MaxPooling2D(2.5, 2), TYPE, "pool_size must be an integer, got 2.5"),
    (lambda: layers.Dropout(2.5), VALUE, "rate must be a number <= 1.0, got 2.5"),
    (lambda: layers.Dropout("a"), TYPE, "rate must be a number, got 'a'"),
    (lambda: layers.BatchNormalization(1.5), TYPE, "axis must be an integer, got 1.5"),
    (lambda: layers.BatchNormalization(momentum="a"), TYPE, "momentum must be a number, got 'a'"),
    (lambda: cells.BasicLSTMCell(2.5), TYPE, "num_units must be an integer, got 2.5"),
    (lambda: cells.BasicRNNCell("a"), TYPE, "num_units must be an integer, got 'a'"),
    (lambda: cells.GRUCell(-1), VALUE, "num_units must be at least 0, got -1"),
    (lambda: cells.LSTMCell(2, num_proj=1.5), TYPE, "num_proj must be an integer, got 1.5"),
    (lambda: cells.MultiRNNCell([2]), TYPE, "'cells' (2) is not an RNNCell"),
    (
        lambda: cells.DropoutWrapper(cells.GRUCell(2), input_keep_prob="a"),
        TYPE,
        "input_keep_prob must be a number, got 'a'",
    ),
    (
        lambda: nn.conv2d(_image(), wf.ones([2, 2, 3, 3]), [1, 1.5, 1, 1], "SAME"),
        TYPE,
        "strides must be an integer, got 1.5",
    ),
    (
        lambda: nn.conv2d(_image(), wf.ones([2, 2, 3, 3]), "SAME"),
        TYPE,
        "strides must be an integer, got 'SAME'",
    ),
    (lambda: nn.max_pool(_image(), 2.5, 2, "SAME"), TYPE, "ksize must be an integer, got 2.5"),
    (lambda: wf.eye(2.5), TYPE, "num_rows must be an integer, got 2.5"),
    (lambda: wf.eye(2, batch_shape=[1.5]), TYPE, "batch_shape must be an integer, got 1.5"),
    (lambda: wf.split([1, 2, 3], 3.5), TYPE, "the number of parts must be an integer, got 3.5"),
    (lambda: wf.sequence_mask([1], 2.5), TYPE, "maxlen must be an integer, got 2.5"),
    (lambda: wf.tensordot(_matrix(), _matrix(), 0.5), TYPE, "axes must be an integer, got 0.5"),
    # Functions
    (
        _dense(kernel_regularizer=0.01),
        TYPE,
        "kernel_regularizer must be a function or None, got 0.01",
    ),
    (_dense(bias_regularizer="l2"), TYPE, "bias_regularizer must be a function or None"),
    (_dense(activity_regularizer=0.01), TYPE, "activity_regularizer must be a function or None"),
    (_dense(kernel_initializer=0.01), TYPE, "kernel_initializer must be a function or None"),
    (_dense(kernel_initializer="glorot"), VALUE, "or the name of one such as 'glorot_uniform'"),
    (
        lambda: layers.dense(_matrix(), 2, bias_initializer=wf.zeros([2])),
        TYPE,
        "bias_initializer must be a function or None, got <weft.Tensor",
    ),
    (_dense(activation=3), TYPE, "activation must be a function or None, got 3"),
    (_dense(activation="relux"), VALUE, "activation must be one of ['elu',"),
    (_dense(kernel_constraint=3), TYPE, "kernel_constraint must be a function or None, got 3"),
    (_conv(kernel_regularizer=0.01), TYPE, "kernel_regularizer must be a function or None"),
    (_conv(bias_initializer=0.01), TYPE, "bias_initializer must be a function or None"),
    (lambda: layers.SeparableConv2D(2, 2, pointwise_regularizer=1), TYPE, "pointwise_regularizer"),
    (lambda: layers.BatchNormalization(gamma_regularizer=1), TYPE, "gamma_regularizer"),
    (lambda: layers.BatchNormalization(moving_mean_initializer=1), TYPE, "moving_mean_initializer"),
    (lambda: cells.GRUCell(2, bias_initializer=3), TYPE, "bias_initializer must be a function"),
    (lambda: cells.LSTMCell(2, initializer=3), TYPE, "initializer must be a function"),
    (lambda: cells.GRUCell(2, activation=3), TYPE, "activation must be a function or None, got 3"),
    (_variable(regularizer=0.01), TYPE, "regularizer must be a function or None, got 0.01"),
    (_variable(custom_getter=3), TYPE, "custom_getter must be a function or None, got 3"),
    (_variable(partitioner=3), TYPE, "partitioner must be a function or None, got 3"),
    (_variable(constraint=3), TYPE, "constraint must be a function or None, got 3"),
    (_variable(name=3), TYPE, "name must be text, got 3"),
    (_variable(initializer=0.01), VALUE, "do not specify shape; got shape [2] and initializer 0.0"),
    (_variable(initializer=lambda: 3), TYPE, "which takes no arguments; give no shape"),
    (
        _variable(initializer=lambda shape, dtype=None: wf.zeros([3])),
        VALUE,
        "the initializer must give a value of shape [2], got [3]",
    ),
    (lambda: wf.Variable(lambda x: x), TYPE, "`initial_value` must take 0 positional arguments"),
    (_scope(regularizer=0.01), TYPE, "regularizer must be a function or None, got 0.01"),
    (_scope(partitioner=3), TYPE, "partitioner must be a function or None, got 3"),
    (_scope(custom_getter=3), TYPE, "custom_getter must be a function or None, got 3"),
    (_scope(constraint=3), TYPE, "constraint must be a function or None, got 3"),
    (_scope(reuse=3), TYPE, "reuse must be True, False, None or AUTO_REUSE, got 3"),
]


def test_refused() -> None:
    for call, kind, words in REFUSED:
        with wf.Graph().as_default(), pytest.raises(kind, match=re.escape(words)):
            call()


def test_sizes_that_are_whole_numbers() -> None:
    assert layers.dense(_matrix(), 4 / 2).shape == [2, 2]
    assert layers.dense(_matrix(), np.int64(2)).shape == [2, 2]
    assert layers.dense(_matrix(), 0).shape == [2, 0]
    assert layers.conv2d(_image(), np.int32(2), np.int64(2), strides=np.array(2)).shape[1:] == [
        2,
        2,
        2,
    ]
    assert cells.GRUCell(np.int32(2)).state_size == 2
    assert nn.max_pool(_image(), np.array([2, 2]), 2, "same").shape[1:] == [2, 2, 3]


def test_functions_by_name() -> None:
    layer = layers.Dense(2, "relu", kernel_initializer="ones")
    result = layer(-_matrix())
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert session.run(result).tolist() == [[0, 0], [0, 0]]
        assert session.run(layer.kernel).tolist() == [[1, 1], [1, 1], [1, 1]]
