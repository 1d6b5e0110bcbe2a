"""Targets of sessions: which scheme of a target's name leads to which place where steps run.

A scheme is what stands before `://`: `inproc://name`. Other packages add theirs through the
entry-point group `weft_exec.targets`; an entry is a module that calls `register_target`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft_exec.config import SessionConfig
from weft_exec.devices.device import DeviceAttributes
from weft_exec.executor.executable import Executable
from weft_exec.executor.linear import Slots
from weft_exec.resources.resources import ResourceManager
from weft_exec.tracing import StepTrace
from weft_graph.ir.node import Node, Output
from weft_graph.ir.registry import Registry
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.costs import CostModel
    from weft_exec.session.explain import StepReport
    from weft_exec.session.partial import PartialRun, PartialSignature
    from weft_exec.session.session import BaseSession
    from weft_exec.session.tensor_handle import KeptTensors


class StepRunner(Protocol):
    """Runs steps of executables; `executor.runner.Runner` is one."""

    def run(self, executable: Executable, slots: Slots) -> list[Any]:
        """Run one step with the least overhead; returns what it fetches."""
        ...

    def run_watched(
        self,
        executable: Executable,
        slots: Slots,
        deadline: float | None = None,
        trace: StepTrace | None = None,
    ) -> list[Any]:
        """Run one step with a deadline, in `time.monotonic()`, and a trace."""
        ...


class Backend(ABC):
    """Where the steps of one session run.

    A session looks signatures up, converts what is fed and gives results their structure; all else
    it asks its backend for. An executable is the backend's own: the session only puts the fed
    values into its slots and hands both to the runner.

    Attributes:
      resources: the variables, queues and counters that the steps see.
      runner: runs the steps.
      limited: whether plans are for steps of some size, since a device has a memory limit.
      planning_deadline: when the call of `extend`, `plan`, `begin_partial` or `explain` that runs
        now must end if it waits for others, in `time.monotonic()`; None for no limit. The session
        sets it; it makes one such call at a time.
    """

    resources: ResourceManager
    runner: StepRunner
    limited: bool
    planning_deadline: float | None = None

    @property
    @abstractmethod
    def devices(self) -> Sequence[DeviceAttributes]:
        """The devices that nodes may be placed on; the first one is the host."""

    @property
    @abstractmethod
    def costs(self) -> CostModel:
        """What placement simulates with."""

    @abstractmethod
    def extend(self, nodes: Sequence[Node]) -> None:
        """Take note of new nodes of the session's graph."""

    @abstractmethod
    def plan(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        """What runs one signature.

        Args:
          size: the typical value of sizes that the feeds' static shapes leave open; 0 where nobody
            knows.
        Raises: OpError: a node has no place, or its kernel refuses its attributes.
        """

    def plan_again(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        """Return what runs one signature in place of an executable that is outdated.

        An executable of `plan` may be without compiled regions, and then has a `warm_up`; this one
        is not.

        Args, raises: as for `plan`.
        """
        return self.plan(feeds, outputs, targets, size)

    def begin_partial(self, signature: PartialSignature) -> PartialRun:
        """Begin a step that is fed and fetched bit by bit.

        Raises:
          UnimplementedError: there are none here.
          OpError: as `plan`.
        """
        raise errors.UnimplementedError("sessions on this target have no partial runs")

    def kept_tensors(self, session: BaseSession) -> KeptTensors:
        """The values that a session on this backend keeps between its steps."""
        from weft_exec.resources.session_tensors import SessionTensors

        return SessionTensors.of(self.resources)

    @abstractmethod
    def explain(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> StepReport:
        """What becomes of a step, stage by stage; arguments as of `plan`."""

    @abstractmethod
    def observe(self, trace: StepTrace, run_metadata: Any) -> None:
        """Let the cost model learn from a step, and write its costs into a RunMetadata or None."""

    def stop_planning(self) -> None:  # noqa: B027 - most backends wait for nobody
        """Let a call of another thread that plans end soon if it waits for others.

        The session is about to be closed, and `close` is called when that thread has ended its
        call.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel the steps that run, and release what only this session has."""


class Target(Protocol):
    """What a scheme stands for."""

    def connect(self, target: str, config: SessionConfig) -> Backend:
        """The backend of a new session.

        Args:
          target: the whole name, with its scheme.
        Raises: OpError: there is nothing of that name.
        """
        ...

    def reset(self, target: str, containers: Sequence[str] | None, config: Any) -> None:
        """Drop the state that sessions on a target share: some containers, or all of them."""
        ...


_targets: Registry[Target] = Registry(
    "session target", package="weft_exec.session.targets", group="weft_exec.targets"
)


def register_target(scheme: str, target: Target) -> None:
    """Register what a scheme stands for.

    Args:
      scheme: "grpc", for targets such as `grpc://host:2222`.
    Raises: AlreadyExistsError: the scheme is registered already.
    """
    _targets.register(scheme, target)


def find_target(name: str) -> Target:
    """What a session's target stands for.

    Raises: UnknownTargetError: its scheme is unknown; the message lists those that are known.
    """
    if not isinstance(name, str):
        raise errors.InvalidTypeError(f"a session's target must be text, got {name!r}")
    scheme, mark, _ = name.partition("://")
    found = _targets.get(scheme) if (scheme and mark) or not name else None
    if found is None:
        known = [f"{scheme}://" for scheme in _targets if scheme]
        raise errors.UnknownTargetError(
            f"a session's target must be '' or begin with {' or '.join(known)}, "
            f"got {name!r}{_targets.broken}"
        )
    return found
