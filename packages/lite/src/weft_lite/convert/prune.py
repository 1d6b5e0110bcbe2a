"""Removal of ops and subgraphs that are never read."""

from __future__ import annotations

from weft_lite.convert.lowered import Lowered, Operation, Value
from weft_lite.schema.enums import OpKind

CALLED = {
    OpKind.If: ("then_subgraph", "else_subgraph"),
    OpKind.While: ("cond_subgraph", "body_subgraph"),
}
"""The options that number the subgraphs of an op."""


def called(op: Operation, whole: Lowered) -> list[Lowered]:
    """Return the subgraphs that an op calls."""
    return [whole.bodies[getattr(op.options, name) - 1] for name in CALLED.get(op.kind, ())]


def read_inside(op: Operation, whole: Lowered) -> set[Value]:
    """Return the values that the subgraphs of an op read or return, also from outer graphs."""
    found: set[Value] = set()
    for body in called(op, whole):
        found.update(body.outputs)
        for each in body.ops:
            found.update(value for value in each.inputs if value is not None)
            found |= read_inside(each, whole)
    return found


def drop_unread(lowered: Lowered) -> None:
    """Remove ops whose results are not read, and then subgraphs that are not called."""
    _drop(lowered, lowered, set(lowered.outputs))
    kept: list[Lowered] = []
    _renumber(lowered, lowered, kept)
    lowered.bodies[:] = kept


def _drop(graph: Lowered, whole: Lowered, read: set[Value]) -> None:
    kept = []
    for op in reversed(graph.ops):
        if not _has_effect(op, whole) and not any(value in read for value in op.outputs):
            continue
        if op.kind is OpKind.If:
            _narrow(op, whole, read)
        for body in called(op, whole):
            read.update(body.outputs)
            _drop(body, whole, read)
        read.update(value for value in op.inputs if value is not None)
        kept.append(op)
    graph.ops[:] = kept[::-1]


def _has_effect(op: Operation, whole: Lowered) -> bool:
    return op.kind is OpKind.Assign or any(
        _has_effect(each, whole) for body in called(op, whole) for each in body.ops
    )


def _narrow(op: Operation, whole: Lowered, read: set[Value]) -> None:
    """Remove the results of a conditional that are not read."""
    places = [place for place, value in enumerate(op.outputs) if value in read]
    op.outputs = [op.outputs[place] for place in places]
    for body in called(op, whole):
        body.outputs = [body.outputs[place] for place in places]


def _renumber(graph: Lowered, whole: Lowered, kept: list[Lowered]) -> None:
    """Number the subgraphs that are called, callers first."""
    for op in graph.ops:
        for name in CALLED.get(op.kind, ()):
            body = whole.bodies[getattr(op.options, name) - 1]
            kept.append(body)
            setattr(op.options, name, len(kept))
            _renumber(body, whole, kept)
