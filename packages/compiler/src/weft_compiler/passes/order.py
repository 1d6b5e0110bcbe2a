"""Loops whose turns may run in any order: the outermost for threads, the innermost for lanes.

Of short loops around a longer one, that is for threads: they would share the others badly.
Only what is easily seen is marked: each turn stores to places that its number tells, and loads
nothing of what other turns store; variables of outside are combined at most.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from weft_compiler.ir.expressions import Apply, Constant, Expr, Load, Variable, same, walk as parts
from weft_compiler.ir.loops import num_iterations
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Call,
    Check,
    For,
    If,
    Let,
    Order,
    Program,
    Statement,
    Var,
    While,
    bodies,
    expressions,
    walk,
)
from weft_compiler.ir.ranges import affine
from weft_compiler.ir.rewrite import map_bodies, replaced
from weft_compiler.passes.effects import Buffers, Effects, buffers_of, effects_of, places, within
from weft_compiler.routines import routine

LEAST_WORK: Final = 50_000
"""Operations below which a loop is not worth being shared by threads: it takes some 10 us."""
_UNKNOWN_TURNS: Final = 16
_SHORT: Final = 8
"""Turns below which threads share a loop badly."""
_MANY: Final = 4
"""How many times as much work there has to be where a loop is shared several times."""
_AT_ONCE: Final = 8
"""Products of numbers that a routine computes in the time of an operation, at least."""


def order_loops(program: Program) -> Program:
    """The program with loops marked."""
    buffers = within(buffers_of(program), program.body)
    return replaced(program, tuple([_outer(statement, buffers) for statement in program.body]))


def _outer(statement: Statement, buffers: Buffers) -> Statement:
    if work(statement) < LEAST_WORK:
        return _inner(statement, buffers)
    if isinstance(statement, For) and statement.order is Order.SERIAL:
        free = in_any_order(statement, buffers, combines=False)
        if free and not _is_short(statement, buffers):
            return replace(statement, body=_inside(statement.body, buffers), order=Order.PARALLEL)
    elif isinstance(statement, For):
        return _inner(statement, buffers)
    return map_bodies(statement, lambda body: _outers(body, buffers))


def _outers(body: Body, outer: Buffers) -> Body:
    buffers = within(outer, body)
    return tuple([_outer(statement, buffers) for statement in body])


def _is_short(loop: For, outer: Buffers) -> bool:
    """Whether a loop has few turns, in each of which there is one that is better shared."""
    buffers = within(outer, loop.body)
    if not isinstance(loop.extent, Constant) or loop.extent.value >= _SHORT:
        return False
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, For):
        return False
    free = inner.order is Order.SERIAL and in_any_order(inner, buffers, combines=False)
    longer = not isinstance(inner.extent, Constant) or inner.extent.value >= _SHORT
    enough = work(inner) >= (LEAST_WORK if loop.extent.value == 1 else _MANY * LEAST_WORK)
    return free and enough and (longer or _is_short(inner, buffers))


def _inside(body: Body, outer: Buffers) -> Body:
    buffers = within(outer, body)
    return tuple([_inner(statement, buffers) for statement in body])


def _inner(statement: Statement, buffers: Buffers) -> Statement:
    deeper = map_bodies(statement, lambda body: _inside(body, buffers))
    if (
        isinstance(deeper, For)
        and deeper.order is Order.SERIAL
        and _is_flat(deeper.body)
        and in_any_order(deeper, buffers, combines=True)
    ):
        return replace(deeper, order=Order.VECTOR)
    return deeper


def _is_flat(body: Body) -> bool:
    return not any(isinstance(each, For | While | Allocate | Call | Check) for each in walk(body))


def in_any_order(
    loop: For,
    buffers: Buffers,
    combines: bool,
    may_end: bool = False,
    atomic: Collection[str] = (),
) -> bool:
    """Whether the turns of a loop may run in any order.

    Args:
      combines: they may combine values into variables of outside.
      may_end: so may they if one ends the program.
      atomic: buffers that may be stored to at any place, as each store is atomic.
    """
    effects = effects_of(loop.body, buffers)
    if (effects.ends and not may_end) or not _assigns_its_own(loop.body, combines):
        return False
    own = {each.buffer.name for each in walk(loop.body) if isinstance(each, Allocate)}
    return all(
        buffer in own or buffer in atomic or stores_apart(loop, buffer, effects)
        for buffer in effects.writes
    )


def stores_apart(loop: For, buffer: str, effects: Effects) -> bool:
    """Whether each turn of a loop has its own places of a buffer.

    Args:
      effects: of the loop's body.
    """
    return _apart(list(places(effects, buffer)), loop.variable)


def _apart(found: Sequence[tuple[Expr, ...] | None], variable: str) -> bool:
    """Whether one index of all places is the same, and tells the turn of the loop."""
    known = [place for place in found if place is not None]
    return len(known) == len(found) and any(
        _tells(indices[0], variable) and all(same(index, indices[0]) for index in indices[1:])
        for indices in zip(*known, strict=True)
    )


def _tells(index: Expr, variable: str) -> bool:
    terms = affine(index)
    return terms is not None and bool(terms.get(variable)) and terms.keys() <= {variable, ""}


def _assigns_its_own(body: Body, combines: bool) -> bool:
    """Whether variables of outside are not assigned, or are combined in one way and not read."""
    declared = {each.name for each in walk(body) if isinstance(each, Let | Var)}
    combined: dict[str, str] = {}
    for statement in walk(body):
        if isinstance(statement, Assign) and statement.name not in declared:
            if not combines or statement.combine is None:
                return False
            if combined.setdefault(statement.name, statement.combine) != statement.combine:
                return False
    return not uses(body) & combined.keys()


def uses(body: Body) -> set[str]:
    """The names that a body uses."""
    return {
        part.name
        for statement in walk(body)
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Variable)
    }


def work(statement: Statement) -> int:
    """About how many operations a statement takes."""
    own = sum(
        isinstance(part, Apply | Load)
        for expression in expressions(statement)
        for part in parts(expression)
    )
    if isinstance(statement, Call):
        return 1 + routine(statement.routine).work(dict(statement.parameters)) // _AT_ONCE
    inner = sum(work(each) for body in bodies(statement) for each in body)
    if isinstance(statement, For):
        count = num_iterations(statement)
        return (_UNKNOWN_TURNS if count is None else ceil(count)) * (inner + 1)
    return own + inner * (1 if isinstance(statement, If) else _UNKNOWN_TURNS)
