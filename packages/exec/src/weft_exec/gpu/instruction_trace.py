"""Traces of instructions: the slots that they read and write, and the processor that runs them.

`trace_instructions` runs a segment once and records a trace of each instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from weft_exec.executor.linear import Compound, Instruction, Segment, Slots
from weft_exec.executor.region import RegionCall
from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.capture import current
from weft_exec.gpu.residency import is_of_host, stays_on_host
from weft_exec.gpu.shadows import variable_state
from weft_exec.kernels.random_counters import needs_counters
from weft_exec.resources.resources import VariableState
from weft_graph.ir.node import Node


class Kind(Enum):
    """The processor that runs an instruction."""

    HOST = "takes values of the host alone"
    DEVICE = "takes and gives values of the GPU, and the host looks at none"
    BREAK = "neither"


class InstructionTrace(NamedTuple):
    """The recorded reads and writes of an instruction.

    Attributes:
      position: its index in the segment.
      reads: the slots that it reads, with their values.
      writes: the slots that it writes.
      multiplies: True if it computes matrix products.
    """

    position: int
    kind: Kind
    reads: dict[int, Any]
    writes: frozenset[int]
    multiplies: bool


class _RecordingSlots(list[Any]):
    """A slot list that records reads and writes."""

    def __init__(self, slots: Slots) -> None:
        super().__init__(slots)
        self.clear_record()

    def clear_record(self) -> None:
        """Clear the record."""
        self.reads: dict[int, Any] = {}
        self.writes: set[int] = set()

    def __getitem__(self, index: Any) -> Any:
        for slot in range(len(self))[index] if isinstance(index, slice) else (index,):
            if slot not in self.writes:
                self.reads.setdefault(slot, list.__getitem__(self, slot))
        return list.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.writes.update(range(len(self))[index] if isinstance(index, slice) else (index,))
        list.__setitem__(self, index, value)


def trace_instructions(
    device: BaseGpuDevice, segment: Segment, slots: Slots
) -> list[InstructionTrace]:
    """Run the instructions of a segment one by one, and return their traces."""
    traces, recording = [], _RecordingSlots(slots)
    for index, instruction in enumerate(list(segment.instructions)):
        recording.clear_record()
        num_products = current.products
        node = segment.nodes[index]
        Segment([instruction], [node], segment.devices[index : index + 1]).run(recording)
        dead = instruction[3]
        recording.writes.discard(0)
        written = {slot: list.__getitem__(recording, slot) for slot in recording.writes}
        kind = _classify(device, instruction, node, recording.reads, written.values())
        traces.append(
            InstructionTrace(
                index,
                kind,
                _without_arrays(device, recording.reads),
                frozenset(recording.writes.difference(dead)),
                current.products > num_products,
            )
        )
        for slot, value in written.items():
            slots[slot] = value
    return traces


def _without_arrays(device: BaseGpuDevice, reads: dict[int, Any]) -> dict[int, Any]:
    """Return the values that were read, with None in place of arrays of the GPU."""
    return {slot: None if device.is_own(value) else value for slot, value in reads.items()}


def _classify(
    device: BaseGpuDevice,
    instruction: Instruction,
    node: Node,
    reads: dict[int, Any],
    written: Iterable[Any],
) -> Kind:
    """Return the processor that has run an instruction."""
    function, is_own = instruction[0], device.is_own
    is_region = isinstance(function, RegionCall)
    if isinstance(function, Compound) and not is_region:
        return Kind.BREAK
    inputs = [*reads.values(), *_bound_variables(function)]
    variables = list(filter(None, map(variable_state, inputs)))
    on_device = [state for state in variables if state.xp is device.xp]
    if not any(map(is_own, inputs)) and not on_device:
        return Kind.BREAK if is_region else Kind.HOST
    other_values = [
        v for v in inputs if not is_own(v) and variable_state(v) is None and v is not None
    ]
    if len(on_device) < len(variables) or not all(map(_is_small, other_values)):
        return Kind.BREAK
    if not all(v is None or is_own(v) or variable_state(v) in on_device for v in written):
        return Kind.BREAK
    if not is_region and (needs_counters(node) or (node.op_def.stateful and not variables)):
        return Kind.BREAK
    return Kind.DEVICE


def _bound_variables(function: Callable[..., Any]) -> list[VariableState]:
    """Return the variable that a function reads if it is a bound method of a variable."""
    owner = getattr(function, "__self__", None)
    return [owner] if isinstance(owner, VariableState) else []


def _is_small(value: Any) -> bool:
    """Return True if a host value is small enough to be part of a graph's conditions."""
    if not is_of_host(value) or value.dtype.hasobject:
        return False
    return stays_on_host(value) or value.nbytes <= np.dtype(np.complex128).itemsize
