"""Loop partitioning: splits innermost loops where a condition on their variable changes.

    for i in 160:                              for i in 64:
      y[i] = where(i < 64, a[i], b[i - 64])      y[i] = a[i]
                                               for i in 96:
                                                 y[i + 64] = b[i]

After that, concatenated tensors are copied in whole registers, and unused values are not computed.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Variable,
    index,
    walk as parts,
)
from weft_compiler.ir.indices import plus
from weft_compiler.ir.mutator import StatementMutator, substitute_body, with_body
from weft_compiler.ir.names import Names, variable_names
from weft_compiler.ir.program import Body, For, Let, Program, Statement, Store, expressions
from weft_compiler.passes.framework import Context
from weft_compiler.passes.simplify import simplify_body

_MAX_PARTS: Final = 16
"""Maximum number of loops that one loop is split into."""
_MIN_ITERATIONS: Final = 8
"""Minimum trip count of each of these loops: shorter loops cost more than they save."""


def partition_loops(program: Program, context: Context) -> Program:
    """Split innermost loops where a condition on their variable changes."""
    return with_body(program, _Partition(Names(program), context).rewrite_body(program.body))


class _Partition(StatementMutator):
    """Mutator that splits loops whose conditions depend on their variable.

    Args:
      names: creates fresh names for the variables of new loops.
    """

    def __init__(self, names: Names, context: Context) -> None:
        self._names, self._context = names, context

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, For) and (cuts := _split_points(statement)):
            self._context.record_applied(statement.variable, "split at %s", cuts[1:-1])
            return _partition(statement, cuts, self._names)
        return super().rewrite_statement(statement)


def _split_points(loop: For) -> list[int]:
    """Return the iterations that split a loop, and its two ends.

    Empty if it is not split.
    """
    if not isinstance(loop.extent, Constant):
        return []
    if not all(isinstance(item, Let | Store) for item in loop.body):
        return []
    extent = int(loop.extent.value)
    thresholds = {
        cut
        for item in loop.body
        for expression in expressions(item)
        for part in parts(expression)
        if 0 < (cut := _threshold(part, loop.variable)) < extent
    }
    cuts = [0, *sorted(thresholds), extent]
    shortest = min(high - low for low, high in itertools.pairwise(cuts))
    return cuts if 2 < len(cuts) <= _MAX_PARTS + 1 and shortest >= _MIN_ITERATIONS else []


def _threshold(part: Expr, variable: str) -> int:
    """Return the iteration where a select on the loop variable changes; 0 if there is none."""
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
    parts_of_loop: list[Statement] = []
    for low, high in itertools.pairwise(cuts):
        variable = names.new(loop.variable)
        position = plus(Variable(INDEX, variable), low)
        body = substitute_body(loop.body, {loop.variable: position})
        part = replace(loop, variable=variable, extent=index(high - low), body=body)
        parts_of_loop += [_drop_unused(item) for item in simplify_body((part,), {})]
    return tuple(parts_of_loop)


def _drop_unused(loop: Statement) -> Statement:
    """Return a loop without definitions of unused names."""
    if not isinstance(loop, For):
        return loop
    used: set[str] = set()
    statements: list[Statement] = []
    for item in reversed(loop.body):
        if isinstance(item, Let) and item.name not in used:
            continue
        statements.append(item)
        used |= variable_names(expressions(item))
    return replace(loop, body=tuple(reversed(statements)))
