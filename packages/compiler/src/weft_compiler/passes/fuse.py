"""Loop fusion: merges loops over the same range, so that values pass through registers.

    for i in 8:            for i in 8:
      a[i] = x[i] * 2.0      a[i] = x[i] * 2.0
    for j in 8:              b[i] = a[i] + y[i]
      b[j] = a[j] + y[j]

Two loops are merged if no iteration of the second depends on later iterations of the first, and no
statement between them prevents it. Loops inside merged loops are then merged as well. A loop that
fills a large temporary is merged with one before a routine only if it reads enough of its results:
otherwise the temporary would be live during the routine, and its values evicted from the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft_compiler.ir.expressions import INDEX, Expr, Variable, is_same, substitute
from weft_compiler.ir.mutator import substitute_body, with_body
from weft_compiler.ir.program import Allocate, Body, Call, For, Program, Statement, walk
from weft_compiler.ir.ranges import affine
from weft_compiler.passes.effects import (
    Buffers,
    Effects,
    accesses,
    effects_of,
    interface_buffers,
)
from weft_compiler.passes.framework import Context
from weft_compiler.passes.scope import ScopedMutator
from weft_compiler.passes.sink import LARGE_BYTES

MAX_DISTANCE: Final = 24
"""Number of statements before a loop that are searched for one to merge it with."""
MAX_MOVED: Final = 4
"""Maximum number of statements that are moved to merge two loops."""
MAX_BUFFERS: Final = 16
"""Maximal number of buffers of a merged loop: each stream needs a TLB entry and a prefetcher. The
limit does not apply to loops around routines, which access buffers one after another.
"""
MAX_STATEMENTS: Final = 150
"""Maximum number of statements of a merged loop, because LLVM's time grows faster than linearly."""

MIN_SIZE_RATIO: Final = 8
"""Bytes that are in caches are ignored if a loop fills more than this multiple of them."""


def fuse_loops(program: Program, context: Context) -> Program:
    """Merge loops if that is possible and profitable."""
    fusion = _Fusion(interface_buffers(program), context)
    return with_body(program, fusion.rewrite_body(program.body))


class _Fusion(ScopedMutator):
    """Mutator that merges the loops of each body."""

    def rewrite_statements(self, body: Body) -> Body:
        buffers, context = self.buffers, self.context
        # Allocations may move up without effect on other statements.
        allocated = [item for item in body if isinstance(item, Allocate)]
        sizes = {item.buffer.name: item.buffer.bytes for item in allocated}
        fused: list[Statement] = []
        effects: list[Effects] = []
        for statement in body:
            if isinstance(statement, Allocate):
                continue
            effects_here = effects_of((statement,), buffers)
            position = len(fused)
            fused.append(statement)
            effects.append(effects_here)
            # After a merge, the loop may be mergeable with an earlier one.
            while isinstance(loop := fused[position], For):
                filled = sum(sizes.get(buffer, 0) for buffer in effects[position].writes)
                partner = _find_partner(
                    loop,
                    effects[position],
                    fused[:position],
                    effects[:position],
                    buffers,
                    filled * (filled >= LARGE_BYTES),
                )
                if partner.position is None:
                    if partner.obstacle:
                        context.record_missed(loop.variable, partner.obstacle)
                    break
                first, needed = partner.position, partner.needed
                context.record_applied(
                    loop.variable, "merged into the loop over %s", _variable(fused[first])
                )
                joined = _fuse(fused[first], loop)
                remaining = [
                    k for k in range(first + 1, len(fused)) if k != position and k not in needed
                ]
                order = [*needed, first, *remaining]
                fused[first:] = [joined if k == first else fused[k] for k in order]
                effects_here = effects_of((joined,), buffers)
                effects[first:] = [effects_here if k == first else effects[k] for k in order]
                position = first + len(needed)
        return (*allocated, *map(self.rewrite_bodies, fused))


class _Partner(NamedTuple):
    """The loop that another loop is merged into.

    Attributes:
      position: its position; None if there is no such loop.
      needed: the positions of the statements that must be moved before it.
      obstacle: the reason that the last loop that produces a value for the other loop is
        unsuitable; "" if there is no such loop.
    """

    position: int | None
    needed: Sequence[int] = ()
    obstacle: str = ""


def _find_partner(
    loop: For,
    loop_effects: Effects,
    statements: Sequence[Statement],
    effects: Sequence[Effects],
    buffers: Buffers,
    filled: int,
) -> _Partner:
    """Return the loop that this one can be merged into.

    Args:
      filled: size of the temporaries that it fills, in bytes; 0 if small.
    """
    needed: list[int] = []
    obstacle = ""
    called = False
    for position in range(len(statements) - 1, max(-1, len(statements) - 1 - MAX_DISTANCE), -1):
        statement, statement_effects = statements[position], effects[position]
        is_needed = any(statement_effects.conflicts(effects[k]) for k in needed)
        shared = [
            name
            for name in statement_effects.writes
            if name in loop_effects.reads and name in buffers
        ]
        shared_bytes = sum([buffers[name].bytes for name in shared])
        is_evicted = called and shared_bytes * MIN_SIZE_RATIO < filled
        if isinstance(statement, For):
            if is_needed or is_evicted:
                reason = _MOVED if is_needed else _FAR
            else:
                reason = _obstacle(statement, statement_effects, loop, loop_effects)
            if not reason:
                return _Partner(position, needed[::-1])
            if shared_bytes and not obstacle:
                obstacle = reason
        called |= filled > 0 and any(isinstance(item, Call) for item in walk((statement,)))
        if is_needed or statement_effects.conflicts(loop_effects):
            needed.append(position)
            if len(needed) > MAX_MOVED:
                break
    return _Partner(None, obstacle=obstacle)


_MOVED: Final = "a statement between the loops needs the first and is needed by the second"
_FAR: Final = "a routine between the loops evicts what the second would find in caches"


def _obstacle(first: For, first_effects: Effects, second: For, second_effects: Effects) -> str:
    """Return why two loops cannot be merged, or ""."""
    if first.order is not second.order or not is_same(first.extent, second.extent):
        return "the loops have different ranges"
    if (first_effects.defines - {first.variable}) & second_effects.uses:
        return "the second loop needs a result of the first one that is complete only at its end"
    # A merged loop could end after only a part of the other loop's stores.
    if first_effects.ends or second_effects.ends:
        return "one of the loops may end the program"
    buffers = {
        *first_effects.reads,
        *first_effects.writes,
        *second_effects.reads,
        *second_effects.writes,
    }
    shared = {*first_effects.reads, *first_effects.writes} & {
        *second_effects.reads,
        *second_effects.writes,
    }
    if not shared:
        return "the loops share no buffer"
    statements = list(walk((first, second)))
    if len(statements) > MAX_STATEMENTS:
        return "the merged loop would have too many statements"
    if len(buffers) > MAX_BUFFERS and not any(
        isinstance(statement, Call) for statement in statements
    ):
        return "the merged loop would use too many buffers"
    if not all(
        _is_private(buffer, first.variable, first_effects, second.variable, second_effects)
        for buffer in shared
        if buffer in first_effects.writes or buffer in second_effects.writes
    ):
        return "an iteration needs elements of other iterations"
    return ""


def _is_private(
    buffer: str, i: str, first_effects: Effects, j: str, second_effects: Effects
) -> bool:
    """Return True if different iterations of two loops never use the same element of a buffer."""
    places: list[tuple[Expr, ...]] = []
    for renames, effects in (({}, first_effects), ({j: Variable(INDEX, i)}, second_effects)):
        for place in accesses(effects, buffer):
            if place is None:
                return False
            places.append(tuple([substitute(index, renames) for index in place]))
    # One dimension that all accesses index alike by the loop variable suffices: different
    # iterations differ in it.
    return any(
        _is_affine_in(indices[0], i) and all(is_same(index, indices[0]) for index in indices[1:])
        for indices in zip(*places, strict=True)
    )


def _is_affine_in(index: Expr, variable: str) -> bool:
    """Return True if an index is a multiple of a loop's variable, plus a constant."""
    terms = affine(index)
    return terms is not None and bool(terms.get(variable)) and terms.keys() <= {variable, ""}


def _variable(loop: Statement) -> str:
    assert isinstance(loop, For)
    return loop.variable


def _fuse(first: Statement, second: For) -> For:
    assert isinstance(first, For)
    variable = Variable(INDEX, first.variable)
    renamed = substitute_body(second.body, {second.variable: variable})
    return For(first.variable, first.extent, (*first.body, *renamed), first.order)
