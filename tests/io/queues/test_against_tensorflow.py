"""Input pipelines return the same as on TensorFlow, if it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import rounds

from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.messages.import_graph_def import import_graph_def
from weft_io.coordination.coordinator import Coordinator
from weft_io.coordination.queue_runner import QueueRunner, add_queue_runner, start_queue_runners
from weft_tensor import errors

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("needs TensorFlow", allow_module_level=True)
tf: Any = importlib.import_module("tensorflow.compat.v1")
flow: Any = importlib.import_module("tensorflow.python.ops.data_flow_ops")


def _batches() -> list[Any]:
    numbers = tf.train.slice_input_producer([np.arange(10)], num_epochs=2, shuffle=False)[0]
    sparse = tf.SparseTensor([[0], [1]], tf.stack([numbers, numbers + 1]), [3])
    parts = tf.train.batch({"n": numbers, "s": sparse}, 4, allow_smaller_final_batch=True)
    return [parts["n"], parts["s"].indices, parts["s"].values, parts["s"].dense_shape]


def _padded() -> list[Any]:
    numbers = tf.train.slice_input_producer([np.arange(9)], num_epochs=1, shuffle=False)[0]
    return [tf.train.batch([tf.range(numbers % 4)], 3, dynamic_pad=True)]


def _several_at_once() -> list[Any]:
    rows = np.arange(24).reshape(4, 6)
    row = tf.train.slice_input_producer([rows], num_epochs=1, shuffle=False)[0]
    return [tf.train.batch([row, row * 2], 5, enqueue_many=True)[1]]


@pytest.mark.parametrize("program", [_batches, _padded, _several_at_once])
def test_pipelines(program: Callable[[], list[Any]]) -> None:
    theirs = tf.Graph()
    with theirs.as_default():
        fetches = [fetch.name for fetch in program()]
        meta = tf.train.export_meta_graph().SerializeToString()
        locals_ = [variable.initializer.name for variable in tf.local_variables()]
        with tf.Session() as session:
            wanted = _run(session, locals_, fetches, tf.train, tf.errors.OutOfRangeError)
    message = proto.MetaGraphDef.FromString(meta)
    with Graph().as_default() as graph:
        import_graph_def(message.graph_def, name="")
        for data in message.collection_def["queue_runners"].bytes_list.value:
            add_queue_runner(QueueRunner.from_proto(proto.QueueRunnerDef.FromString(data)))
        with Session(graph=graph) as session:
            got = _run(session, locals_, fetches, _Train, errors.OutOfRangeError)
    assert len(got) == len(wanted)
    for mine, other in zip(got, wanted, strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(a, b)


class _Train:
    Coordinator = Coordinator
    start_queue_runners = staticmethod(start_queue_runners)


def _run(
    session: Any, initializers: list[str], fetches: list[str], train: Any, end: type[Exception]
) -> list[Any]:
    session.run(initializers)
    coord = train.Coordinator()
    train.start_queue_runners(session, coord)
    found = []
    with pytest.raises(end):
        for _ in rounds():
            found.append(session.run(fetches))
    coord.request_stop()
    coord.join()
    return found


def test_single_operations() -> None:
    theirs = tf.Graph()
    with theirs.as_default():
        dense = tf.ConditionalAccumulator(tf.float32, shape=[2])
        sparse = tf.SparseConditionalAccumulator(tf.float32, shape=[5, 2])
        barrier = flow.Barrier((tf.float32,), shapes=((),))
        area = flow.StagingArea([tf.float32])
        keyed = flow.MapStagingArea([tf.float32, tf.int32], ordered=True)
        queue = tf.PriorityQueue(5, [tf.string], [[]])
        variable = tf.get_variable("v", initializer=1.0, use_resource=True)
        section = tf.CriticalSection()
        key = tf.constant(3, tf.int64)
        taken = barrier.take_many(1)
        steps = [
            dense.apply_grad([1.0, 2.0]),
            dense.take_grad(1),
            sparse.apply_grad([3, 1], [[1.0, 2.0], [3.0, 4.0]], [5, 2]),
            barrier.insert_many(0, ["k"], [3.0]),
            taken.indices,
            area.put([tf.constant(5.0)]),
            area.get()[0],
            keyed.put(key, [tf.constant(1.0), tf.constant(2)], [0, 1]),
            keyed.get(key)[1][1],
            queue.enqueue_many([[3, 1], ["a", "b"]]),
            queue.dequeue()[1],
            variable.initializer,
            section.execute(lambda: variable.assign_add(2.0)),
        ]
        names = [step.name for step in steps]
        data = theirs.as_graph_def().SerializeToString()
        with tf.Session() as session:
            wanted = [session.run(name) for name in names]
    with Graph().as_default() as graph:
        import_graph_def(proto.GraphDef.FromString(data), name="")
        with Session(graph=graph) as session:
            for name, other in zip(names, wanted, strict=True):
                got = session.run(name)
                if other is None:
                    assert got is None
                else:
                    np.testing.assert_array_equal(got, other)
