"""The file `checkpoint`: TensorFlow's text, checked, relative or absolute, moved and damaged."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft_io.checkpoint import state
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_tensor import dtypes, errors


def save(directory: Path, *names: str) -> list[str]:
    for name in names:
        write_checkpoint(str(directory / name), [Item("a", dtypes.int32, np.int32(1))])
    return [str(directory / name) for name in names]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    paths = save(tmp_path, "m-1", "m-2")
    state.update_checkpoint_state(str(tmp_path), paths[1], paths, None, [1.5, 2.5], 0.5)
    found = state.get_checkpoint_state(str(tmp_path))
    assert found is not None
    assert found.model_checkpoint_path == paths[1]
    assert list(found.all_model_checkpoint_paths) == paths
    assert list(found.all_model_checkpoint_timestamps) == [1.5, 2.5]
    assert found.last_preserved_timestamp == 0.5
    assert [path.name for path in tmp_path.iterdir() if "check" in path.name] == ["checkpoint"]


def test_the_latest_is_added_to_the_list(tmp_path: Path) -> None:
    state.update_checkpoint_state(str(tmp_path), "/x/m-2", ["/x/m-1"])
    found = state.get_checkpoint_state(str(tmp_path))
    assert found is not None and list(found.all_model_checkpoint_paths) == ["/x/m-1", "/x/m-2"]


def test_a_file_of_tensorflow(tmp_path: Path) -> None:
    (prefix,) = save(tmp_path, "m-1")
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "m-1"\nall_model_checkpoint_paths: "m-1"\n'
        "all_model_checkpoint_timestamps: 1571845232.2\n"
    )
    assert state.latest_checkpoint(str(tmp_path)) == prefix


def test_relative_directories_give_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("runs"), "m-1")
    state.update_checkpoint_state("runs", "runs/m-1", ["runs/m-1"])
    assert 'model_checkpoint_path: "m-1"' in (tmp_path / "runs" / "checkpoint").read_text()
    assert state.latest_checkpoint("runs") == "runs/m-1"
    assert state.latest_checkpoint(str(tmp_path / "runs")) == str(tmp_path / "runs" / "m-1")


def test_relative_paths_on_request(tmp_path: Path) -> None:
    paths = save(tmp_path, "m-1", "m-2")
    state.update_checkpoint_state(str(tmp_path), paths[1], paths, save_relative_paths=True)
    assert str(tmp_path) not in (tmp_path / "checkpoint").read_text()
    assert state.latest_checkpoint(str(tmp_path)) == paths[1]


@pytest.mark.parametrize("relative", [True, False])
def test_a_directory_that_was_moved(tmp_path: Path, relative: bool) -> None:
    (path,) = save(tmp_path / "a", "m-1")
    state.update_checkpoint_state(str(tmp_path / "a"), path, save_relative_paths=relative)
    os.rename(tmp_path / "a", tmp_path / "b")
    assert state.latest_checkpoint(str(tmp_path / "b")) == str(tmp_path / "b" / "m-1")


def test_the_one_before_when_the_latest_was_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = save(tmp_path, "m-1", "m-2")
    state.update_checkpoint_state(str(tmp_path), paths[1], paths)
    state.remove_checkpoint(paths[1])
    with caplog.at_level(logging.WARNING, "weft"):
        assert state.latest_checkpoint(str(tmp_path)) == paths[0]
    assert "m-2 does not exist" in caplog.text
    state.remove_checkpoint(paths[0])
    assert state.latest_checkpoint(str(tmp_path)) is None


def test_no_state(tmp_path: Path) -> None:
    assert state.get_checkpoint_state(str(tmp_path)) is None
    assert state.latest_checkpoint(str(tmp_path)) is None
    assert state.latest_checkpoint(str(tmp_path / "nowhere")) is None
    with pytest.raises(errors.NotFoundError, match="no checkpoint"):
        state.load_checkpoint(str(tmp_path))


def test_another_name(tmp_path: Path) -> None:
    (path,) = save(tmp_path, "m-1")
    state.update_checkpoint_state(str(tmp_path), path, latest_filename="best")
    assert state.latest_checkpoint(str(tmp_path)) is None
    assert state.latest_checkpoint(str(tmp_path), "best") == path
    with pytest.raises(errors.InvalidArgumentError, match="latest_filename"):
        state.latest_checkpoint(str(tmp_path), "a/best")


@pytest.mark.parametrize(
    "data",
    [b"model", b"", b"\xff\xfe", b'all_model_checkpoint_paths: "a"', b"# crc32:00000000 of\nx: 1"],
)
def test_damage(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(data)
    with pytest.raises(errors.DataLossError, match="checkpoint is damaged"):
        state.latest_checkpoint(str(tmp_path))


def test_an_edit_by_hand(tmp_path: Path) -> None:
    paths = save(tmp_path, "m-1", "m-2")
    state.update_checkpoint_state(str(tmp_path), paths[1], paths)
    file = tmp_path / "checkpoint"
    edited = file.read_text().replace('path: "' + paths[1], 'path: "' + paths[0])
    file.write_text(edited)
    with pytest.raises(errors.DataLossError, match="delete its first line"):
        state.latest_checkpoint(str(tmp_path))
    file.write_text(edited.split("\n", 1)[1])
    assert state.latest_checkpoint(str(tmp_path)) == paths[0]


def test_times(tmp_path: Path) -> None:
    paths = save(tmp_path, "m-1", "m-2")
    os.utime(paths[1] + ".index", (5, 1000))
    assert state.get_checkpoint_mtimes([*paths, str(tmp_path / "m-3")])[1:] == [1000]


def test_looking_into_one(tmp_path: Path) -> None:
    items = [
        Item("b", dtypes.float32, np.ones((2, 3), np.float32)),
        Item("a", dtypes.string, np.array(b"text", object)),
    ]
    write_checkpoint(str(tmp_path / "m"), items)
    state.update_checkpoint_state(str(tmp_path), str(tmp_path / "m"))
    for place in (str(tmp_path), str(tmp_path / "m")):
        assert state.list_variables(place) == [("a", []), ("b", [2, 3])]
        assert state.load_variable(place, "a") == b"text"
        assert state.load_variable(place, "b:0").sum() == 6
        with pytest.raises(errors.NotFoundError, match="lacks"):
            state.load_variable(place, "c")
        assert state.load_checkpoint(place).debug_string() == b"a (string) []\nb (float32) [2, 3]"
    with pytest.raises(ValueError, match="one timestamp per checkpoint"):
        state.update_checkpoint_state(str(tmp_path), "m", ["m"], None, [1.0, 2.0])


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda path: state.latest_checkpoint(path, 3), "latest_filename must be text, got 3"),
        (lambda path: state.get_checkpoint_state(path, b"a"), "must be text, got b'a'"),
        (lambda path: state.load_variable(path, 3), "name of a variable must be text, got 3"),
    ],
)
def test_wrong_arguments(tmp_path: Path, call: Any, what: str) -> None:
    with pytest.raises(errors.InvalidTypeError, match=what):
        call(str(tmp_path))
    with pytest.raises(errors.InvalidArgumentError, match="latest_filename"):
        state.latest_checkpoint(str(tmp_path), "")
