"""Field by field, the messages are those of TensorFlow, where that is installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import pytest

from weft_graph import proto

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("needs TensorFlow", allow_module_level=True)
tf = importlib.import_module("tensorflow.compat.v1")

MODULES = (
    "core.example.example_pb2",
    "core.framework.cost_graph_pb2",
    "core.framework.device_attributes_pb2",
    "core.framework.graph_pb2",
    "core.framework.reader_base_pb2",
    "core.framework.step_stats_pb2",
    "core.framework.summary_pb2",
    "core.framework.variable_pb2",
    "core.protobuf.cluster_pb2",
    "core.protobuf.config_pb2",
    "core.protobuf.control_flow_pb2",
    "core.protobuf.meta_graph_pb2",
    "core.protobuf.named_tensor_pb2",
    "core.protobuf.queue_runner_pb2",
    "core.protobuf.saved_model_pb2",
    "core.protobuf.saver_pb2",
    "core.protobuf.tensor_bundle_pb2",
    "core.protobuf.tensorflow_server_pb2",
    "core.util.event_pb2",
    "core.util.saved_tensor_slice_pb2",
    "python.training.checkpoint_state_pb2",
)
OURS_ONLY = {"weft.ConfigProto.Experimental.deterministic"}


def _theirs() -> Any:
    from google.protobuf import descriptor_pool

    for module in MODULES:
        importlib.import_module(f"tensorflow.{module}")
    return descriptor_pool.Default()


def _signature(field: Any) -> tuple[Any, ...]:
    kind = field.message_type or field.enum_type
    oneof = field.containing_oneof
    name = kind.full_name.replace("tensorflow.", "weft.") if kind is not None else None
    packed = field.is_packed if field.is_repeated else None
    return field.name, field.type, field.is_repeated, packed, name, oneof.name if oneof else None


def _walk(message: Any) -> list[Any]:
    return [message] + [m for nested in message.nested_types for m in _walk(nested)]


def _our_messages() -> list[Any]:
    classes = [getattr(proto, name) for name in dir(proto)]
    return [m for c in classes if hasattr(c, "FromString") for m in _walk(c.DESCRIPTOR)]


def test_fields() -> None:
    pool = _theirs()
    problems = []
    for ours in _our_messages():
        theirs = pool.FindMessageTypeByName(ours.full_name.replace("weft.", "tensorflow.", 1))
        have = {f.number: _signature(f) for f in ours.fields if f.full_name not in OURS_ONLY}
        want = {f.number: _signature(f) for f in theirs.fields}
        for number in have.keys() | want.keys():
            if have.get(number) != want.get(number):
                problems.append((ours.full_name, number, have.get(number), want.get(number)))
    assert not problems


def test_enums() -> None:
    pool = _theirs()
    enums = [e for m in _our_messages() for e in m.enum_types]
    enums += [e.DESCRIPTOR for e in (getattr(proto, n) for n in dir(proto)) if hasattr(e, "Name")]
    assert len(enums) > 15
    for ours in enums:
        theirs = pool.FindEnumTypeByName(ours.full_name.replace("weft.", "tensorflow.", 1))
        have = {v.name: v.number for v in ours.values}
        assert have == {v.name: v.number for v in theirs.values}, ours.full_name


def test_bytes_cross_both_ways() -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.add(tf.constant([1.0, 2.0]), 3.0, name="sum")
    theirs = graph.as_graph_def(add_shapes=True)
    ours = proto.GraphDef.FromString(theirs.SerializeToString())
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(
        deterministic=True
    )
    event = proto.Event(step=7)
    event.summary.value.add(tag="loss", simple_value=0.5)
    back = tf.Event.FromString(event.SerializeToString())
    assert (back.step, back.summary.value[0].tag) == (7, "loss")


def test_both_may_be_in_one_process() -> None:
    assert tf.GraphDef is not proto.GraphDef
    assert (
        tf.ConfigProto(allow_soft_placement=True).SerializeToString()
        == proto.ConfigProto(allow_soft_placement=True).SerializeToString()
    )
