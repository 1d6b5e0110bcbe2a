"""read_file, write_file and matching_files in sessions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from weft_exec.session.session import Session
from weft_graph.ir.graph import Graph
from weft_graph.ops.array import placeholder
from weft_io.files import gfile
from weft_io.ops.files import matching_files, read_file, write_file
from weft_tensor import dtypes, errors


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


@pytest.mark.parametrize("where", ["local", "memory"])
def test_written_files_are_read(session: Any, tmp_path: Path, where: str) -> None:
    base = str(tmp_path) if where == "local" else "memory://files"
    path, content = f"{base}/new/folder/a", bytes(range(256)) * 2000
    session.run(write_file(path, content))
    assert session.run(read_file(path)) == content
    session.run(write_file(path, b"shorter"))
    assert session.run(read_file(path)) == b"shorter"
    assert gfile.listdir(f"{base}/new/folder") == ["a"]


def test_a_file_is_read_anew_in_every_step(session: Any, tmp_path: Path) -> None:
    first, second = read_file(str(tmp_path / "a")), read_file(str(tmp_path / "a"))
    for content in (b"1", b"2"):
        (tmp_path / "a").write_bytes(content)
        assert session.run([first, second]) == [content, content]


def test_names_relative_and_not_utf8(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = placeholder(dtypes.string, [])
    write, read = write_file(name, b"x"), read_file(name)
    for path in (b"plain", b"\xff\xfe"):
        session.run(write, {name: path})
        assert session.run(read, {name: path}) == b"x"
    assert sorted(session.run(matching_files("*"))) == [b"plain", b"\xff\xfe"]


def test_matching(session: Any, tmp_path: Path) -> None:
    for name in ("b", "a", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    found = matching_files([f"{tmp_path}/?", f"{tmp_path}/a", f"{tmp_path}/none*"])
    assert found.dims == (None,)
    assert session.run(found).tolist() == [os.fsencode(tmp_path / name) for name in "ab"]
    assert session.run(matching_files(f"{tmp_path}/none")).shape == (0,)


def test_errors_name_the_file(session: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=f"{tmp_path}/none") as caught:
        session.run(read_file(f"{tmp_path}/none"))
    assert caught.value.op_type == "ReadFile"
    with pytest.raises(errors.FailedPreconditionError):
        session.run(read_file(str(tmp_path)))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.FailedPreconditionError):
        session.run(write_file(f"{tmp_path}/file/below", b""))


@pytest.mark.parametrize(
    "make",
    [
        lambda: read_file(["a"]),
        lambda: write_file(["a"], b""),
        lambda: write_file("a", [b""]),
        lambda: matching_files([["a"]]),
    ],
)
def test_shapes_are_checked_at_construction(session: Any, make: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="rank"):
        make()
