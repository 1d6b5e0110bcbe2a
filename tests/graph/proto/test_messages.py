"""The protobuf messages: lazily loaded, in a pool of their own, with the wire format of the API."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import any_pb2, json_format, text_format
from weft_testing.workspace import ROOT

from weft_graph import proto

SCRIPT = ROOT / "packages" / "graph" / "scripts" / "generate_protos.py"


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_module_does_not_import_protobuf() -> None:
    code = "import sys; from weft_graph import proto; print('google.protobuf' in sys.modules)"
    assert _run(code) == "False"


def test_threads_that_ask_first_at_once_get_one_class() -> None:
    code = """
import threading
from weft_graph import proto
barrier = threading.Barrier(8)
found = []
def ask():
    barrier.wait()
    found.append(proto.GraphDef)
threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(set(found)))
"""
    assert _run(code) == "1"


def test_names() -> None:
    assert proto.RunOptions.FULL_TRACE == 3
    assert proto.RunOptions.TraceLevel.Name(3) == "FULL_TRACE"
    assert proto.OptimizerOptions.L0 == -1
    assert proto.DT_FLOAT == proto.DataType.Value("DT_FLOAT") == 1
    assert proto.GraphDef is proto.GraphDef
    assert proto.GraphDef.DESCRIPTOR.full_name == "weft.GraphDef"
    assert proto.Code.Name(16) == "UNAUTHENTICATED"
    assert {"ConfigProto", "DT_BFLOAT16", "Event"} <= set(dir(proto))
    with pytest.raises(AttributeError, match="NoSuchMessage"):
        getattr(proto, "NoSuchMessage")  # noqa: B009
    assert not hasattr(proto, "_nothing")


def test_every_class_can_be_made() -> None:
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda name: getattr(proto, name), dir(proto)))
    messages = [item for item in made if hasattr(item, "FromString")]
    assert len(messages) > 100
    for message in messages:
        assert message.FromString(b"") == message()


def test_wire_format() -> None:
    graph = proto.GraphDef.FromString(b'\x0a\x0d\x0a\x01a\x12\x05Const"\x01c\x22\x03\x08\x86\x01')
    assert (graph.node[0].name, graph.node[0].op, graph.node[0].device) == ("a", "Const", "c")
    assert graph.versions.producer == 134
    config = proto.ConfigProto(inter_op_parallelism_threads=2, allow_soft_placement=True)
    assert config.SerializeToString() == b"\x28\x02\x38\x01"
    event = proto.Event(wall_time=1.0, step=3, file_version="brain.Event:2")
    assert event.SerializeToString() == (
        b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\x03\x1a\x0dbrain.Event:2"
    )


def test_options_of_our_own_are_out_of_the_way() -> None:
    config = proto.ConfigProto()
    config.experimental.deterministic = True
    config.experimental.credentials.token = "file"
    fields = proto.ConfigProto.Experimental.DESCRIPTOR.fields
    own = {field.name for field in fields if field.number > 1000}
    assert own == {
        "deterministic", "credentials", "jit_check", "trace_file", "flight_recorder",
    }  # fmt: skip
    assert min(field.number for field in fields if field.name in own) > 10000
    assert proto.ConfigProto.FromString(config.SerializeToString()) == config


def test_text_and_json() -> None:
    text = 'device_count { key: "CPU" value: 2 } gpu_options { allow_growth: true }'
    config = text_format.Parse(text, proto.ConfigProto())
    assert config.device_count["CPU"] == 2
    assert json_format.MessageToDict(config)["gpuOptions"] == {"allowGrowth": True}


def test_any_resolves_in_the_own_pool() -> None:
    meta = proto.MetaGraphDef()
    meta.meta_info_def.any_info.Pack(proto.SaverDef(max_to_keep=3))
    pool = proto.descriptor_pool()
    text = text_format.MessageToString(meta, descriptor_pool=pool)
    assert "type.googleapis.com/weft.SaverDef" in text
    back = text_format.Parse(text, proto.MetaGraphDef(), descriptor_pool=pool)
    saver = proto.SaverDef()
    assert back.meta_info_def.any_info.Unpack(saver)
    assert saver.max_to_keep == 3
    assert not isinstance(meta.meta_info_def.any_info, any_pb2.Any)


def test_repeated_numbers_are_packed() -> None:
    feature = proto.Feature(int64_list=proto.Int64List(value=[1, 2, 300]))
    assert feature.SerializeToString() == b"\x1a\x06\x0a\x04\x01\x02\xac\x02"


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="needs grpcio-tools")
def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
