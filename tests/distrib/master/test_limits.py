"""Planning ends at its deadline and with its session, although a task does not answer."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from weft_testing.tasks import jobs, servers
from weft_testing.waiting import in_threads, wait_until

import weft as wf
from weft import errors
from weft_distrib.client import link, target as client
from weft_distrib.master.limits import WaitLimit
from weft_distrib.master.sessions import MasterSession

SECONDS = 20  # a generous bound of what ends after less than one


@pytest.fixture(params=["local", "remote"])
def hung(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two tasks whose second one takes its parts of a step only after `proceed` is set.

    The client calls the master as one of its process, or as one of another.
    """
    if request.param == "remote":
        monkeypatch.setattr(client, "find_server", lambda *_: None)
    with servers(jobs(worker=2)) as tasks, wf.Graph().as_default():
        state = SimpleNamespace(target=tasks[0].target, asked=threading.Event())
        state.proceed = threading.Event()
        keep = tasks[1]._worker._keep

        def hang(*arguments: Any, **options: Any) -> None:
            state.asked.set()
            assert state.proceed.wait(60)
            keep(*arguments, **options)

        monkeypatch.setattr(tasks[1]._worker, "_keep", hang)
        with wf.device("/job:worker/task:1"):
            state.y = wf.constant(2.0) * wf.placeholder_with_default(3.0, [])
        try:
            yield state
        finally:
            state.proceed.set()


def options(timeout: int) -> Any:
    return wf.RunOptions(timeout_in_ms=timeout)


@contextmanager
def in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SECONDS


def planning_threads() -> list[str]:
    """The functions of a master that wait in some thread."""
    gc.disable()  # `_current_frames` allocates with a lock that finalizers may need
    try:
        frames = list(sys._current_frames().values())
    finally:
        gc.enable()
    names = []
    while frames:
        frame = frames.pop()
        if frame.f_back is not None:
            frames.append(frame.f_back)
        if frame.f_code.co_filename.endswith("master/sessions.py"):
            names.append(frame.f_code.co_name)
    return names


def test_a_timeout_ends_a_run_while_a_task_does_not_take_its_parts(hung: Any) -> None:
    with wf.Session(hung.target) as session:
        with in_time(), pytest.raises(errors.DeadlineExceededError, match="task:1"):
            session.run(hung.y, options=options(300))
        wait_until(lambda: not planning_threads())
        hung.proceed.set()
        assert session.run(hung.y, options=options(60_000)) == 6.0


def test_the_timeout_of_a_session_bounds_planning(hung: Any) -> None:
    config = wf.ConfigProto(operation_timeout_in_ms=500)
    with in_time(), wf.Session(hung.target, config=config) as session:
        for call in (session.run, session.make_callable):
            with pytest.raises(errors.DeadlineExceededError, match="task:1"):
                call(hung.y)


def test_a_timeout_ends_a_run_while_another_thread_plans(hung: Any) -> None:
    session = wf.Session(hung.target)

    def second() -> Any:
        assert hung.asked.wait(30)
        try:
            session.run(hung.y, options=options(300))
        finally:
            hung.proceed.set()

    with in_threads(lambda: session.run(hung.y), second) as threads:
        pass
    assert threads[0].outcome == 6.0
    assert isinstance(threads[1].outcome, errors.DeadlineExceededError)
    session.close()


def test_closing_a_session_ends_its_planning(hung: Any) -> None:
    session = wf.Session(hung.target)
    with in_threads(lambda: session.run(hung.y)) as threads:
        assert hung.asked.wait(30)
        with in_time():
            session.close()
    assert isinstance(threads[0].outcome, errors.CancelledError)
    wait_until(lambda: not planning_threads())


def test_a_session_whose_master_never_confirms_new_nodes_is_unusable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its graph may or may not have them, so a second attempt would add them twice."""
    monkeypatch.setattr(client, "find_server", lambda *_: None)
    for module in (client, link):
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.1)
    proceed = threading.Event()
    monkeypatch.setattr(MasterSession, "extend", lambda *_: proceed.wait(60))
    with servers(jobs(worker=1)) as tasks, wf.Graph().as_default():
        y = wf.constant(1.0)
        with wf.Session(tasks[0].target) as session:
            with in_time(), pytest.raises(errors.DeadlineExceededError):
                session.run(y, options=options(100))
            proceed.set()
            with pytest.raises(errors.AbortedError, match="create a new session"):
                session.run(y)


# ------------------------------------------------------------------- waits


def test_a_wait_ends_when_nobody_needs_its_outcome() -> None:
    with pytest.raises(errors.CancelledError):
        WaitLimit(0, lambda: False).next_wait("nothing happened")


def test_a_wait_for_the_planning_lock_is_bounded() -> None:
    lock, held, end = threading.RLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            assert end.wait(30)

    with in_threads(hold):
        assert held.wait(30)
        limit = WaitLimit(20)
        refused = pytest.raises(errors.DeadlineExceededError, match=r"within 0\.02 s")
        with refused, limit.hold_lock(lock):
            pass
        end.set()
    with WaitLimit(1000).hold_lock(lock):
        pass
