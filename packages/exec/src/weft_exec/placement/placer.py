"""Placement of the nodes of one session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft_exec.config import SessionConfig
from weft_exec.devices.description import DeviceDescription
from weft_exec.kernels.description import has_kernel_on, may_wait_on
from weft_exec.placement.groups import Groups
from weft_exec.placement.report import PlacementReport
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.ir.node import Node, Output
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.costs import CostModel
    from weft_exec.placement.simulation import Simulation

_log = logging.getLogger("weft")


class StepPlacement:
    """The placement of the nodes of one step.

    Attributes:
      places: the device name of each placed node.
    """

    def __init__(self, run: Simulation, nodes: Sequence[Node], memories: Mapping[str, str]) -> None:
        names = list(memories)
        self.places = {node: names[device] for node, device in run.found.items()}
        self._run = run
        self._nodes = nodes
        self._memories = memories

    def report(self) -> PlacementReport:
        """Return the report of the placement."""
        return self._run.report()

    def delays(self) -> dict[tuple[Output, str], Node]:
        """Return the nodes that Receives from other memory wait for, to avoid early copies."""
        from weft_exec.placement.receives import delays

        memories = self._memories
        copies = [c for c in self._run.crossings if memories[c.source] != memories[c.target]]
        return delays(copies, self._nodes, self.places, self._run.times()) if copies else {}

    def memory_delays(self, devices: Collection[str]) -> dict[tuple[Output, str], Node]:
        """Return the nodes that Receives should wait for on devices that are short of memory."""
        from weft_exec.placement.receives import memory_delays

        return memory_delays(self._nodes, self.places, devices) if devices else {}


class Placer:
    """Places the nodes of one session.

    Nodes with state are placed once, by a simulated run of the whole graph as it is at that time.
    Other nodes are placed for each step, by a simulated run of the step.

    Args:
      devices: the descriptions of the devices, which may be in other processes.
      costs: returns the cost model of simulated runs; required in sessions with several devices.
    """

    def __init__(
        self,
        devices: Sequence[DeviceDescription],
        config: SessionConfig,
        costs: Callable[[], CostModel] | None = None,
    ) -> None:
        self._devices = devices
        self._config = config
        self._costs = costs
        self._groups = Groups(devices, config)
        self._pinned: dict[str, int] = {}
        self._used = [0] * len(devices)
        self._nodes: list[Node] = []
        self._simulated = 0
        self._logged: set[str] = set()

    def extend(self, nodes: Sequence[Node]) -> None:
        """Add new nodes of the session's graph."""
        self._groups.extend(nodes)
        if len(self._devices) > 1 or self._devices[0].memory_limit:
            self._nodes += nodes

    def without_task(self, nodes: Iterable[Node]) -> list[Node]:
        """See `Groups.without_task`."""
        return self._groups.without_task(nodes)

    def settle(self, device_parts: Mapping[str, DeviceParts | errors.OpError]) -> None:
        """See `Groups.settle`."""
        self._groups.settle(device_parts)

    def note(self, nodes: Iterable[Node]) -> None:
        """Add nodes of a step that are not in the session's graph."""
        self._groups.extend(nodes)

    def place(self, node: Node) -> str:
        """Return the name of the device of a node in a session with one device.

        Raises: UnimplementedError, InvalidArgumentError: see `assign`.
        """
        device = self._devices[0]
        if not (self._groups.is_unconstrained(node) and has_kernel_on(device, node)):
            group = self._groups.group(node)
            device = self._devices[self._groups.candidates(node, group)[0]]
        self._log(node, device)
        return device.name

    def assign(self, nodes: Sequence[Node], *, count_step_values: bool = True) -> StepPlacement:
        """Assign devices to the nodes of a step.

        Args:
          nodes: in topological order, without the back edges of loops.
          within_limits: True to respect memory limits; False to treat memory as unlimited.
        Raises:
          UnimplementedError: no device of the session has a kernel for a node.
          InvalidArgumentError: no device meets the requests of a node.
          ResourceExhaustedError: the variables do not fit into the devices' memory.
        """
        self._pin()
        run = self._simulation(nodes)
        run.run(count_step_values=count_step_values)
        self._keep(run)
        if count_step_values:
            for node, device in run.found.items():
                self._log(node, self._devices[device])
        return StepPlacement(run, nodes, {d.name: d.memory for d in self._devices})

    def kept_bytes(self) -> dict[str, int]:
        """Return the bytes of the session's variables by device name."""
        if len(self._devices) == 1 and self._costs is not None:
            costs = self._costs()
            self._used = [sum([costs.persistent_bytes(node) for node in self._nodes])]
        return {d.name: used for d, used in zip(self._devices, self._used, strict=True)}

    def may_wait(self, node: Node) -> bool:
        """Return True if a node may wait for something other than its inputs on some device."""
        return any([may_wait_on(device, node) for device in self._devices])

    def _pin(self) -> None:
        """Place new nodes with state, by a simulated run of the whole graph."""
        if self._simulated == len(self._nodes):
            return
        if any(node.op_def.stateful for node in self._nodes[self._simulated :]):
            run = self._simulation(self._nodes)
            run.run(strict=False)
            self._keep(run)
        self._simulated = len(self._nodes)

    def _simulation(self, nodes: Sequence[Node]) -> Simulation:
        from weft_exec.placement.simulation import Simulation

        assert self._costs is not None, "only nodes of one device are placed without costs"
        return Simulation(
            nodes, self._devices, self._groups, self._costs(), self._pinned, list(self._used)
        )

    def _keep(self, run: Simulation) -> None:
        self._pinned.update(run.pinned)
        self._used = run.kept_bytes

    def _log(self, node: Node, device: DeviceDescription) -> None:
        if self._config.log_device_placement and node.name not in self._logged:
            self._logged.add(node.name)
            _log.warning("%s: (%s): %s", node.name, node.type, device.name)
