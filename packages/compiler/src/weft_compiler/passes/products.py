"""Matrix products: selection of routines, in-place accumulation, and hoisted transposes.

    alloc t: float32[256, 128]                   while on:
    while on:                                      call gemm(x, g, sum, accumulate=1, ...)
      call gemm(x, g, t, accumulate=0, ...)
      for i in 256:
        for j in 128:
          sum[i, j] = sum[i, j] + t[i, j]

A loop-invariant matrix that is used transposed is transposed once before the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from weft_compiler.ir.expressions import INDEX, Apply, Constant, Expr, Load, Variable, index
from weft_compiler.ir.indices import is_number
from weft_compiler.ir.mutator import StatementMutator, with_body
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    Call,
    For,
    Let,
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

_SMALL_WORK: Final = 10**6
"""Number of multiplications up to which OpenBLAS for AVX-512 does not pack."""
_DEFAULT_CACHE: Final = 1 << 20
"""Size of the L2 cache if it is unknown, in bytes; also that of Zen 4."""
_CACHE_FOLDER: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_MAX_OPERAND_BYTES: Final = {8: 1 << 62, 56: 1 << 22}
"""Largest second operand in bytes, by the rows of a product up to which it is read few times. With
more rows it should fit into the L2 cache."""
_MAX_OPERAND_BYTES_LARGE_CACHE: Final = {56: 1 << 24, 512: 1 << 24}
"""Additional limits if the L2 cache is twice as large."""
_MIN_TRANSPOSED_ROWS: Final = 4
"""Minimal number of rows of a product whose second operand is transposed before a loop."""
_MIN_FILLED: Final = 2 / 3
"""Minimal fraction of the lanes of a narrow result that hold columns."""


def prefers_generated(
    product: Product, size: int, vector_bytes: int, cache: int = _DEFAULT_CACHE
) -> bool:
    """Return True if `matmul` takes less time than `gemm`.

    Based on `benchmarks/RESULTS.md` for Zen 4 and Sapphire Rapids with OpenBLAS. Processors without
    AVX-512 were not measured.

    Args:
      size: bytes of an element.
      vector_bytes: of a register.
      cache: bytes of the L2 cache, which distinguishes the processors and how well BLAS does there.
    """
    m, n, k = product.m, product.n, product.k
    if vector_bytes < LINE or not m or not n or not k:
        return False
    lanes = LINE // size
    transposed_a, transposed_b = product.a_column != 1, product.b_column != 1
    if n <= 2 * lanes and (transposed_a or n < _MIN_FILLED * -(-n // lanes) * lanes):
        return False
    if m * n * k <= _SMALL_WORK:
        return transposed_b and m >= 2 * lanes
    if m == 1:
        return not transposed_b
    few = (
        _MAX_OPERAND_BYTES | _MAX_OPERAND_BYTES_LARGE_CACHE
        if cache >= 2 * _DEFAULT_CACHE
        else _MAX_OPERAND_BYTES
    )
    return n * k * size <= next((most for rows, most in few.items() if m <= rows), cache)


@functools.cache
def l2_cache_bytes() -> int:
    """Return the size of this machine's L2 cache in bytes, from Linux."""
    for place in _CACHE_FOLDER.glob("index*"):
        try:
            level, kind, size = (
                (place / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if level == "2" and kind != "Instruction" and size.endswith("K") and size[:-1].isdigit():
            return int(size[:-1]) << 10
    return _DEFAULT_CACHE  # systems without this information


def select_products(program: Program, context: Context) -> Program:
    """Return the program with `matmul` in the place of `gemm` where that is faster."""
    if context.vector_bytes < LINE:
        return program
    hoister = _TransposeHoister(Names(program), interface_buffers(program), context)
    body = hoister.rewrite_body(program.body)
    return with_body(program, _ProductSelection(context).rewrite_body(body))


class _ProductSelection(StatementMutator):
    """Replaces `gemm` with `matmul` where that is faster."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Gemm):
            vector_bytes = self._context.vector_bytes
            size = statement.a.dtype.size
            if prefers_generated(statement, size, vector_bytes, l2_cache_bytes()):
                self._context.applied(statement.c.buffer, "computed by generated code")
                return statement.convert(Matmul)
        return super().rewrite_statement(statement)


# ------------------------------------------------------------------------------- transposes


class _TransposeHoister(ScopedMutator):
    """Transposes loop-invariant operands before the loop."""

    def __init__(self, names: Names, buffers: Buffers, context: Context) -> None:
        super().__init__(buffers, context)
        self._names = names

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if not isinstance(statement, While):
            return super().rewrite_statement(statement)
        before, loop = self._hoist(statement)
        self.buffers = with_allocations(self.buffers, before)
        return (*before, self.rewrite_bodies(loop))

    def _hoist(self, loop: While) -> tuple[Body, While]:
        """Return the transposes before a loop, and the loop."""
        buffers = self.buffers
        written = effects_of((loop,), buffers).writes
        transposed: dict[str, Load] = {}
        before: list[Statement] = []

        def transpose(call: Call) -> Call:
            if not isinstance(call, Gemm | Matmul) or not _is_transposed(call, buffers):
                return call
            b = call.b
            if b.buffer in written:
                return call
            if str(b) not in transposed:
                name = self._names.new(f"{b.buffer}_transposed")
                buffer = Buffer(name, b.dtype, (call.k, call.n))
                before.extend(self._emit_transpose(b, buffer))
                self.context.applied(b.buffer, "transposed before the loop")
                transposed[str(b)] = Load(b.dtype, name, (index(0), index(0)))
            return replace(call, b=transposed[str(b)], b_row=call.n, b_column=1)

        loop = _CallMutator(transpose).rewrite_bodies(loop)
        return tuple(before), loop

    def _emit_transpose(self, b: Load, buffer: Buffer) -> Body:
        row, column = (Variable(INDEX, self._names.new(name)) for name in ("row", "column"))
        value = Load(b.dtype, b.buffer, (*b.indices[:-2], column, row))
        store = Store(buffer.name, (row, column), value)
        k, n = buffer.shape
        columns = For(column.name, index(n), (store,))
        return (Allocate(buffer), For(row.name, index(k), (columns,)))


class _CallMutator(StatementMutator):
    """Rewrites the calls of a body."""

    def __init__(self, rewrite: Callable[[Call], Call]) -> None:
        self._rewrite = rewrite

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Call):
            return self._rewrite(statement)
        return super().rewrite_statement(statement)


def _is_transposed(call: Product, buffers: Buffers) -> bool:
    """Return True if the second operand of a product is the transpose of a whole matrix."""
    if call.sizes or call.m < _MIN_TRANSPOSED_ROWS:
        return False
    shape = buffers[call.b.buffer].shape if call.b.buffer in buffers else ()
    return (
        shape[-2:] == (call.n, call.k)
        and (call.b_row, call.b_column) == (1, call.k)
        and all(is_number(at, 0) for at in call.b.indices[-2:])
        and all(isinstance(at, Constant) for at in call.b.indices[:-2])
    )


# ------------------------------------------------------------------------------- sums


def accumulate_in_place(program: Program, context: Context) -> Program:
    """Return the program with products added in place that are only added to a matrix."""
    accumulation = _Accumulation(interface_buffers(program), context)
    return with_body(program, accumulation.rewrite_body(program.body))


class _Accumulation(ScopedMutator):
    """Replaces products that one statement adds to a matrix with in-place accumulation."""

    def rewrite_statements(self, body: Body) -> Body:
        buffers = self.buffers
        statements = list(map(self.rewrite_bodies, body))
        allocated = {each.buffer.name for each in body if isinstance(each, Allocate)}
        users = _users(statements, buffers)
        removed: set[int] = set()
        for position, each in enumerate(statements):
            if not isinstance(each, Gemm):
                continue
            product = each.c
            if product.buffer not in allocated or each.accumulate:
                continue
            touching = users[product.buffer]
            if len(touching) != 2 or touching[0] != position:
                continue
            adder = touching[1]
            total = _accumulation_target(statements[adder], product.buffer, buffers)
            if not total or any(position <= user < adder for user in users[total]):
                continue
            statements[position] = replace(each, c=replace(product, buffer=total), accumulate=1)
            self.context.applied(product.buffer, "accumulated in %s by the product", total)
            removed.add(adder)
            users[total] = sorted({*users[total], position} - {adder})
            users[product.buffer] = []
        return tuple([each for position, each in enumerate(statements) if position not in removed])


def _users(statements: Sequence[Statement], buffers: Buffers) -> dict[str, list[int]]:
    """Return the positions of the statements that touch each buffer."""
    users: dict[str, list[int]] = {}
    for position, statement in enumerate(statements):
        effects = effects_of((statement,), buffers)
        for name in {*effects.reads, *effects.writes}:
            users.setdefault(name, []).append(position)
    return users


def _accumulation_target(statement: Statement, product: str, buffers: Buffers) -> str:
    """Return the matrix to which a statement only adds a product; or ""."""
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
    whole = is_number(rows.extent, shape[0]) and is_number(columns.extent, shape[-1])
    if not isinstance(value, Apply) or value.primitive != "add" or not whole or len(shape) != 2:
        return ""
    terms = [each for each in value.operands if isinstance(each, Load)]
    places = [store.indices, *[each.indices for each in terms]]
    same = all(_are_variables(each, rows.variable, columns.variable) for each in places)
    added = sorted(each.buffer for each in terms) == sorted((total, product))
    return total if same and added and buffers[total].shape == shape else ""


def _are_variables(indices: Sequence[Expr], *names: str) -> bool:
    used = [each.name for each in indices if isinstance(each, Variable)]
    return len(used) == len(indices) and used == list(names)
