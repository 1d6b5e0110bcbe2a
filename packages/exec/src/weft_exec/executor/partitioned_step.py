"""A step of several partitions, each of which has a ready queue, driven as one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from weft_exec.devices.description import HOST
from weft_exec.devices.device import Device
from weft_exec.executor.derivation import Placement
from weft_exec.executor.derive import derive
from weft_exec.executor.executable import Executable
from weft_exec.executor.frames import StepPlan
from weft_exec.executor.linear import Slots
from weft_exec.executor.memory_budget import MemoryBudget
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.queue_entries import RECEIVE
from weft_exec.executor.step import StepMachine, Token
from weft_exec.kernels.registry import Kernel, require_kernel
from weft_exec.resources.resources import CompletionCallback
from weft_graph.ir.node import Node
from weft_graph.ir.step_graph import Part
from weft_tensor import errors


class StepMachines:
    """The ready queues of a step's partitions, with the interface of `StepMachine`."""

    def __init__(self, machines: Sequence[StepMachine]) -> None:
        self._machines = list(machines)
        self._next = 0

    @property
    def running(self) -> list[Token]:
        """The number of entries that were handed out and have not finished."""
        return [token for machine in self._machines for token in machine.running]

    @property
    def heavy_ready(self) -> int:
        """The number of ready heavy entries."""
        return sum(machine.heavy_ready for machine in self._machines)

    @property
    def error(self) -> errors.OpError | None:
        """The first failure."""
        return self._machines[0].error

    @property
    def done(self) -> bool:
        """True if no entry runs and no further entry will."""
        return all([machine.done for machine in self._machines])

    def take(self) -> Token | None:
        """Return a ready entry, round-robin over the partitions, or None."""
        machines = self._machines
        for _ in machines:
            machine = machines[self._next]
            self._next = (self._next + 1) % len(machines)
            token = machine.take()
            if token is not None:
                return token
        return None

    def finished(self, token: Token, dead: bool = False) -> None:
        """Record that a running entry has finished."""
        self._machines[token[0].part].finished(token, dead)

    def failed(self, token: Token, error: errors.OpError) -> bool:
        """Record that a running entry has failed; return True if it is the first failure."""
        first = self._machines[token[0].part].failed(token, error)
        return self.abort(error) or first

    def abort(self, error: errors.OpError) -> bool:
        """Prevent entries of all partitions from starting; return True on the first failure."""
        return all([machine.abort(error) for machine in self._machines])

    def interrupt(self, error: errors.OpError) -> bool:
        """Call `abort` from a thread other than the step's."""
        return all([machine.interrupt(error) for machine in self._machines])

    def end(self) -> None:
        """Clear an interruption that came too late to have an effect."""
        for machine in self._machines:
            machine.end()

    def ready_time(self, token: Token) -> int:
        """Return the clock reading when an entry became ready; 0 if unknown."""
        return self._machines[token[0].part].ready_time(token)

    def watch_releases(self, token: Token, slots: Sequence[int], times: list[int]) -> None:
        """See `TracedStepMachine`."""
        self._machines[token[0].part].watch_releases(token, slots, times)

    def take_error(self) -> errors.OpError:
        """Return the first failure and clear it."""
        first, *_ = [machine.take_error() for machine in self._machines]
        return first

    def close(self) -> None:
        """Release all values."""
        for machine in self._machines:
            machine.close()


class PartedExecutable(Executable):
    """The executable of one signature on several devices.

    Its slots are the fed values, followed by a slot that contains the slots of all partitions.
    """

    __slots__ = ("_count", "_parts")

    def __init__(self, parts: Sequence[tuple[Part, Executable]], feeds: int, fetches: int) -> None:
        super().__init__([None] * (feeds + 1), range(feeds), (), None, None)
        self._parts = list(parts)
        self._count = fetches
        for i, (_, executable) in enumerate(parts):
            if executable.linear is not None:
                executable.plan = StepPlan.for_segment(executable.linear)
                executable.linear = executable.run_line = None
            assert executable.plan is not None
            for entry in executable.plan.entries:
                entry.part = i

    def machine(self, slots: Slots, make: type[StepMachine] = StepMachine) -> Any:
        """Return the ready queues of a step."""
        own_machines = []
        machines = []
        for part, executable in self._parts:
            machine_copy = executable.template.copy()
            for slot, position in zip(executable.feed_slots, part.feeds, strict=True):
                machine_copy[slot] = slots[position]
            own_machines.append(machine_copy)
            machines.append(executable.machine(machine_copy, make))
        slots[-1] = own_machines
        return StepMachines(machines)

    def results(self, slots: Slots) -> list[Any]:
        """Return the fetched values, which belong to the caller."""
        result: list[Any] = [None] * self._count
        for (part, executable), slot in zip(self._parts, slots[-1], strict=True):
            for position, value in zip(part.fetches, executable.results(slot), strict=True):
                result[position] = value
        return result

    def cancel(self) -> None:
        """Cancel running steps at their next node, and later ones immediately."""
        for _, executable in self._parts:
            executable.cancel()


def derive_parts(
    parts: Mapping[str, Part],
    devices: Mapping[str, Device],
    overlap: Overlap,
    feeds: int,
    fetches: int,
    budgets: Mapping[str, MemoryBudget] | None = None,
) -> PartedExecutable:
    """Return the executable of a partitioned step.

    Args:
      parts: the partitions by device.
      feeds, fetches: the numbers of feeds and fetches of the complete step.
      budgets: by device, as for `derive_part`.
    Raises: OpError: see `derive`.
    """
    budgets = budgets or {}
    derived = [
        (part, derive_part(part, devices[name], overlap, devices, budgets.get(name)))
        for name, part in parts.items()
    ]
    return PartedExecutable(derived, feeds, fetches)


def derive_part(
    part: Part,
    device: Device,
    overlap: Overlap,
    neighbours: Mapping[str, Device] | None = None,
    budget: MemoryBudget | None = None,
) -> Executable:
    """Return the executable of one partition, independently of other partitions and devices.

    It receives the feeds of the partition and returns its fetches, each in order, and exchanges
    values with other partitions through the rendezvous of the step.

    Args:
      device: the partition's device.
      neighbours: the devices of this process by name. Their values are received unchanged; values
        of other devices are received in the host's memory.
      budget: memory budget of compiled code; None for no limit.
    Raises: OpError: see `derive`.
    """
    is_remote = device.memory_space != HOST
    bring_in = device.from_host if is_remote else None
    placement = place_on(device)
    executable = derive(
        part.step, placement, overlap, part.nodes, bring_in, budget, device.prefers_graphs()
    )
    for segment in executable.segments:
        device.graphed(segment)
    for entry in executable.plan.entries if executable.plan is not None else ():
        if entry.kind != RECEIVE or entry.node is None or _is_signal(entry.node):
            continue
        source = (neighbours or {}).get(entry.node.attrs["send_device"])
        if source is None and is_remote:
            entry.move = partial(_copy_to_device, device)
        elif source is not None and source.memory_space != device.memory_space:
            entry.move = partial(_receive, device, source)
    return executable


def _is_signal(receive: Node) -> bool:
    """Return True if a Receive signals only that a node has ended, without a value."""
    return bool(receive.attrs["tensor_name"].startswith("^"))


def _copy_to_device(target: Device, value: Any, done: CompletionCallback) -> None:
    done(target.from_host(value))


def _receive(target: Device, source: Device, value: Any, done: CompletionCallback) -> None:
    target.receive(value, source, done)


def place_on(device: Device, check: Callable[[Node], object] | None = None) -> Placement:
    """Return a placement of all nodes on one device.

    Args:
      check: raises an error if a node may not be placed on the device.
    """

    def place(node: Node) -> tuple[Device, Kernel]:
        if check is not None:
            check(node)
        return device, require_kernel(node, device.type)

    return place
