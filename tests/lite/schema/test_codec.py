"""Files: round trips, and the same schema in other languages."""

from __future__ import annotations

import runpy
import struct
import zlib
from typing import Any

import pytest
from weft_testing.workspace import ROOT

from weft_lite.schema import codec, tables as t
from weft_lite.schema.fields import fields_of, slots_of

PACKAGE = ROOT / "packages" / "lite"
generate: dict[str, Any] = runpy.run_path(str(PACKAGE / "scripts" / "generate_schema.py"))


def small() -> t.Model:
    tensors = [
        t.Tensor("a", 1, shape=[1, -1], bound=[1, 9], quantization=t.Quantization([0.5], [-3])),
        t.Tensor("", 9, 1, offset=1 << 40, size=8),
    ]
    ops = [t.Op(11, [0, -1], [1], t.PoolOptions(1, 2, pads=[1, 2, 3, 4]), "node"), t.Op(190)]
    signatures = [t.Signature("serve", [t.Binding("x", 0)], [t.Binding("y", 1)])]
    subgraphs = [t.Subgraph(0, 2, [0], [1])]
    return t.Model(1, 1, "", tensors, ops, subgraphs, signatures, 1, 2, [t.Metadata("k", b"\0v")])


def test_what_is_written_is_read() -> None:
    assert codec.decode(codec.encode(small(), b"w" * 100)) == (small(), b"w" * 100)


def test_sections_are_aligned_and_have_checksums() -> None:
    data = codec.encode(small(), b"weights")
    magic, layout, size, length, start, count, metadata, weights = codec.HEADER.unpack_from(data)
    assert (magic, layout, size, count) == (b"weftlite", 1, 64, 7)
    assert start % codec.ALIGNMENT == 0
    assert start + count == len(data)
    assert data[size + 4 : size + 8] == codec.IDENTIFIER
    assert metadata == zlib.crc32(data[size : size + length])
    assert weights == zlib.crc32(b"weights")
    assert struct.unpack_from("<I", data, 60)[0] == zlib.crc32(data[:60])


def test_a_union_takes_two_slots() -> None:
    assert [slot for slot, _ in slots_of(t.Op)] == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("table", [*t.TABLES, t.Model], ids=lambda table: table.__name__)
def test_what_is_not_said_is_zero(table: type) -> None:
    made = table()
    values = {f.name: getattr(made, f.name) for f in fields_of(table) if f.name[-7:] != "version"}
    assert not any(value for key, value in values.items() if key != "min_reader")


def test_the_generated_files_are_up_to_date() -> None:
    folder = PACKAGE / "src" / "weft_lite"
    assert (folder / "schema" / "lite.fbs").read_text() == generate["fbs"]()
    assert (folder / "runtime" / "schema.h").read_text() == generate["header"]()
