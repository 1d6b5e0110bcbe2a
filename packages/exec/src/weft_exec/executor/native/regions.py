"""Compiled regions: all nodes that can be compiled, unless programs or `WEFT_JIT` exclude them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import Claim, LoopClaim, Offer, register_compiler
from weft_exec.executor.native.clustering import Choice, choose
from weft_exec.executor.native.devices import on_devices, updates_of
from weft_exec.executor.native.function import CompiledRegion
from weft_exec.executor.native.loops import CompiledLoop, choose_loops
from weft_exec.executor.native.specialization_cache import Mode
from weft_exec.executor.native.watch import Watched, watched
from weft_exec.executor.region import Region
from weft_exec.settings import jit_environment
from weft_graph.ir.code_generators import generators
from weft_graph.ir.jit_scope import CHECKED, COMPILED
from weft_graph.ir.node import Node
from weft_graph.passes.flow import Frame
from weft_graph.passes.whole_loops import WholeLoop, inside


def wanted(nodes: Iterable[Node], said: str) -> set[Node]:
    """Return the nodes to compile: all that programs and `WEFT_JIT` do not exclude."""
    if said == "off":
        return set()
    unsaid = said != "asked"
    return {node for node in nodes if node.attrs.get(COMPILED, unsaid)}


@cache
def _say_that_none_is_installed() -> None:
    warnings.warn(
        "compilation is requested, but no compiler is installed: pip install weftml-compiler",
        RuntimeWarning,
        stacklevel=2,
    )


class NativeRegions:
    """Compiler that claims the nodes that a code generator can compile."""

    def claim_loops(self, offer: Offer) -> Iterable[LoopClaim]:
        """Yield the loops of a part on processors that are compiled as wholes."""
        said = jit_environment()
        asked = wanted(offer.nodes, said)
        if not asked or not generators.keys():
            return []
        generator = generators.lookup(generators.keys()[0])
        found = choose_loops(offer, generator, asked).found
        given_up: set[Frame] = set()

        def claim(whole: WholeLoop, device: Device) -> LoopClaim:
            checked = any(CHECKED in node.attrs for node in whole.nodes)
            mode, frame = _mode(said, checked, device), whole.loop.frame
            frames = [each.loop.frame for each, _ in found]
            around = [each for each in frames if each is not frame and inside(frame, each)]
            return LoopClaim(
                whole,
                lambda: CompiledLoop(generator, whole, device, mode, checked, around, given_up),
            )

        return [claim(*each) for each in found]

    def claim(self, offer: Offer) -> Iterable[Claim]:
        """Yield the regions of a part on processors, and on other devices with a code generator."""
        said = jit_environment()
        asked = wanted(offer.nodes, said)
        return [*self._on_processors(offer, said, asked), *on_devices(offer, said, asked)]

    def _on_processors(self, offer: Offer, said: str, asked: set[Node]) -> Iterable[Claim]:
        if not asked:
            return []
        names = generators.keys()
        if not names:
            if said or any(COMPILED in node.attrs for node in asked):
                _say_that_none_is_installed()
            return []
        generator = generators.lookup(names[0])

        def make(region: Region, device: Device) -> CompiledRegion | Watched:
            seen = watched(generator, region, device.to_host)
            if seen is not None:
                return seen
            checked = any(CHECKED in member.attrs for member in region.members)
            mode = _mode(said, checked, device)
            return CompiledRegion(generator, region, device, mode, checked)

        chosen = choose(offer, generator, asked)
        return [
            Claim(
                members,
                make,
                updates=updates_of(generator, members),
                draws=[member for member in members if generator.draws(member)],
                shares=chosen.conditionals.device(members[0]).config.compiled_threads > 1,
                branches=chosen.conditionals.of(members),
                fresh=True,
            )
            for members in chosen.regions
        ]


def _mode(said: str, checked: bool, device: Device) -> Mode:
    """Return when a region or loop is compiled."""
    if said == "now":
        return Mode.NOW
    return Mode.FIRST if checked or device.config.deterministic else Mode.ON


def choice_of(offer: Offer) -> Choice | None:
    """Return the nodes of a part to be compiled, whole loops last; None if there are none."""
    asked = wanted(offer.nodes, jit_environment())
    names = generators.keys()
    if not asked or not names:
        return None
    generator = generators.lookup(names[0])
    chosen = choose_loops(offer, generator, asked)
    loops = [list(loop.nodes) for loop in chosen.outermost]
    inside = {node for loop in loops for node in loop}
    rest = offer._replace(nodes=[node for node in offer.nodes if node not in inside])
    found = choose(rest, generator, asked)
    names = [region[-1].name for region in found.regions]
    names += [loop.loop.frame.name for loop in chosen.outermost]
    return found._replace(regions=[*found.regions, *loops], loops=chosen.left, names=names)


register_compiler("native", NativeRegions())
