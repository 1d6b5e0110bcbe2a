"""Copies of bodies in other graphs, with their branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from weft_graph.control_flow.context import ControlFlowContext, current_context
from weft_graph.control_flow.records import records_of, restore
from weft_graph.functions.definition import FunctionDefinition
from weft_graph.ir import builder
from weft_graph.ir.device_spec import parse
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Context, Node, Output
from weft_graph.ir.step_graph import sort_nodes
from weft_graph.ir.traits import Role

Stand = Callable[[Node, Sequence[Output]], "Sequence[Output] | None"]
"""Function from a node and its copied inputs to replacements of its outputs; None to copy it."""


class _FixedContext(Context):
    """Stand-in for the open context that leaves the inputs of copies unchanged."""

    def admit(
        self, op: str, name: str, inputs: tuple[Output, ...], controls: tuple[Node, ...]
    ) -> tuple[tuple[Output, ...], tuple[Node, ...], Context | None]:
        """Return the nodes unchanged; contexts are restored after all nodes are copied."""
        return inputs, (), None


class BodyCopy:
    """A copy of a function's body.

    Args:
      graph: graph of the copy, which is added to its current context.
      arguments: replacements of the inputs.
      prefix: prefix of the names of new nodes.
      stand: replacement function of nodes outside of contexts.
      keeps: predicate of the control inputs to copy; all by default.
      home: the context of the body's nodes that are in none of its branches and loops.
    Attributes:
      outputs, nodes: the copies.

    Until the contexts of the body are restored, its nodes inside of contexts belong to one
    stand-in. Exits of the body's loops thereby belong to the context of the copy.
    """

    def __init__(
        self,
        graph: Graph,
        function: FunctionDefinition,
        arguments: Sequence[Output],
        prefix: str = "",
        stand: Stand | None = None,
        keeps: Callable[[Node, Node], bool] | None = None,
        home: ControlFlowContext | None = None,
    ) -> None:
        self._graph = graph
        self._target_context = home
        self._function = function
        self._prefix = prefix
        self._stand = stand
        self._keeps = keeps
        self._outer_context = current_context(graph)
        self._inner_context = ControlFlowContext(graph, "", self._outer_context, register=False)
        if self._outer_context is not None:
            arguments = [self._outer_context.capture(value) for value in arguments]
        if function.graph.has_contexts:
            arguments = _copy_repeated(arguments)
        self.outputs: dict[Output, Output] = dict(zip(function.inputs, arguments, strict=True))
        self.nodes: dict[Node, Node] = {}
        self._names: dict[str, str] = {}
        self._gradients: dict[str, str] = {}
        with graph.under_construction():
            self._copy_all()

    # ------------------------------------------------------------------ nodes

    def _copy_all(self) -> None:
        members = self._members()
        for node in members:
            self._copy(node)
        for node, counterpart in self.nodes.items():
            self._connect(node, counterpart)
        source = self._function.graph
        if source.has_contexts:
            self._restore_contexts(source, members)

    def _members(self) -> list[Node]:
        """Return the nodes to copy: all of them if contexts or closures may refer to any node."""
        graph = self._function.graph
        if not (graph.has_contexts or graph.gradient_functions):
            return list(self._function.nodes)
        arguments = {output.node for output in self._function.inputs}
        input_set = set(self._function.inputs)
        return sort_nodes({node for node in graph.nodes if node not in arguments}, input_set)

    def _copy(self, node: Node) -> None:
        inputs = self._inputs(node)
        stand = self._stand
        if stand is not None and node.context is self._target_context:
            outputs = stand(node, inputs)
            if outputs is not None:
                self.outputs.update(zip(node.outputs, outputs, strict=True))
                return
        with self._enter_scopes(node):
            name = self._graph.unique_name(self._prefix + node.name)
            counterpart = self._graph.add_copy(node, name, inputs, self._attrs(node))
        if node.device:
            counterpart.device = parse(counterpart.device).merge(parse(node.device)).to_string()
        if node.context is not self._target_context:
            counterpart.context = self._inner_context
        self.nodes[node] = counterpart
        self.outputs.update(zip(node.outputs, counterpart.outputs, strict=True))

    def _inputs(self, node: Node) -> tuple[Output, ...]:
        """Return the copies of a node's inputs; placeholders for back edges not yet copied."""
        if node.role is not Role.MERGE:
            return tuple([self.outputs[source] for source in node.inputs])
        forward_value = next(
            self.outputs[source] for source in node.inputs if source in self.outputs
        )
        return tuple([self.outputs.get(source, forward_value) for source in node.inputs])

    @contextmanager
    def _enter_scopes(self, node: Node) -> Iterator[None]:
        """Return a copy's scopes: the current ones if it is directly in the current context."""
        scopes = self._graph.scopes
        saved_scopes = (
            scopes.name_prefix,
            scopes.attrs,
            scopes.overrides,
            scopes.colocations,
            scopes.context,
            scopes.controls,
        )
        scopes.name_prefix, scopes.attrs, scopes.overrides = "", {}, {}
        if "_class" in node.attrs:
            scopes.colocations = []
        if node.context is not self._target_context:
            scopes.context, scopes.controls = _FixedContext(), []
        try:
            yield
        finally:
            (
                scopes.name_prefix,
                scopes.attrs,
                scopes.overrides,
                scopes.colocations,
                scopes.context,
                scopes.controls,
            ) = saved_scopes

    def _attrs(self, node: Node) -> dict[str, Any]:
        attrs = dict(node.attrs)
        frame = attrs.get("frame_name")
        if isinstance(frame, str):
            attrs["frame_name"] = self._name(frame)
        override = attrs.get("_gradient_op_type")
        if override in self._function.graph.gradient_functions:
            attrs["_gradient_op_type"] = self._gradient(override)
        if "source" in attrs and node.type.startswith("TensorArrayGrad"):
            attrs["source"] = self._prefix + attrs["source"]  # or gradients of gradients collide
        if "_class" in attrs:
            attrs["_class"] = tuple([self._colocation_class(name) for name in node.colocation])
        return attrs

    def _colocation_class(self, name: str) -> str:
        original = self._function.graph.find_node(name)
        if original is None:
            return f"loc:@{name}"
        node = self.nodes.get(original)
        for output in original.outputs:
            if node is None and output in self.outputs:
                node = self.outputs[output].node
        return f"loc:@{self._prefix + name if node is None else node.name}"

    def _name(self, name: str) -> str:
        """Return the name of a frame or branch in the copy."""
        copied_name = self._names.get(name)
        if copied_name is None:
            copied_name = self._names[name] = self._unique(self._prefix + name)
        return copied_name

    def _unique(self, name: str) -> str:
        scopes = self._graph.scopes
        saved_prefix, scopes.name_prefix = scopes.name_prefix, ""
        try:
            return self._graph.unique_name(name)
        finally:
            scopes.name_prefix = saved_prefix

    def _gradient(self, name: str) -> str:
        """Return the name in the copy's graph of a gradient registered in the body's graph."""
        new_name = self._gradients.get(name)
        if new_name is None:
            target, entry = self._graph.gradient_functions, self._function.graph.gradient_functions
            new_name = name
            while target.get(new_name, entry[name]) is not entry[name]:
                new_name = self._unique(name)
            target[new_name] = entry[name]
            self._gradients[name] = new_name
        return new_name

    # ------------------------------------------------------------------ edges and contexts

    def _connect(self, node: Node, counterpart: Node) -> None:
        graph = self._graph
        if node.role is Role.MERGE:
            for i, source in enumerate(node.inputs):
                if counterpart.inputs[i] is not self.outputs[source]:
                    graph.replace_input(counterpart, i, self.outputs[source], reason="copy")
        controls = [
            self.nodes[control]
            for control in node.controls
            if control in self.nodes and (self._keeps is None or self._keeps(node, control))
        ]
        if controls:
            graph.set_control_inputs(counterpart, [*counterpart.controls, *controls], reason="copy")
        if node.forward is not None:
            counterpart.forward = self.nodes.get(node.forward)

    def _restore_contexts(self, source: Graph, members: Sequence[Node]) -> None:
        for node in self.nodes.values():
            if node.context is self._inner_context:
                node.context = None
        records = records_of(source, members)
        names = {record.name: self._name(record.name) for record in records}
        name = "" if self._outer_context is None else self._outer_context.name
        renamed = [
            replace(
                record,
                name=names[record.name],
                outer=names.get(record.outer, name),
                forward=names.get(record.forward, ""),
                partner=names.get(record.partner, ""),
            )
            for record in records
        ]
        restore(self._graph, renamed, lambda place: self._find_copy(source.nodes[place]))

    def _find_copy(self, node: Node) -> Node:
        counterpart = self.nodes.get(node)
        return self.outputs[node.outputs[0]].node if counterpart is None else counterpart


def _copy_repeated(values: Sequence[Output]) -> list[Output]:
    """Return the values with copies of repeated ones, because a branch identifies uses by value."""
    distinct: dict[Output, None] = {}
    for value in values:
        if value in distinct:
            op = "RefIdentity" if value.dtype.is_ref else "Identity"
            value = builder.out(op, [value])
        distinct[value] = None
    return list(distinct)
