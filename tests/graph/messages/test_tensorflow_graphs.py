"""Graphs cross to TensorFlow and back, where that is installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import numpy as np
import pytest
from weft_testing.graphs import assert_same_graph

import weft_graph.ops  # noqa: F401  (declares the ops)
from weft_graph import proto, serialize
from weft_graph.ir.builder import constant, out
from weft_graph.ir.graph import Graph
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.messages.tensor_proto import make_ndarray, make_tensor_proto
from weft_tensor import dtypes

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("needs TensorFlow", allow_module_level=True)
tf: Any = importlib.import_module("tensorflow.compat.v1")


def _perceptron() -> Any:
    x = tf.placeholder(tf.float32, [None, 8], name="x")
    y = tf.placeholder(tf.int64, [None], name="y")
    w = tf.get_variable("w", [8, 3], use_resource=False)
    b = tf.get_variable("b", [3], use_resource=True, initializer=tf.zeros_initializer())
    loss = tf.losses.sparse_softmax_cross_entropy(y, tf.tanh(tf.matmul(x, w) + b))
    return tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def _convolutions() -> Any:
    x = tf.placeholder(tf.float32, [2, 8, 8, 1], name="x")
    w = tf.get_variable("w", [3, 3, 1, 4], use_resource=False)
    h = tf.nn.relu(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME"))
    h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    loss = tf.reduce_mean(tf.square(tf.reshape(h, [2, -1])[:, 1:5]))
    return tf.train.AdamOptimizer().minimize(loss)


@pytest.mark.parametrize("program", [_perceptron, _convolutions])
def test_from_tensorflow(program: Any) -> None:
    theirs = tf.Graph()
    with theirs.as_default():
        program()
    message = theirs.as_graph_def(add_shapes=True)
    graph = Graph()
    with graph.as_default():
        import_graph_def(proto.GraphDef.FromString(message.SerializeToString()), name="")
    assert {n.name for n in graph.nodes} == {n.name for n in theirs.get_operations()}
    for node in theirs.get_operations():
        mine = graph.get_operation_by_name(node.name)
        assert [s.name for s in mine.inputs] == [s.name for s in node.inputs]
        for output, known in zip(mine.outputs, node.outputs, strict=True):
            assert output.dtype.as_datatype_enum == known.dtype.as_datatype_enum
            if known.shape.ndims is not None:
                assert output.dims == tuple(known.shape.as_list()), output.name
    assert_same_graph(graph, serialize.graph_from_bytes(serialize.graph_to_bytes(graph)))


def test_to_tensorflow() -> None:
    graph = Graph()
    with graph.as_default():
        x = out("Placeholder", (), {"dtype": dtypes.float32, "shape": (2, 3)}, "x")
        with graph.device("/cpu:0"):
            out("MatMul", [x, constant(np.float32([[1], [2], [3]]))], {}, "product")
    message = tf.GraphDef.FromString(graph.as_graph_def().SerializeToString())
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(message, name="")
        result = session.run("product:0", {"x:0": np.ones((2, 3), np.float32)})
    assert result.tolist() == [[6.0], [6.0]]


@pytest.mark.parametrize(
    "value",
    [1, 1.5, [1, 2], [[1.0, 2.0]], "a", ["a", "b"], True, 1j, np.float16([1, 2])],
    ids=str,
)
def test_tensors(value: Any) -> None:
    ours, theirs = make_tensor_proto(value), tf.make_tensor_proto(value)
    assert ours.SerializeToString() == theirs.SerializeToString()
    back = make_ndarray(proto.TensorProto.FromString(theirs.SerializeToString()))
    np.testing.assert_array_equal(back, tf.make_ndarray(theirs))
