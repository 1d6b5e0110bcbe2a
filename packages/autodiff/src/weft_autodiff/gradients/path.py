"""The units between sources and targets, in the order of construction."""

from __future__ import annotations

from collections.abc import Sequence

from weft_autodiff.gradients.units import Level, Unit, inputs_of, manual_loop_error, unit_of
from weft_graph.control_flow.context import CondContext, WhileContext, context_of, is_inside
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role


class Path:
    """The units on a path from a source to a target, inputs before users.

    Attributes:
      units: the units in that order.
      stops: outputs that stop gradients.
    """

    def __init__(
        self,
        graph: Graph,
        level: Level,
        targets: Sequence[Output],
        sources: Sequence[Output],
        stops: set[Output],
    ) -> None:
        self._level = level
        self._sources = set(sources)
        self._inner_sources: dict[Unit, list[Output]] = {}
        self.stops = stops
        self._reached: set[Unit] = set()
        self._outputs: dict[Unit, dict[Output, None]] = {}
        self.units: list[Unit] = []
        if graph.has_contexts:
            self._plain = False
            self._note_conditionals(sources)
            needed = self._needed_units(targets)
        else:
            self._plain = True
            needed = self._needed_nodes(targets)
        for unit in needed:
            if unit in self._inner_sources or (not _is_barrier(unit) and self._uses_reached(unit)):
                self._reached.add(unit)
                self.units.append(unit)
        for unit in needed:
            if isinstance(unit, Node) and unit.role is Role.MERGE and unit not in self._reached:
                self._check_back_edges(unit)

    def leads_to(self, output: Output) -> bool:
        """Return True if a source needs the gradient of `output`."""
        if output in self._sources:
            return True
        if output in self.stops:
            return False
        unit = output.node if self._plain else unit_of(output, self._level)
        return unit in self._reached

    def sources_in(self, branch: CondContext) -> list[Output]:
        """Return the sources that are inside a branch."""
        sources = self._inner_sources.get(branch.conditional, ())
        return [source for source in sources if is_inside(source, branch)]

    def meets(self, output: Output) -> bool:
        """Return True if a target depends on `output`."""
        return output in self._outputs.get(unit_of(output, self._level), ())

    def outputs_of(self, unit: Unit) -> list[Output]:
        """Return the outputs of a unit that targets depend on."""
        return list(self._outputs[unit])

    def _uses_reached(self, unit: Unit) -> bool:
        return any([self.leads_to(source) for source in inputs_of(unit)])

    def _check_back_edges(self, merge: Node) -> None:
        """Reject a loop without a context on the path, because back edges are not followed."""
        loop = merge.context
        if isinstance(loop, WhileContext) and merge in loop.merges:
            return
        for source in merge.inputs:
            if is_back_edge(merge, source) and self.leads_to(source):
                raise manual_loop_error(merge)

    def _note_conditionals(self, sources: Sequence[Output]) -> None:
        """Record the conditionals that contain sources."""
        for source in sources:
            context = context_of(source)
            while context is not None and context is not self._level:
                if isinstance(context, CondContext):
                    self._inner_sources.setdefault(context.conditional, []).append(source)
                context = context.outer

    def _needed_nodes(self, targets: Sequence[Output]) -> Sequence[Unit]:
        """Return all nodes behind `targets`; the order of construction has inputs before users."""
        needed: set[Node] = set()
        stack = [target.node for target in targets]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack.extend([i.node for i in node.inputs if i not in self.stops])
        return sorted(needed, key=_by_index)

    def _needed_units(self, targets: Sequence[Output]) -> Sequence[Unit]:
        """Return all units behind `targets`, inputs before users."""
        order: list[Unit] = []
        state: dict[Unit, bool] = {}
        stack = [self._unit(target) for target in targets]
        while stack:
            unit = stack[-1]
            if unit in state:
                stack.pop()
                if not state[unit]:
                    state[unit] = True
                    order.append(unit)
                continue
            state[unit] = False
            for source in inputs_of(unit):
                source_unit = self._unit(source)
                if source not in self.stops and source_unit not in state:
                    stack.append(source_unit)
        return order

    def _unit(self, output: Output) -> Unit:
        unit = unit_of(output, self._level)
        self._outputs.setdefault(unit, {})[output] = None
        return unit


def _is_barrier(unit: Unit) -> bool:
    """Return True if a unit stops gradients, as a `StopGradient` does."""
    if not isinstance(unit, Node) or "_gradient_op_type" in unit.attrs:
        return False
    return unit.traits.identity and not unit.traits.differentiable


def _by_index(node: Node) -> int:
    return node.index
