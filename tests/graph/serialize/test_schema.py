"""`graph.fbs` and the Python access to it say the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import weft_graph
from weft_graph.schema import columns
from weft_graph.serialize.layout import Kind

SCHEMA = Path(weft_graph.__file__).parent / "schema" / "graph.fbs"
TYPES = {
    "ubyte": "u1",
    "int": "<i4",
    "uint": "<u4",
    "long": "<i8",
    "ulong": "<u8",
}


def test_fields() -> None:
    text = SCHEMA.read_text()
    body = text[text.index("table Graph {") : text.rindex("}")]
    fields = re.findall(r"^  (\w+):(\[?)(\w+)\]?;", body, re.MULTILINE)
    declared = [(name, bool(bracket), TYPES[kind]) for name, bracket, kind in fields]
    ours = [(name, name in columns.VECTORS, kind) for name, kind in columns.FIELDS.items()]
    assert declared == ours
    assert f'file_identifier "{columns.IDENTIFIER.decode()}"' in text


def test_kinds_are_described() -> None:
    text = SCHEMA.read_text()
    for kind in Kind:
        assert re.search(rf"^  //.* {kind.value}+ \w", text, re.MULTILINE)


def test_fields_round_trip() -> None:
    values = {
        name: np.arange(i + 1).astype(kind)
        for i, (name, kind) in enumerate(columns.VECTORS.items())
    }
    scalars = {"version": 7, "min_reader": 0, "first_node": 2**40}
    data = columns.build({**scalars, **values})
    assert bytes(data[4:8]) == b"WFTG"
    read = columns.Columns(np.frombuffer(data, np.uint8), 0)
    assert read.scalars == scalars
    for name, array in values.items():
        np.testing.assert_array_equal(read[name], array)


def test_the_flatbuffers_library_reads_it() -> None:
    table = pytest.importorskip("flatbuffers.table")
    data = columns.build({"version": 3, "min_reader": 1, "first_node": 0, "node_op": [4, 5]})
    root = int.from_bytes(data[:4], "little")
    view = table.Table(data, root)
    slot = 4 + 2 * list(columns.FIELDS).index("node_op")
    start = view.Vector(view.Offset(slot))
    assert view.VectorLen(view.Offset(slot)) == 2
    assert list(data[start : start + 8]) == [4, 0, 0, 0, 5, 0, 0, 0]


def test_a_reader_of_today_ignores_fields_of_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    later = {**columns.VECTORS, "something_new": "<u4"}
    with monkeypatch.context() as patch:
        patch.setattr(columns, "VECTORS", later)
        patch.setattr(columns, "FIELDS", {**columns.SCALARS, **later})
        data = columns.build(
            {"version": 9, "min_reader": 1, "first_node": 0, "node_op": [1], "something_new": [2]}
        )
    read = columns.Columns(np.frombuffer(data, np.uint8), 0)
    assert read["node_op"].tolist() == [1]
