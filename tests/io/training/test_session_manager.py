"""Sessions that are initialized, restored, or made ready by others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_exec import Session
from weft_graph import Graph
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ops.array import placeholder
from weft_graph.ops.control import no_op
from weft_graph.variables.reference import (
    Variable,
    assert_variables_initialized,
    global_variables_initializer,
    report_uninitialized_variables,
)
from weft_io.saving.saver import Saver
from weft_io.training import (
    ChiefSessionCreator,
    MonitoredSession,
    Scaffold,
    SessionCreator,
    SessionManager,
    WorkerSessionCreator,
)
from weft_tensor import dtypes, errors


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sessions that the manager opens."""
    found: list[Any] = []

    def make(*args: Any, **kwargs: Any) -> Session:
        found.append(Session(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr("weft_io.training.session_manager.Session", make)
    return found


def is_open(session: Any) -> bool:
    try:
        session.list_devices()
    except errors.FailedPreconditionError:
        return False
    return True


def test_initialized_by_a_node_and_a_function(model: Any) -> None:
    start = placeholder(dtypes.float32, [])
    other = Variable(start, name="other")
    manager = SessionManager(ready_op=report_uninitialized_variables())
    with manager.prepare_session(
        "",
        init_op=global_variables_initializer(),
        init_feed_dict={start: 4.0},
        init_fn=lambda session: model.w.load(7.0, session),
    ) as session:
        assert session.run([model.w, other]) == [7.0, 4.0]


def checkpoint(model: Any, directory: Path, saver: Any) -> str:
    with Session() as session:
        session.run(model.w.initializer)
        session.run(model.step.initializer)
        model.w.load(3.0, session)
        path: str = saver.save(session, str(directory / "m"))
    return path


@pytest.mark.parametrize("by_path", [False, True])
def test_restored_instead(model: Any, tmp_path: Path, by_path: bool) -> None:
    saver = Saver()
    local = Variable(2.0, collections=["local_variables"], name="local")
    init = global_variables_initializer()
    manager = SessionManager(
        local_init_op=local.initializer, ready_op=report_uninitialized_variables()
    )
    path = checkpoint(model, tmp_path, saver)
    where: dict[str, Any] = (
        {"checkpoint_filename_with_path": path} if by_path else {"checkpoint_dir": tmp_path}
    )
    saver.set_last_checkpoints([])
    called: list[Any] = []
    with manager.prepare_session("", init, saver, init_fn=called.append, **where) as session:
        assert session.run([model.w, local]) == [3.0, 2.0] and not called
    assert saver.last_checkpoints == ([] if by_path else [path])
    session, restored = manager.recover_session("", saver, **where)
    with session:
        assert restored and session.run(model.w) == 3.0


def test_nothing_to_recover(model: Any, tmp_path: Path) -> None:
    local = Variable(2.0, name="local", collections=[GraphKeys.LOCAL_VARIABLES])
    manager = SessionManager(local.initializer, report_uninitialized_variables())
    for saver, directory in ((Saver(), tmp_path), (None, tmp_path), (Saver(), None), (None, None)):
        session, restored = manager.recover_session("", saver, directory)
        with session:
            assert session.run(local) == 2.0  # what is not in checkpoints is there in any case
            assert not restored and set(session.run(report_uninitialized_variables())) == {
                b"w", b"global_step"
            }  # fmt: skip


def test_a_checkpoint_that_does_not_suffice(
    model: Any, tmp_path: Path, logged: Callable[[], list[str]]
) -> None:
    saver = Saver()
    checkpoint(model, tmp_path, saver)
    Variable(1.0, name="new")
    missing = report_uninitialized_variables()
    session, restored = SessionManager(ready_op=missing).recover_session("", saver, tmp_path)
    with session:
        assert not restored
    assert any(line.endswith("not initialized: new") for line in logged())
    manager = SessionManager(no_op(), ready_for_local_init_op=missing)
    session, restored = manager.recover_session("", saver, tmp_path)
    with session:
        assert not restored
    assert any("ready for local init: Variables not" in line for line in logged())


# ------------------------------------------------------------------------- what is not ready


def test_nothing_initializes(model: Any, opened: list[Any]) -> None:
    with pytest.raises(RuntimeError, match="no init_op or init_fn or local_init_op was given"):
        SessionManager().prepare_session("")
    assert not is_open(opened[0])


@pytest.mark.parametrize("kind", [report_uninitialized_variables, assert_variables_initialized])
def test_not_ready_after_all(model: Any, opened: list[Any], kind: Any) -> None:
    manager = SessionManager(ready_op=kind())
    with pytest.raises(RuntimeError, match=r"make model ready\.  Init op: nothing") as raised:
        manager.prepare_session("", init_op=no_op("nothing"))
    assert "global_step" in str(raised.value) and not is_open(opened[0])
    manager = SessionManager(no_op(), ready_for_local_init_op=kind())
    with pytest.raises(RuntimeError, match=r"ready for local_init\.  Init op: None"):
        manager.prepare_session("")


def test_what_else_fails_is_raised(model: Any, opened: list[Any]) -> None:
    manager = SessionManager(ready_op=placeholder(dtypes.string))
    with pytest.raises(errors.InvalidArgumentError, match="must be fed"):
        manager.prepare_session("", init_op=no_op())
    assert not is_open(opened[0])


def test_a_scaffold_that_initializes_nothing(graph: Graph, model: Any) -> None:
    creator = ChiefSessionCreator(Scaffold(init_op=no_op()))
    with pytest.raises(RuntimeError, match="not initialized: global_step, w"):
        MonitoredSession(creator)
    assert not graph.finalized


# ------------------------------------------------------------------------- waiting


def test_a_checkpoint_that_comes_later(model: Any, tmp_path: Path, clock: Any) -> None:
    saver = Saver()
    init = global_variables_initializer()
    manager = SessionManager(recovery_wait_secs=7)

    def come() -> None:
        if len(clock.slept) == 3:
            checkpoint(model, tmp_path, saver)

    clock.on_sleep = come
    with manager.prepare_session(
        "", init, saver, checkpoint_dir=tmp_path, wait_for_checkpoint=True
    ) as session:
        assert session.run(model.w) == 3.0
    assert clock.slept == [7, 7, 7]


def test_a_checkpoint_that_does_not_come(model: Any, tmp_path: Path, clock: Any) -> None:
    init = global_variables_initializer()
    with SessionManager(recovery_wait_secs=7).prepare_session(
        "", init, Saver(), tmp_path, wait_for_checkpoint=True, max_wait_secs=20
    ) as session:
        assert session.run(model.w) == 0.0
    assert clock.slept == [7, 7, 6]


def test_a_worker_waits_for_the_chief(make_model: Any, clock: Any, opened: list[Any]) -> None:
    target = "inproc://a-worker-waits"
    chief_graph = Graph()
    with chief_graph.as_default():
        make_model()
        init = global_variables_initializer()
    chief = Session(target, chief_graph)

    def come() -> None:
        if len(clock.slept) == 2:
            chief.run(init)

    clock.on_sleep = come
    try:
        with Graph().as_default():
            model = make_model()
            creator = WorkerSessionCreator(master=target, max_wait_secs=100)
            with MonitoredSession(creator) as session:
                session.run(model.train)
        assert chief.run("w:0") == 1.0 and clock.slept == [1, 1]
        assert [is_open(session) for session in opened] == [False] * 3
    finally:
        chief.close()
        Session.reset(target)


def test_a_chief_that_does_not_come(model: Any, clock: Any, opened: list[Any]) -> None:
    manager = SessionManager(ready_op=report_uninitialized_variables(), recovery_wait_secs=5)
    with pytest.raises(errors.DeadlineExceededError, match=r"12 secs: .*global_step, w"):
        manager.wait_for_session("", max_wait_secs=12)
    assert clock.slept == [5, 5] and not any(map(is_open, opened))


# ------------------------------------------------------------------------- arguments


def test_arguments(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must also pass a local_init_op"):
        SessionManager(ready_for_local_init_op=no_op())
    with pytest.raises(ValueError, match="recovery_wait_secs must be a number >= 0"):
        SessionManager(recovery_wait_secs=-1)
    with pytest.raises(TypeError, match="graph must be a Graph"):
        SessionManager(graph=3)  # type: ignore[arg-type]
    manager = SessionManager()
    with pytest.raises(ValueError, match="both checkpoint_dir and checkpoint_filename_with_path"):
        manager.recover_session("", 1, "a", "b")
    with pytest.raises(TypeError, match="saver must be a Saver, got 1"):
        manager.prepare_session("", no_op(), 1, tmp_path)
    with pytest.raises(TypeError, match="init_fn"):
        manager.prepare_session("", init_fn=3)  # type: ignore[arg-type]
    for creator in (ChiefSessionCreator, WorkerSessionCreator):
        with pytest.raises(TypeError, match="scaffold must be a Scaffold, got 3"):
            creator(3)
    with pytest.raises(TypeError, match="max_wait_secs must be a number"):
        WorkerSessionCreator(max_wait_secs="x")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        SessionCreator().create_session()
