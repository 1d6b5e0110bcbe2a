"""The backward pass: the gradients received so far, and their propagation through units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from weft_autodiff.gradients.application import apply_gradient
from weft_autodiff.gradients.path import Path
from weft_autodiff.gradients.units import Level, unit_of
from weft_autodiff.gradients.values import Grad, add_all, all_before_any, as_dense
from weft_graph.control_flow.context import Conditional, ControlFlowContext, WhileContext
from weft_graph.ir.graph import Graph
from weft_graph.ir.jit_scope import compile_hints
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role

Pushed = tuple[Node, Output]
"""A push in forward code, and the stack of its gradients."""


class GradientLoop(Protocol):
    """The loop that a pass over a loop body is written into."""

    @property
    def context(self) -> ControlFlowContext:
        """The context of the loop."""

    def pop(self, handle: Output, like: Output) -> Output:
        """Return this iteration's gradient of a value that the forward loop pushed."""

    def push(self, grad: Output) -> Output:
        """Push a gradient for the gradient loop of the pushing loop; return its stack."""


Rule = Callable[["Walk", Any, Sequence[Output], Path], None]
"""Differentiates a unit; arguments: the enclosing pass, the unit, its outputs and the path."""


class Walk:
    """One backward pass over a level: the whole graph, the body of a loop, or a branch.

    Args:
      level: the branch or loop body to differentiate; None for the whole graph.
      rules: functions that differentiate loops and conditionals, by class.
      loop: the gradient loop that receives the nodes of the pass, or None.
      pushed: pushes inside the level whose gradients exist.
    Attributes:
      graph: the graph that receives the gradient's nodes.
      walked: the graph whose nodes are differentiated.
    """

    def __init__(
        self,
        graph: Graph,
        level: Level,
        rules: Mapping[type, Rule],
        *,
        colocate: bool = False,
        gate: bool = False,
        loop: GradientLoop | None = None,
        pushed: Sequence[Pushed] = (),
    ) -> None:
        self.graph = graph
        self.walked = graph
        self.level = level
        self.rules = rules
        self.colocate = colocate
        self.gate = gate
        self.loop = loop
        self.pushed = list(pushed)
        self.received: dict[Output, list[Grad]] = {}
        self.summed: dict[Output, Grad] = {}

    def inner(self, level: Level, loop: GradientLoop | None, pushed: Sequence[Pushed]) -> Walk:
        """Return a pass over a level inside this one."""
        return Walk(
            self.graph,
            level,
            self.rules,
            colocate=self.colocate,
            gate=self.gate,
            loop=loop,
            pushed=pushed,
        )

    def receive(self, output: Output, grad: Grad) -> None:
        """Record that `grad` flows back into `output`."""
        partials = self.received.get(output)
        if partials is None:
            self.received[output] = [grad]
        else:
            partials.append(grad)

    def total(self, output: Output) -> Grad | None:
        """Return the sum of the gradients received for `output`."""
        total = self.summed.get(output)
        if total is None:
            partials = self.received.get(output)
            if partials is None:
                return None
            total = self.summed[output] = partials[0] if len(partials) == 1 else add_all(partials)
        return total

    def back(
        self, targets: Sequence[Output], sources: Sequence[Output], stops: set[Output]
    ) -> None:
        """Process the units between sources and targets in reverse order."""
        self._take_pushed(targets)
        targets = [*targets, *[push.inputs[1] for push, _ in self.pushed]]
        path = Path(self.walked, self.level, targets, sources, stops)
        for unit in reversed(path.units):
            if isinstance(unit, Node):
                self._visit(unit, path)
            else:
                self._visit_whole(unit, path)

    def _take_pushed(self, targets: Sequence[Output]) -> None:
        """Receive the gradients of values that the level pushes."""
        for push, handle in self.pushed:
            if push.context is self.level:
                assert self.loop is not None
                value = push.inputs[1]
                self.receive(value, self.loop.pop(handle, value))

    def _visit(self, node: Node, path: Path) -> None:
        with self._colocation(node):
            grads = [None if o in path.stops else self.total(o) for o in node.outputs]
        if all(grad is None for grad in grads):
            return
        if node.role is Role.POP and self.loop is not None:
            dense = as_dense(grads[0])
            assert dense is not None
            self.receive(node.inputs[0], self.loop.push(dense))
            return
        with self.mark_nodes(node), self._scope(node.name), self._colocation(node):
            needed = [path.leads_to(source) for source in node.inputs]
            input_grads = apply_gradient(node, grads, needed)
            results = [
                grad if used else None for used, grad in zip(needed, input_grads, strict=True)
            ]
            if self.gate:
                results = all_before_any(results)
        for source, grad in zip(node.inputs, results, strict=True):
            if grad is not None:
                self.receive(source, grad)

    def _visit_whole(self, unit: WhileContext | Conditional, path: Path) -> None:
        outputs = [o for o in path.outputs_of(unit) if o not in path.stops]
        grads = [self.total(output) for output in outputs]
        if all(grad is None for grad in grads) and not any(
            unit_of(push.inputs[1], self.level) is unit for push, _ in self.pushed
        ):
            return
        name = unit.name if isinstance(unit, WhileContext) else unit.branches[0].name
        with self._scope(name.rpartition("/")[0]):
            self.rules[type(unit)](self, unit, outputs, path)

    def _colocation(self, node: Node) -> AbstractContextManager[None]:
        """Return the scope of the gradient of a node, and of the sum that it begins with."""
        return self.graph.colocate_with(node) if self.colocate else nullcontext()

    @contextmanager
    def mark_nodes(self, node: Node) -> Iterator[None]:
        """Mark the nodes made inside as belonging to the gradient of `node`."""
        start = len(self.graph.nodes)
        yield
        marks = compile_hints(node)
        for new_node in self.graph.nodes[start:]:
            if new_node.forward is None:
                new_node.forward = node
                if marks:
                    new_node.attrs = {**marks, **new_node.attrs}

    @contextmanager
    def _scope(self, name: str) -> Iterator[None]:
        scopes = self.graph.scopes
        saved_prefix = scopes.name_prefix
        scopes.name_prefix = f"{saved_prefix}{name}_grad/"
        try:
            yield
        finally:
            scopes.name_prefix = saved_prefix
