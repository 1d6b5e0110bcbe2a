"""Targets of sessions: a scheme that another package adds, whose steps run elsewhere."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import weft as wf
from weft import errors
from weft_exec.config import SessionConfig
from weft_exec.executor.executable import Executable
from weft_exec.resources.resources import ResourceManager
from weft_exec.session import target as targets
from weft_exec.session.target import Backend, register_target
from weft_exec.session.targets.local import LocalBackend
from weft_graph.ir.registry import Registry


class Remote(Executable):
    """A stand-in for an executable of a server, whose only slots are those of the feeds."""

    __slots__ = ("there",)

    def __init__(self, there: Executable) -> None:
        count = len(there.feed_slots)
        super().__init__([None] * count, range(count), (), None, None)
        self.there = there


class Client(Backend):
    """A backend that plans and runs on a server, which is a thread."""

    def __init__(self, server: LocalBackend) -> None:
        self._server = server
        self._thread = ThreadPoolExecutor(1)
        self.resources, self.limited, self.runner = server.resources, False, self
        self.runs: list[list[Any]] = []

    @property
    def devices(self) -> Any:
        return self._server.devices

    @property
    def costs(self) -> Any:
        return self._server.costs

    def extend(self, nodes: Any) -> None:
        self._server.extend(nodes)

    def plan(self, feeds: Any, outputs: Any, targets: Any, size: int) -> Executable:
        return Remote(self._server.plan(feeds, outputs, targets, size))

    def explain(self, feeds: Any, outputs: Any, targets: Any, size: int) -> Any:
        return self._server.explain(feeds, outputs, targets, size)

    def observe(self, trace: Any, run_metadata: Any) -> None:
        self._server.observe(trace, run_metadata)

    def run(self, executable: Executable, slots: list[Any]) -> list[Any]:
        return self.run_watched(executable, slots)

    def run_watched(
        self, executable: Executable, slots: list[Any], deadline: Any = None, trace: Any = None
    ) -> list[Any]:
        assert isinstance(executable, Remote)
        self.runs.append(slots)
        there = executable.there
        call = self._server.runner.run_watched, there, there.slots(slots), deadline, trace
        return self._thread.submit(*call).result()

    def close(self) -> None:
        self._thread.shutdown()
        self._server.close()


class Cluster:
    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.dropped: list[tuple[str, Any]] = []

    def connect(self, target: str, config: SessionConfig) -> Backend:
        self.clients.append(Client(LocalBackend(ResourceManager(), config)))
        return self.clients[-1]

    def reset(self, target: str, containers: Sequence[str] | None, config: Any) -> None:
        self.dropped.append((target, containers))


class EntryStub(SimpleNamespace):
    """An entry point, hashable as the real ones are."""

    __hash__ = object.__hash__


def declare(monkeypatch: pytest.MonkeyPatch, entries: list[Any]) -> None:
    """Replace the entry points of targets; leave all other groups unchanged."""
    real = importlib.metadata.entry_points
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: entries if group == "weft_exec.targets" else real(group=group),
    )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A target that an entry point registers."""
    made = Cluster()
    mine: Registry[Any] = Registry(
        "session target", package="weft_exec.session.targets", group="weft_exec.targets"
    )
    for scheme in ("", "inproc"):
        mine.register(scheme, targets.find_target(f"{scheme}://" if scheme else ""))
    monkeypatch.setattr(targets, "_targets", mine)
    entry = EntryStub(
        name="far", value="far", load=lambda: register_target("far", made) or SimpleNamespace()
    )
    declare(monkeypatch, [entry])
    with wf.Graph().as_default():
        yield made


def test_a_session_runs_on_what_an_entry_point_registers(cluster: Cluster) -> None:
    x = wf.placeholder(wf.float32, [])
    v = wf.Variable(2.0, use_resource=True)
    y = x * v
    with wf.Session("far://host:1") as session:
        session.run(v.initializer)
        assert session.run(y, {x: 3.0}) == 6.0
        assert session.make_callable([y], [x])(4.0) == [8.0]
        assert session.run(v.assign_add(1.0)) == 3.0
        metadata = wf.RunMetadata()
        session.run(y, {x: 3.0}, wf.RunOptions(trace_level=1), metadata)
        assert metadata.step_stats.dev_stats
        assert session.sess_str == "far://host:1"
        (client,) = cluster.clients
        assert [len(slots) for slots in client.runs] == [0, 1, 1, 0, 1]
        with pytest.raises(errors.InvalidArgumentError, match="requires shape"):
            session.run(y, {x: [1.0, 2.0]})
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        session.run(y, {x: 1.0})


def test_reset_goes_to_the_target(cluster: Cluster) -> None:
    wf.Session.reset("far://host:1", ["a"])
    assert cluster.dropped == [("far://host:1", ["a"])]


@pytest.mark.parametrize("name", ["nowhere", "near://host", "://host", "far"])
def test_an_unknown_scheme_is_an_error_that_lists_the_known_ones(
    cluster: Cluster, name: str
) -> None:
    for use in (wf.Session, wf.Session.reset):
        with pytest.raises(errors.InvalidArgumentError, match="'' or begin with far:// or inproc"):
            use(name)


class Broken:
    def connect(self, target: str, config: SessionConfig) -> Backend:
        raise errors.UnavailableError(f"nobody answers at {target}")

    def reset(self, target: str, containers: Sequence[str] | None, config: Any) -> None:
        raise errors.UnavailableError(f"nobody answers at {target}")


def test_a_target_that_refuses_leaves_nothing_behind(cluster: Cluster) -> None:
    register_target("broken", Broken())
    graph = wf.get_default_graph()
    for use in (wf.Session, wf.InteractiveSession, wf.Session.reset):
        with pytest.raises(errors.UnavailableError, match="nobody answers at broken://x"):
            use("broken://x")
    assert wf.get_default_session() is None and wf.get_default_graph() is graph
    with pytest.raises(errors.AlreadyExistsError, match="broken"):
        register_target("broken", Broken())


def test_an_entry_point_that_cannot_be_imported_is_told_of(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> Any:
        raise ImportError("no module named grpcish")

    entries = [
        EntryStub(name="bad", value="bad_package", load=load),
        *importlib.metadata.entry_points(group="weft_exec.targets"),
    ]
    declare(monkeypatch, entries)
    for kind in (errors.InternalError, errors.InvalidArgumentError):  # once, and then in passing
        with pytest.raises(kind, match=r"bad = bad_package .*grpcish"):
            wf.Session("grpcish://host")
    with wf.Session("far://host") as session:
        assert session.run(wf.constant(1.0)) == 1.0


def test_two_graphs_share_the_state_of_one_name() -> None:
    sessions = []
    for name, start in (("v", 1.0), ("w", 2.0)):
        with wf.Graph().as_default():
            v = wf.Variable(start, name=name)
            shared = wf.Variable(start, name="shared")
            sessions.append(wf.Session("inproc://two graphs"))
            sessions[-1].run([v.initializer, shared.initializer])
    first, second = sessions
    assert first.run(["v:0", "shared:0"]) == [1.0, 2.0] and second.run("w:0") == 2.0
    wf.Session.reset("inproc://two graphs", ["nobody's"])
    wf.Session.reset("inproc://nobody")
    assert first.run("shared:0") == 2.0
    first.close()
    assert second.run("shared:0") == 2.0
    wf.Session.reset("inproc://two graphs")
    with pytest.raises(errors.FailedPreconditionError, match="shared"):
        second.run("shared:0")
    second.close()
