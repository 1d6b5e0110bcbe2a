"""Hoisting of loop-invariant transposes: operands are transposed before the loop.

while on:                                    for row in 256:
call gemm(x, w, y, b_row=1, ...)             for column in 128:
t[row, column] = w[column, row]
while on:
call gemm(x, t, y, b_row=128, ...)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from weft_compiler.ir.expressions import INDEX, Constant, Load, Variable, index
from weft_compiler.ir.indices import is_number
from weft_compiler.ir.mutator import StatementMutator, with_body
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    Call,
    For,
    Program,
    Statement,
    Store,
    While,
)
from weft_compiler.layouts import LINE
from weft_compiler.passes.effects import Buffers, effects_of, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context
from weft_compiler.passes.scope import ScopedMutator
from weft_compiler.routines.gemm import Gemm, Matmul, Product

_MIN_TRANSPOSED_ROWS: Final = 4
"""Minimum number of rows of a product for which the second operand is transposed first."""


def hoist_transposes(program: Program, context: Context) -> Program:
    """Transpose loop-invariant operands of products before the loop."""
    if context.vector_bytes < LINE:
        return program
    hoister = _TransposeHoister(Names(program), interface_buffers(program), context)
    return with_body(program, hoister.rewrite_body(program.body))


class _TransposeHoister(ScopedMutator):
    """Mutator that transposes loop-invariant operands before the loop."""

    def __init__(self, names: Names, buffers: Buffers, context: Context) -> None:
        super().__init__(buffers, context)
        self._names = names

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if not isinstance(statement, While):
            return super().rewrite_statement(statement)
        hoisted, loop = self._hoist(statement)
        self.buffers = with_allocations(self.buffers, hoisted)
        return (*hoisted, self.rewrite_bodies(loop))

    def _hoist(self, loop: While) -> tuple[Body, While]:
        """Return the transposes before a loop, and the loop."""
        buffers = self.buffers
        written = effects_of((loop,), buffers).writes
        transposed: dict[str, Load] = {}
        hoisted: list[Statement] = []

        def transpose(call: Call) -> Call:
            if not isinstance(call, Gemm | Matmul) or not _is_transposed(call, buffers):
                return call
            b = call.b
            if b.buffer in written:
                return call
            if str(b) not in transposed:
                name = self._names.new(f"{b.buffer}_transposed")
                buffer = Buffer(name, b.dtype, (call.k, call.n))
                hoisted.extend(self._emit_transpose(b, buffer))
                self.context.record_applied(b.buffer, "transposed before the loop")
                transposed[str(b)] = Load(b.dtype, name, (index(0), index(0)))
            return replace(call, b=transposed[str(b)], b_row=call.n, b_column=1)

        loop = _CallMutator(transpose).rewrite_bodies(loop)
        return tuple(hoisted), loop

    def _emit_transpose(self, b: Load, buffer: Buffer) -> Body:
        row, column = (Variable(INDEX, self._names.new(name)) for name in ("row", "column"))
        value = Load(b.dtype, b.buffer, (*b.indices[:-2], column, row))
        store = Store(buffer.name, (row, column), value)
        k, n = buffer.shape
        columns = For(column.name, index(n), (store,))
        return (Allocate(buffer), For(row.name, index(k), (columns,)))


class _CallMutator(StatementMutator):
    """Mutator of the calls of a body."""

    def __init__(self, rewrite: Callable[[Call], Call]) -> None:
        self._rewrite = rewrite

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Call):
            return self._rewrite(statement)
        return super().rewrite_statement(statement)


def _is_transposed(call: Product, buffers: Buffers) -> bool:
    """Return True if the second operand of a product is the transpose of a complete matrix."""
    if call.sizes or call.m < _MIN_TRANSPOSED_ROWS:
        return False
    shape = buffers[call.b.buffer].shape if call.b.buffer in buffers else ()
    return (
        shape[-2:] == (call.n, call.k)
        and (call.b_row, call.b_column) == (1, call.k)
        and all(is_number(index, 0) for index in call.b.indices[-2:])
        and all(isinstance(index, Constant) for index in call.b.indices[:-2])
    )
