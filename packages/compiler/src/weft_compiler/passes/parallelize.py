"""Parallelization: marks independent loops, the outermost for threads, the innermost for lanes.

If short loops enclose a longer one, threads divide the longer one, because few iterations divide
badly. A loop is marked only in simple cases. An iteration must store at indices that depend on the
loop variable, must not load what other iterations store, and may change outer variables only by
combining values into them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from weft_compiler.ir.expressions import Constant, Expr, is_same
from weft_compiler.ir.mutator import with_body
from weft_compiler.ir.names import used_names
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Call,
    Check,
    For,
    Let,
    Order,
    Program,
    Statement,
    Var,
    While,
    walk,
)
from weft_compiler.ir.ranges import affine
from weft_compiler.ir.work import estimate_work
from weft_compiler.passes.effects import (
    Buffers,
    Effects,
    accesses,
    effects_of,
    interface_buffers,
    with_allocations,
)
from weft_compiler.passes.framework import Context
from weft_compiler.passes.scope import ScopedMutator

MIN_WORK: Final = 50_000
"""Minimum number of operations of a loop that threads divide: some 10 µs."""
_SHORT_TRIP_COUNT: Final = 8
"""Trip count below which a loop divides badly among threads."""
_MIN_WORK_RATIO: Final = 4
"""Minimum ratio of a loop's work to `MIN_WORK` if an outer loop repeats it."""


def parallelize_loops(program: Program, context: Context) -> Program:
    """Mark independent loops for threads and vector lanes."""
    parallelization = _Parallelization(interface_buffers(program), context)
    return with_body(program, parallelization.rewrite_body(program.body))


class _Parallelization(ScopedMutator):
    """Mutator that marks outermost loops for threads where that pays off, and others for lanes."""

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        vectorization = _Vectorization(self.buffers, self.context)
        if estimate_work(statement) < MIN_WORK:
            return vectorization.rewrite_statement(statement)
        if isinstance(statement, For) and statement.order is Order.SERIAL:
            # Threads would race for a variable that iterations combine values into. Lanes have
            # partial results, so vector loops may.
            obstacle = reorder_obstacle(statement, self.buffers, combines=False)
            if not obstacle and _is_short(statement, self.buffers):
                obstacle = "it is short, and a loop inside of it is shared better"
            if not obstacle:
                self.context.record_applied(statement.variable, "its iterations are for threads")
                body = vectorization.rewrite_body(statement.body)
                return replace(statement, body=body, order=Order.PARALLEL)
            self.context.record_missed(statement.variable, obstacle)
        elif isinstance(statement, For):
            return vectorization.rewrite_statement(statement)
        return self.rewrite_bodies(statement)


def _is_short(loop: For, outer: Buffers) -> bool:
    """Return True if a loop has few iterations and contains a loop that divides better."""
    buffers = with_allocations(outer, loop.body)
    if not isinstance(loop.extent, Constant) or loop.extent.value >= _SHORT_TRIP_COUNT:
        return False
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, For):
        return False
    free = inner.order is Order.SERIAL and can_reorder(inner, buffers, combines=False)
    longer = not isinstance(inner.extent, Constant) or inner.extent.value >= _SHORT_TRIP_COUNT
    is_large = estimate_work(inner) >= (
        MIN_WORK if loop.extent.value == 1 else _MIN_WORK_RATIO * MIN_WORK
    )
    return free and is_large and (longer or _is_short(inner, buffers))


class _Vectorization(ScopedMutator):
    """Mutator that marks the innermost independent loops for vector lanes."""

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        rewritten = self.rewrite_bodies(statement)
        if (
            isinstance(rewritten, For)
            and rewritten.order is Order.SERIAL
            and _is_flat(rewritten.body)
            and can_reorder(rewritten, self.buffers, combines=True)
        ):
            return replace(rewritten, order=Order.VECTOR)
        return rewritten


def _is_flat(body: Body) -> bool:
    return not any(
        isinstance(statement, For | While | Allocate | Call | Check) for statement in walk(body)
    )


def can_reorder(
    loop: For,
    buffers: Buffers,
    combines: bool,
    may_end: bool = False,
    atomic: Collection[str] = (),
) -> bool:
    """Return True if the iterations of a loop may run in any order; see `reorder_obstacle`."""
    return not reorder_obstacle(loop, buffers, combines, may_end, atomic)


def reorder_obstacle(
    loop: For,
    buffers: Buffers,
    combines: bool,
    may_end: bool = False,
    atomic: Collection[str] = (),
) -> str:
    """Return why the iterations of a loop may not run in any order, or "".

    Args:
      combines: True if iterations may combine values into outer variables.
      may_end: True if an iteration may end the program.
      atomic: buffers with atomic stores, which are allowed at any index.
    """
    effects = effects_of(loop.body, buffers)
    if effects.ends and not may_end:
        return "an iteration may end the program"
    if not _has_private_scalars(loop.body, combines):
        return "its iterations change an outer variable"
    own_buffers = {
        statement.buffer.name for statement in walk(loop.body) if isinstance(statement, Allocate)
    }
    for buffer in effects.writes:
        if not (
            buffer in own_buffers or buffer in atomic or has_disjoint_stores(loop, buffer, effects)
        ):
            return f"iterations may access the same elements of {buffer}"
    return ""


def has_disjoint_stores(loop: For, buffer: str, effects: Effects) -> bool:
    """Return True if each iteration of a loop uses separate elements of a buffer.

    Args:
      effects: effects of the loop's body.
    """
    return _are_disjoint(list(accesses(effects, buffer)), loop.variable)


def _are_disjoint(touched: Sequence[tuple[Expr, ...] | None], variable: str) -> bool:
    """Return True if all accesses have one index in common that differs between iterations."""
    places = [place for place in touched if place is not None]
    return len(places) == len(touched) and any(
        _is_injective(indices[0], variable)
        and all(is_same(index, indices[0]) for index in indices[1:])
        for indices in zip(*places, strict=True)
    )


def _is_injective(index: Expr, variable: str) -> bool:
    terms = affine(index)
    # Other variables are not accepted: in i + j, different iterations of the loop over i can have
    # the same index.
    return terms is not None and bool(terms.get(variable)) and terms.keys() <= {variable, ""}


def _has_private_scalars(body: Body, combines: bool) -> bool:
    """Return True if outer variables are not assigned, or only combined into by one combiner."""
    declared = {
        declaration.name for declaration in walk(body) if isinstance(declaration, Let | Var)
    }
    combined: dict[str, str] = {}
    for statement in walk(body):
        if isinstance(statement, Assign) and statement.name not in declared:
            if not combines or statement.combine is None:
                return False
            # Two different combiners do not commute: max(s + a, b) differs from max(s, b) + a.
            if combined.setdefault(statement.name, statement.combine) != statement.combine:
                return False
    return not used_names(body) & combined.keys()
