"""Array contraction: buffers shrink to the live range of their elements.

If only one loop uses a buffer, and each iteration uses different elements, the buffer is allocated
in the loop without the dimension of the loop variable. A buffer of a single element that is stored
once
becomes a name.

    alloc t: float32[8]        for i in 8:
    for i in 8:                  let t_2 = exp(x[i])
      t[i] = exp(x[i])           y[i] = t_2 * t_2
      y[i] = t[i] * t[i]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft_compiler.ir.expressions import Expr, Load, Variable
from weft_compiler.ir.mutator import Mutator, with_body
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
from weft_compiler.passes.effects import (
    Effects,
    accesses,
    effects_of,
    interface_buffers,
)
from weft_compiler.passes.framework import Context
from weft_compiler.passes.scope import ScopedMutator


def contract_buffers(program: Program, context: Context) -> Program:
    """Move buffers into the loops that use them, and make them smaller."""
    contraction = _Contraction(interface_buffers(program), context)
    return with_body(program, contraction.rewrite_body(program.body))


class _Contraction(ScopedMutator):
    """Mutator that contracts the buffers of each body, outer bodies first."""

    def rewrite_statements(self, body: Body) -> Body:
        statements = [item for item in body if not isinstance(item, Allocate)]
        effects = [effects_of((statement,), self.buffers) for statement in statements]
        touching: dict[str, list[int]] = {}
        for position, effect in enumerate(effects):
            for name in {*effect.reads, *effect.writes}:
                touching.setdefault(name, []).append(position)
        allocations: list[Statement] = []
        names: dict[str, Expr] = {}
        for allocate in [item for item in body if isinstance(item, Allocate)]:
            buffer = allocate.buffer
            users = touching.get(buffer.name, [])
            if not users:
                continue
            first = statements[users[0]]
            if buffer.size == 1 and _is_stored_once(buffer, users, statements, effects):
                assert isinstance(first, Store)
                self.context.record_applied(buffer.name, "contracted to a scalar")
                statements[users[0]] = Let(buffer.name, first.value)
                names[buffer.name] = Variable(buffer.dtype, buffer.name)
            # Axes are counted from 1 here, so that the first one is not mistaken for none.
            elif axis := _axis_of(buffer, first, effects[users[0]]) if len(users) == 1 else None:
                assert isinstance(first, For)
                self.context.record_applied(
                    buffer.name,
                    "moved into the loop over %s, without axis %d",
                    first.variable,
                    axis - 1,
                )
                statements[users[0]] = _move_into(buffer, first, axis - 1)
            else:
                allocations.append(allocate)
        named = _LoadReplacement(names).rewrite_body(tuple(statements)) if names else statements
        return (*allocations, *map(self.rewrite_bodies, named))


def _is_stored_once(
    buffer: Buffer,
    users: Sequence[int],
    statements: Sequence[Statement],
    effects: Sequence[Effects],
) -> bool:
    """Return True if a buffer is stored to by the first of some statements and then only loaded.

    Args:
      users: the positions of the statements that use the buffer.
    """
    first = statements[users[0]]
    return (
        isinstance(first, Store)
        and first.combine is None
        and buffer.name not in effects[users[0]].reads
        and not any(buffer.name in effects[index].writes for index in users[1:])
        and not any(_is_called(buffer.name, statements[index]) for index in users[1:])
    )


def _is_called(buffer: str, statement: Statement) -> bool:
    """Return True if a routine reads a buffer, which must therefore be in memory."""
    return any(
        view.buffer == buffer
        for item in walk((statement,))
        if isinstance(item, Call)
        for view in item.views
    )


def _axis_of(buffer: Buffer, loop: Statement, effects: Effects) -> int | None:
    """Return the dimension, counted from 1, whose index in a loop is always the loop variable."""
    indices = list(accesses(effects, buffer.name))
    # A buffer allocated in a vector loop would have to exist once for each lane.
    if not isinstance(loop, For) or loop.order is Order.VECTOR or None in indices:
        return None
    for axis in range(len(buffer.shape)):
        if all(
            position is not None and _is_variable(position[axis], loop.variable)
            for position in indices
        ):
            return axis + 1
    return None


def _is_variable(index: Expr, name: str) -> bool:
    return isinstance(index, Variable) and index.name == name


def _move_into(buffer: Buffer, loop: For, axis: int) -> For:
    """Return a loop that allocates each iteration's own part of a buffer."""
    shape = (*buffer.shape[:axis], *buffer.shape[axis + 1 :])
    small = Allocate(Buffer(buffer.name, buffer.dtype, shape))
    shrunk = _AxisRemoval(buffer.name, axis).rewrite_body(loop.body)
    return replace(loop, body=(small, *shrunk))


class _LoadReplacement(Mutator):
    """Mutator that replaces loads of buffers by the names of the values stored there."""

    def __init__(self, names: Mapping[str, Expr]) -> None:
        self._names = names

    def rewrite_expression(self, expression: Expr) -> Expr:
        if isinstance(expression, Load) and expression.buffer in self._names:
            return self._names[expression.buffer]
        return super().rewrite_expression(expression)


class _AxisRemoval(Mutator):
    """Mutator that removes an axis of a buffer, and the indices along it."""

    def __init__(self, buffer: str, axis: int) -> None:
        self._buffer, self._axis = buffer, axis

    def _without_axis(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return (*indices[: self._axis], *indices[self._axis + 1 :])

    def rewrite_expression(self, expression: Expr) -> Expr:
        new = super().rewrite_expression(expression)
        if isinstance(new, Load) and new.buffer == self._buffer:
            return Load(new.dtype, new.buffer, self._without_axis(new.indices))
        return new

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        new = super().rewrite_statement(statement)
        if isinstance(new, Store) and new.buffer == self._buffer:
            return Store(new.buffer, self._without_axis(new.indices), new.value, new.combine)
        return new
