"""Targets of sessions: a registry from the scheme of a target to its backend.

The scheme precedes `://`, as in `inproc://name`. Other packages add schemes through the entry-point
group `weft_exec.targets`; an entry is a module that calls `register_target`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from weft_exec.config import SessionConfig
from weft_exec.devices.device import DeviceAttributes
from weft_exec.executor.executable import Executable
from weft_exec.executor.linear import Slots
from weft_exec.resources.resources import ResourceManager
from weft_exec.tracing.records import NodeRecord
from weft_exec.tracing.step_trace import StepTrace
from weft_graph.ir.node import Node, Output
from weft_graph.ir.registry import Registry
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.costs import CostModel
    from weft_exec.session.base import BaseSession
    from weft_exec.session.explain import StepReport
    from weft_exec.session.partial import PartialRun, PartialSignature
    from weft_exec.session.tensor_handle import HandleStore
    from weft_exec.tracing.consumers import TasksRecording


class StepRunner(Protocol):
    """Interface of objects that run steps, such as `executor.runner.Runner`."""

    def run(self, executable: Executable, slots: Slots) -> list[Any]:
        """Run one step with the least overhead, and return its fetches."""
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
    """Runs the steps of one session.

    A session looks up signatures, converts feeds and structures results. Its backend does
    everything else. Executables are internal to the backend: the session only stores fed values in
    their slots, and passes both to the runner.

    Attributes:
      resources: the variables, queues and counters of the steps.
      runner: the object that runs the steps.
      limited: True if plans depend on sizes, because a device has a memory limit.
      planning_deadline: the deadline of waits inside the current call of `extend`, `plan`,
        `begin_partial` or `explain`, in `time.monotonic()`; None for no limit. The session sets it
        and makes one such call at a time.
    """

    resources: ResourceManager
    runner: StepRunner
    limited: bool
    planning_deadline: float | None = None

    @property
    @abstractmethod
    def devices(self) -> Sequence[DeviceAttributes]:
        """The devices on which nodes may be placed; the first one is the host."""

    @property
    @abstractmethod
    def costs(self) -> CostModel:
        """The cost model of placement."""

    @abstractmethod
    def extend(self, nodes: Sequence[Node]) -> None:
        """Add new nodes of the session's graph."""

    @abstractmethod
    def plan(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        """Return the executable of one signature.

        Args:
          size: the typical value of statically unknown sizes of feeds; 0 if there is no such value.
        Raises: OpError: a node cannot be placed, or its kernel rejects its attributes.
        """

    def plan_again(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        """Return the executable of one signature that replaces an outdated one.

        An executable of `plan` may have no compiled regions yet, and then has a `warm_up`; the
        result of this method has its regions.

        Args, raises: as for `plan`.
        """
        return self.plan(feeds, outputs, targets, size)

    def begin_partial(self, signature: PartialSignature) -> PartialRun:
        """Start a step that is fed and fetched in several calls.

        Raises:
          UnimplementedError: the backend does not support it.
          OpError: see `plan`.
        """
        raise errors.UnimplementedError("this session's target does not support partial runs")

    def kept_tensors(self, session: BaseSession) -> HandleStore:
        """Return the values that a session on this backend keeps between its steps."""
        from weft_exec.resources.session_tensors import SessionTensors

        return SessionTensors.of(self.resources)

    @abstractmethod
    def explain(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> StepReport:
        """Explain the plan of a step, stage by stage; arguments as for `plan`."""

    def memory_in_use(self) -> dict[str, tuple[int, int]]:
        """Return the bytes in use and the free bytes in the pool of each device of this process."""
        result = {}
        for device in self.devices:
            with suppress(errors.UnimplementedError):  # of another process
                statistics = device.statistics
                used = statistics.bytes_in_use
                result[device.name] = used, max(statistics.bytes_reserved - used, 0)
        return result

    def record_tasks(self) -> TasksRecording | None:
        """Start recording the tasks of other processes; return None if there are none.

        Raises: OpError: they cannot be recorded, for example because another trace is being
          recorded.
        """
        return None

    @abstractmethod
    def observe(self, records: Sequence[NodeRecord], run_metadata: Any) -> None:
        """Add a step to the cost model, and write its costs to a RunMetadata if passed."""

    def stop_planning(self) -> None:  # noqa: B027 - most backends have nothing to wait for
        """Interrupt a planning call of another thread if it waits for other tasks.

        The session calls this when it is closing, and calls `close` when the planning call has
        ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel running steps, and release the private state of this session."""


class Target(Protocol):
    """The implementation of a scheme."""

    def connect(self, target: str, config: SessionConfig) -> Backend:
        """Return the backend of a new session.

        Args:
          target: the target including its scheme.
        Raises: OpError: the target does not exist.
        """
        ...

    def reset(self, target: str, containers: Sequence[str] | None, config: Any) -> None:
        """Drop the shared state of a target: some containers or all."""
        ...


_targets: Registry[Target] = Registry(
    "session target", package="weft_exec.session.targets", group="weft_exec.targets"
)


def register_target(scheme: str, target: Target) -> None:
    """Register the implementation of a scheme.

    Args:
      scheme: the part before "://", such as "grpc" in `grpc://host:2222`.
    Raises: AlreadyExistsError: the scheme is already registered.
    """
    _targets.register(scheme, target)


def find_target(name: str) -> Target:
    """Return the implementation of a session's target.

    Raises: UnknownTargetError: its scheme is unknown; the message lists the known ones.
    """
    if not isinstance(name, str):
        raise errors.InvalidTypeError(f"a session's target must be text, got {name!r}")
    scheme, mark, _ = name.partition("://")
    target = _targets.get(scheme) if (scheme and mark) or not name else None
    if target is None:
        schemes = [f"{scheme}://" for scheme in _targets if scheme]
        raise errors.UnknownTargetError(
            f"a session's target must be '' or begin with {' or '.join(schemes)}, "
            f"got {name!r}{_targets.broken}"
        )
    return target
