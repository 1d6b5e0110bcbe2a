"""Which nodes of a part are compiled together, where programs or `WEFT_JIT` ask for it.

Nodes may be in one region if they wait for the same things: those that give values late (receives,
dequeues and whatever else is asynchronous), and as many nodes in a row that are not compiled.  So
no path leaves a region and comes back, and no region waits for more than each of its nodes does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import Claim, Offer, register_compiler
from weft_exec.executor.native.function import Mode, Specialised
from weft_exec.executor.region import Region
from weft_exec.kernels.random_counters import needs_counters
from weft_graph.ir.code_generators import CodeGenerator, generators
from weft_graph.ir.jit_scope import CHECKED, COMPILED
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import needs_of
from weft_tensor import dtypes, errors

_FEW: Final = 16
LEAST: Final = 2
"""How many nodes that compute something make a region worth its call."""


def environment() -> str:
    """What `WEFT_JIT` says: "on", "now", "off", or "" for what programs say.

    Raises: InvalidArgumentError: it says something else.
    """
    said = os.environ.get("WEFT_JIT", "")
    if said not in ("", "on", "now", "off"):
        raise errors.InvalidArgumentError(
            f"the environment variable WEFT_JIT must be on, now or off, got {said!r}"
        )
    return said


def wanted(nodes: Iterable[Node], said: str) -> set[Node]:
    """The nodes that are to be compiled, as programs and `WEFT_JIT` say."""
    if said == "off":
        return set()
    everything = bool(said)
    return {node for node in nodes if node.attrs.get(COMPILED, everything)}


@cache
def _say_that_none_is_installed() -> None:
    warnings.warn(
        "compiled steps are asked for, and no package that compiles is installed: "
        "pip install weftml-compiler",
        RuntimeWarning,
        stacklevel=2,
    )


class NativeRegions:
    """A compiler that claims what a code generator can compile."""

    def claim(self, offer: Offer) -> Iterable[Claim]:
        """The regions of a part on processors."""
        said = environment()
        asked = wanted(offer.nodes, said)
        if not asked:
            return []
        names = generators.keys()
        if not names:
            _say_that_none_is_installed()
            return []
        generator = generators.lookup(names[0])

        def make(region: Region, device: Device) -> Specialised:
            checked = any(CHECKED in member.attrs for member in region.members)
            chosen = Mode.FIRST if checked or device.config.deterministic else Mode.ON
            if said == "now":
                chosen = Mode.NOW
            return Specialised(generator, region, device, chosen, checked)

        return [Claim(members, make) for members in _regions(offer, generator, asked)]


def _regions(offer: Offer, generator: CodeGenerator, asked: Collection[Node]) -> list[list[Node]]:
    """Sets of nodes that may be compiled together, and are worth it."""
    needs = _needs(offer)
    known: dict[Node, _Waits] = {}
    groups: dict[tuple[object, _Waits], list[Node]] = {}
    for node in _sources_first(offer.nodes, needs):
        where = _where(offer, generator, node) if node in asked else None
        if where is not None and _asks_for_values(generator, node, known):
            where = None
        late = 1 << len(known) if node.traits.asynchronous and not node.traits.routes else 0
        known[node] = waits = _waits(where, late, [known[need] for need in needs[node]])
        if where is not None:
            groups.setdefault((where, waits), []).append(node)
    return [members for members in groups.values() if _is_worth_it(members)]


def _needs(offer: Offer) -> dict[Node, list[Node]]:
    """What each node waits for; what leaves a loop waits for all that is in it."""
    inside = set(offer.nodes)
    loops: dict[object, list[Node]] = {}
    for node in offer.nodes:
        loops.setdefault(_loop(offer, node), []).append(node)
    return {
        node: loops[_loop(offer, node.inputs[0].node)]
        if node.role is Role.EXIT
        else [need for need in needs_of(node) if need in inside]
        for node in offer.nodes
    }


def _loop(offer: Offer, node: Node) -> object:
    where = offer.where(node)
    return where[0] if isinstance(where, tuple) else where


def _sources_first(nodes: Sequence[Node], needs: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """Nodes in an order in which each comes after what it waits for."""
    found: dict[Node, None] = {}
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting[-1]
        missing = [] if node in found else [need for need in needs[node] if need not in found]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        found.setdefault(node)
    return list(found)


class _Waits(NamedTuple):
    """What a node waits for.

    Attributes:
      where: what it may be compiled together with; None if it is not compiled.
      steps: how often, on the way to it, compiled nodes follow what is compiled elsewhere or not.
      late: the nodes among its sources that give their values late, a bit for each.
    """

    where: object
    steps: int
    late: int


def _waits(where: object, late: int, needs: Iterable[_Waits]) -> _Waits:
    """What a node waits for.

    Args:
      late: its own bit, if it gives its values late.
    """
    steps = 0
    for other in needs:
        apart = where is not None and other.where != where
        steps, late = max(steps, other.steps + apart), late | other.late
    return _Waits(where, steps, late)


def _asks_for_values(generator: CodeGenerator, node: Node, known: Mapping[Node, _Waits]) -> bool:
    """Whether a value that decides what is compiled is itself compiled, so nobody knows it."""
    return any(
        known[node.inputs[at].node].where is not None
        for at in generator.needs_value(node)
        if node.inputs[at].node in known
    )


def _where(offer: Offer, generator: CodeGenerator, node: Node) -> object:
    """What a node may be compiled together with; None if it is not to be compiled."""
    traits = node.traits
    if traits.routes or traits.stateful or not node.inputs or not node.outputs:
        return None
    if any(v.dtype.is_ref or v.dtype is dtypes.resource for v in (*node.inputs, *node.outputs)):
        return None
    if all(map(_is_small, node.outputs)) or generator.why_not(node):
        return None
    device, kernel = offer.place(node)
    if device.type != "CPU" or kernel.asynchronous or needs_counters(node):
        return None
    return offer.where(node), device.name


def _is_small(output: Output) -> bool:
    """Whether a value may be sizes, axes or a counter: kernels compute these, since others ask."""
    dims = output.dims
    if output.dtype not in (dtypes.int32, dtypes.int64):
        return False
    return dims is None or not dims or (len(dims) == 1 and (dims[0] or 0) <= _FEW)


def _is_worth_it(members: Sequence[Node]) -> bool:
    return sum(node.traits.view is None for node in members) >= LEAST


register_compiler("native", NativeRegions())
