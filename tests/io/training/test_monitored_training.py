"""The default training session: its hooks, and its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_graph import Graph
from weft_graph.variables.reference import Variable
from weft_io import summary
from weft_io.checkpoint.state import latest_checkpoint, load_variable
from weft_io.saving.meta_graph import import_meta_graph
from weft_io.summary.reading import summary_iterator
from weft_io.training import MonitoredTrainingSession, Scaffold, StopAtStepHook
from weft_io.training.session_creators import ChiefSessionCreator, WorkerSessionCreator
from weft_tensor import errors

ALL = ["StepCounterHook", "SummarySaverHook", "CheckpointSaverHook"]


def kinds(session: Any) -> list[str]:
    found = [type(hook).__name__ for hook in session._hooks]
    session.close()
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ALL),
        ({"save_checkpoint_secs": None}, ALL[:2]),
        ({"save_checkpoint_secs": 0}, ALL[:2]),
        ({"save_checkpoint_steps": 3}, ALL),
        ({"save_summaries_steps": None}, [ALL[0], ALL[2]]),
        ({"save_summaries_secs": 3}, ALL),
        ({"log_step_count_steps": None}, ALL[1:]),
        ({"log_step_count_steps": 0}, ALL[1:]),
    ],
)
def test_hooks(model: Any, tmp_path: Path, arguments: Any, expected: list[str]) -> None:
    assert kinds(MonitoredTrainingSession(checkpoint_dir=tmp_path, **arguments)) == expected


def test_hooks_without_checkpoints(model: Any, tmp_path: Path) -> None:
    assert kinds(MonitoredTrainingSession()) == []
    assert kinds(MonitoredTrainingSession(summary_dir=tmp_path)) == ALL[:2]


def test_the_order_of_hooks(
    model: Any, told: Callable[..., Any], story: list[str], tmp_path: Path
) -> None:
    hooks, chief = [told("own")], [told("chief")]
    session = MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks, chief_only_hooks=chief)
    assert session._hooks[0] is chief[0] and session._hooks[-1] is hooks[0]
    assert kinds(session) == ["Told", *ALL, "Told"] and len(hooks) == len(chief) == 1


def test_a_worker_has_its_own_hooks_only(
    monkeypatch: pytest.MonkeyPatch,
    model: Any,
    told: Callable[..., Any],
    story: list[str],
    tmp_path: Path,
) -> None:
    made: list[Any] = []

    def create(self: Any) -> Any:
        made.append(self)
        return ChiefSessionCreator(self._scaffold).create_session()

    monkeypatch.setattr(WorkerSessionCreator, "create_session", create)
    with MonitoredTrainingSession(
        is_chief=False,
        checkpoint_dir=tmp_path,
        hooks=[told("a")],
        chief_only_hooks=[told("b")],
        max_wait_secs=9,
    ) as session:
        session.run(model.train)
    assert made[0]._max_wait_secs == 9 and not list(tmp_path.iterdir())
    assert story == ["a.begin", "a.create", "a.before", "a.after", "a.end"]


def test_a_training_and_its_continuation(make_model: Any, tmp_path: Path) -> None:
    for begin, last in ((0, 5), (5, 8)):
        with Graph().as_default():
            model = make_model()
            summary.scalar("w_now", model.w)
            with MonitoredTrainingSession(
                checkpoint_dir=tmp_path,
                save_checkpoint_steps=3,
                save_summaries_steps=2,
                log_step_count_steps=2,
                summary_dir=tmp_path / f"from{begin}",
                hooks=[StopAtStepHook(last_step=last)],
            ) as session:
                assert session.run(model.step) == begin
                while not session.should_stop():
                    session.run(model.train)
        assert latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{last}")
        (events,) = (tmp_path / f"from{begin}").iterdir()
        found = [
            (event.step, value.tag)
            for event in summary_iterator(str(events))
            for value in event.summary.value
        ]
        assert {tag for _, tag in found} == {"w_now", "global_step/sec"}


@pytest.mark.parametrize("scheme", ["memory://training-hooks", "file://{}/there"])
def test_the_directory_may_be_a_url(
    monkeypatch: pytest.MonkeyPatch, make_model: Any, tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    directory = scheme.format(tmp_path)
    for last in (2, 4):
        with Graph().as_default():
            model = make_model()
            with MonitoredTrainingSession(
                checkpoint_dir=directory, hooks=[StopAtStepHook(num_steps=2)]
            ) as session:
                while not session.should_stop():
                    session.run(model.train)
        assert load_variable(directory, "w") == last
    assert not list(Path().iterdir())


def test_an_imported_graph_goes_on(make_model: Any, tmp_path: Path) -> None:
    with Graph().as_default():
        model = make_model()
        with MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
            session.run(model.train)
        name = model.train.name
    with Graph().as_default() as graph:
        import_meta_graph(str(tmp_path / "model.ckpt-1.meta"))
        train = graph.get_operation_by_name(name)
        with MonitoredTrainingSession(
            checkpoint_dir=tmp_path, hooks=[StopAtStepHook(num_steps=2)]
        ) as session:
            while not session.should_stop():
                session.run(train)
    assert load_variable(str(tmp_path), "w") == 3.0


def test_the_scaffold_is_used(model: Any, tmp_path: Path) -> None:
    calls: list[Any] = []
    scaffold = Scaffold(init_fn=lambda scaffold, session: calls.append(scaffold))
    MonitoredTrainingSession(checkpoint_dir=tmp_path, scaffold=scaffold).close()
    assert calls == [scaffold]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save_summaries_steps": 1, "save_summaries_secs": 1}, "exactly one of save_steps and"),
        ({"save_checkpoint_steps": 1, "save_checkpoint_secs": 1}, "exactly one of save_steps"),
        ({"save_summaries_steps": "x"}, "save_summaries_steps must be an integer"),
        ({"save_checkpoint_secs": "x"}, "save_checkpoint_secs must be a number"),
        ({"log_step_count_steps": 1.5}, "log_step_count_steps must be an integer"),
        ({"hooks": 3}, "hooks must be a list"),
        ({"scaffold": 3}, "scaffold must be a Scaffold"),
    ],
)
def test_arguments(model: Any, tmp_path: Path, arguments: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        MonitoredTrainingSession(checkpoint_dir=tmp_path, **arguments)
    assert not model.w.graph.finalized


def test_a_global_step_is_needed(graph: Graph, tmp_path: Path) -> None:
    Variable(1.0)
    with pytest.raises(RuntimeError, match="Global step should be created"):
        MonitoredTrainingSession(checkpoint_dir=tmp_path)
