"""Takes out what nobody reads."""

from __future__ import annotations

from weft_lite.convert.lowered import Lowered, Operation, Value
from weft_lite.schema.enums import OpKind

CALLED = {
    OpKind.If: ("then_subgraph", "else_subgraph"),
    OpKind.While: ("cond_subgraph", "body_subgraph"),
}
"""The options that number the subgraphs of an op."""


def called(op: Operation, whole: Lowered) -> list[Lowered]:
    """The subgraphs that an op calls."""
    return [whole.bodies[getattr(op.options, name) - 1] for name in CALLED.get(op.kind, ())]


def read_inside(op: Operation, whole: Lowered) -> set[Value]:
    """What the subgraphs of an op read or give, theirs and what is around them."""
    found: set[Value] = set()
    for body in called(op, whole):
        found.update(body.outputs)
        for each in body.ops:
            found.update(value for value in each.inputs if value is not None)
            found |= read_inside(each, whole)
    return found


def drop_unread(lowered: Lowered) -> None:
    """Take out ops whose results nobody reads, and subgraphs that nobody calls then."""
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
    """Leave out results of a conditional that nobody reads."""
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
