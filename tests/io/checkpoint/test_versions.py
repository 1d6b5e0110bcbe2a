"""Checkpoints that earlier versions wrote are still read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft_io.checkpoint import checksums
from weft_io.checkpoint.index import Index
from weft_io.checkpoint.reader import CheckpointReader
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_tensor import dtypes

GOLDEN = Path(__file__).parent / "golden"


def test_version_1() -> None:
    """With CRC-32 of each tensor."""
    reader = CheckpointReader(str(GOLDEN / "version-1"))
    reader.verify()
    assert b'"version":1,' in (GOLDEN / "version-1.index").read_bytes()
    assert reader.get_tensor("floats").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert reader.get_tensor("words").tolist() == [b"one", b""]
    assert reader.get_tensor("complex").tolist() == [1 + 2j]
    assert reader.get_tensor("step") == 7
    assert reader.get_tensor("parts").tolist() == list(range(6))


def test_what_is_written_now(tmp_path: Path) -> None:
    write_checkpoint(str(tmp_path / "m"), [Item("a", dtypes.int32, np.int32(4))])
    index = Index.from_bytes((tmp_path / "m.index").read_bytes(), "m.index")
    found = [index.shards[0].checksum, index.tensors["a"].parts[0].checksum]
    assert all(text.startswith("xxh3:") for text in found)
    assert b'"version":2,' in (tmp_path / "m.index").read_bytes()


def test_known_checksums() -> None:
    """The published values of both kinds."""
    assert checksums.checksum(b"123456789", "crc32") == "crc32:cbf43926"
    assert checksums.checksum(b"", "xxh3") == "xxh3:2d06800538d394c2"
    made = checksums.digest()
    for chunk in (b"123", b"", b"456789"):
        made.update(chunk)
    assert made.text() == checksums.checksum(b"123456789")
    wrong = ("crc32:1", "xxh3:cbf43926", "md5:cbf43926", "", "XXH3:2d06800538d394c2")
    assert not any(map(checksums.is_checksum, wrong))
