"""Staging of transposed reads: copies blocks of an operand to a small buffer.

    for i in 4096:                 parallel i_b in 64:
      for j in 4096:                 for j_b in 64:
        y[i, j] = x[j, i] * 0.5        alloc block: float32[64, 64]
                                       for row in 64:
                                         vector column in 64:
                                           block[row, column] = x[j_b * 64 + row, i_b * 64 + column]
                                       for i in 64:
                                         vector j in 64:
                                           y[i_b * 64 + i, j_b * 64 + j] = block[j, i] * 0.5

The inner loop of the original reads one element of each cache line, which is evicted before the
next iteration of the outer loop reads its neighbor. The copy reads whole lines, and the block stays
in the first-level cache (loop tiling with copying; Lam, Rothberg & Wolf 1991).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft_compiler.ir.expressions import INDEX, Constant, Expr, Load, Variable, index, walk as parts
from weft_compiler.ir.indices import plus, times
from weft_compiler.ir.mutator import Mutator, substitute_body, with_body
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    For,
    Let,
    Order,
    Program,
    Statement,
    Store,
    expressions,
)
from weft_compiler.ir.ranges import affine
from weft_compiler.passes.effects import Buffers, interface_buffers
from weft_compiler.passes.framework import Context
from weft_compiler.passes.parallelize import can_reorder
from weft_compiler.passes.scope import ScopedMutator

_MIN_BYTES: Final = 1 << 20
"""Minimum size, in bytes, of an operand whose cache lines are evicted between iterations."""
_BLOCKS: Final = range(64, 15, -1)
"""Preferred numbers of rows and columns of a block; the first one that divides the trip count is
used.
"""


def stage_transposed(program: Program, context: Context) -> Program:
    """Stage transposed reads of large operands in small buffers."""
    staging = _Staging(interface_buffers(program), context, Names(program))
    return with_body(program, staging.rewrite_body(program.body))


class _Staging(ScopedMutator):
    """Mutator that stages the transposed reads of two nested loops."""

    def __init__(self, buffers: Buffers, context: Context, names: Names) -> None:
        super().__init__(buffers, context)
        self._names = names

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        columns = _columns(statement)
        if columns is None:
            return super().rewrite_statement(statement)
        assert isinstance(statement, For)
        loads = _transposed_loads(statement, columns, self.buffers)
        if not loads:
            return statement
        subject = next(iter(loads.values())).buffer
        sizes = [_block_size(loop) for loop in (statement, columns)]
        if None in sizes:
            self.context.record_missed(
                subject, "no block size from 16 to 64 divides the trip count"
            )
            return statement
        if not can_reorder(statement, self.buffers, combines=False) or not can_reorder(
            columns, self.buffers, combines=False
        ):
            self.context.record_missed(subject, "the iterations depend on each other")
            return statement
        rows_size, columns_size = [size for size in sizes if size is not None]
        self.context.record_applied(subject, "staged in blocks of %d × %d", columns_size, rows_size)
        return self._stage(statement, columns, loads, rows_size, columns_size)

    def _stage(
        self, rows: For, columns: For, loads: dict[str, Load], rows_size: int, columns_size: int
    ) -> Statement:
        """Return the loop over blocks of two nested loops."""
        new = self._names.new
        row_block, column_block = new(rows.variable), new(columns.variable)
        first_row = times(Variable(INDEX, row_block), rows_size)
        first_column = times(Variable(INDEX, column_block), columns_size)
        copies: list[Statement] = []
        staged: dict[str, Load] = {}
        for text, load in loads.items():
            block = Buffer(new(f"{load.buffer}_block"), load.dtype, (columns_size, rows_size))
            row, column = new("row"), new("column")
            indices = {
                columns.variable: plus(first_column, Variable(INDEX, row)),
                rows.variable: plus(first_row, Variable(INDEX, column)),
            }
            store = Store(block.name, (Variable(INDEX, row), Variable(INDEX, column)), load)
            line = For(column, index(rows_size), (store,), Order.VECTOR)
            loop = For(row, index(columns_size), (line,))
            copies += [Allocate(block), *substitute_body((loop,), indices)]
            block_indices = (Variable(INDEX, columns.variable), Variable(INDEX, rows.variable))
            staged[text] = Load(load.dtype, block.name, block_indices)
        body = _LoadReplacement(
            staged,
            {
                rows.variable: plus(first_row, Variable(INDEX, rows.variable)),
                columns.variable: plus(first_column, Variable(INDEX, columns.variable)),
            },
        ).rewrite_body(columns.body)
        inner = replace(columns, extent=index(columns_size), body=body, order=Order.VECTOR)
        outer = replace(rows, extent=index(rows_size), body=(inner,))
        blocks = For(column_block, index(_trip_count(columns) // columns_size), (*copies, outer))
        return For(
            row_block, index(_trip_count(rows) // rows_size), (blocks,), order=Order.PARALLEL
        )


class _LoadReplacement(Mutator):
    """Mutator that replaces staged loads, and moves all other accesses to the current block.

    Args:
      staged: the loads from blocks, by the text of the loads that they replace.
      places: positions of the current iteration, by variable.
    """

    def __init__(self, staged: dict[str, Load], indices: dict[str, Expr]) -> None:
        self._stage = staged
        self._places = indices

    def rewrite_expression(self, expression: Expr) -> Expr:
        """Return an expression that reads the block."""
        if isinstance(expression, Load):
            staged = self._stage.get(str(expression))
            if staged is not None:
                return staged
        if isinstance(expression, Variable):
            return self._places.get(expression.name, expression)
        return super().rewrite_expression(expression)


def _columns(statement: Statement) -> For | None:
    """Return the inner loop of two nested loops without other statements.

    None if it is another statement.
    """
    if not _is_plain(statement):
        return None
    assert isinstance(statement, For)
    inner = statement.body[0] if len(statement.body) == 1 else None
    if inner is None or not _is_plain(inner):
        return None
    assert isinstance(inner, For)
    return inner if all(isinstance(item, Let | Store) for item in inner.body) else None


def _is_plain(statement: Statement) -> bool:
    return (
        isinstance(statement, For)
        and statement.order is Order.SERIAL
        and statement.start is None
        and isinstance(statement.extent, Constant)
    )


def _trip_count(loop: For) -> int:
    assert isinstance(loop.extent, Constant)
    return int(loop.extent.value)


def _block_size(loop: For) -> int | None:
    """Return the number of iterations of a block; None if no candidate divides the trip count."""
    count = _trip_count(loop)
    return next((size for size in _BLOCKS if count % size == 0), None)


def _transposed_loads(rows: For, columns: For, buffers: Buffers) -> dict[str, Load]:
    """Return the loads of large operands whose last index is the outer variable, by their text."""
    written = {item.buffer for item in columns.body if isinstance(item, Store)}
    return {
        str(part): part
        for statement in columns.body
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Load)
        and part.buffer not in written
        and _bytes(buffers[part.buffer]) >= _MIN_BYTES
        and _is_transposed(part, rows.variable, columns.variable)
    }


def _is_transposed(load: Load, row: str, column: str) -> bool:
    """Return True if a load is contiguous along the outer loop and strided along the inner one."""
    if len(load.indices) < 2:
        return False
    terms = [affine(item) for item in load.indices]
    if any(term is None for term in terms):
        return False
    *leading, last = [term for term in terms if term is not None]
    return (
        last.get(row) == 1
        and column not in last
        and any(item.get(column) for item in leading)
        and not any(row in item for item in leading)
    )


def _bytes(buffer: Buffer) -> int:
    size = buffer.dtype.size
    for count in buffer.shape:
        size *= count
    return size
