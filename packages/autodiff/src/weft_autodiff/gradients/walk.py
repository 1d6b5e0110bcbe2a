"""The backward pass: gradients received so far, and the way from targets to sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from weft_autodiff.gradients.units import Level, Unit, inputs_of, made_by_hand, unit_of
from weft_autodiff.gradients.values import Grad, add_all, as_dense, needs_zeros, zeros_for
from weft_autodiff.registry import Gradient, gradient_of
from weft_graph.control_flow.context import (
    CondContext,
    Conditional,
    WhileContext,
    context_of,
    is_inside,
)
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ops.control_flow import MERGES
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims

if TYPE_CHECKING:
    from weft_autodiff.gradients.loops import BackwardLoop

Pushed = tuple[Node, Output]
"""A push that forward code makes, and the stack that its gradients are on."""


class Walk:
    """One backward pass over a level: the whole graph, the body of a loop, or a branch.

    Args:
      level: the branch or loop body that is differentiated; None outside.
      loop: the loop that the pass is written into, where the level is in one.
      pushed: pushes inside the level that gradients are there for.
    """

    def __init__(
        self,
        graph: Graph,
        level: Level,
        *,
        colocate: bool = False,
        gate: bool = False,
        loop: BackwardLoop | None = None,
        pushed: Sequence[Pushed] = (),
    ) -> None:
        self.graph = graph
        self.level = level
        self.colocate = colocate
        self.gate = gate
        self.loop = loop
        self.pushed = list(pushed)
        self.received: dict[Output, list[Grad]] = {}
        self.summed: dict[Output, Grad] = {}

    def inner(self, level: Level, loop: BackwardLoop | None, pushed: Sequence[Pushed]) -> Walk:
        """A pass over a level inside this one."""
        return Walk(
            self.graph, level, colocate=self.colocate, gate=self.gate, loop=loop, pushed=pushed
        )

    def receive(self, output: Output, grad: Grad) -> None:
        """Note that `grad` flows back into `output`."""
        found = self.received.get(output)
        if found is None:
            self.received[output] = [grad]
        else:
            found.append(grad)

    def total(self, output: Output) -> Grad | None:
        """The sum of all that flowed back into `output`."""
        done = self.summed.get(output)
        if done is None:
            found = self.received.get(output)
            if found is None:
                return None
            done = self.summed[output] = found[0] if len(found) == 1 else add_all(found)
        return done

    def back(
        self, targets: Sequence[Output], sources: Sequence[Output], stops: set[Output]
    ) -> None:
        """Visit the units between sources and targets from the last to the first."""
        self._take_pushed(targets)
        targets = [*targets, *[push.inputs[1] for push, _ in self.pushed]]
        path = Path(self.graph, self.level, targets, sources, stops)
        for unit in reversed(path.units):
            if isinstance(unit, Node):
                self._visit(unit, path)
            else:
                self._visit_whole(unit, path)

    def _take_pushed(self, targets: Sequence[Output]) -> None:
        """Receive the gradients of values that the level itself pushes."""
        for push, handle in self.pushed:
            if push.context is self.level:
                assert self.loop is not None
                value = push.inputs[1]
                self.receive(value, self.loop.pop(handle, value))

    def _visit(self, node: Node, path: Path) -> None:
        grads = [None if o in path.stops else self.total(o) for o in node.outputs]
        if all(grad is None for grad in grads):
            return
        if node.type == "StackPopV2" and self.loop is not None:
            dense = as_dense(grads[0])
            assert dense is not None
            self.receive(node.inputs[0], self.loop.push(dense))
            return
        entry = gradient_of(node)
        together = self.graph.colocate_with(node) if self.colocate else nullcontext()
        with self.marking(node), self._scope(node.name), together:
            results = self._apply(node, entry, grads, path)
        for source, grad in zip(node.inputs, results, strict=True):
            if grad is not None:
                self.receive(source, grad)

    def _visit_whole(self, unit: WhileContext | Conditional, path: Path) -> None:
        from weft_autodiff.gradients.conditionals import differentiate_conditional
        from weft_autodiff.gradients.loops import differentiate_loop

        outputs = [o for o in path.outputs_of(unit) if o not in path.stops]
        grads = [self.total(output) for output in outputs]
        if all(grad is None for grad in grads) and not any(
            unit_of(push.inputs[1], self.level) is unit for push, _ in self.pushed
        ):
            return
        if isinstance(unit, WhileContext):
            with self._scope(unit.name.rpartition("/")[0]):
                differentiate_loop(self, unit, outputs, path)
        else:
            with self._scope(unit.branches[0].name.rpartition("/")[0]):
                differentiate_conditional(self, unit, outputs, path)

    @contextmanager
    def marking(self, node: Node) -> Iterator[None]:
        """Mark the nodes made inside as belonging to the gradient of `node`."""
        start = len(self.graph.nodes)
        yield
        for added in self.graph.nodes[start:]:
            if added.forward is None:
                added.forward = node

    @contextmanager
    def _scope(self, name: str) -> Iterator[None]:
        scopes = self.graph.scopes
        before = scopes.name_prefix
        scopes.name_prefix = f"{before}{name}_grad/"
        try:
            yield
        finally:
            scopes.name_prefix = before

    def _apply(
        self, node: Node, entry: Gradient, grads: list[Grad | None], path: Path
    ) -> Sequence[Grad | None]:
        if not entry.accepts_none:
            grads = [
                zeros_for(o) if grad is None and needs_zeros(o) else grad
                for o, grad in zip(node.outputs, grads, strict=True)
            ]
        if not entry.accepts_sparse:
            grads = [as_dense(grad) for grad in grads]
        results = entry.function(node, *grads)
        if not isinstance(results, list | tuple):
            results = [results]
        if len(results) != len(node.inputs):
            raise errors.InvalidArgumentError(
                f"the gradient of {node.type} must return one gradient per input: required "
                f"{len(node.inputs)}, got {len(results)}",
                op=node.type,
                node=node.name,
                line=node.line,
            )
        for i, (source, grad) in enumerate(zip(node.inputs, results, strict=True)):
            _check_result(node, i, source, grad)
        wanted = [
            grad if path.leads_to(source) else None
            for source, grad in zip(node.inputs, results, strict=True)
        ]
        return _gated(wanted) if self.gate else wanted


def _check_result(node: Node, position: int, source: Output, grad: Any) -> None:
    if grad is None or source.dtype is dtypes.resource:
        return
    if type(grad) is Output:
        if grad.dtype is source.dtype.base_dtype and (
            grad.dims == source.dims or compatible_dims(grad.dims, source.dims)
        ):
            return
    elif isinstance(grad, IndexedSlices) and grad.dtype is source.dtype.base_dtype:
        return
    raise errors.InvalidArgumentError(
        f"the gradient of {node.type} for input {position} must fit {source!r}, got {grad!r}",
        op=node.type,
        node=node.name,
        line=node.line,
    )


def _gated(results: Sequence[Grad | None]) -> list[Grad | None]:
    from weft_graph.ops import control

    present = [grad for grad in results if grad is not None]
    if len(present) < 2:
        return list(results)
    gated = iter(control.tuple(present))
    return [None if grad is None else next(gated) for grad in results]


class Path:
    """The units on a path from a source to a target, inputs before users.

    Attributes:
      units: in that order.
      stops: outputs through which nothing flows back.
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
        self._inside: dict[Unit, list[Output]] = {}
        self.stops = stops
        self._reached: set[Unit] = set()
        self._outputs: dict[Unit, dict[Output, None]] = {}
        self.units: list[Unit] = []
        if graph.has_contexts:
            self._plain = False
            self._note_inside(sources)
            needed = self._needed_units(targets)
        else:
            self._plain = True
            needed = self._needed_nodes(targets)
        for unit in needed:
            if unit in self._inside or self._uses_reached(unit):
                self._reached.add(unit)
                self.units.append(unit)
        for unit in needed:
            if isinstance(unit, Node) and unit.type in MERGES and unit not in self._reached:
                self._check_back_edges(unit)

    def leads_to(self, output: Output) -> bool:
        """Whether a gradient of `output` is of use to some source."""
        if output in self._sources:
            return True
        if output in self.stops:
            return False
        unit = output.node if self._plain else unit_of(output, self._level)
        return unit in self._reached

    def sources_in(self, branch: CondContext) -> list[Output]:
        """The sources that are inside a branch."""
        found = self._inside.get(branch.conditional, ())
        return [source for source in found if is_inside(source, branch)]

    def meets(self, output: Output) -> bool:
        """Whether a target depends on `output`."""
        return output in self._outputs.get(unit_of(output, self._level), ())

    def outputs_of(self, unit: Unit) -> list[Output]:
        """The outputs of a unit that targets depend on."""
        return list(self._outputs[unit])

    def _uses_reached(self, unit: Unit) -> bool:
        return any([self.leads_to(source) for source in inputs_of(unit)])

    def _check_back_edges(self, merge: Node) -> None:
        """Refuse a loop without a context on the way; back edges are not followed."""
        loop = merge.context
        if isinstance(loop, WhileContext) and merge in loop.merges:
            return
        for source in merge.inputs:
            if is_back_edge(merge, source) and self.leads_to(source):
                raise made_by_hand(merge)

    def _note_inside(self, sources: Sequence[Output]) -> None:
        """Find the conditionals that sources are inside of."""
        for source in sources:
            context = context_of(source)
            while context is not None and context is not self._level:
                if isinstance(context, CondContext):
                    self._inside.setdefault(context.conditional, []).append(source)
                context = context.outer

    def _needed_nodes(self, targets: Sequence[Output]) -> Sequence[Unit]:
        """All nodes behind `targets`; the order of construction has inputs before users."""
        needed: set[Node] = set()
        stack = [target.node for target in targets]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack.extend([i.node for i in node.inputs if i not in self.stops])
        return sorted(needed, key=_by_index)

    def _needed_units(self, targets: Sequence[Output]) -> Sequence[Unit]:
        """All units behind `targets`, inputs before users."""
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
                needed = self._unit(source)
                if source not in self.stops and needed not in state:
                    stack.append(needed)
        return order

    def _unit(self, output: Output) -> Unit:
        unit = unit_of(output, self._level)
        self._outputs.setdefault(unit, {})[output] = None
        return unit


def _by_index(node: Node) -> int:
    return node.index
