"""Rematerialization: functions whose intermediate values are recomputed for their gradient.

To build the gradient, the nodes of such a function are copied and the copies are differentiated.
Control inputs delay the copies until the incoming gradients are available. The Python function
itself runs once, so it creates its variables, updates and losses once. Values that a second run
could change, such as random numbers and reads of variables, are saved.
"""

from __future__ import annotations

__all__ = ["recompute_grad"]

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.gradients.units import Level, Unit, unit_of
from weft_autodiff.gradients.values import Grad, is_trainable
from weft_autodiff.registry import Gradient, register_in_graph
from weft_graph.control_flow.context import (
    CondContext,
    Conditional,
    ControlFlowContext,
    WhileContext,
    current_context,
    home_of,
    innermost,
)
from weft_graph.control_flow.records import records_of, restore
from weft_graph.functions import state
from weft_graph.functions.copying import BodyCopy
from weft_graph.ir import builder, nest
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.thread_stacks import tracing_depth
from weft_graph.ir.traits import Role
from weft_tensor import errors


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` with a gradient that recomputes the intermediate values of `f`.

    The recomputation starts when the gradients of the results are available. It needs the arguments
    and all other values that `f` uses, and results that a second run could change: random numbers,
    reads of variables, and results of ops with side effects. Gradients flow to the arguments, to
    variables, and to all other values that `f` uses. They can be differentiated again.

    Args:
      f: function from tensors, or structures of them, to a tensor or a structure of tensors;
        keyword arguments are passed on.
    Returns: a function with the signature of `f`; its `__wrapped__` is `f`.
    Raises: InvalidTypeError: `f` is not callable; or, when the returned function is called, `f`
      returns a value that is not a tensor.
    Source: tf.recompute_grad; T. Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.

    Examples:
      >>> x = wf.constant(2.0)
      >>> y = wf.recompute_grad(lambda x: wf.exp(wf.square(x)))(x)
      >>> np.round(wf.Session().run(y), 3)
      np.float32(54.598)
    """
    if not callable(f):
        raise errors.InvalidTypeError(f"recompute_grad requires a function, got {f!r}")

    def recompute_structure(*args: Any, **kwargs: Any) -> Any:
        args = nest.map_structure(_as_tensor, args)
        tensors = [arg for arg in nest.flatten(args) if isinstance(arg, Output)]
        # In a body, new nodes belong to the body, even if the arguments are captures.
        graph = get_default_graph() if tracing_depth() or not tensors else tensors[0].graph
        with graph.as_default():
            start = len(graph.nodes)
            result = f(*args, **kwargs)
            results = [builder.convert_to_tensor(leaf) for leaf in nest.flatten(result)]
            if not results:
                return result
            values = _wrap(graph, results, graph.nodes[start:])
        return nest.pack_sequence_as(result, values)

    return functools.update_wrapper(recompute_structure, f, updated=())


def _as_tensor(leaf: Any) -> Any:
    """Return an argument as a tensor; None and values with components (IndexedSlices) unchanged."""
    if leaf is None or isinstance(leaf, IndexedSlices) or hasattr(leaf, "dense_shape"):
        return leaf
    return leaf if hasattr(leaf, "flow") else builder.convert_to_tensor(leaf)


def _wrap(graph: Graph, results: Sequence[Output], new_nodes: Sequence[Node]) -> list[Output]:
    """Return the results with a gradient that recomputes the nodes of the region."""
    region = _Region(graph, results, new_nodes, current_context(graph))
    count = len(results)

    def gradient(node: Node, *grads: Grad | None) -> list[Grad | None]:
        return [None] * count + _flow_back(region, node.inputs[count:], grads[:count])

    name = graph.unique_name("RecomputeGrad")
    register_in_graph(graph, name, Gradient(gradient, accepts_none=True, accepts_sparse=True))
    lookup_op("IdentityN")
    with graph.gradient_override_map({"IdentityN": name}):
        node = builder.create("IdentityN", [[*results, *region.uses]], None, "recompute_grad")
    region.end = node
    return list(node.outputs[:count])


def _flow_back(
    region: _Region, region_inputs: Sequence[Output], grads: Sequence[Grad | None]
) -> list[Grad | None]:
    """Return the gradients of a region's inputs.

    Args:
      region_inputs: the region's inputs where its gradient is built.
      grads: gradients of the results; some may be missing.

    Args:
      region_inputs: the region's inputs where its gradient is built.
      grads: gradients of the results; None for some of them.
    """
    results = region.end.inputs[: len(grads)]
    present = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
    arrived = [part.node for _, grad in present for part in _parts(grad)]
    graph = arrived[0].graph
    with graph.name_scope("recomputed") as scope, graph.control_dependencies(arrived):
        inputs = [builder.out("Identity", [value]) for value in region_inputs]
        copies = _RegionCopy(graph, region, inputs, scope)
    sources = [value for value in inputs if is_trainable(value)]  # gradients stop here
    source_grads = gradients(
        [copies.outputs[result] for result, _ in present],
        sources,
        [grad for _, grad in present],
        name="recomputed",
        stop_gradients=sources,
    )
    by_source = dict(zip(sources, source_grads, strict=True))
    return [by_source.get(value) for value in inputs]


def _parts(grad: Grad) -> list[Output]:
    return [grad.values, grad.indices] if isinstance(grad, IndexedSlices) else [grad]


class _Region:
    """The nodes to recompute, and their inputs from outside.

    A conditional or loop is either completely inside or completely outside.

    Args:
      results: the outputs to recompute.
      candidates: the nodes that may belong to it.
      home: the context of the results.
    Attributes:
      graph: the graph of the nodes.
      nodes: the nodes in the order of construction.
      uses: outputs of other nodes that they read, and results computed by other nodes.
      end: a node whose inputs are the results, then all of `uses`; edits of a body update it.
    """

    end: Node

    def __init__(
        self, graph: Graph, results: Sequence[Output], candidates: Sequence[Node], home: Level
    ) -> None:
        self.graph = graph
        self.home = home
        self._candidates = set(candidates)
        self._members = _members_by_context(candidates)
        self._retained: set[Unit] = set()
        self._keep_private(candidates)
        members = self._reach(results)
        self.nodes = sorted(members, key=lambda node: node.index)
        uses = [*[s for node in self.nodes for s in node.inputs], *results]
        self.uses = list(dict.fromkeys(source for source in uses if source.node not in members))

    def find_node(self, name: str) -> Node | None:
        """Return the node of that name in its graph."""
        return self.graph.find_node(name)

    def _unit(self, node: Node) -> Unit:
        """Return the outermost conditional or loop that contains a node, or the node itself."""
        if not node.outputs:
            context = node.context
            while context is not None and context.outer is not self.home:
                context = context.outer
            if isinstance(context, CondContext) and node.context is not self.home:
                return context.conditional
            return context if isinstance(context, WhileContext) else node
        if node.role is Role.STACK:
            return node
        return unit_of(node.outputs[0], self.home)

    def _nodes_of(self, unit: Unit) -> list[Node]:
        if isinstance(unit, Node):
            return [unit]
        contexts: Sequence[ControlFlowContext] = (
            unit.branches if isinstance(unit, Conditional) else [unit]
        )
        node_list = [node for context in contexts for node in self._members.get(context, ())]
        joined = [
            user
            for context in contexts
            for result in getattr(context, "results", ())
            for user in result.consumers()
            if user.role is Role.MERGE and user in self._candidates
        ]
        mergeable = [
            context.pivot.inputs[0].node
            for context in contexts
            if isinstance(context, CondContext) and context.pivot is not None
        ]
        return list(dict.fromkeys([*node_list, *joined, *mergeable]))

    def _may_run_again(self, unit: Unit) -> bool:
        if unit in self._retained:
            return False
        return all([self._is_repeatable(node, unit) for node in self._nodes_of(unit)])

    def _is_repeatable(self, node: Node, unit: Unit) -> bool:
        """Return True if a second run of a node has the same results and no side effects."""
        if node not in self._candidates:  # a constant may be copied if it needs no gradient
            return node.role is Role.CONSTANT and not is_trainable(node.outputs[0])
        if node.role in (Role.PLACEHOLDER, Role.ARGUMENT):  # the caller provides the value
            return False
        if any(o.dtype.is_ref for o in (*node.outputs, *node.inputs)):
            return False
        if node.traits.routes:
            return node is not unit
        if state.is_private(node):
            return all(
                state.origin(s).node in self._candidates for s in node.inputs if _is_handle(s)
            )
        return not node.op_def.stateful

    def _keep_private(self, new_nodes: Iterable[Node]) -> None:
        """Save all uses of a TensorArray or stack if one of its uses is saved."""
        users: dict[Node, list[Unit]] = {}
        for node in new_nodes:
            if state.is_private(node):
                handles = [state.origin(s).node for s in node.inputs if _is_handle(s)]
                for handle in handles or [node]:
                    users.setdefault(handle, []).append(self._unit(node))
        changed = True
        while changed:
            changed = False
            for units in users.values():
                unsaved = [unit for unit in units if unit not in self._retained]
                if unsaved and not all(self._may_run_again(unit) for unit in units):
                    self._retained.update(unsaved)
                    changed = True

    def _reach(self, results: Sequence[Output]) -> set[Node]:
        """Return the repeatable nodes that the results depend on."""
        reached: set[Node] = set()
        visited: set[Unit] = set()
        stack = [result.node for result in results]
        while stack:
            unit = self._unit(stack.pop())
            if unit in visited:
                continue
            visited.add(unit)
            if not self._may_run_again(unit):
                continue
            members = self._nodes_of(unit)
            reached.update(members)
            stack.extend([s.node for node in members for s in node.inputs if s.node not in reached])
        return reached


def _is_handle(output: Output) -> bool:
    return state.is_handle(output)


def _members_by_context(nodes: Iterable[Node]) -> dict[ControlFlowContext, list[Node]]:
    """Return the nodes in each context, including nested contexts."""
    members: dict[ControlFlowContext, list[Node]] = {}
    for node in nodes:
        context = innermost(node)
        while context is not None:
            members.setdefault(context, []).append(node)
            context = context.outer
    return members


class _RegionCopy(BodyCopy):
    """A copy of a region's nodes in the graph of its gradient."""

    def __init__(
        self, graph: Graph, region: _Region, arguments: Sequence[Output], prefix: str
    ) -> None:
        self._region = region
        body: Any = _Body(region)
        super().__init__(graph, body, arguments, prefix, stand=self._constant, home=region.home)

    def _members(self) -> list[Node]:
        return self._region.nodes

    def _constant(self, node: Node, inputs: Sequence[Output]) -> Sequence[Output] | None:
        """Create a constant without control inputs, so that it is merged with the existing one."""
        if node.role is not Role.CONSTANT:
            return None
        scopes = self._graph.scopes
        with scopes.inside(scopes.context):
            return [builder.constant_of(node.attrs["value"], node.attrs["dtype"])]

    def _restore_contexts(self, source: Graph, members: Sequence[Node]) -> None:
        for node in self.nodes.values():
            if node.context is self._inner_context:
                node.context = None
        home = self._region.home
        contexts = self._region.graph.contexts
        records = [
            record
            for record in records_of(self._region.graph, members)
            if contexts[record.name] is not home and contexts[record.name].is_inside(home)
        ]
        names = {record.name: self._name(record.name) for record in records}
        name = "" if self._outer_context is None else self._outer_context.name
        node_indices = _NodeIndices(self._region.graph.nodes, self.nodes, self.outputs)
        renamed = [
            replace(
                record,
                name=names[record.name],
                outer=names.get(record.outer, name),
                forward=names.get(record.forward, ""),
                partner=names.get(record.partner, ""),
                pred=node_indices.port(record.pred),
                maximum=node_indices.port(record.maximum),
                pivot=node_indices.index_of(record.pivot),
            )
            for record in records
        ]
        restore(self._graph, renamed, node_indices.node_at)


class _Body:
    """A region as the function body that is copied."""

    def __init__(self, region: _Region) -> None:
        self.inputs = region.end.inputs[len(region.end.inputs) - len(region.uses) :]
        self.nodes = region.nodes
        self.graph = self
        self.gradient_functions = region.graph.gradient_functions
        self.find_node = region.find_node
        self.has_contexts = any(
            home_of(n) is not region.home or n.context is not region.home for n in region.nodes
        )


class _NodeIndices:
    """Indices of nodes and outputs of the copy, for context records."""

    def __init__(
        self, nodes: Sequence[Node], copies: dict[Node, Node], outputs: dict[Output, Output]
    ) -> None:
        self._nodes = nodes
        self._copies = copies
        self._outputs = outputs
        self._later_nodes: list[Node] = []

    def port(self, port: tuple[int, int]) -> tuple[int, int]:
        """Return the record index of an output of the copy."""
        if port[0] < 0:
            return port
        output = self._outputs[self._nodes[port[0]].outputs[port[1]]]
        self._later_nodes.append(output.node)
        return len(self._nodes) + len(self._later_nodes) - 1, output.index

    def index_of(self, place: int) -> int:
        """Return the record index of a node of the copy, or -1 if it has none."""
        return place if place < 0 or self._nodes[place] in self._copies else -1

    def node_at(self, place: int) -> Node:
        """Return the node of the copy with a record index."""
        if place >= len(self._nodes):
            return self._later_nodes[place - len(self._nodes)]
        return self._copies[self._nodes[place]]
