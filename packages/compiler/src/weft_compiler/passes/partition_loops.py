"""Innermost loops that choose by their number are split where the choice changes.

    for i in 160:                              for i in 64:
      y[i] = where(i < 64, a[i], b[i - 64])      y[i] = a[i]
                                               for i in 96:
                                                 y[i + 64] = b[i]

So what is joined from parts is copied by whole registers, and nothing is computed that nobody
takes.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Variable,
    index,
    substitute,
    walk as parts,
)
from weft_compiler.ir.indices import plus
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import Body, For, Let, Program, Statement, Store, expressions
from weft_compiler.ir.rewrite import map_bodies, map_deep, with_body
from weft_compiler.passes.simplify import simplify_body

_MAX_PARTS: Final = 16
"""Loops that one becomes at most."""
_MIN_ITERATIONS: Final = 8
"""Turns of each: those of fewer cost more than what they would save."""


def partition_loops(program: Program) -> Program:
    """The program with loops split."""
    names = Names(program)

    def inside(body: Body) -> Body:
        found: list[Statement] = []
        for each in body:
            if isinstance(each, For) and (cuts := _split_points(each)):
                found += _partition(each, cuts, names)
            else:
                found.append(map_bodies(each, inside))
        kept = len(found) == len(body) and all(a is b for a, b in zip(found, body, strict=True))
        return body if kept else tuple(found)

    return with_body(program, inside(program.body))


def _split_points(loop: For) -> list[int]:
    """Where a loop is split, with its two ends; empty where it is not."""
    if not isinstance(loop.extent, Constant):
        return []
    if not all(isinstance(each, Let | Store) for each in loop.body):
        return []
    extent = int(loop.extent.value)
    found = {
        cut
        for each in loop.body
        for whole in expressions(each)
        for part in parts(whole)
        if 0 < (cut := _threshold(part, loop.variable)) < extent
    }
    cuts = [0, *sorted(found), extent]
    shortest = min(high - low for low, high in itertools.pairwise(cuts))
    return cuts if 2 < len(cuts) <= _MAX_PARTS + 1 and shortest >= _MIN_ITERATIONS else []


def _threshold(part: Expr, variable: str) -> int:
    """Below which number of a loop a value is chosen; 0 where that does not decide."""
    match part:
        case Apply(
            primitive="where",
            operands=(
                Apply(primitive="less", operands=(Variable(name=name), Constant(value=cut))),
                *_,
            ),
        ) if name == variable:
            return int(cut)
    return 0


def _partition(loop: For, cuts: list[int], names: Names) -> Body:
    found: list[Statement] = []
    for low, high in itertools.pairwise(cuts):
        variable = names.new(loop.variable)
        place = plus(Variable(INDEX, variable), low)
        moved = partial(substitute, values={loop.variable: place})
        body = map_deep(loop.body, moved)
        part = replace(loop, variable=variable, extent=index(high - low), body=body)
        found += [_drop_unused(each) for each in simplify_body((part,), {})]
    return tuple(found)


def _drop_unused(loop: Statement) -> Statement:
    """A loop without names that nobody uses."""
    if not isinstance(loop, For):
        return loop
    used: set[str] = set()
    kept: list[Statement] = []
    for each in reversed(loop.body):
        if isinstance(each, Let) and each.name not in used:
            continue
        kept.append(each)
        for whole in expressions(each):
            used |= {part.name for part in parts(whole) if isinstance(part, Variable)}
    return replace(loop, body=tuple(reversed(kept)))
