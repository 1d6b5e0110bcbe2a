"""Conversion of conditionals and loops to `CondContextDef`s and `WhileContextDef`s.

A context of TensorFlow lists its values, including those of nested contexts, and the counterparts
of captured values. weft stores contexts in the graph instead of collections. Contexts of gradients
are skipped, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft_graph import proto
from weft_graph.control_flow.context import (
    CondContext,
    ControlFlowContext,
    WhileContext,
    context_of,
    contexts_in,
    innermost,
    is_constant_enter,
)
from weft_graph.control_flow.records import LOOP, LOWER, UPPER, ContextRecord, restore
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.messages.collection_items import register_collection
from weft_tensor import errors

# --------------------------------------------------------------------------- to messages


class _Contexts:
    """The members of a graph's contexts."""

    def __init__(self, graph: Graph) -> None:
        self.own_nodes: dict[ControlFlowContext, list[Node]] = {}
        self.inner: dict[ControlFlowContext | None, list[ControlFlowContext]] = {}
        for node in graph.nodes:
            home = innermost(node)
            if home is not None:
                self.own_nodes.setdefault(home, []).append(node)
        for context in contexts_in(graph).values():
            if context.forward is None and _is_whole(context):
                self.inner.setdefault(context.outer, []).append(context)

    def values(self, context: ControlFlowContext) -> set[str]:
        """Return the names of a context's members: values, branch results, loop exits."""
        names = {output.name for node in self.own_nodes.get(context, ()) for output in node.outputs}
        for inner in self.inner.get(context, ()):
            if isinstance(inner, WhileContext):
                names |= {node.outputs[0].name for node in inner.exits}
            else:
                names |= self.values(inner)
        return names


def _is_whole(context: ControlFlowContext) -> bool:
    """Return True if a context is complete, not under construction."""
    if isinstance(context, WhileContext):
        return context.cond is not None and len(context.exits) == len(context.merges) > 0
    return context.pivot is not None


class _Item:
    """An outermost context, as an item of its collection."""

    def __init__(self, context: ControlFlowContext, contexts: _Contexts) -> None:
        self._context = context
        self._contexts = contexts

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return the message with names relative to a name scope, or None if it is outside."""
        scope = export_scope.rstrip("/") + "/" if export_scope else ""
        pivot = self._context.pivot
        assert pivot is not None
        if not pivot.name.startswith(scope):
            return None
        return _to_proto(self._context, self._contexts, scope)


def _to_proto(context: ControlFlowContext, contexts: _Contexts, scope: str) -> Any:
    if isinstance(context, WhileContext):
        message = _loop_to_proto(context, scope)
    else:
        assert isinstance(context, CondContext)
        message = _branch_to_proto(context, scope)
    message.context_name = context.name.removeprefix(scope)
    inner_names = {
        _origin(outer_name).name: inner_name.name
        for outer_name, inner_name in context.captures.items()
    }
    for name in sorted(contexts.values(context) | inner_names.keys()):
        message.values_def.values.append(name.removeprefix(scope))
    for outer_name, inner_name in sorted(inner_names.items()):
        name = inner_name.removeprefix(scope)
        message.values_def.external_values[outer_name.removeprefix(scope)] = name
    for inner in contexts.inner.get(context, ()):
        nested = message.nested_contexts.add()
        kind = nested.while_ctxt if isinstance(inner, WhileContext) else nested.cond_ctxt
        kind.CopyFrom(_to_proto(inner, contexts, scope))
    return message


def _origin(output: Output) -> Output:
    """Return the value of a loop invariant outside of all loops that capture it."""
    while is_constant_enter(output.node):
        output = output.node.inputs[0]
    return output


def _loop_to_proto(context: WhileContext, scope: str) -> Any:
    def short(output: Output) -> str:
        return output.name.removeprefix(scope)

    assert context.cond is not None and context.pivot is not None
    limit = context.maximum_iterations
    return proto.WhileContextDef(
        parallel_iterations=context.parallel_iterations,
        back_prop=context.back_prop,
        swap_memory=context.swap_memory,
        pivot_name=short(context.cond),
        pivot_for_pred_name=short(context.merges[0].outputs[0]),
        pivot_for_body_name=short(context.pivot.outputs[0]),
        loop_exit_names=[short(node.outputs[0]) for node in context.exits],
        loop_enter_names=[short(merge.inputs[0]) for merge in context.merges],
        maximum_iterations_name="" if limit is None else short(limit),
    )


def _branch_to_proto(context: CondContext, scope: str) -> Any:
    assert context.pivot is not None
    return proto.CondContextDef(
        pred_name=context.conditional.pred.name.removeprefix(scope),
        pivot_name=context.pivot.outputs[0].name.removeprefix(scope),
        branch=int(context.taken),
    )


def _contexts_of_graph(kind: type[ControlFlowContext]) -> Callable[[Graph], list[_Item]]:
    def find(graph: Graph) -> list[_Item]:
        contexts = _Contexts(graph)
        top = contexts.inner.get(None, ())
        return [_Item(context, contexts) for context in top if isinstance(context, kind)]

    return find


# --------------------------------------------------------------------------- from messages


class _Reader:
    """Reader that builds records from messages about nodes of a graph."""

    def __init__(self, graph: Graph, import_scope: str | None) -> None:
        self._graph = graph
        self._prefix = f"{import_scope.rstrip('/')}/" if import_scope else ""
        self._names = set(graph.contexts)
        self.records: list[ContextRecord] = []

    def add(self, loops: Sequence[Any], branches: Sequence[Any], outer: str = "") -> set[Node]:
        """Add the records of sibling contexts; return the nodes in all of them."""
        members: set[Node] = set()
        for loop in loops:
            members |= self._fill(self._loop(loop), loop, outer)
        pairs: dict[str, dict[int, Any]] = {}
        for branch in branches:
            pairs.setdefault(branch.pred_name, {})[branch.branch] = branch
        for pred, pair in pairs.items():
            if sorted(pair) != [0, 1]:
                raise errors.InvalidArgumentError(
                    f"the conditional over {pred!r} must have two branches, 0 and 1, "
                    f"got {sorted(pair)}"
                )
            lower, upper = [
                self._branch(pair[side], kind) for side, kind in enumerate((LOWER, UPPER))
            ]
            lower.partner, upper.partner = upper.name, lower.name
            members |= self._fill(lower, pair[0], outer) | self._fill(upper, pair[1], outer)
        return members

    def _fill(self, record: ContextRecord, message: Any, outer: str) -> set[Node]:
        record.outer = outer
        self.records.append(record)
        nested = message.nested_contexts
        inner = self.add(
            [
                nested_ctxt.while_ctxt
                for nested_ctxt in nested
                if nested_ctxt.WhichOneof("ctxt") == "while_ctxt"
            ],
            [
                nested_ctxt.cond_ctxt
                for nested_ctxt in nested
                if nested_ctxt.WhichOneof("ctxt") == "cond_ctxt"
            ],
            record.name,
        )
        outside = set(message.values_def.external_values)
        names = [name for name in message.values_def.values if name not in outside]
        nodes = dict.fromkeys(self._node(name) for name in names)
        record.members = [node.index for node in nodes if node not in inner]
        return inner | nodes.keys()

    def _loop(self, message: Any) -> ContextRecord:
        exits = [self._node(name) for name in message.loop_exit_names]
        merges = [_merge_of(node) for node in exits]
        if not merges:
            raise errors.InvalidArgumentError(f"the loop {message.context_name!r} has no variables")
        record = ContextRecord(
            merges[0].inputs[0].node.attrs.get("frame_name", message.context_name),
            LOOP,
            pivot=self._node(message.pivot_for_body_name).index,
            parallel_iterations=message.parallel_iterations,
            back_prop=message.back_prop,
            swap_memory=message.swap_memory,
            variables=[merge.index for merge in merges],
        )
        if message.maximum_iterations_name:
            record.maximum = self._port(message.maximum_iterations_name)
        return record

    def _branch(self, message: Any, kind: int) -> ContextRecord:
        name = base = self._prefix + message.context_name
        number = 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return ContextRecord(
            name,
            kind,
            pivot=self._node(message.pivot_name).index,
            pred=self._port(message.pred_name),
        )

    def _node(self, name: str) -> Node:
        element = self._graph.as_graph_element(self._prefix + name)
        return element.node if isinstance(element, Output) else element

    def _port(self, name: str) -> tuple[int, int]:
        output = self._graph.get_tensor_by_name(self._prefix + name)
        return output.node.index, output.index


def _merge_of(exit_node: Node) -> Node:
    """Return the Merge of the loop variable of an Exit."""
    switch = exit_node.inputs[0].node if exit_node.inputs else exit_node
    merge = switch.inputs[0].node if switch.inputs else switch
    if merge.role is not Role.MERGE:
        raise errors.InvalidArgumentError(f"{exit_node.name!r} is not the Exit of a loop variable")
    return merge


def _fill_results(graph: Graph, names: Iterable[str]) -> None:
    """Record the values that the branches pass to the Merges of their conditional."""
    cond_contexts = [c for c in map(graph.contexts.get, names) if isinstance(c, CondContext)]
    results: dict[ControlFlowContext | None, list[Output]] = {
        context: [] for context in cond_contexts
    }
    for merge in graph.nodes if cond_contexts else ():
        if merge.role is Role.MERGE and len(merge.inputs) == 2:
            lower, upper = [context_of(source) for source in merge.inputs]
            branches = lower.conditional.branches if isinstance(lower, CondContext) else []
            if lower in results and branches == [lower, upper]:
                results[lower].append(merge.inputs[0])
                results[upper].append(merge.inputs[1])
    for context in cond_contexts:
        context.results = tuple(results[context])


def _from_loops(messages: Sequence[Any], import_scope: str | None) -> list[None]:
    return _restore(messages, (), import_scope)


def _from_branches(messages: Sequence[Any], import_scope: str | None) -> list[None]:
    return _restore((), messages, import_scope)


def _restore(loops: Sequence[Any], branches: Sequence[Any], import_scope: str | None) -> list[None]:
    graph = get_default_graph()
    reader = _Reader(graph, import_scope)
    reader.add(loops, branches)
    restore(graph, reader.records, graph.nodes.__getitem__)
    _fill_results(graph, [record.name for record in reader.records])
    return [None] * (len(loops) + len(branches))


register_collection(
    GraphKeys.WHILE_CONTEXT, "WhileContextDef", _from_loops, _contexts_of_graph(WhileContext)
)
register_collection(
    GraphKeys.COND_CONTEXT, "CondContextDef", _from_branches, _contexts_of_graph(CondContext)
)
