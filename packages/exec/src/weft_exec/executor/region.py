"""Regions: several nodes that one function computes, and that traces and errors still name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from traceback import clear_frames
from typing import Any

from weft_exec.devices.device import Device
from weft_exec.executor.derivation import Placement
from weft_exec.executor.kernel_errors import located, raise_located
from weft_exec.executor.linear import (
    Check,
    Compound,
    Instruction,
    Segment,
    Slots,
    Trace,
    gather,
    slot_range,
)
from weft_graph.ir.node import Node, Output
from weft_tensor import errors


class Region:
    """Nodes that are computed together.

    Attributes:
      node: what stands for them in the graph.
      members: sources before users; they stay in the graph, where nothing takes their outputs but
        each other.
      outputs: what others take of them, in the order of the function's results.
      compiler: the name of what computes them.
    """

    def __init__(
        self,
        node: Node,
        members: Sequence[Node],
        outputs: Sequence[Output],
        compiler: str,
    ) -> None:
        self.node = node
        self.members = tuple(members)
        self.outputs = tuple(outputs)
        self.compiler = compiler

    @property
    def inputs(self) -> tuple[Output, ...]:
        """The outputs of other nodes that they take, in the order of the function's arguments."""
        return self.node.inputs


class RegionCall(Compound):
    """The function of a region's node.

    Args:
      place: gives the kernels of the members, for steps that look at each of them.
      function: computes them all.
    """

    def __init__(
        self, region: Region, device: Device, place: Placement, function: Callable[..., Any]
    ) -> None:
        self._region = region
        self._device = device
        self._function = function
        self._slots: dict[Output, int] = {out: i + 1 for i, out in enumerate(region.inputs)}
        self._size = 1 + len(region.inputs)
        instructions = [self._instruction(member, *place(member)) for member in region.members]
        devices = [device.name] * len(instructions)
        self._members = Segment(self._forgetting(instructions), region.members, devices)

    def __call__(self, *inputs: Any) -> Any:
        """The results, by the function; where it fails, the member that does is found."""
        try:
            return self._function(*inputs)
        except Exception as error:  # because a compiler's function may raise anything
            clear_frames(error.__traceback__)  # what the function holds may take all memory
            self._members.run(self._filled(inputs))
            raise_located(self._unexplained(error, inputs))

    def call_checked(self, check: Check, trace: Trace | None, *inputs: Any) -> Any:
        """The results, by the kernels of the members one after the other."""
        slots = self._filled(inputs)
        self._members.run_checked(slots, check, trace)
        values = tuple([slots[self._slots[output]] for output in self._region.outputs])
        return values[0] if len(values) == 1 else values

    @property
    def segments(self) -> Sequence[Segment]:
        """The members."""
        return (self._members,)

    def _filled(self, inputs: Sequence[Any]) -> Slots:
        return [None, *inputs, *[None] * (self._size - 1 - len(inputs))]

    def _instruction(self, node: Node, device: Device, kernel: Any) -> Instruction:
        try:
            function = kernel.make(node, device)
        except Exception as error:  # because a factory may raise anything; it is located
            raise_located(located(error, node, device.name, ()))
        first = self._size
        for output in node.outputs:
            self._slots[output] = self._size
            self._size += 1
        target: int | slice = first
        if len(node.outputs) > 1:
            target = slice(first, self._size)
        return function, gather([self._slots[source] for source in node.inputs]), target, ()

    def _forgetting(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """The instructions, each of which forgets what only those before it and it need."""
        last: dict[int, int] = {}
        for i, (node, (_, _, target, _)) in enumerate(
            zip(self._region.members, instructions, strict=True)
        ):
            last.update(dict.fromkeys(slot_range(target), i))
            last.update((self._slots[source], i) for source in node.inputs)
        kept = {self._slots[output] for output in self._region.outputs}
        dead: list[list[int]] = [[] for _ in instructions]
        for slot, i in last.items():
            if slot not in kept:
                dead[i].append(slot)
        return [
            (function, take, target, tuple(slots))
            for (function, take, target, _), slots in zip(instructions, dead, strict=True)
        ]

    def _unexplained(self, error: Exception, inputs: Sequence[Any]) -> errors.OpError:
        """The error of a function where no member fails."""
        region = self._region
        names = ", ".join([member.name for member in region.members[:5]])
        found = errors.InternalError(
            f"what the compiler {region.compiler!r} made of {names} failed, and no kernel of these "
            f"does: {error!r}"
        )
        found.__cause__ = error
        return located(found, region.node, self._device.name, inputs)
