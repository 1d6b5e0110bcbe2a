"""Checkpoints at steps and seconds, listeners, and the final checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_graph import Graph, proto
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.variables.reference import Variable
from weft_io.checkpoint.state import latest_checkpoint
from weft_io.saving.saver import Saver
from weft_io.summary import FileWriterCache
from weft_io.summary.reading import summary_iterator
from weft_io.training import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    ChiefSessionCreator,
    MonitoredSession,
    Scaffold,
)
from weft_tensor import errors


def saved(directory: Path) -> list[int]:
    """The steps of the checkpoints in a directory."""
    found = [re.fullmatch(r"model\.ckpt-(\d+)\.index", path.name) for path in directory.iterdir()]
    return sorted(int(match[1]) for match in found if match)


class Listener(CheckpointSaverListener):
    def __init__(self, story: list[str], stop_at: int = 10**9) -> None:
        self.story, self.stop_at = story, stop_at

    def begin(self) -> None:
        self.story.append("begin")

    def before_save(self, session: Any, global_step_value: int) -> None:
        self.story.append(f"before {global_step_value}")

    def after_save(self, session: Any, global_step_value: int) -> bool:
        assert session.run("global_step:0") == global_step_value
        self.story.append(f"after {global_step_value}")
        return global_step_value >= self.stop_at

    def end(self, session: Any, global_step_value: int) -> None:
        self.story.append(f"end {global_step_value}")


def test_steps_that_count_more_than_one(model: Any, tmp_path: Path) -> None:
    count = model.step.assign_add(3, read_value=False)
    hook = CheckpointSaverHook(tmp_path, save_steps=3, saver=Saver(max_to_keep=None))
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(4):
            session.run(count)
    assert saved(tmp_path) == [0, 3, 6, 9, 12]


def test_at_steps_and_at_the_end(model: Any, story: list[str], tmp_path: Path) -> None:
    scaffold = Scaffold()
    hook = CheckpointSaverHook(
        tmp_path, save_steps=3, scaffold=scaffold, listeners=[Listener(story)]
    )
    with MonitoredSession(ChiefSessionCreator(scaffold), [hook]) as session:
        for _ in range(7):
            session.run(model.train)
    assert saved(tmp_path) == [0, 3, 6, 7]
    around = [f"{when} {step}" for step in (0, 3, 6, 7) for when in ("before", "after")]
    assert story == ["begin", *around, "end 7"]


def test_the_last_step_is_saved_once(model: Any, story: list[str], tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_steps=3, saver=Saver(), listeners=[Listener(story)])
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(model.train)
    assert story[-3:] == ["before 3", "after 3", "end 3"] and story.count("after 3") == 1


def test_at_seconds(model: Any, clock: Any, tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_secs=10, saver=Saver(max_to_keep=None))
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(9):
            clock.now += 4
            session.run(model.train)
    assert saved(tmp_path) == [0, 3, 6, 9]


def test_nothing_new_after_an_error(model: Any, tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_steps=2, saver=Saver())
    with pytest.raises(KeyError), MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(model.train)
        raise KeyError
    assert saved(tmp_path) == [0, 2]


def test_a_listener_asks_for_the_end(model: Any, story: list[str], tmp_path: Path) -> None:
    listeners = [Listener(story, stop_at=4), Listener([])]
    hook = CheckpointSaverHook(tmp_path, save_steps=2, saver=Saver(), listeners=listeners)
    with MonitoredSession(hooks=[hook]) as session:
        count = 0
        while not session.should_stop():
            session.run(model.train)
            count += 1
    assert count == 4 and story[-1] == "end 4"


@pytest.mark.parametrize("with_graph", [True, False])
def test_the_files_beside(model: Any, tmp_path: Path, with_graph: bool) -> None:
    hook = CheckpointSaverHook(
        tmp_path,
        save_steps=5,
        saver=Saver(),
        checkpoint_basename="m",
        save_graph_def=with_graph,
    )
    with MonitoredSession(hooks=[hook]) as session:
        session.run(model.train)
    names = {path.name for path in tmp_path.iterdir()}
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "m-1")
    assert {"graph.pbtxt" in names, "m-0.meta" in names, "m-1.meta" in names} == {with_graph}
    (events,) = tmp_path.glob("events*")
    found = [
        (event.WhichOneof("what"), event.step, event.session_log)
        for event in summary_iterator(str(events))
    ]
    assert [(what, step) for what, step, _ in found] == [
        ("file_version", 0), ("graph_def", 0), ("meta_graph_def", 0),
        ("graph_def", 0), ("meta_graph_def", 0), ("session_log", 0), ("session_log", 1),
    ]  # fmt: skip
    assert found[-1][2] == proto.SessionLog(
        status=proto.SessionLog.CHECKPOINT, checkpoint_path=str(tmp_path / "m")
    )


def test_what_is_told_is_on_the_disk_at_the_end(
    monkeypatch: pytest.MonkeyPatch, model: Any, story: list[str], tmp_path: Path
) -> None:
    writer = FileWriterCache.get(tmp_path)
    monkeypatch.setattr(writer, "flush", lambda: story.append("flush"))
    hook = CheckpointSaverHook(tmp_path, save_steps=1, saver=Saver(), listeners=[Listener(story)])
    with MonitoredSession(hooks=[hook]) as session:
        session.run(model.train)
        assert "flush" not in story
    assert story[-2:] == ["end 1", "flush"]


def test_an_asynchronous_saver_is_waited_for_at_the_end(model: Any, tmp_path: Path) -> None:
    saver = Saver(asynchronous=True)
    hook = CheckpointSaverHook(tmp_path, save_steps=2, saver=saver)
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(model.train)
    assert saver._job is None and saved(tmp_path) == [0, 2, 3]


def test_the_saver_of_the_collection(model: Any, tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_steps=1)
    with MonitoredSession(hooks=[hook]) as session:  # whose scaffold puts one there
        session.run(model.train)
    assert saved(tmp_path) == [0, 1]


@pytest.mark.parametrize(("count", "message"), [(0, "No items in"), (2, "More than one item in")])
def test_no_saver_or_too_many(model: Any, tmp_path: Path, count: int, message: str) -> None:
    for _ in range(count):
        model.w.graph.add_to_collection(GraphKeys.SAVERS, Saver())
    if not count:
        Variable(0.0, name="other")
    scaffold = Scaffold(saver=Saver())
    hook = CheckpointSaverHook(tmp_path, save_steps=1)
    with pytest.raises(RuntimeError, match=message):
        MonitoredSession(ChiefSessionCreator(scaffold), [hook])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of save_steps and save_secs"),
        ({"save_steps": 1, "save_secs": 1}, "exactly one of save_steps and save_secs"),
        ({"save_steps": 0}, "save_steps must be at least 1"),
        ({"save_secs": "x"}, "save_secs must be a number"),
        ({"save_steps": 1, "saver": 1, "scaffold": 2}, "both saver and scaffold"),
        ({"save_steps": 1, "listeners": 3}, "listeners must be a list"),
        ({"save_steps": 1, "checkpoint_basename": 3}, "checkpoint_basename must be text"),
    ],
)
def test_arguments(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        CheckpointSaverHook(tmp_path, **arguments)


def test_a_global_step_is_needed(graph: Graph, tmp_path: Path, told: Callable[..., Any]) -> None:
    Variable(1.0)
    with pytest.raises(RuntimeError, match="should be created to use CheckpointSaverHook"):
        MonitoredSession(hooks=[CheckpointSaverHook(tmp_path, save_steps=1)])
