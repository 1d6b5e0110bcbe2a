"""Making buffers as small as the time that their elements live.

A buffer that only turns of one loop touch, each turn its own elements, is allocated in the loop,
without the dimension of the loop's variable; one that has no dimensions left, and is stored once,
is a name.

    alloc t: float32[8]        for i in 8:
    for i in 8:                  let t_2 = exp(x[i])
      t[i] = exp(x[i])           y[i] = t_2 * t_2
      y[i] = t[i] * t[i]
"""

from __future__ import annotations

from collections.abc import Sequence

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
    loads,
    walk,
)
from weft_compiler.ir.rewrite import map_bodies, map_deep, replaced
from weft_compiler.passes.effects import effects_of, places


def contract(program: Program) -> Program:
    """The program with its buffers moved inwards and made smaller."""
    return replaced(program, _contracted(program.body))


def _contracted(body: Body) -> Body:
    statements = list(body)
    for allocate in [each for each in body if isinstance(each, Allocate)]:
        statements = _moved(allocate.buffer, statements)
    return tuple([map_bodies(each, _contracted) for each in statements])


def _moved(buffer: Buffer, body: list[Statement]) -> list[Statement]:
    """The statements of a body, with a buffer of theirs moved inwards if that is possible."""
    rest = [each for each in body if not (isinstance(each, Allocate) and each.buffer is buffer)]
    touching = [at for at, each in enumerate(rest) if _touches(each, buffer.name)]
    if not touching:
        return rest
    if not buffer.shape:
        return _named(buffer, rest) or body
    (at, *others) = touching
    loop = rest[at]
    if others or not isinstance(loop, For) or loop.order is Order.VECTOR:
        return body
    axes = _axes_of(loop, buffer)
    if not axes:
        return body
    shape = tuple([size for axis, size in enumerate(buffer.shape) if axis not in axes])
    small = Buffer(buffer.name, buffer.dtype, shape)
    inner = _without(loop.body, buffer.name, axes)
    rest[at] = For(loop.variable, loop.extent, (Allocate(small), *inner), loop.order)
    return rest


def _axes_of(loop: For, buffer: Buffer) -> list[int]:
    """The dimensions of which each turn of a loop touches one place, that of its number."""
    found = list(places(effects_of((loop,)), buffer.name))
    if None in found:
        return []
    return [
        axis
        for axis in range(len(buffer.shape))
        if all(place is not None and _is_variable(place[axis], loop.variable) for place in found)
    ][:1]


def _is_variable(index: Expr, name: str) -> bool:
    return isinstance(index, Variable) and index.name == name


def _without(body: Body, buffer: str, axes: Sequence[int]) -> Body:
    """Statements in which a buffer has fewer dimensions."""

    def fewer(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple([index for axis, index in enumerate(indices) if axis not in axes])

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


def _named(buffer: Buffer, body: list[Statement]) -> list[Statement] | None:
    """The statements with a name for the one element of a buffer, if it is stored once, in them."""
    everything = list(walk(tuple(body)))
    stores = [each for each in everything if isinstance(each, Store) and each.buffer == buffer.name]
    called = any(isinstance(each, Call) and _touches(each, buffer.name) for each in everything)
    if len(stores) != 1 or stores[0].combine is not None or stores[0] not in body or called:
        return None
    at = body.index(stores[0])
    if any(_touches(each, buffer.name) for each in body[:at]):
        return None
    name = Variable(buffer.dtype, buffer.name)

    def change(expression: Expr) -> Expr:
        if isinstance(expression, Load) and expression.buffer == buffer.name:
            return name
        return replace_children(expression, tuple(map(change, children(expression))))

    after = map_deep(body[at + 1 :], change)
    return [*body[:at], Let(buffer.name, stores[0].value), *after]


def _touches(statement: Statement, buffer: str) -> bool:
    return any(load.buffer == buffer for load in loads((statement,))) or any(
        isinstance(each, Store) and each.buffer == buffer for each in walk((statement,))
    )
