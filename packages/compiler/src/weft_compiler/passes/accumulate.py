"""In-place accumulation of matrix products.

alloc t: float32[256, 128]                   while on:
while on:                                      call gemm(x, g, sum, accumulate=1, ...)
call gemm(x, g, t, accumulate=0, ...)
for i in 256:
for j in 128:
sum[i, j] = sum[i, j] + t[i, j]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft_compiler.ir.expressions import Apply, Expr, Load, Variable
from weft_compiler.ir.indices import is_number
from weft_compiler.ir.mutator import with_body
from weft_compiler.ir.program import Allocate, Body, For, Let, Program, Statement, Store
from weft_compiler.passes.effects import Buffers, effects_of, interface_buffers
from weft_compiler.passes.framework import Context
from weft_compiler.passes.scope import ScopedMutator
from weft_compiler.routines.gemm import Gemm


def accumulate_in_place(program: Program, context: Context) -> Program:
    """Accumulate products in place if they are only added to a matrix."""
    accumulation = _Accumulation(interface_buffers(program), context)
    return with_body(program, accumulation.rewrite_body(program.body))


class _Accumulation(ScopedMutator):
    """Mutator that accumulates products in place."""

    def rewrite_statements(self, body: Body) -> Body:
        buffers = self.buffers
        statements = list(map(self.rewrite_bodies, body))
        allocated = {statement.buffer.name for statement in body if isinstance(statement, Allocate)}
        users = _users(statements, buffers)
        removed: set[int] = set()
        for position, statement in enumerate(statements):
            if not isinstance(statement, Gemm):
                continue
            product = statement.c
            if product.buffer not in allocated or statement.accumulate:
                continue
            touching = users[product.buffer]
            # Any further user would need the product itself.
            if len(touching) != 2 or touching[0] != position:
                continue
            adder = touching[1]
            total = _accumulation_target(statements[adder], product.buffer, buffers)
            # The matrix would change earlier than before, so no statement in between may use it.
            if not total or any(position <= user < adder for user in users[total]):
                continue
            statements[position] = replace(
                statement, c=replace(product, buffer=total), accumulate=1
            )
            self.context.record_applied(product.buffer, "accumulated in %s by the product", total)
            removed.add(adder)
            users[total] = sorted({*users[total], position} - {adder})
            users[product.buffer] = []
        return tuple(
            [statement for position, statement in enumerate(statements) if position not in removed]
        )


def _users(statements: Sequence[Statement], buffers: Buffers) -> dict[str, list[int]]:
    """Return the positions of the statements that use each buffer."""
    users: dict[str, list[int]] = {}
    for position, statement in enumerate(statements):
        effects = effects_of((statement,), buffers)
        for name in {*effects.reads, *effects.writes}:
            users.setdefault(name, []).append(position)
    return users


def _accumulation_target(statement: Statement, product: str, buffers: Buffers) -> str:
    """Return the matrix that a statement adds a product to, if it does nothing else; or ""."""
    rows = statement
    columns = rows.body[0] if isinstance(rows, For) and len(rows.body) == 1 else None
    if not isinstance(rows, For) or not isinstance(columns, For):
        return ""
    *lets, store = columns.body
    if not isinstance(store, Store) or store.combine is not None:
        return ""
    value = store.value
    if len(lets) == 1 and isinstance(lets[0], Let) and isinstance(value, Variable):
        value = lets[0].value if lets[0].name == value.name else value
    elif lets:
        return ""
    shape, total = buffers[product].shape, store.buffer
    covers_matrix = is_number(rows.extent, shape[0]) and is_number(columns.extent, shape[-1])
    if (
        not isinstance(value, Apply)
        or value.primitive != "add"
        or not covers_matrix
        or len(shape) != 2
    ):
        return ""
    terms = [operand for operand in value.operands if isinstance(operand, Load)]
    indices = [store.indices, *[operand.indices for operand in terms]]
    is_same_element = all(
        _are_variables(operand, rows.variable, columns.variable) for operand in indices
    )
    added = sorted(operand.buffer for operand in terms) == sorted((total, product))
    return total if is_same_element and added and buffers[total].shape == shape else ""


def _are_variables(indices: Sequence[Expr], *names: str) -> bool:
    used = [index.name for index in indices if isinstance(index, Variable)]
    return len(used) == len(indices) and used == list(names)
