"""Gradients that flow out of the body of a function, into the graphs around it.

A body has arguments that stand for values of the graph around. What flows back into these goes on
there, node by node. The nodes of the gradient stay in the body, which captures what they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft_autodiff.gradients.path import Path
from weft_autodiff.gradients.values import Grad, is_trainable
from weft_autodiff.gradients.walk import Walk
from weft_graph.control_flow.context import Conditional, WhileContext, current_context
from weft_graph.functions.body import FunctionGraph
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_tensor import errors


class Around:
    """The graph around a body, and what of it the body's arguments stand for.

    Args:
      body: where gradients are asked for.
      xs: with respect to what; those that are of the body are of no interest here.
      stops: outputs through which nothing flows back.
    Attributes:
      arguments: of the body, that stand for values which depend on one of `xs`; and these values.
      reaches_out: whether one of these values is computed, so that what flows back into the
        argument may flow on.
    """

    def __init__(self, body: Graph, xs: Sequence[Output], stops: set[Output]) -> None:
        self.arguments: dict[Output, Output] = {}
        self.reaches_out = False
        self._stops = stops
        self._xs = [x for x in xs if x.node.graph is not body]
        outer = body.outer if isinstance(body, FunctionGraph) else None
        if outer is None or not self._xs:
            return
        assert isinstance(body, FunctionGraph)
        self._graph = outer
        self._further = Around(outer, self._xs, stops)
        self._sources = [x for x in self._xs if x.node.graph is outer]
        self._sources += self._further.arguments
        captured = {arg: value for value, arg in body.captures.items() if is_trainable(value)}
        level = current_context(outer)
        path = Path(outer, level, list(captured.values()), self._sources, stops)
        self.arguments = {arg: value for arg, value in captured.items() if path.leads_to(value)}
        self.reaches_out = self._further.reaches_out or any(
            [value.node.inputs for value in self.arguments.values()]
        )

    def back(self, walk: Walk) -> dict[Output, Grad]:
        """What flows back to those of `xs` that are around, through the arguments of the body."""
        out = _OuterWalk(walk, self._graph)
        for argument, value in self.arguments.items():
            grad = walk.total(argument)
            if grad is not None:
                out.receive(value, grad)
        out.back(list(out.received), self._sources, self._stops)
        found = self._further.back(out) if self._further.arguments else {}
        for x in self._xs:
            grad = out.total(x)
            if grad is not None:
                found[x] = grad
        return found


class _OuterWalk(Walk):
    """A pass over a graph around the body that its nodes go into."""

    def __init__(self, walk: Walk, graph: Graph) -> None:
        super().__init__(walk.graph, current_context(graph), walk.rules, gate=walk.gate)
        self.walked = graph

    def _visit_whole(self, unit: WhileContext | Conditional, path: Path) -> None:
        name = unit.name if isinstance(unit, WhileContext) else unit.branches[0].name
        raise errors.UnimplementedError(
            f"the gradient flows out of the function {getattr(self.graph, 'name', '')!r} and back "
            f"through {name!r}, a loop or conditional that was built outside of it; pass its "
            "result to the function as an argument, or build it inside"
        )

    @contextmanager
    def marking(self, node: Node) -> Iterator[None]:
        """Marks nothing: the node is of another graph."""
        yield
