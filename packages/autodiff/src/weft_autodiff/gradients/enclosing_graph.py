"""Gradients that continue from the body of a function into the enclosing graphs.

Some arguments of a body are captures of values of the enclosing graph. The gradients of these
arguments continue in the enclosing graph, node by node. The gradient's nodes are added to the body,
which captures the values that they need.
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


class EnclosingGraph:
    """The graph that encloses a body, and its values that the body's arguments capture.

    Args:
      body: the graph whose gradients are computed.
      xs: outputs to differentiate with respect to; outputs of the body itself are ignored.
      stops: outputs treated as constants.
    Attributes:
      arguments: mapping from the body's arguments that capture values depending on one of `xs` to
        these values.
      reaches_out: True if one of these values has inputs, so that gradients may continue there.
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
        self._outer = EnclosingGraph(outer, self._xs, stops)
        self._sources = [x for x in self._xs if x.node.graph is outer]
        self._sources += self._outer.arguments
        captured = {arg: value for value, arg in body.captures.items() if is_trainable(value)}
        level = current_context(outer)
        path = Path(outer, level, list(captured.values()), self._sources, stops)
        self.arguments = {arg: value for arg, value in captured.items() if path.leads_to(value)}
        self.reaches_out = self._outer.reaches_out or any(
            [value.node.inputs for value in self.arguments.values()]
        )

    def back(self, walk: Walk) -> dict[Output, Grad]:
        """Return the gradients of the `xs` in enclosing graphs."""
        out = _OuterWalk(walk, self._graph)
        for argument, value in self.arguments.items():
            grad = walk.total(argument)
            if grad is not None:
                out.receive(value, grad)
        out.back(list(out.received), self._sources, self._stops)
        grads = self._outer.back(out) if self._outer.arguments else {}
        for x in self._xs:
            grad = out.total(x)
            if grad is not None:
                grads[x] = grad
        return grads


class _OuterWalk(Walk):
    """A backward pass over the enclosing graph that adds its nodes to the body."""

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
    def mark_nodes(self, node: Node) -> Iterator[None]:
        """Mark nothing, because the node is in another graph."""
        yield
