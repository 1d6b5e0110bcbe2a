"""Messages in files, and inside `Any`s."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import weft as wf
from weft_graph import proto
from weft_io.checkpoint.state import latest_checkpoint
from weft_io.files.message_files import (
    is_any,
    message_bytes,
    pack,
    read_message,
    unpack,
    write_message,
)
from weft_tensor import errors


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("told", [False, True])
def test_a_message_comes_back(tmp_path: Path, as_text: bool, told: bool) -> None:
    message = proto.MetaGraphDef()
    message.meta_info_def.any_info.CopyFrom(pack(proto.SaverDef(max_to_keep=3)))
    message.collection_def["a"].int64_list.value.append(7)
    path = str(tmp_path / "new" / "m")
    write_message(path, message, as_text)
    back = read_message(path, proto.MetaGraphDef, as_text if told else None)
    assert back == message
    assert unpack(back.meta_info_def.any_info, proto.SaverDef) == proto.SaverDef(max_to_keep=3)


def written(path: Path, kind: type, as_text: bool) -> Any:
    graph = proto.MetaGraphDef()
    graph.meta_info_def.tensorflow_version = "1.15.0"
    graph.meta_info_def.tags.append("serve")
    graph.graph_def.node.add(name="a", op="NoOp")
    graph.collection_def["a"].int64_list.value.append(7)
    message = graph
    if kind is proto.SavedModel:
        message = proto.SavedModel(saved_model_schema_version=1, meta_graphs=[graph])
    write_message(str(path), message, as_text)
    return message


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("kind", [proto.MetaGraphDef, proto.SavedModel])
def test_no_flipped_bit_and_no_missing_end_is_read(
    tmp_path: Path, kind: type, as_text: bool
) -> None:
    path = tmp_path / "m"
    written(path, kind, as_text)
    whole = path.read_bytes()
    changed = [
        whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :]
        for i in range(len(whole))
        for bit in range(8)
    ]
    short = [whole[:size] for size in range(len(whole))]
    for data in [*changed, *short, whole + b"\n", whole + whole]:
        path.write_bytes(data)
        with pytest.raises(errors.DataLossError, match=r"is damaged|holds no|is empty"):
            read_message(str(path), kind, as_text)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_changed_message_says_both_checksums(tmp_path: Path, as_text: bool) -> None:
    path = tmp_path / "m"
    written(path, proto.MetaGraphDef, as_text)
    path.write_bytes(path.read_bytes().replace(b"NoOp", b"NoOq"))
    hint = "delete its first line" if as_text else "$"
    text = rf"checksum of its \d+ bytes must be [0-9a-f]{{8}}, .*got [0-9a-f]{{8}}.*{hint}"
    with pytest.raises(errors.DataLossError, match=text):
        read_message(str(path), proto.MetaGraphDef)


@pytest.mark.parametrize("kind", [proto.MetaGraphDef, proto.SavedModel])
def test_others_read_a_message_with_a_checksum_and_write_it_without(
    tmp_path: Path, kind: Any
) -> None:
    path = tmp_path / "m"
    message = written(path, kind, as_text=False)
    theirs = kind.FromString(path.read_bytes())
    assert theirs == message
    again = theirs.SerializeToString(deterministic=True)
    assert again == message.SerializeToString(deterministic=True)
    theirs.Clear()
    text_format.Parse(message_bytes(message, as_text=True).decode(), theirs)
    assert theirs == message
    path.write_bytes(again)
    assert read_message(str(path), kind) == message, "without a checksum, as older ones are"


def test_any_as_tensorflow_writes_it(tmp_path: Path) -> None:
    text = """meta_info_def { any_info {
      [type.googleapis.com/tensorflow.SaverDef] { max_to_keep: 3 } } }"""
    (tmp_path / "m").write_text(text)
    item = read_message(str(tmp_path / "m"), proto.MetaGraphDef).meta_info_def.any_info
    assert is_any(item) and not is_any(proto.SaverDef()) and not is_any(3)
    assert unpack(item, proto.SaverDef) == proto.SaverDef(max_to_keep=3)
    assert unpack(item, proto.AssetFileDef) is None
    assert pack(proto.SaverDef()).type_url == "type.googleapis.com/tensorflow.SaverDef"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff\xff", "as text: .*utf-8"),
        (b"graph_def { bogus: 1 }", 'no field named "bogus"'),
        (b"meta_info_def { any_info { [a.com/weft.Nothing] {} } }", "Nothing"),
        (b"graph_def {" * 5000, "as text"),
    ],
)
def test_what_is_no_message(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(errors.DataLossError, match=f"m is not a MetaGraphDef: .*{text}"):
        read_message(str(tmp_path / "m"), proto.MetaGraphDef)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"")
    with pytest.raises(errors.DataLossError, match="m is empty"):
        read_message(str(tmp_path / "m"), proto.MetaGraphDef)


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    for call in (
        lambda: read_message(str(tmp_path), proto.MetaGraphDef),
        lambda: latest_checkpoint(str(tmp_path)),
    ):
        with pytest.raises(errors.FailedPreconditionError, match="it is a directory"):
            call()


def test_what_is_no_item() -> None:
    item = pack(proto.SaverDef())
    item.value = b"\xff"
    with pytest.raises(errors.DataLossError, match="an Any does not contain a SaverDef"):
        unpack(item, proto.SaverDef)


def test_a_large_message_is_not_copied(tmp_path: Path) -> None:
    size = 16 * 2**20
    with wf.Graph().as_default() as graph:
        wf.constant(np.arange(size // 4, dtype=np.int32))
    message = wf.train.export_meta_graph(graph=graph)
    tracemalloc.start()
    try:
        write_message(str(tmp_path / "graph.meta"), message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < peak < 1.5 * size
    read = read_message(str(tmp_path / "graph.meta"), proto.MetaGraphDef)
    assert read.graph_def == message.graph_def
