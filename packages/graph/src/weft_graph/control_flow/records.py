"""Contexts as plain data, for graphs that are copied, written to files, or sent.

A record names nodes by their index in the graph. Derivable facts are not recorded: a loop's
Switches, Exits and next values follow from its Merges, and captured values from the Enters and
Switches among its members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weft_graph.control_flow.context import (
    CondContext,
    Conditional,
    ControlFlowContext,
    WhileContext,
    contexts_in,
    innermost,
    is_constant_enter,
)
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import errors

LOOP, LOWER, UPPER = range(3)
"""Kinds of contexts: a loop, and the branches for False and for True."""

Port = tuple[int, int]
"""A node and the index of one of its outputs."""


@dataclass
class ContextRecord:
    """Record of one context.

    Attributes:
      name, kind: name and kind of the context.
      outer, forward, partner: names of the enclosing context, of the context whose gradient it is,
        and of the other branch; "" for none.
      pivot: index of the pivot; -1 for none.
      pred: the predicate of a branch.
      variables: the Merges of a loop; the nodes of a branch's results.
      maximum: bound on a loop's iterations.
      parallel_iterations, back_prop, swap_memory: options of a loop.
      members: its nodes, without those of inner contexts.
    """

    name: str
    kind: int
    outer: str = ""
    forward: str = ""
    partner: str = ""
    pivot: int = -1
    pred: Port = (-1, 0)
    maximum: Port = (-1, 0)
    parallel_iterations: int = 1
    back_prop: bool = False
    swap_memory: bool = False
    variables: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)


def records_of(graph: Graph, nodes: Iterable[Node]) -> list[ContextRecord]:
    """Return records of the nodes' contexts and of those that these refer to, outer first."""
    members: dict[ControlFlowContext, list[int]] = {}
    for node in nodes:
        context = innermost(node)
        if context is not None:
            members.setdefault(context, []).append(node.index)
    contexts: set[ControlFlowContext] = set()
    stack = list(members)
    while stack:
        context = stack.pop()
        if context not in contexts:
            contexts.add(context)
            stack.extend(c for c in (context.outer, context.forward, _partner(context)) if c)
    return [
        _record(context, members.get(context, []))
        for context in graph.contexts.values()
        if context in contexts
    ]


def _partner(context: ControlFlowContext) -> ControlFlowContext | None:
    if not isinstance(context, CondContext):
        return None
    return context.conditional.branches[not context.taken]


def _record(context: ControlFlowContext, members: list[int]) -> ContextRecord:
    partner = _partner(context)
    record = ContextRecord(
        context.name,
        LOOP,
        outer="" if context.outer is None else context.outer.name,
        forward="" if context.forward is None else context.forward.name,
        partner="" if partner is None else partner.name,
        pivot=-1 if context.pivot is None else context.pivot.index,
        members=members,
    )
    if isinstance(context, CondContext):
        pred = context.conditional.pred
        record.kind = UPPER if context.taken else LOWER
        record.pred = (pred.node.index, pred.index)
        record.variables = [result.node.index for result in context.results]
    elif isinstance(context, WhileContext):
        limit = context.maximum_iterations
        record.variables = [merge.index for merge in context.merges]
        record.maximum = (-1, 0) if limit is None else (limit.node.index, limit.index)
        record.parallel_iterations = context.parallel_iterations
        record.back_prop, record.swap_memory = context.back_prop, context.swap_memory
    return record


def restore(graph: Graph, records: Sequence[ContextRecord], node_at: Callable[[int], Node]) -> None:
    """Create the contexts of records, or extend existing ones with the same names.

    Args:
      node_at: function from an index in a record to its node.
    Raises: InvalidArgumentError: a record does not match the nodes; the graph is then unchanged.
    """
    restored: dict[str, ControlFlowContext] = {}
    homes: list[tuple[Node, ControlFlowContext]] = []
    existing = contexts_in(graph)
    for record in records:
        if record.name in restored:
            raise _record_error(record, "occurs twice")
        outer = _get_existing(record.outer, restored, existing, record)
        context = existing.get(record.name)
        restored[record.name] = context or _empty(graph, record, outer, restored, node_at)
        homes += [(node_at(member), restored[record.name]) for member in record.members]
    for node, context in homes:
        if node.context not in (None, context):
            raise errors.InvalidArgumentError(
                f"{node.name!r} belongs to two contexts", node=node.name
            )
    fillings = [_make_filler(restored[record.name], record, node_at) for record in records]
    for record in records:
        if record.forward:
            restored[record.name].forward = _get_existing(
                record.forward, restored, existing, record
            )
    for node, context in homes:
        node.context = context
        _capture(context, node)
    for fill in fillings:
        fill()
    for name in restored:
        graph.reserve_name(name)
    graph.contexts.update(restored)
    graph.has_contexts = graph.has_contexts or bool(homes)


def _get_existing(
    name: str,
    restored: Mapping[str, ControlFlowContext],
    existing: Mapping[str, ControlFlowContext],
    record: ContextRecord,
) -> ControlFlowContext | None:
    if not name:
        return None
    context = restored.get(name) or existing.get(name)
    if context is None:
        raise _record_error(record, f"refers to {name!r}, which must come before it")
    return context


def _empty(
    graph: Graph,
    record: ContextRecord,
    outer: ControlFlowContext | None,
    restored: Mapping[str, ControlFlowContext],
    node_at: Callable[[int], Node],
) -> ControlFlowContext:
    if record.kind == LOOP:
        limit = None if record.maximum[0] < 0 else _output(record, record.maximum, node_at)
        return WhileContext(
            graph,
            record.name,
            outer,
            max(1, record.parallel_iterations),
            record.back_prop,
            record.swap_memory,
            limit,
            register=False,
        )
    partner = restored.get(record.partner)
    is_upper = record.kind == UPPER
    if partner is None:
        if is_upper:
            raise _record_error(record, "precedes the False branch")
        conditional = Conditional(_output(record, record.pred, node_at))
    elif isinstance(partner, CondContext) and len(partner.conditional.branches) == 1 and is_upper:
        conditional = partner.conditional
    else:
        raise _record_error(record, f"is not the partner of {record.partner!r}")
    return CondContext(graph, record.name, outer, conditional, is_upper, register=False)


def _output(record: ContextRecord, port: Port, node_at: Callable[[int], Node]) -> Output:
    node = node_at(port[0])
    if not 0 <= port[1] < len(node.outputs):
        raise _record_error(record, f"refers to output {port[1]} of {node.name!r}")
    return node.outputs[port[1]]


def _make_filler(
    context: ControlFlowContext, record: ContextRecord, node_at: Callable[[int], Node]
) -> Callable[[], None]:
    """Return a function that completes a context once all records have been checked."""
    pivot = None if record.pivot < 0 else node_at(record.pivot)
    variables = [node_at(variable) for variable in record.variables]
    if isinstance(context, CondContext):
        if any(not node.outputs for node in variables):
            raise _record_error(record, "has results that are not defined")

        def fill_branch() -> None:
            context.pivot = pivot
            context.results = tuple([node.outputs[0] for node in variables])

        return fill_branch
    assert isinstance(context, WhileContext)
    parts = [_loop_variable(record, merge) for merge in variables]

    def fill_loop() -> None:
        context.pivot = pivot
        context.merges = variables
        context.switches = [switch for switch, _, _ in parts]
        context.exits = [exit_node for _, exit_node, _ in parts]
        context.next_values = [following for _, _, following in parts]
        context.cond = parts[0][0].inputs[1] if parts else None

    return fill_loop


def _loop_variable(record: ContextRecord, merge: Node) -> tuple[Node, Node, Node]:
    """Return the Switch, the Exit and the NextIteration of a loop variable."""
    if merge.role is Role.MERGE and len(merge.inputs) == 2:
        start, following = merge.inputs
        switches = [
            user
            for user in merge.outputs[0].consumers()
            if user.role is Role.SWITCH and user.inputs[1].node.role is Role.LOOP_COND
        ]
        exits = [
            user
            for switch in switches
            for user in switch.outputs[0].consumers()
            if user.role is Role.EXIT
        ]
        if (
            switches
            and exits
            and start.node.role is Role.ENTER
            and start.node.attrs["frame_name"] == record.name
            and following.node.role is Role.NEXT_ITERATION
        ):
            return switches[0], exits[0], following.node
    raise _record_error(record, f"has {merge.name!r} as a variable, which is not a loop variable")


def _capture(context: ControlFlowContext, node: Node) -> None:
    """Record the outer values that a member uses."""
    if isinstance(context, WhileContext) and is_constant_enter(node):
        context._captured[node.inputs[0]] = node.outputs[0]
    elif isinstance(context, CondContext) and node.role is Role.SWITCH:
        context._captured[node.inputs[0]] = node.outputs[context.taken]


def _record_error(record: ContextRecord, problem: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"the control-flow context {record.name!r} {problem}")
