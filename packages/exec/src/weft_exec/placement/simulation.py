"""A simulated run of a graph that places its nodes (paper, section 3.2.1).

Nodes are visited in execution order. Each goes to the device on which it would finish first, given
the cost model's time for it, the arrival of its inputs and the time at which the device is free.
Earlier decisions affect later nodes. There are four exceptions:

- The first node of a group decides for the whole group.
- State and small sources are placed with their first user. A variable that is only read has no
  device until a node uses its value.
- A loop without device requests stays on one device, because each crossing would cost a message per
iteration.
- A node that is small compared with a transfer stays with its inputs: devices of one process share
  the dispatching thread, so moving the node could not pay off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from weft_exec.costs import CostModel
from weft_exec.devices.description import DeviceDescription
from weft_exec.placement import report as why
from weft_exec.placement.groups import Group, Groups
from weft_exec.placement.report import NodePlacement, PlacementReport
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import dependencies_of
from weft_graph.passes.partition import goes_along, is_anywhere
from weft_tensor import errors

_GRAIN: Final = 4
"""A node is only moved away from its inputs if it takes this multiple of the transfer time."""
_ROUNDS: Final = 10
"""Assumed trip count of loops."""

_ANYWHERE: Final = -1
_UNDECIDED: Final = -2


class Transfer(NamedTuple):
    """A transfer.

    Attributes:
      value: the value, sent once to each device.
      source, target: names of devices.
      nbytes: its size.
      start, arrival: start and end of the transfer.
    """

    value: Output
    source: str
    target: str
    nbytes: int
    start: float
    arrival: float


class _Unit:
    """A unit of placement: a node, a group, or a loop.

    Attributes:
      group: the group of its first node.
      candidates: numbers of the possible devices.
      device: the chosen device; `_UNDECIDED` until then.
      waits: True if its first user decides its device.
      reason: the rule that selected its device.
      finishes: the simulated finish times on the candidates.
      nodes: all nodes of a loop, else empty.
    """

    __slots__ = ("candidates", "device", "finishes", "group", "nodes", "reason", "waits")

    def __init__(self, group: Group, candidates: tuple[int, ...]) -> None:
        self.group = group
        self.candidates = candidates
        self.device = _UNDECIDED
        self.waits = False
        self.reason = why.TOGETHER
        self.finishes: dict[int, float] = {}
        self.nodes: list[Node] = []


class Simulation:
    """One simulated run.

    It is list scheduling: each node starts when its device is free and its inputs have arrived, and
    occupies the device until it ends. Each node is visited once, after everything that it depends
    on, so a decision never changes.

    A unit is decided when its first node is visited. Unused variables and small sources wait: their
    first user decides for them (`_decide_inputs`). The nodes of a loop are visited once too, but
    the loop is placed by the time of all of them, multiplied by `_ROUNDS`.

    Args:
      nodes: in topological order, without the back edges of loops.
      pinned: devices of groups with state, by the name of the group.
      kept_bytes: the bytes of such groups on each device, which the run updates.
    Attributes:
      found: the device number of each placed node.
      pinned: the groups with state that this run has decided.
      crossings: the transfers, in the order of their first users.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        devices: Sequence[DeviceDescription],
        groups: Groups,
        costs: CostModel,
        pinned: Mapping[str, int],
        kept_bytes: list[int],
    ) -> None:
        self._nodes = nodes
        self._devices = devices
        self._groups = groups
        self._costs = costs
        self._previous_devices = pinned
        self.kept_bytes = kept_bytes
        self.pinned: dict[str, int] = {}
        self.found: dict[Node, int] = {}
        self._limits = [device.memory_limit for device in devices]
        self._live = [0] * len(devices)
        self._uses: dict[Node, int] = {}
        self._units: dict[object, _Unit] = {}
        self._unit_of: dict[Node, _Unit] = {}
        self._loop_of: dict[Node, str] = {}
        self._loops: dict[str, list[Node]] = {}
        self._loop_devices: dict[str, tuple[int, ...]] = {}
        kinds = [(device.type, device.performance) for device in devices]
        self._kind = [kinds.index(kind) for kind in kinds]
        self._free = [0.0] * len(devices)
        self._start: dict[Node, float] = {}
        self._ready: dict[Node, float] = {}
        self._arrived: dict[tuple[Node, int, int], float] = {}
        self.crossings: list[Transfer] = []

    def run(self, strict: bool = True, count_step_values: bool = True) -> None:
        """Run the simulation.

        Args:
          strict: True to raise an error for a node that cannot be placed; False to skip it.
          within_limits: True to count the values of a step against memory limits; variables always
            count.
        Raises: UnimplementedError, InvalidArgumentError, ResourceExhaustedError.
        """
        self._find_loops()
        if count_step_values and any(self._limits):
            self._count_uses()
        for node in self._nodes:
            try:
                self._simulate(node)
            except (errors.UnimplementedError, errors.InvalidArgumentError):
                if strict:
                    raise
                self._start[node] = self._ready[node] = self._inputs_ready_time(node)
        if strict:  # after its users, whose names say more in an error
            for node in self._nodes:
                if node.device and node.role is Role.CONSTANT:
                    self._groups.check_device(node)
        for unit in self._units.values():
            if unit.device == _UNDECIDED:
                self._settle(unit, self._first_that_fits(unit), why.FIRST)
        for node, unit in self._unit_of.items():
            self.found[node] = unit.device

    # ------------------------------------------------------------------ one node

    def _simulate(self, node: Node) -> None:
        if is_anywhere(node):
            self._start[node] = self._ready[node] = self._inputs_ready_time(node)
            return
        unit = self._unit(node)
        if unit is None:
            self._start[node] = self._ready[node] = self._inputs_ready_time(node)
            return
        self._unit_of[node] = unit
        if unit.device == _UNDECIDED and not unit.waits:
            self._choose(node, unit)
        if unit.device == _UNDECIDED:
            self._start[node] = self._ready[node] = self._inputs_ready_time(node)
            return
        self._simulate_run(node, unit.device)

    def _unit(self, node: Node) -> _Unit | None:
        """Return the unit of a node; None for a node that stays with its input."""
        group = self._groups.group(node)
        key: object = self._groups.root(node.name)
        if len(group.members) < 2 and not group.stateful and not node.device:
            loop = self._loop_of.get(node)
            if loop is not None and self._devices_of(loop):
                key = ("loop", loop)
            elif goes_along(node):
                return None
        unit = self._units.get(key)
        if unit is None:
            unit = self._new_unit(node, group, key)
        return unit

    def _new_unit(self, node: Node, group: Group, key: object) -> _Unit:
        if isinstance(key, tuple):
            unit = _Unit(group, self._devices_of(key[1]))
            unit.nodes = self._loops[key[1]]
            unit.reason = why.LOOP
        else:
            unit = _Unit(group, self._groups.candidates(node, group))
            unit.waits = group.holds
            previous_device = self._previous_devices.get(str(key))
            if previous_device is not None and (group.holds or previous_device in unit.candidates):
                unit.device, unit.reason = previous_device, why.STATE
        self._units[key] = unit
        if unit.device == _UNDECIDED and len(unit.candidates) == 1:
            reason = why.REQUESTED if group.requests else why.ONLY
            self._settle(unit, self._first_that_fits(unit), reason)
        return unit

    # ------------------------------------------------------------------ choosing

    def _choose(self, node: Node, unit: _Unit) -> None:
        """Decide the device of a unit when its first node is visited."""
        candidates = self._candidates_with_memory(node, unit)
        times = self._times(node, unit, candidates)
        if max(times.values()) < _GRAIN * self._transfer_time(node):
            nearest = self._nearest_candidate(node, candidates)
            if nearest is not None:
                self._settle(unit, nearest, why.NEAR if unit.reason != why.LOOP else why.LOOP)
                return
            if all([self._device_index(source.node) < 0 for source in node.inputs]):
                unit.waits = True
                return
        unit.finishes = {
            i: max(self._free[i], self._inputs_ready_time(node, i)) + seconds
            for i, seconds in times.items()
        }
        best = min(candidates, key=unit.finishes.__getitem__)
        grouped = len(unit.group.members) > 1
        reason = why.ROOM if len(candidates) < len(unit.candidates) else why.FINISH
        self._settle(unit, best, why.TOGETHER if grouped else reason)

    def _times(self, node: Node, unit: _Unit, candidates: Sequence[int]) -> dict[int, float]:
        """Return the time of a node or a whole loop on each device.

        Equal devices share a result.
        """
        by_kind: dict[int, float] = {}
        for i in candidates:
            kind = self._kind[i]
            if kind not in by_kind:
                seconds = self._devices[kind]
                by_kind[kind] = (
                    _ROUNDS * sum([self._costs.seconds(node, seconds) for node in unit.nodes])
                    if unit.nodes
                    else self._costs.seconds(node, seconds)
                )
        return {i: by_kind[self._kind[i]] for i in candidates}

    def _transfer_time(self, node: Node) -> float:
        """Return the shortest time for transferring the node's inputs."""
        nbytes = sum([self._costs.nbytes(source) for source in node.inputs])
        first, second = self._devices[:2]
        return self._costs.transfer_seconds(nbytes, first, second)

    def _nearest_candidate(self, node: Node, candidates: Sequence[int]) -> int | None:
        """Return the candidate that has most of a node's inputs in bytes.

        None if no candidate has any.
        """
        amounts: dict[int, int] = {}
        for source in node.inputs:
            device_index = self._device_index(source.node)
            if device_index in candidates:
                amounts[device_index] = (
                    amounts.get(device_index, 0) + 1 + self._costs.nbytes(source)
                )
        if not amounts:
            return None
        return max(amounts, key=lambda place: (amounts[place], -place))

    def _settle(self, unit: _Unit, device: int, reason: str) -> None:
        unit.device, unit.reason = device, reason
        if unit.group.stateful:
            self.pinned[self._groups.root(next(iter(unit.group.members)))] = device
            self.kept_bytes[device] += self._persistent(unit)

    # ------------------------------------------------------------------ times

    def _simulate_run(self, node: Node, device: int) -> None:
        """Simulate the execution of a node."""
        self._decide_inputs(node, device)
        start = max(self._free[device], self._inputs_ready_time(node, device, arrive=True))
        self._start[node] = start
        self._ready[node] = self._free[device] = start + self._costs.seconds(
            node, self._devices[device]
        )
        if self._uses:
            self._account(node, device)

    def _decide_inputs(self, node: Node, device: int) -> None:
        """Place undecided inputs, and their own undecided inputs, with their first user."""
        own_unit = self._unit_of.get(node)
        stack = [source.node for source in node.inputs]
        while stack:
            source = stack.pop()
            unit = self._producer_unit(source)
            if unit is None or unit is own_unit or unit.device != _UNDECIDED:
                continue
            chosen_device = device if device in unit.candidates else self._first_that_fits(unit)
            if self._fits(unit, chosen_device):
                self._settle(unit, chosen_device, why.USER)
            else:
                self._settle(unit, self._first_that_fits(unit), why.ROOM)
            stack += [input_.node for input_ in source.inputs]

    def _inputs_ready_time(
        self, node: Node, device: int = _ANYWHERE, arrive: bool = False
    ) -> float:
        """Return the time when all inputs of a node are available.

        Args:
          device: the number of the node's device; if None, transfers take no time.
          arrive: True to record the transfers.
        """
        latest = 0.0
        if device == _ANYWHERE:
            for producer in dependencies_of(node):
                latest = max(latest, self._ready.get(producer, 0.0))
            return latest
        for source in node.inputs:
            if not is_back_edge(node, source):
                latest = max(latest, self._arrival(source, device, arrive))
        for control in node.controls:
            latest = max(latest, self._ready.get(control, 0.0))
        return latest

    def _arrival(self, source: Output, device: int, arrive: bool) -> float:
        """Return the arrival time of a value on a device."""
        ready = self._ready.get(source.node, 0.0)
        device_index = self._device_index(source.node)
        if device_index < 0 or device_index == device:
            return ready
        key = (source.node, source.index, device)
        arrival = self._arrived.get(key)
        if arrival is not None:
            return arrival
        nbytes = self._costs.nbytes(source)
        seconds = self._costs.transfer_seconds(
            nbytes, self._devices[device_index], self._devices[device]
        )
        if arrive:
            self._arrived[key] = ready + seconds
            names = self._devices[device_index].name, self._devices[device].name
            self.crossings.append(Transfer(source, *names, nbytes, ready, ready + seconds))
        return ready + seconds

    def _device_index(self, node: Node) -> int:
        """Return the number of a node's device, or `_ANYWHERE`, or `_UNDECIDED`."""
        while True:
            unit = self._unit_of.get(node)
            if unit is not None:
                return unit.device
            if is_anywhere(node) or not goes_along(node):
                return _ANYWHERE
            node = next(s.node for s in node.inputs if not is_back_edge(node, s))

    def _producer_unit(self, node: Node) -> _Unit | None:
        while node not in self._unit_of:
            if is_anywhere(node) or not goes_along(node):
                return None
            node = next(s.node for s in node.inputs if not is_back_edge(node, s))
        return self._unit_of[node]

    # ------------------------------------------------------------------ memory

    def _persistent(self, unit: _Unit) -> int:
        return sum([self._costs.persistent_bytes(m) for m in unit.group.members.values()])

    def _fits(self, unit: _Unit, device: int) -> bool:
        limit = self._limits[device]
        return not limit or self.kept_bytes[device] + self._persistent(unit) <= limit

    def _first_that_fits(self, unit: _Unit) -> int:
        """Return the first candidate with enough memory for the state of a unit.

        Raises: ResourceExhaustedError: no candidate has enough memory.
        """
        for device in unit.candidates:
            if self._fits(unit, device):
                return device
        names = list(unit.group.members)
        node = unit.group.members[names[0]]
        requested = ", ".join(unit.group.requests) or "nothing"
        candidates = ", ".join(
            f"{self._devices[i].name} ({self._limits[i]} bytes, {self.kept_bytes[i]} taken)"
            for i in unit.candidates
        )
        raise errors.ResourceExhaustedError(
            f"{', '.join(names[:5])}{' and others' if len(names) > 5 else ''} keep "
            f"{self._persistent(unit)} bytes, more than any device has free; requested: "
            f"{requested}; "
            f"candidates: {candidates}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )

    def _candidates_with_memory(self, node: Node, unit: _Unit) -> tuple[int, ...]:
        """Return the candidates with enough memory for a node's results, or else all."""
        if not self._uses:
            return unit.candidates
        nbytes = sum([self._costs.nbytes(output) for output in node.outputs])
        fitting = [
            i
            for i in unit.candidates
            if not self._limits[i] or self.kept_bytes[i] + self._live[i] + nbytes <= self._limits[i]
        ]
        return tuple(fitting) or unit.candidates

    def _count_uses(self) -> None:
        for node in self._nodes:
            self._uses.setdefault(node, 0)
            for source in node.inputs:
                self._uses[source.node] = self._uses.get(source.node, 0) + 1

    def _account(self, node: Node, device: int) -> None:
        """Account for the memory of a node's results until their last user has run."""
        if node.outputs and self._uses.get(node):
            self._live[device] += sum([self._costs.nbytes(output) for output in node.outputs])
        for source in node.inputs:
            remaining_uses = self._uses[source.node] = self._uses[source.node] - 1
            device_index = self._device_index(source.node)
            if not remaining_uses and device_index >= 0:
                freed = sum([self._costs.nbytes(output) for output in source.node.outputs])
                self._live[device_index] -= freed

    # ------------------------------------------------------------------ loops

    def _find_loops(self) -> None:
        """Find the outermost loop of each node that is in one."""
        loops_of: dict[Node, tuple[str, ...]] = {}
        for node in self._nodes:
            names: tuple[str, ...] = ()
            for producer in dependencies_of(node):
                producer_loops = loops_of.get(producer)
                if producer_loops is not None and len(producer_loops) > len(names):
                    names = producer_loops
            if node.role is Role.ENTER:
                names = (*names, node.attrs["frame_name"])
            elif node.role is Role.EXIT:
                names = names[:-1]
            if names:
                loops_of[node] = names
                if not is_anywhere(node):
                    self._loop_of[node] = names[0]
                    self._loops.setdefault(names[0], []).append(node)

    def _devices_of(self, loop: str) -> tuple[int, ...]:
        """Return the devices that could run a whole loop; empty if a node requests a device."""
        loop_device = self._loop_devices.get(loop)
        if loop_device is None:
            loop_device = tuple(range(len(self._devices)))
            for node in self._loops[loop]:
                group = self._groups.group(node)
                candidates = () if group.requests else loop_device
                if candidates and not group.stateful:
                    candidates = self._groups.candidates(node, group)
                loop_device = tuple([i for i in loop_device if i in candidates])
            self._loop_devices[loop] = loop_device
        return loop_device

    # ------------------------------------------------------------------ report

    def report(self) -> PlacementReport:
        """Return the decisions as a report."""
        rows = []
        for node in self._nodes:
            unit = self._unit_of.get(node)
            if unit is None or unit.device < 0:
                continue
            finishes = unit.finishes or dict.fromkeys(unit.candidates, float("nan"))
            rows.append(
                NodePlacement(
                    node.name,
                    node.type,
                    self._devices[unit.device].name,
                    why.REQUESTED if node.device and unit.reason == why.TOGETHER else unit.reason,
                    {self._devices[i].name: finish for i, finish in finishes.items()},
                    self._start.get(node, 0.0),
                    self._ready.get(node, 0.0),
                )
            )
        transfers = [
            (c.value.name, c.source, c.target, c.nbytes, c.arrival) for c in self.crossings
        ]
        return PlacementReport(rows, transfers)

    def times(self) -> dict[Node, tuple[float, float]]:
        """Return the start and end of each node."""
        return {node: (self._start[node], ready) for node, ready in self._ready.items()}
