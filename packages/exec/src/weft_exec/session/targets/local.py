"""Sessions on devices of this process: "" has private state, `inproc://name` shared state."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft_exec.config import SessionConfig
from weft_exec.devices.device import DeviceAttributes, make_devices
from weft_exec.executor.executable import Executable
from weft_exec.executor.native.warm_up import count_choosing_time
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.runner import Runner
from weft_exec.resources import containers
from weft_exec.resources.resources import ResourceManager
from weft_exec.resources.threads import shared_pool
from weft_exec.session import blas_threads
from weft_exec.session.partial import PartialRun, PartialSignature
from weft_exec.session.planning import Planner
from weft_exec.session.target import Backend, register_target
from weft_exec.tracing.records import NodeRecord
from weft_graph.ir.node import Node, Output

if TYPE_CHECKING:
    from weft_exec.costs import CostModel
    from weft_exec.session.explain import StepReport


class LocalBackend(Backend):
    """Backend that plans and drives steps on devices of this process.

    Args:
      resources: the resources of the steps; private ones are released with the session.
    """

    def __init__(self, resources: ResourceManager, config: SessionConfig) -> None:
        blas_threads.limit_once(config.intra_op_threads)
        self.resources = resources
        if resources.own is resources:
            resources.owner = weakref.ref(self)
        self._devices = make_devices(resources, config)
        threads = config.inter_op_threads
        pool = shared_pool(threads) if threads > 1 else None
        self.runner: Runner = Runner(resources.default_container, pool)
        overlap = Overlap.of(config.executor_type, threads)
        self.planner = Planner(self._devices, config, overlap)
        self.limited = self.planner.limited
        self._executables: weakref.WeakSet[Executable] = weakref.WeakSet()

    @property
    def devices(self) -> list[DeviceAttributes]:
        """See the base class."""
        return [
            DeviceAttributes(device.describe(), id(device), device.allocator.statistics)
            for device in self._devices
        ]

    @property
    def costs(self) -> CostModel:
        """See the base class."""
        return self.planner.costs

    def extend(self, nodes: Sequence[Node]) -> None:
        """See the base class."""
        self.planner.extend(nodes)

    def plan(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        """See the base class."""
        return self._record_executable(
            self.planner.plan(feeds, outputs, targets, size, is_first=True)
        )

    def plan_again(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        """See the base class."""
        with count_choosing_time():
            return self._record_executable(self.planner.plan(feeds, outputs, targets, size))

    def _record_executable(self, executable: Executable) -> Executable:
        """Record an executable, so that closing the session cancels its steps."""
        self._executables.add(executable)
        return executable

    def begin_partial(self, signature: PartialSignature) -> PartialRun:
        """See the base class."""
        if not hasattr(signature, "plan"):
            signature.plan = self.planner.plan_partial(
                signature.feeds, signature.outputs, signature.targets
            )
            self._executables.add(signature.plan.executable)
        return PartialRun(signature, self.runner.begin(signature.plan.executable))

    def explain(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> StepReport:
        """See the base class."""
        return self.planner.explain(feeds, outputs, targets, size)

    def observe(self, records: Sequence[NodeRecord], run_metadata: Any) -> None:
        """See the base class."""
        self.costs.observe(records)
        if run_metadata is not None:
            from weft_exec.costs import fill_cost_graph

            devices_by_node = {record.node: record.device for record in records}
            devices = {device.name: device.describe() for device in self._devices}
            fill_cost_graph(
                run_metadata,
                devices_by_node,
                lambda node: devices[devices_by_node[node]],
                self.costs,
            )

    def close(self) -> None:
        """See the base class."""
        self.runner.close()
        for executable in list(self._executables):
            executable.cancel()
        self.resources.own.clear()


class _PrivateTarget:
    """The target "": named containers belong to the process, all other state to the session."""

    def connect(self, target: str, config: SessionConfig) -> Backend:
        """Return a backend with private state."""
        return LocalBackend(containers.SessionResources(), config)

    def reset(self, target: str, names: Sequence[str] | None, config: Any) -> None:
        """Clear named containers of the process."""
        containers.clear_named(names)


class _SharedTarget:
    """The targets `inproc://name`: sessions with the same name share all state."""

    def connect(self, target: str, config: SessionConfig) -> Backend:
        """Return a backend with the state of the target."""
        shared = containers.shared_resources(target)
        return LocalBackend(containers.SharedResources(shared), config)

    def reset(self, target: str, names: Sequence[str] | None, config: Any) -> None:
        """Clear containers of the target."""
        containers.clear_shared(target, names)


register_target("", _PrivateTarget())
register_target("inproc", _SharedTarget())
