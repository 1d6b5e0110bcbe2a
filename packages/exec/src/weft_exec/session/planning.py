"""Planning: from a signature of Run to an executable, by passes, placement and partitioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from weft_exec.config import SessionConfig
from weft_exec.devices.description import HOST, DeviceDescription, check_all, gateway_devices
from weft_exec.devices.device import Device
from weft_exec.executor.compilers import offer_of
from weft_exec.executor.derive import derive, derive_first
from weft_exec.executor.executable import Executable
from weft_exec.executor.memory_budget import MemoryBudget, bytes_for_values
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.partitioned_step import derive_parts, place_on
from weft_exec.executor.priority import sort_by_priority
from weft_exec.kernels.description import kernels_on
from weft_exec.passes.prepare import Watch, prepare
from weft_exec.placement import Placer, StepPlacement
from weft_exec.session.partial import PartialPlan
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import Part, StepGraph
from weft_graph.ops.step import EXTEND, TRUNCATE
from weft_graph.passes.caller_exchange import meet_caller
from weft_graph.passes.compression import lossy_where_asked
from weft_graph.passes.late_fetches import read_last
from weft_graph.passes.memory import MemoryLimits
from weft_graph.passes.partition import partition
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.costs import CostModel
    from weft_exec.session.explain import StepReport
    from weft_graph.passes.memory_optimization import MemoryOptions

_IN_FLIGHT = 4
"""Reciprocal of the fraction of a device's budget that is reserved for copies in flight.
Swapping uses the rest: a value occupies memory until its copy to the host has ended, and again from
before its user runs.

Swapping plans with the rest: a value occupies memory until its copy to the host has ended, and
again before its user runs.
"""


def _ignore(stage: str, step: StepGraph) -> None:
    pass


class PartPlanner:
    """Plans the steps of one graph for described devices: partitions and their devices.

    Nodes without constraints are placed on the first device. Feeds and fetches of a device with its
    own memory are on the first device of the same task that has the host's memory.

    Args:
      devices: the devices of one or several tasks, possibly in other processes.
      host: a device of this process, whose kernels fold constants.
      overlap: decides which nodes may run in parallel.
    Attributes:
      limited: True if a device has a memory limit.
    Raises: InvalidArgumentError: there is no device, or two have the same name.
    """

    def __init__(
        self,
        devices: Sequence[DeviceDescription],
        host: Device,
        config: SessionConfig,
        overlap: Overlap,
    ) -> None:
        check_all(devices)
        self._devices_by_name = {device.name: device for device in devices}
        self._several_tasks = len({device.task for device in devices}) > 1
        self._host = host
        self._home_device = devices[0].name
        self._gates = gateway_devices(devices)
        self._config = config
        self._optimize = config.optimize
        self._overlap = overlap
        self._lossy = lossy_where_asked(config.lossy_transfers, self._can_compress)
        self._placer = Placer(devices, config, lambda: self.costs)
        self.limited = any(device.memory_limit for device in devices)
        self._spaces = {device.name: device.memory for device in devices}

    @cached_property
    def costs(self) -> CostModel:
        """The cost model of simulated placement."""
        from weft_exec.costs import CostModel

        return CostModel()

    def extend(self, nodes: Sequence[Node]) -> None:
        """Add new nodes of the session's graph."""
        self._placer.extend(nodes)

    def without_task(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes that create or look up state without a requested task."""
        return self._placer.without_task(nodes) if self._several_tasks else []

    def settle(self, device_parts: Mapping[str, DeviceParts | errors.OpError]) -> None:
        """Set the tasks of the state of some nodes by name, or errors for unknown nodes."""
        self._placer.settle(device_parts)

    def parts(
        self,
        feeds: Sequence[Output],
        outputs: Sequence[Output],
        targets: Sequence[Node],
        size: int = 0,
    ) -> dict[str, Part]:
        """Return the partitions of a step by device name, before they are derived.

        Args:
          size: the typical value of sizes that are statically unknown; 0 if there is no such value.
        Returns: a single partition if one device runs everything.
        Raises: OpError: a node cannot be placed.
        """
        parts = self._parts(feeds, outputs, targets, size)
        if len(self._devices_by_name) == 1:  # not yet checked that the device can run the nodes
            for part in parts.values():
                self._placer.assign(part.nodes)
        return parts

    def _parts(
        self,
        feeds: Sequence[Output],
        outputs: Sequence[Output],
        targets: Sequence[Node],
        size: int,
    ) -> dict[str, Part]:
        """Return the result of `parts`, without checking that a single device can run the nodes."""
        self._assume(size)
        return self._partition(self._prepare(feeds, outputs, targets, _ignore))

    def _partition(self, step: StepGraph) -> dict[str, Part]:
        """Partition a prepared step."""
        name = self._home_device
        if len(self._devices_by_name) == 1:
            self._limit_run_ahead(step, None)
            nodes = sort_by_priority(step.live_nodes())
        else:
            nodes, assigned = self._assign(step)
            cut = self._cut(step, nodes, assigned)
            if cut is not None:
                return cut
            name = next(iter(assigned.places.values()), name)
        return {name: Part(step, nodes, range(len(step.feeds)), range(len(step.fetches)))}

    def partial_parts(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node]
    ) -> tuple[dict[str, Part], str, list[frozenset[int]]]:
        """Return the partitions of a partial run; arguments as for `parts`.

        Returns: the partitions, the device that the caller feeds and fetches from, and for each
        fetch the positions of the feeds that it needs.
        Raises: OpError: see `parts`.
        """
        self._assume(0)
        step = self._prepare(feeds, outputs, targets, _ignore)
        meeting, requirements = meet_caller(step, self._home_device)
        return self._partition(meeting), self._home_device, requirements

    def explain(
        self,
        feeds: Sequence[Output],
        outputs: Sequence[Output],
        targets: Sequence[Node],
        size: int = 0,
    ) -> StepReport:
        """Explain the plan of a step, stage by stage; arguments as for `parts`."""
        from weft_exec.session.explain import StepReport

        self._assume(size)
        report = StepReport()
        step = self._prepare(feeds, outputs, targets, report.add_stage)
        nodes, assigned = self._assign(step)
        report.placement = assigned.report()
        for name, part in (self._cut(step, nodes, assigned) or {}).items():
            report.add_part(name, part)
        return report

    def _assume(self, size: int) -> None:
        if self.limited or len(self._devices_by_name) > 1:
            self.costs.assume(size)

    def _prepare(
        self,
        feeds: Sequence[Output],
        outputs: Sequence[Output],
        targets: Sequence[Node],
        watch: Watch,
    ) -> StepGraph:
        """Return the optimized graph of a step."""
        step = prepare(
            feeds,
            outputs,
            targets,
            self._host,
            may_wait=self._placer.may_wait,
            note=self._placer.note,
            watch=watch,
            mixed_precision=self._config.mixed_precision,
        )
        if self._gates and read_last(step):
            watch("fetched references last", step)
        if self._optimize and self._spare_memory(step):
            watch("with less memory", step)
        return step

    def _spare_memory(self, step: StepGraph) -> int:
        """Reduce the memory of a step as the options or a device's limit require."""
        mode = self._config.memory_optimization
        if mode == "NO_MEM_OPT" or (mode == "DEFAULT_MEM_OPT" and not self.limited):
            return 0
        from weft_graph.passes.memory_optimization import optimize_memory

        devices_by_node = None
        if self.limited and len(self._devices_by_name) > 1:
            nodes = sort_by_priority(step.live_nodes())
            devices_by_node = self._placer.assign(nodes, count_step_values=False).places
        return optimize_memory(step, self._memory_options(devices_by_node))

    def _memory_options(self, devices_by_node: Mapping[Node, str] | None) -> MemoryOptions:
        """Return the options of memory optimization, for placed nodes or a single device."""
        from weft_graph.passes.memory_optimization import MemoryOptions

        budgets = self._budgets()
        if budgets and devices_by_node is None:
            budgets = {"": budgets[self._home_device]}
        return MemoryOptions(
            mode=self._config.memory_optimization,
            scope=self._config.gradient_scope,
            limits=budgets,
            bytes_of=self.costs.nbytes,
            device_of=None if devices_by_node is None else devices_by_node.__getitem__,
            spaces=self._spaces,
            host=self._home_device,
            run_order=sort_by_priority,
        )

    def _budgets(self) -> dict[str, int]:
        """Return the bytes that are left for the values of a step on devices with a limit."""
        kept_bytes = self._placer.kept_bytes()
        limits = {d.name: d.memory_limit for d in self._devices_by_name.values() if d.memory_limit}
        return {name: bytes_for_values(limit, kept_bytes[name]) for name, limit in limits.items()}

    def _part_budgets(self) -> dict[str, MemoryBudget]:
        """Return the memory budgets of compiled partitions by device."""
        if not self.limited:
            return {}
        nbytes = self.costs.nbytes
        return {name: MemoryBudget(limit, nbytes) for name, limit in self._budgets().items()}

    def _assign(self, step: StepGraph) -> tuple[list[Node], StepPlacement]:
        """Assign devices to the nodes of a step, and return the nodes in execution order."""
        nodes = sort_by_priority(step.live_nodes())
        assigned = self._placer.assign(nodes)
        if self._optimize and self._swap(step, assigned):
            nodes = sort_by_priority(step.live_nodes())
            assigned = self._placer.assign(nodes)
        if self._limit_run_ahead(step, assigned):
            nodes = sort_by_priority(step.live_nodes())
            assigned = self._placer.assign(nodes)
        return nodes, assigned

    def _limit_run_ahead(self, step: StepGraph, assigned: StepPlacement | None) -> int:
        """Add control edges to nodes that could exceed a memory limit by running early."""
        if not self.limited or (assigned is None and self._overlap is Overlap.NOTHING):
            return 0
        from weft_graph.passes.run_ahead import limit_run_ahead

        options = self._memory_options(None if assigned is None else assigned.places)
        memory = MemoryLimits(options.limits, options.device_of, options.spaces)
        return limit_run_ahead(
            step,
            memory,
            options.host,
            bytes_of=options.bytes_of,
            run_order=sort_by_priority,
        )

    def _swap(self, step: StepGraph, assigned: StepPlacement) -> int:
        """Swap values that do not fit into their device's memory to the host."""
        home_nodes = [
            n for n, gate in self._gates.items() if gate == self._home_device
        ]  # others would go far
        if not any(self._devices_by_name[name].memory_limit for name in home_nodes):
            return 0
        from weft_graph.passes.swap import swap_to_host

        options = self._memory_options(assigned.places)
        if not options.swaps:
            return 0
        limits = {n: limit - limit // _IN_FLIGHT for n, limit in options.limits.items()}
        memory = MemoryLimits(
            {name: limits[name] for name in home_nodes if name in limits},
            options.device_of,
            options.spaces,
        )
        return swap_to_host(
            step,
            memory,
            options.host,
            bytes_of=options.bytes_of,
            run_order=sort_by_priority,
        )

    def _cut(
        self, step: StepGraph, nodes: Sequence[Node], assigned: StepPlacement
    ) -> dict[str, Part] | None:
        """Return the partitions by device; None if one device runs everything."""
        delayed: dict[tuple[Output, str], Node] = {}
        if self._optimize:
            small = [name for name in self._gates if self._devices_by_name[name].memory_limit]
            retained = small if step.changes["run ahead"] else []
            delayed = {**assigned.delays(), **assigned.memory_delays(retained)}
        return partition(
            step,
            nodes,
            assigned.places.__getitem__,
            self._home_device,
            self._gates,
            delayed,
            self._lossy,
        )

    def _can_compress(self, device: str) -> bool:
        return all(kernels_on(self._devices_by_name[device], op) for op in (TRUNCATE, EXTEND))


class Planner(PartPlanner):
    """Plans the steps of one session on devices of this process, and derives executables.

    Args:
      devices: the session's devices, the host's first.
      overlap: decides which nodes may run in parallel.
    """

    def __init__(self, devices: Sequence[Device], config: SessionConfig, overlap: Overlap) -> None:
        descriptions = [device.describe(devices) for device in devices]
        super().__init__(descriptions, devices[0], config, overlap)
        self._live = {device.name: device for device in devices}

    def plan(
        self,
        feeds: Sequence[Output],
        outputs: Sequence[Output],
        targets: Sequence[Node],
        size: int = 0,
        is_first: bool = False,
    ) -> Executable:
        """Return the executable of one signature.

        Args:
          size: as for `parts`.
          is_first: True to allow a plan without compiled regions, with a `warm_up`.
        Raises: OpError: a node cannot be placed, or its kernel rejects its attributes.
        """
        parts = self._parts(feeds, outputs, targets, size)
        return self._derive_executable(parts, len(feeds), len(outputs), is_first)

    def explain(
        self,
        feeds: Sequence[Output],
        outputs: Sequence[Output],
        targets: Sequence[Node],
        size: int = 0,
    ) -> StepReport:
        """Explain the plan of a step, stage by stage, including the compiled regions."""
        from weft_exec.executor.native.background_compilation import compilation
        from weft_exec.executor.native.regions import choose_nodes

        report = super().explain(feeds, outputs, targets, size)
        for name, part in self._parts(feeds, outputs, targets, size).items():
            offer = offer_of(part.step, part.nodes, place_on(self._live[name]))
            choice = choose_nodes(offer)
            if choice is not None:
                report.add_compiled(choice)
                report.add_states(compilation().states(self._live[name]))
        return report

    def plan_partial(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node]
    ) -> PartialPlan:
        """Plan the steps of one `partial_run_setup`; arguments as for `plan`.

        Raises: OpError: see `plan`.
        """
        parts, home, requirements = self.partial_parts(feeds, outputs, targets)
        return PartialPlan(self._derive_executable(parts, 0, 0), home, requirements)

    def _derive_executable(
        self, parts: Mapping[str, Part], feeds: int, outputs: int, is_first: bool = False
    ) -> Executable:
        """Derive the executable of a partitioned step with some numbers of feeds and outputs."""
        name, part = next(iter(parts.items()))
        device = self._live[name]
        if len(parts) == 1 and device.memory_space == HOST:
            check = self._placer.place if len(self._live) == 1 else None
            placement = place_on(device, check)
            budget = self._part_budgets().get(name)
            make = derive_first if is_first else derive
            return make(part.step, placement, self._overlap, part.nodes, budget=budget)
        budgets = self._part_budgets()
        return derive_parts(parts, self._live, self._overlap, feeds, outputs, budgets)
