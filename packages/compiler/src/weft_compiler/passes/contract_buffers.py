"""Making buffers as small as the time that their elements live.

A buffer that only turns of one loop touch, each turn its own elements, is allocated in the loop,
without the dimension of the loop's variable; one that has a single element left, and is stored
once, is a name.

    alloc t: float32[8]        for i in 8:
    for i in 8:                  let t_2 = exp(x[i])
      t[i] = exp(x[i])           y[i] = t_2 * t_2
      y[i] = t[i] * t[i]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft_compiler.ir.expressions import Expr, Load, Variable, children, replace_children
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    Call,
    For,
    Let,
    Order,
    Program,
    Statement,
    Store,
    walk,
)
from weft_compiler.ir.rewrite import map_bodies, map_deep, with_body
from weft_compiler.passes.effects import (
    Buffers,
    Effects,
    accesses,
    effects_of,
    interface_buffers,
    with_allocations,
)


def contract_buffers(program: Program) -> Program:
    """The program with its buffers moved inwards and made smaller."""
    return with_body(program, _contract_body(program.body, interface_buffers(program)))


def _contract_body(body: Body, outer: Buffers) -> Body:
    buffers = with_allocations(outer, body)
    statements = [each for each in body if not isinstance(each, Allocate)]
    effects = [effects_of((each,), buffers) for each in statements]
    touching: dict[str, list[int]] = {}
    for at, each in enumerate(effects):
        for name in {*each.reads, *each.writes}:
            touching.setdefault(name, []).append(at)
    kept: list[Statement] = []
    names: dict[str, Expr] = {}
    for allocate in [each for each in body if isinstance(each, Allocate)]:
        buffer = allocate.buffer
        users = touching.get(buffer.name, [])
        if not users:
            continue
        first = statements[users[0]]
        if buffer.size == 1 and _is_stored_once(buffer, users, statements, effects):
            assert isinstance(first, Store)
            statements[users[0]] = Let(buffer.name, first.value)
            names[buffer.name] = Variable(buffer.dtype, buffer.name)
        elif axis := _axis_of(buffer, first, effects[users[0]]) if len(users) == 1 else None:
            assert isinstance(first, For)
            statements[users[0]] = _move_into(buffer, first, axis - 1)
        else:
            kept.append(allocate)
    named = _replace_loads(statements, names)
    deeper = [map_bodies(each, lambda inner: _contract_body(inner, buffers)) for each in named]
    return (*kept, *deeper)


def _is_stored_once(
    buffer: Buffer,
    users: Sequence[int],
    statements: Sequence[Statement],
    effects: Sequence[Effects],
) -> bool:
    """Whether the first statement that touches a buffer stores its element, and all others load.

    Args:
      users: which statements touch it.
    """
    first = statements[users[0]]
    return (
        isinstance(first, Store)
        and first.combine is None
        and buffer.name not in effects[users[0]].reads
        and not any(buffer.name in effects[at].writes for at in users[1:])
        and not any(_is_called(buffer.name, statements[at]) for at in users[1:])
    )


def _is_called(buffer: str, statement: Statement) -> bool:
    """Whether a routine reads a buffer, which has to be in memory then."""
    return any(
        view.buffer == buffer
        for each in walk((statement,))
        if isinstance(each, Call)
        for view in each.views
    )


def _axis_of(buffer: Buffer, loop: Statement, effects: Effects) -> int | None:
    """The dimension, from 1, of which each turn of a loop touches one place, that of its number."""
    found = list(accesses(effects, buffer.name))
    if not isinstance(loop, For) or loop.order is Order.VECTOR or None in found:
        return None
    for axis in range(len(buffer.shape)):
        if all(place is not None and _is_variable(place[axis], loop.variable) for place in found):
            return axis + 1
    return None


def _is_variable(index: Expr, name: str) -> bool:
    return isinstance(index, Variable) and index.name == name


def _move_into(buffer: Buffer, loop: For, axis: int) -> For:
    """A loop each of whose turns has the part of a buffer that it touches."""
    shape = (*buffer.shape[:axis], *buffer.shape[axis + 1 :])
    small = Allocate(Buffer(buffer.name, buffer.dtype, shape))
    return replace(loop, body=(small, *_drop_axis(loop.body, buffer.name, axis)))


def _replace_loads(body: Sequence[Statement], names: Mapping[str, Expr]) -> Body:
    """Statements with names in the place of loads of the buffers that they were stored in."""

    def change(expression: Expr) -> Expr:
        if isinstance(expression, Load) and expression.buffer in names:
            return names[expression.buffer]
        return replace_children(expression, tuple(map(change, children(expression))))

    return map_deep(body, change) if names else tuple(body)


def _drop_axis(body: Body, buffer: str, axis: int) -> Body:
    """Statements in which a buffer lacks a dimension."""

    def fewer(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return (*indices[:axis], *indices[axis + 1 :])

    def change(expression: Expr) -> Expr:
        new = tuple(map(change, children(expression)))
        changed = replace_children(expression, new)
        if isinstance(changed, Load) and changed.buffer == buffer:
            return Load(changed.dtype, buffer, fewer(changed.indices))
        return changed

    def stores(body: Body) -> Body:
        return tuple([map_bodies(store(each), stores) for each in body])

    def store(statement: Statement) -> Statement:
        if isinstance(statement, Store) and statement.buffer == buffer:
            indices = fewer(statement.indices)
            return Store(buffer, indices, statement.value, statement.combine)
        return statement

    return stores(map_deep(body, change))
