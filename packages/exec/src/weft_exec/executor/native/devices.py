"""Regions on devices with their own memory and code generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import CompileOffer, RegionClaim
from weft_exec.executor.native.clustering import choose
from weft_exec.executor.native.function import CompiledRegion
from weft_exec.executor.native.input_recording import watch_region
from weft_exec.executor.native.specialization_cache import Mode
from weft_exec.executor.region import Region
from weft_exec.resources.resources import state_of
from weft_graph.ir.code_generators import (
    CodeGenerator,
    CompileSupport,
    DeviceCodeGenerator,
    device_generators,
)
from weft_graph.ir.jit_scope import CHECKED, COMPILED
from weft_graph.ir.node import Node
from weft_tensor import errors


class CompilingDevice(Protocol):
    """Device whose kernels can be compiled."""

    def code_generator(self, inner: DeviceCodeGenerator) -> CodeGenerator:
        """Return a code generator for functions of the device's arrays, from one of kernels."""
        ...

    def launched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of values of the device for a function of its arrays."""
        ...


def on_devices(
    offer: CompileOffer, jit_setting: str, requested: set[Node]
) -> Iterable[RegionClaim]:
    """Yield the regions of a part on devices other than CPUs.

    Nodes there are compiled only on request, for example by `WEFT_JIT`. They are compiled when
    shapes are first seen, because the time of their kernels is not measured.
    """
    includes_all = jit_setting in ("on", "now")
    plain = {node for node in requested if node.attrs.get(COMPILED, includes_all)}
    mode = Mode.NOW if jit_setting == "now" else Mode.FIRST
    types = {offer.place(node)[0].type for node in plain if node.inputs and not node.traits.routes}
    for device_type in sorted(types - {"CPU"}):
        generator = device_generators.get(device_type)
        if generator is not None:
            yield from _make_claims(offer, generator, plain, device_type, mode)


def _make_claims(
    offer: CompileOffer,
    inner: DeviceCodeGenerator,
    requested: set[Node],
    device_type: str,
    mode: Mode,
) -> Iterable[RegionClaim]:
    def make(region: Region, device: Any) -> Callable[..., Any]:
        recorded = watch_region(device.code_generator(inner), region, device.to_host)
        if recorded is not None:
            return recorded
        checked = any(CHECKED in member.attrs for member in region.members)
        function = _Region(device.code_generator(inner), region, device, mode, checked)
        return _LaunchFunction(function, device.launched(function))

    for members in choose(offer, inner, requested, device_type).regions:
        draws = [member for member in members if inner.uses_rng(member)]
        yield RegionClaim(members, make, updates=count_updates(inner, members), rng_nodes=draws)


class _Region(CompiledRegion):
    """Region on a device; it leaves changes of host variables to kernels."""

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
        """Return the results; NotImplemented if a check fails; the kernels then raise the error."""
        if any(state_of(inputs[input_index]).xp is np for input_index in self._changes):
            return NotImplemented
        try:
            return super().__call__(*inputs)
        except errors.InvalidArgumentError:
            return NotImplemented


class _LaunchFunction:
    """Function of a region that converts values for the device's kernels."""

    def __init__(self, function: CompiledRegion, launched: Callable[..., Any]) -> None:
        self._launched = launched
        self.stop = function.stop
        self.deciding = function.deciding

    def __call__(self, *inputs: Any) -> Any:
        return self._launched(*inputs)


def count_updates(generator: CompileSupport, members: Iterable[Node]) -> dict[Node, int]:
    """Return the nodes that change variables, with the number of variables that each changes."""
    counts = {member: generator.changes(member) for member in members}
    return {member: count for member, count in counts.items() if count}
