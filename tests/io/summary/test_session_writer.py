"""Writers that several parts of a program share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft as wf
from weft_io import summary

Events = Callable[[Path], list[Any]]
Scalar = Callable[[str, float], summary.Summary]


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    summary.FileWriterCache.clear()
    yield
    summary.FileWriterCache.clear()


def test_one_writer_for_each_directory(tmp_path: Path, events: Events) -> None:
    with wf.Graph().as_default():
        wf.constant(1.0, name="here")
        writer = summary.FileWriterCache.get(tmp_path / "a")
        assert summary.FileWriterCache.get(str(tmp_path / "a")) is writer
        assert summary.FileWriterCache.get(tmp_path / "b") is not writer
    summary.FileWriterCache.clear()
    assert [e.WhichOneof("what") for e in events(tmp_path / "a")] == ["graph_def", "meta_graph_def"]
    assert b"here" in events(tmp_path / "a")[0].graph_def
    assert summary.FileWriterCache.get(tmp_path / "a") is not writer


def test_writers_of_a_session_share_a_file(tmp_path: Path, scalar: Scalar, events: Events) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        first = summary.FileWriter(tmp_path, session=session)
        second = summary.FileWriter(tmp_path, session=session)
        first.add_summary(scalar("a", 1.0), 1)
        first.close()
        assert [e.step for e in events(tmp_path)] == [1]
        second.add_summary(scalar("a", 2.0), 2)
        second.flush()
        assert [e.step for e in events(tmp_path)] == [1, 2]
        first.reopen()
        second.close()
        first.add_summary(scalar("a", 3.0), 3)
        assert first.get_logdir() == str(tmp_path)
        first.close()
        assert [e.step for e in events(tmp_path)] == [1, 2, 3]
        with pytest.warns(UserWarning, match="is closed"):
            first.add_summary(scalar("a", 4.0), 4)
        assert [e.step for e in events(tmp_path)] == [1, 2, 3]


def test_other_sessions_and_directories_have_files_of_their_own(tmp_path: Path) -> None:
    with wf.Graph().as_default(), wf.Session() as session, wf.Session() as other:
        for user, folder in ((session, "a"), (other, "a"), (session, "b")):
            summary.FileWriter(tmp_path / folder, session=user).close()
        # The last user closed it, so the next one begins anew.
        summary.FileWriter(tmp_path / "b", session=session).close()
    assert [len(list((tmp_path / folder).iterdir())) for folder in ("a", "b")] == [2, 2]
