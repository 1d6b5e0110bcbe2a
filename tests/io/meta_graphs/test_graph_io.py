"""Graphs written to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

import weft as wf


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("as_message", [True, False])
def test_a_graph_in_a_file(tmp_path: Path, as_text: bool, as_message: bool) -> None:
    with wf.Graph().as_default() as graph:
        wf.constant([1.0, 2.0], name="a")
    written = graph.as_graph_def() if as_message else graph
    path = wf.train.write_graph(written, str(tmp_path / "new"), "graph.pb", as_text)
    assert path == str(tmp_path / "new" / "graph.pb")
    message: Any = wf.GraphDef()
    data = Path(path).read_bytes()
    if as_text:
        text_format.Parse(data.decode(), message)
    else:
        message.ParseFromString(data)
    assert message == graph.as_graph_def()
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["graph.pb"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(wf.errors.OpError, match="writing"):
        wf.io.write_graph(wf.Graph(), str(tmp_path / "file" / "folder"), "graph.pb")
