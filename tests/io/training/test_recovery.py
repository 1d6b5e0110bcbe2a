"""Preempted sessions are created again and continue from the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_exec import Session
from weft_io.checkpoint.state import latest_checkpoint, load_variable
from weft_io.saving.saver import Saver
from weft_io.training import (
    CheckpointSaverHook,
    ChiefSessionCreator,
    MonitoredSession,
    MonitoredTrainingSession,
    Scaffold,
    SessionCreator,
    SessionRunHook,
    SingularMonitoredSession,
    StopAtStepHook,
)
from weft_tensor import errors

GONE = [errors.AbortedError("gone"), errors.UnavailableError("gone, too")]


def failing(place: str, *at: int) -> Callable[[str], None]:
    """Raises the preemption errors in turn, at these calls of a place."""
    calls, left = [0], list(GONE)

    def fail(where: str) -> None:
        if where == place:
            calls[0] += 1
            if calls[0] in at:
                raise left.pop(0)

    return fail


def test_a_step_is_repeated_until_it_works(
    model: Any, told: Callable[..., Any], story: list[str]
) -> None:
    with MonitoredSession(hooks=[told("a", fail=failing("before", 2, 3))]) as session:
        for _ in range(3):
            session.run(model.train)
        assert session.run(model.w) == 2.0  # the first step was lost: there is no checkpoint
    step = ["a.before", "a.after"]
    again = ["a.before", "a.create"]
    assert story == ["a.begin", "a.create", *step, *again, *again, *step * 3, "a.end"]


def test_a_session_that_cannot_be_made_at_first(
    model: Any, told: Callable[..., Any], story: list[str]
) -> None:
    with MonitoredSession(hooks=[told("a", fail=failing("create", 1, 2))]) as session:
        session.run(model.train)
    assert story == ["a.begin", *["a.create"] * 3, "a.before", "a.after", "a.end"]


def test_the_creator_may_be_preempted(model: Any) -> None:
    class Creator(SessionCreator):
        def __init__(self) -> None:
            self.made = 0
            self.chief = ChiefSessionCreator()

        def create_session(self) -> Any:
            self.made += 1
            if self.made < 3:
                raise GONE[self.made - 1]
            return self.chief.create_session()

    creator = Creator()
    with MonitoredSession(creator) as session:
        session.run(model.train)
    assert creator.made == 3


class CountingSaver(Saver):
    """Counts the restores."""

    restores = 0

    def restore(self, sess: Any, save_path: str) -> None:
        self.restores += 1
        super().restore(sess, save_path)


def test_it_goes_on_from_the_last_checkpoint_which_is_restored_once(
    model: Any, told: Callable[..., Any], tmp_path: Path
) -> None:
    saver = CountingSaver()
    hook = told("a", fail=failing("before", 6))
    with MonitoredTrainingSession(
        checkpoint_dir=tmp_path,
        save_checkpoint_steps=3,
        scaffold=Scaffold(saver=saver),
        hooks=[hook, StopAtStepHook(num_steps=7)],
    ) as session:
        steps = []
        while not session.should_stop():
            steps.append(int(session.run([model.step, model.train])[0]))
            assert saver.restores == (0 if len(steps) <= 5 else 1)
    assert steps == [1, 2, 3, 4, 5, 4, 5, 6, 7]
    prefix = latest_checkpoint(str(tmp_path))
    assert prefix == str(tmp_path / "model.ckpt-7")
    assert load_variable(prefix, "w") == 7.0 and load_variable(prefix, "global_step") == 7


def test_a_step_that_failed_after_it_ran_is_not_counted_twice(
    model: Any, told: Callable[..., Any], tmp_path: Path
) -> None:
    hook = told("a", fail=failing("after", 4))
    with MonitoredTrainingSession(
        checkpoint_dir=tmp_path,
        save_checkpoint_steps=1,
        hooks=[hook, StopAtStepHook(num_steps=6)],
    ) as session:
        while not session.should_stop():
            session.run(model.train)
    assert load_variable(str(tmp_path), "w") == 6.0


def test_step_functions_are_called_again_with_the_new_session(
    model: Any, told: Callable[..., Any]
) -> None:
    seen: list[Any] = []

    def step(step_context: Any) -> Any:
        seen.append(step_context.session)
        step_context.session.run(model.train)
        return step_context.run_with_hooks(model.w)

    with MonitoredSession(hooks=[told("a", fail=failing("before", 1, 2))]) as session:
        assert session.run_step_fn(step) == 1.0
        assert seen[-1] is session._tf_sess()
    assert len({id(each) for each in seen}) == 3
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        seen[0].run(model.w)


def test_the_singular_session_does_not_recover(
    model: Any, told: Callable[..., Any], story: list[str]
) -> None:
    with (
        pytest.raises(errors.AbortedError, match="gone"),
        SingularMonitoredSession(hooks=[told("a", fail=failing("before", 1))]) as session,
    ):
        session.run(model.train)
    assert story == ["a.begin", "a.create", "a.before"]


def test_other_errors_are_not_recovered_from(model: Any, told: Callable[..., Any]) -> None:
    class Bad(SessionRunHook):
        calls = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.calls += 1
            raise errors.InternalError("broken")

    hook = Bad()
    with (
        pytest.raises(errors.InternalError, match="broken"),
        MonitoredSession(hooks=[hook]) as session,
    ):
        session.run(model.train)
    assert hook.calls == 1


def test_a_hook_that_makes_a_checkpoint_at_the_end_does_so_after_a_recovery(
    model: Any, told: Callable[..., Any], tmp_path: Path
) -> None:
    scaffold = Scaffold()
    hooks = [
        CheckpointSaverHook(tmp_path, save_steps=100, scaffold=scaffold),
        told("a", fail=failing("before", 3, 5)),
    ]
    creator = ChiefSessionCreator(scaffold, checkpoint_dir=tmp_path)
    with MonitoredSession(creator, hooks) as session:
        for _ in range(4):
            session.run(model.train)
    with Session(graph=model.w.graph) as session:
        scaffold.saver.restore(session, latest_checkpoint(str(tmp_path)))
        assert session.run(model.step) == 1  # the second failure lost the third step, too
