"""Regions on devices that have memory and code of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import Claim, Offer
from weft_exec.executor.native.choice import choose
from weft_exec.executor.native.function import Mode, Specialised
from weft_exec.executor.native.watch import watched
from weft_exec.executor.region import Region
from weft_exec.resources.resources import state_of
from weft_graph.ir.code_generators import (
    Choosing,
    CodeGenerator,
    DeviceCodeGenerator,
    device_generators,
)
from weft_graph.ir.jit_scope import CHECKED, COMPILED
from weft_graph.ir.node import Node
from weft_tensor import errors


class Compiling(Protocol):
    """A device whose kernels may be compiled."""

    def code_generator(self, inner: DeviceCodeGenerator) -> CodeGenerator:
        """What makes functions of its arrays, by kernels that are generated."""
        ...

    def launched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of values of the device, where the function works on its arrays."""
        ...


def on_devices(offer: Offer, said: str, asked: set[Node]) -> Iterable[Claim]:
    """The regions of a part that devices other than processors compute.

    Nodes there are compiled where somebody says so, which `WEFT_JIT` may, and not unasked. They are
    compiled when shapes are first met: how long kernels take there nobody waits to see.
    """
    every = said in ("on", "now")
    plain = {node for node in asked if node.attrs.get(COMPILED, every)}
    mode = Mode.NOW if said == "now" else Mode.FIRST
    types = {offer.place(node)[0].type for node in plain if node.inputs and not node.traits.routes}
    for device_type in sorted(types - {"CPU"}):
        generator = device_generators.get(device_type)
        if generator is not None:
            yield from _claims(offer, generator, plain, device_type, mode)


def _claims(
    offer: Offer, inner: DeviceCodeGenerator, asked: set[Node], device_type: str, mode: Mode
) -> Iterable[Claim]:
    def make(region: Region, device: Any) -> Callable[..., Any]:
        seen = watched(device.code_generator(inner), region, device.to_host)
        if seen is not None:
            return seen
        checked = any(CHECKED in member.attrs for member in region.members)
        function = _Region(device.code_generator(inner), region, device, mode, checked)
        return _Launched(function, device.launched(function))

    for members in choose(offer, inner, asked, device_type).regions:
        draws = [member for member in members if inner.draws(member)]
        yield Claim(members, make, updates=updates_of(inner, members), draws=draws)


class _Region(Specialised):
    """Computes members on a device; not where it would change variables of the host."""

    def __init__(
        self,
        generator: CodeGenerator,
        region: Region,
        device: Device,
        mode: Mode,
        checked: bool = False,
    ) -> None:
        super().__init__(generator, region, device, mode, checked)
        self._changes: Sequence[int] = region.node.attrs["updates"]

    def __call__(self, *inputs: Any) -> Any:
        """The results; NotImplemented also where a check fails: kernels say what becomes of it."""
        if any(state_of(inputs[at]).xp is np for at in self._changes):
            return NotImplemented
        try:
            return super().__call__(*inputs)
        except errors.InvalidArgumentError:
            return NotImplemented


class _Launched:
    """A region's function, where values are as the device's kernels see them."""

    def __init__(self, function: Specialised, launched: Callable[..., Any]) -> None:
        self._launched = launched
        self.stop = function.stop
        self.deciding = function.deciding

    def __call__(self, *inputs: Any) -> Any:
        return self._launched(*inputs)


def updates_of(generator: Choosing, members: Iterable[Node]) -> dict[Node, int]:
    """Those of some nodes that change variables, and how many each does."""
    counts = {member: generator.changes(member) for member in members}
    return {member: count for member, count in counts.items() if count}
