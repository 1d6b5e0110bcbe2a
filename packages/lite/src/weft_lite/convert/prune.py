"""Removal of unused ops and subgraphs."""

from __future__ import annotations

from weft_lite.convert.lowered import Lowered, Operation, Value
from weft_lite.schema.enums import OpKind

CALLED = {
    OpKind.If: ("then_subgraph", "else_subgraph"),
    OpKind.While: ("cond_subgraph", "body_subgraph"),
}
"""The options of an op that are indices of subgraphs."""


def called_subgraphs(op: Operation, lowered: Lowered) -> list[Lowered]:
    """Return the subgraphs that an op calls."""
    return [lowered.bodies[getattr(op.options, name) - 1] for name in CALLED.get(op.kind, ())]


def read_inside(op: Operation, lowered: Lowered) -> set[Value]:
    """Return the values that the subgraphs of an op read or return, including outer values."""
    values: set[Value] = set()
    for body in called_subgraphs(op, lowered):
        values.update(body.outputs)
        for item in body.ops:
            values.update(value for value in item.inputs if value is not None)
            values |= read_inside(item, lowered)
    return values


def drop_unread(lowered: Lowered) -> None:
    """Remove ops whose results are unused, then subgraphs that are not called."""
    _drop(lowered, lowered, set(lowered.outputs))
    lowereds: list[Lowered] = []
    _renumber(lowered, lowered, lowereds)
    lowered.bodies[:] = lowereds


def _drop(graph: Lowered, lowered: Lowered, read: set[Value]) -> None:
    """Remove unused ops of a graph, last op first."""
    retained = []
    for op in reversed(graph.ops):
        if not _has_effect(op, lowered) and not any(value in read for value in op.outputs):
            continue
        if op.kind is OpKind.If:
            _narrow(op, lowered, read)
        for body in called_subgraphs(op, lowered):
            read.update(body.outputs)
            _drop(body, lowered, read)
        read.update(value for value in op.inputs if value is not None)
        retained.append(op)
    graph.ops[:] = retained[::-1]


def _has_effect(op: Operation, lowered: Lowered) -> bool:
    """Return True if an op, or an op in its subgraphs, assigns a variable."""
    return op.kind is OpKind.Assign or any(
        _has_effect(op, lowered) for body in called_subgraphs(op, lowered) for op in body.ops
    )


def _narrow(op: Operation, lowered: Lowered, read: set[Value]) -> None:
    """Remove the results of a conditional that are not read."""
    kept_indices = [index for index, value in enumerate(op.outputs) if value in read]
    op.outputs = [op.outputs[i] for i in kept_indices]
    for body in called_subgraphs(op, lowered):
        body.outputs = [body.outputs[i] for i in kept_indices]


def _renumber(graph: Lowered, lowered: Lowered, lowereds: list[Lowered]) -> None:
    """Renumber the called subgraphs, callers first."""
    for op in graph.ops:
        for name in CALLED.get(op.kind, ()):
            body = lowered.bodies[getattr(op.options, name) - 1]
            lowereds.append(body)
            setattr(op.options, name, len(lowereds))
            _renumber(body, lowered, lowereds)
