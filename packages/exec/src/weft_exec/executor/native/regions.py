"""Compiled regions: all nodes that can be compiled, unless programs or `WEFT_JIT` exclude them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import CompileOffer, LoopClaim, RegionClaim, register_compiler
from weft_exec.executor.native.clustering import NodeSelection, choose
from weft_exec.executor.native.devices import count_updates, on_devices
from weft_exec.executor.native.function import CompiledRegion
from weft_exec.executor.native.input_recording import InputRecorder, watch_region
from weft_exec.executor.native.loops import CompiledLoop, choose_loops
from weft_exec.executor.native.specialization_cache import Mode
from weft_exec.executor.region import Region
from weft_exec.settings import jit_environment
from weft_graph.ir.code_generators import generators
from weft_graph.ir.jit_scope import CHECKED, COMPILED
from weft_graph.ir.node import Node
from weft_graph.passes.flow import Frame
from weft_graph.passes.whole_loops import WholeLoop, is_inside


def nodes_to_compile(nodes: Iterable[Node], jit_setting: str) -> set[Node]:
    """Return the nodes to compile: all that programs and `WEFT_JIT` do not exclude."""
    if jit_setting == "off":
        return set()
    unsaid = jit_setting != "asked"
    return {node for node in nodes if node.attrs.get(COMPILED, unsaid)}


@cache
def _log_missing_compiler() -> None:
    warnings.warn(
        "compilation is requested, but no compiler is installed: pip install weftml-compiler",
        RuntimeWarning,
        stacklevel=2,
    )


class NativeRegions:
    """Compiler that claims the nodes that a code generator can compile."""

    def claim_loops(self, offer: CompileOffer) -> Iterable[LoopClaim]:
        """Yield the loops of a part on CPUs that are compiled as one function."""
        jit_setting = jit_environment()
        requested = nodes_to_compile(offer.nodes, jit_setting)
        if not requested or not generators.keys():
            return []
        generator = generators.lookup(generators.keys()[0])
        chosen_loops = choose_loops(offer, generator, requested).found
        given_up: set[Frame] = set()

        def claim(loop: WholeLoop, device: Device) -> LoopClaim:
            checked = any(CHECKED in node.attrs for node in loop.nodes)
            mode, frame = _mode(jit_setting, checked, device), loop.loop.frame
            frames = [chosen.loop.frame for chosen, _ in chosen_loops]
            enclosing = [
                other_frame
                for other_frame in frames
                if other_frame is not frame and is_inside(frame, other_frame)
            ]
            return LoopClaim(
                loop,
                lambda: CompiledLoop(generator, loop, device, mode, checked, enclosing, given_up),
            )

        return [claim(*entry) for entry in chosen_loops]

    def claim(self, offer: CompileOffer) -> Iterable[RegionClaim]:
        """Yield the regions of a part on CPUs, and on other devices with a code generator."""
        jit_setting = jit_environment()
        requested = nodes_to_compile(offer.nodes, jit_setting)
        return [
            *self._on_processors(offer, jit_setting, requested),
            *on_devices(offer, jit_setting, requested),
        ]

    def _on_processors(
        self, offer: CompileOffer, jit_setting: str, requested: set[Node]
    ) -> Iterable[RegionClaim]:
        if not requested:
            return []
        names = generators.keys()
        if not names:
            if jit_setting or any(COMPILED in node.attrs for node in requested):
                _log_missing_compiler()
            return []
        generator = generators.lookup(names[0])

        def make(region: Region, device: Device) -> CompiledRegion | InputRecorder:
            recorded = watch_region(generator, region, device.to_host)
            if recorded is not None:
                return recorded
            checked = any(CHECKED in member.attrs for member in region.members)
            mode = _mode(jit_setting, checked, device)
            return CompiledRegion(generator, region, device, mode, checked)

        selection = choose(offer, generator, requested)
        return [
            RegionClaim(
                members,
                make,
                updates=count_updates(generator, members),
                rng_nodes=[member for member in members if generator.uses_rng(member)],
                is_multithreaded=selection.conditionals.device(members[0]).config.compiled_threads
                > 1,
                branches=selection.conditionals.of(members),
                fresh=True,
            )
            for members in selection.regions
        ]


def _mode(jit_setting: str, checked: bool, device: Device) -> Mode:
    """Return when a region or loop is compiled."""
    if jit_setting == "now":
        return Mode.NOW
    return Mode.FIRST if checked or device.config.deterministic else Mode.ON


def choose_nodes(offer: CompileOffer) -> NodeSelection | None:
    """Return the nodes of a part to be compiled, compiled loops last; None if there are none."""
    requested = nodes_to_compile(offer.nodes, jit_environment())
    names = generators.keys()
    if not requested or not names:
        return None
    generator = generators.lookup(names[0])
    chosen_loops = choose_loops(offer, generator, requested)
    loops = [list(loop.nodes) for loop in chosen_loops.outermost]
    loop_nodes = {node for loop in loops for node in loop}
    remaining = offer._replace(nodes=[node for node in offer.nodes if node not in loop_nodes])
    selection = choose(remaining, generator, requested)
    names = [region[-1].name for region in selection.regions]
    names += [loop.loop.frame.name for loop in chosen_loops.outermost]
    return selection._replace(
        regions=[*selection.regions, *loops], loops=chosen_loops.left, names=names
    )


register_compiler("native", NativeRegions())
