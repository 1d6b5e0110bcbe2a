"""Untrusted index files: any content gives a named error and no more memory than the files."""

from __future__ import annotations

import copy
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft_io.checkpoint.checksums import checksum
from weft_io.checkpoint.index import Index
from weft_io.checkpoint.reader import CheckpointReader, TensorRequest, read_index, read_tensors
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_tensor import dtypes, errors


def save(prefix: Path) -> None:
    write_checkpoint(
        str(prefix),
        [
            Item("a", dtypes.float32, np.arange(12, dtype=np.float32).reshape(3, 4)),
            Item("s", dtypes.string, np.array([b"x", b"yz"], object)),
            Item("p", dtypes.int64, np.arange(4), "8 0,4"),
            Item("p", dtypes.int64, np.arange(4, 8), "8 4,4", 1),
        ],
    )


def body_of(data: bytes) -> dict[str, Any]:
    return json.loads(data.split(b"\n")[1])


def envelope(body: bytes, version: int = 2) -> bytes:
    crc = zlib.crc32(b"%d\n" % version + body)
    return b'{"format":"weft-checkpoint","version":%d,"checksum":"crc32:%08x","index":\n%s\n}\n' % (
        version,
        crc,
        body,
    )


def test_it_survives_the_round_trip(tmp_path: Path) -> None:
    save(tmp_path / "m")
    data = (tmp_path / "m.index").read_bytes()
    assert Index.from_bytes(data, "x").to_bytes() == data
    assert json.loads(data)["index"] == body_of(data), "the whole file is JSON"


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    save(tmp_path / "m")
    path = tmp_path / "m.index"
    body = body_of(path.read_bytes())
    body["later"] = body["shards"][0]["later"] = body["tensors"]["a"]["later"] = [1]
    path.write_bytes(envelope(json.dumps(body).encode()))
    CheckpointReader(str(tmp_path / "m")).verify()


def test_a_later_version_says_so(tmp_path: Path) -> None:
    (tmp_path / "m.index").write_bytes(envelope(b"{}", 3))
    with pytest.raises(errors.UnimplementedError, match="version 3"):
        read_index(str(tmp_path / "m"))


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"\x00" * 1000, envelope(b""), envelope(b"[" * 100_000), envelope(b"[]"),
     envelope(b'{"save":1}'), envelope(b"1" * 10_000), envelope(b"\xff")],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_index(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.index").write_bytes(data)
    with pytest.raises(errors.DataLossError, match=r"m\.index"):
        read_index(str(tmp_path / "m"))


Change = Callable[[dict[str, Any]], Any]


def tensor(body: dict[str, Any], name: str, **fields: Any) -> None:
    body["tensors"][name].update(fields)


def part(body: dict[str, Any], name: str, **fields: Any) -> None:
    body["tensors"][name]["parts"][0].update(fields)


HOSTILE: dict[str, Change] = {
    "huge shape": lambda b: tensor(b, "a", shape=[2**40, 2**20]),
    "overflowing shape": lambda b: tensor(b, "a", shape=[2**62, 4, 2**62]),
    "many axes": lambda b: tensor(b, "a", shape=[1] * 100),
    "negative size": lambda b: tensor(b, "a", shape=[-3, -4]),
    "float size": lambda b: tensor(b, "a", shape=[3.0, 4]),
    "bool size": lambda b: tensor(b, "a", shape=[True, 12]),
    "null shape": lambda b: tensor(b, "a", shape=None),
    "another shape": lambda b: tensor(b, "a", shape=[3, 5]),
    "wider dtype": lambda b: tensor(b, "a", dtype="float64"),
    "unknown dtype": lambda b: tensor(b, "a", dtype="float33"),
    "handle dtype": lambda b: tensor(b, "a", dtype="resource"),
    "reference dtype": lambda b: tensor(b, "a", dtype="float32_ref"),
    "many strings": lambda b: tensor(b, "s", shape=[2**40]),
    "no parts": lambda b: tensor(b, "a", parts=[]),
    "parts that leave a gap": lambda b: tensor(b, "p", shape=[9]),
    "parts that overlap": lambda b: part(b, "p", start=[4]),
    "a part that is outside the tensor": lambda b: part(b, "p", start=[2**62]),
    "another rank": lambda b: part(b, "p", start=[0, 0]),
    "a shard that is not there": lambda b: part(b, "a", shard=7),
    "a negative shard": lambda b: part(b, "a", shard=-1),
    "bytes past the end": lambda b: part(b, "a", begin=2**40, end=2**40 + 48),
    "bytes in the header": lambda b: part(b, "a", begin=0, end=48),
    "bytes backwards": lambda b: part(b, "a", begin=400, end=300),
    "no checksum": lambda b: part(b, "a", checksum="123"),
    "a short checksum": lambda b: part(b, "a", checksum="xxh3:123"),
    "an unknown checksum": lambda b: part(b, "a", checksum="sha1:0123456789abcdef"),
    "a checksum of another type": lambda b: part(b, "a", checksum=3),
    "shared bytes": lambda b: b["tensors"].update(z=copy.deepcopy(b["tensors"]["a"])),
    "a path": lambda b: b["shards"][0].update(suffix="/../../etc/passwd"),
    "an absolute path": lambda b: b["shards"][0].update(suffix="/etc/passwd"),
    "a huge header": lambda b: b["shards"][0].update(header=2**50),
    "a huge file": lambda b: b["shards"][0].update(size=2**62, header=2**61),
    "no shards": lambda b: b.update(shards=[]),
    "shards of another kind": lambda b: b.update(shards={}),
    "no tensors": lambda b: b.pop("tensors"),
    "tensors of another kind": lambda b: b.update(tensors=[]),
    "a tensor of another kind": lambda b: b["tensors"].update(a=3),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_valid_checksum_over_nonsense(tmp_path: Path, change: Change) -> None:
    save(tmp_path / "m")
    path = tmp_path / "m.index"
    body = body_of(path.read_bytes())
    change(body)
    path.write_bytes(envelope(json.dumps(body).encode()))
    tracemalloc.start()
    try:
        with pytest.raises(errors.DataLossError):
            read_tensors(
                str(tmp_path / "m"), [TensorRequest("a"), TensorRequest("s"), TensorRequest("p")]
            )
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_strings_that_do_not_fit_their_bytes(tmp_path: Path) -> None:
    save(tmp_path / "m")
    path = tmp_path / "m.index"
    body = body_of(path.read_bytes())
    entry = body["tensors"]["s"]["parts"][0]
    shard = tmp_path / ("m" + body["shards"][entry["shard"]]["suffix"])
    data = bytearray(shard.read_bytes())
    for ends in ([5, 3], [0, 2], [2**63, 3], [1, 2**64 - 1]):
        blob = b"".join(end.to_bytes(8, "little") for end in ends) + b"xyz"
        data[entry["begin"] : entry["end"]] = blob
        shard.write_bytes(data)
        entry["checksum"] = checksum(blob)
        path.write_bytes(envelope(json.dumps(body).encode()))
        with pytest.raises(errors.DataLossError, match=r"'s'.*strings"):
            read_tensors(str(tmp_path / "m"), [TensorRequest("s")])
