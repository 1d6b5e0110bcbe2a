"""Fission: splits a nest into several kernels that exchange values through memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from weft_compiler.gpu import launches, split_reductions
from weft_compiler.gpu.launches import (
    BLOCK_BYTES,
    PerfectNest,
    allocated_bytes,
    is_parallel,
    parallel_nests,
    perfect_nest,
    static_extent,
    total_iterations,
)
from weft_compiler.gpu.split_reductions import wrap_in_loops
from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Load,
    Variable,
    substitute,
)
from weft_compiler.ir.mutator import Mutator, substitute_body, with_body
from weft_compiler.ir.names import used_names
from weft_compiler.ir.nests import nests_of
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    For,
    Let,
    Program,
    Statement,
    Store,
    Var,
    walk,
)
from weft_compiler.passes.effects import Buffers, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context


def materialize_names(program: Program, context: Context) -> Program:
    """Store names that several nests use in memory, so that each nest can be a separate kernel.

    Otherwise a full reduction and its users would share one kernel with a single block.
    """
    begins = [statement for statement in program.body if isinstance(statement, Allocate)]
    allocated, nests = _materialize(nests_of(program), ())
    for buffer in allocated:
        context.record_applied(_buffer_name(buffer), "stored for the nests that use it")
    statements = [statement for nest in nests for statement in nest]
    return with_body(program, (*begins, *allocated, *statements))


def _buffer_name(statement: Statement) -> str:
    assert isinstance(statement, Allocate)
    return statement.buffer.name


def fission_rows(program: Program, context: Context) -> Program:
    """Split computations on few long rows into one kernel for each step.

    One block for each row would leave most of a GPU idle, and long rows exceed a block's memory.
    """
    buffers = with_allocations(interface_buffers(program), program.body)
    begins: list[Statement] = [
        statement for statement in program.body if isinstance(statement, Allocate)
    ]
    body: list[Statement] = []
    for nest in nests_of(program):
        allocated, statements = _fission_nest(nest, buffers)
        if statements is not nest:
            context.record_applied(_loop_variable(nest), "split into %d kernels", len(statements))
        begins += allocated
        body += statements
    return with_body(program, (*begins, *body))


def _loop_variable(nest: Body) -> str:
    return next(statement.variable for statement in nest if isinstance(statement, For))


def _fission_nest(nest: Body, buffers: Buffers) -> tuple[Body, Body]:
    """Return buffers, and the statements that replace a nest."""
    outermost = nest[0]
    if len(nest) > 1 or not isinstance(outermost, For):
        return (), nest
    chain = perfect_nest(outermost)
    inner_buffers = with_allocations(buffers, chain[-1].body)
    shared = parallel_nests(chain[-1].body, inner_buffers)
    longest = max(map(total_iterations, shared), default=0)
    if longest < launches.MIN_ITERATIONS or any(
        isinstance(statement, Call) for statement in walk(nest)
    ):
        return (), nest
    if not all(is_parallel(loop, chain, buffers) for loop in chain):
        return (), nest
    has_few_rows = (
        total_iterations(chain) < split_reductions.FEW_ROWS and longest >= split_reductions.LONG
    )
    if not has_few_rows and allocated_bytes(chain[-1].body) <= BLOCK_BYTES:
        return (), nest
    allocated, body = _hoist_allocations(chain)
    if has_few_rows:
        materialized, steps = _materialize(nests_of(Program("", (), (), body)), chain)
        if not _are_dependent(steps):
            each_row = [statement for step in steps for statement in wrap_in_loops(chain, step)]
            return (*allocated, *materialized), tuple(each_row)
    return allocated, wrap_in_loops(chain, body)


def _hoist_allocations(chain: PerfectNest) -> tuple[Body, Body]:
    """Replace allocations in each iteration by shared ones; return them and the inner body."""
    names = [statement for loop in chain[:-1] for statement in loop.body[:-1]]
    known_values: dict[str, Expr] = {}
    for statement in names:
        assert isinstance(statement, Let)
        known_values[statement.name] = substitute(statement.value, known_values)
    body = substitute_body(chain[-1].body, known_values)
    own_buffers = {
        statement.buffer.name: statement.buffer
        for statement in body
        if isinstance(statement, Allocate)
    }
    indices = tuple([Variable(INDEX, loop.variable) for loop in chain])
    shape = tuple([static_extent(loop) or 0 for loop in chain])
    hoisted = [
        Allocate(replace(statement, shape=(*shape, *statement.shape)))
        for statement in own_buffers.values()
    ]
    remainder = tuple([statement for statement in body if not isinstance(statement, Allocate)])
    return tuple(hoisted), _LeadingIndices(own_buffers.keys(), indices).rewrite_body(remainder)


class _LeadingIndices(Mutator):
    """Mutator that prepends indices to the accesses of some buffers."""

    def __init__(self, buffers: Collection[str], indices: tuple[Expr, ...]) -> None:
        self._buffers, self._indices = buffers, indices

    def rewrite_expression(self, expression: Expr) -> Expr:
        new = super().rewrite_expression(expression)
        if isinstance(new, Load) and new.buffer in self._buffers:
            return replace(new, indices=(*self._indices, *new.indices))
        return new

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        new = super().rewrite_statement(statement)
        if isinstance(new, Store) and new.buffer in self._buffers:
            return replace(new, indices=(*self._indices, *new.indices))
        return new


def _materialize(nests: Sequence[Body], loops: PerfectNest) -> tuple[Body, list[Body]]:
    """Replace the names of earlier nests in later ones by loads from memory.

    Args:
      loops: the enclosing loops; a name has a value for each of their iterations.
    Returns: the buffers, and the nests.
    """
    used = [used_names(nest) for nest in nests]
    indices = tuple([Variable(INDEX, loop.variable) for loop in loops])
    shape = tuple([static_extent(loop) or 0 for loop in loops])
    loads: dict[str, Expr] = {}
    begins: list[Statement] = []
    results: list[Body] = []
    for number, nest in enumerate(nests):
        body = list(substitute_body(nest, loads))
        for statement in nest:
            if not isinstance(statement, Let | Var):
                continue
            if _is_used_later(statement.name, nests[number + 1 :], used[number + 1 :]):
                dtype = statement.value.dtype
                buffer = Buffer(f"{statement.name}_kept", dtype, shape)
                begins.append(Allocate(buffer))
                body.append(Store(buffer.name, indices, Variable(dtype, statement.name)))
                loads[statement.name] = Load(dtype, buffer.name, indices)
        results.append(tuple(body))
    return tuple(begins), results


def _is_used_later(name: str, nests: Sequence[Body], used: Sequence[set[str]]) -> bool:
    """Return True if later nests use a name but do not change it."""
    changed = any(
        isinstance(statement, Assign) and statement.name == name
        for nest in nests
        for statement in walk(nest)
    )
    return not changed and any(name in names for names in used)


def _are_dependent(nests: Sequence[Body]) -> bool:
    """Return True if a nest uses or assigns a name that an earlier one defines."""
    defined: set[str] = set()
    for nest in nests:
        assigned = {statement.name for statement in walk(nest) if isinstance(statement, Assign)}
        if (used_names(nest) | assigned) & defined:
            return True
        defined |= {statement.name for statement in nest if isinstance(statement, Let | Var)}
    return False
