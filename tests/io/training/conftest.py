"""A model that counts, hooks that tell when they are called, and a watch over threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from weft_autodiff.optimizers.training_util import get_or_create_global_step
from weft_graph import Graph
from weft_graph.ops.array import placeholder_with_default
from weft_graph.ops.control import group
from weft_graph.variables.reference import Variable
from weft_io.summary import FileWriterCache
from weft_io.training import SessionRunArgs, SessionRunHook

SHARED = ("weft-kernel", "weft-deadlines", "weft-finalizers")
"""Threads that all sessions of the process share."""


class Model:
    """w += x and step += 1 in each step."""

    def __init__(self) -> None:
        self.step = get_or_create_global_step()
        self.x = placeholder_with_default(1.0, [], name="x")
        self.w = Variable(0.0, name="w")
        self.train = group(
            self.w.assign_add(self.x, read_value=False),
            self.step.assign_add(1, read_value=False),
        )


class Told(SessionRunHook):
    """Writes down its calls.

    Args:
      name: what its lines begin with.
      story: where they go.
      asked: what it asks for in each step.
      fail: called with "create", "before" or "after", may raise.
    """

    def __init__(
        self,
        name: str,
        story: list[str],
        asked: SessionRunArgs | None = None,
        fail: Callable[[str], None] = lambda place: None,
    ) -> None:
        self.name, self.story, self.asked, self.fail = name, story, asked, fail
        self.values: list[Any] = []

    def begin(self) -> None:
        self.story.append(f"{self.name}.begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.story.append(f"{self.name}.create")
        self.fail("create")

    def before_run(self, run_context: Any) -> SessionRunArgs | None:
        self.story.append(f"{self.name}.before")
        self.fail("before")
        return self.asked

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.story.append(f"{self.name}.after")
        self.values.append(run_values.results)
        self.fail("after")

    def end(self, session: Any) -> None:
        self.story.append(f"{self.name}.end")


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Nothing that a test starts outlives its sessions."""
    before = set(threading.enumerate())
    yield
    FileWriterCache.clear()
    left = [t.name for t in threading.enumerate() if t not in before and t.is_alive()]
    assert not [name for name in left if not name.startswith(SHARED)], left


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A new default graph."""
    with Graph().as_default() as made:
        yield made


@pytest.fixture
def model(graph: Graph) -> Model:
    return Model()


@pytest.fixture
def make_model() -> type[Model]:
    """The model, for tests with several graphs."""
    return Model


@pytest.fixture
def story() -> list[str]:
    return []


@pytest.fixture
def told(story: list[str]) -> Callable[..., Told]:
    """Hooks that write into `story`."""
    return lambda name, *args, **kwargs: Told(name, story, *args, **kwargs)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the messages logged so far."""
    caplog.set_level(logging.INFO, "weft")
    return lambda: [record.getMessage() for record in caplog.records]


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)
        self.on_sleep()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of timers, waits and hooks."""
    found = Clock()
    for module in ("training.timers", "training.session_manager", "training.step_hooks"):
        monkeypatch.setattr(f"weft_io.{module}.time", found)
    return found
