"""Messages in files, and inside `Any`s."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft_graph import proto
from weft_io.checkpoint.state import latest_checkpoint
from weft_io.files.message_files import is_any, pack, read_message, unpack, write_message
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
    with pytest.raises(errors.DataLossError, match=f"m holds no MetaGraphDef: .*{text}"):
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
    with pytest.raises(errors.DataLossError, match="an Any holds no SaverDef"):
        unpack(item, proto.SaverDef)
