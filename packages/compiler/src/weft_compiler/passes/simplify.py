"""Simplification: removes loops of one iteration, known branches and redundant arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Variable,
    index,
)
from weft_compiler.ir.indices import plus, times
from weft_compiler.ir.mutator import Mutator, map_expressions, substitute_body, with_body
from weft_compiler.ir.program import Body, For, If, Let, Program, Statement
from weft_compiler.ir.ranges import Range, affine, range_of
from weft_compiler.passes.framework import Context


def simplify(program: Program, context: Context) -> Program:
    """Remove loops of one iteration, and simplify indices and conditions."""
    simplifier = _Simplifier({})
    body = simplifier.rewrite_body(program.body)
    if simplifier.num_removed:
        context.record_applied(
            program.name, "removed %d loops and branches", simplifier.num_removed
        )
    return with_body(program, body)


def simplify_body(body: Body, ranges: Mapping[str, Range]) -> Body:
    """Simplify a body, given the ranges of indices."""
    return _Simplifier(ranges).rewrite_body(body)


class _Simplifier(Mutator):
    """Mutator that simplifies statements by the ranges of visible indices.

    Attributes:
      num_removed: the number of removed loops of at most one iteration and decided branches.
    """

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self._ranges = dict(ranges)
        self.num_removed = 0

    def rewrite_body(self, body: Body) -> Body:
        outer = self._ranges
        self._ranges = dict(outer)
        new = super().rewrite_body(body)
        self._ranges = outer
        return new

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        statement = map_expressions(statement, self.rewrite_expression)
        match statement:
            case For(variable=variable, extent=Constant(value=trip_count), body=body):
                if trip_count <= 0:
                    self.num_removed += 1
                    return ()
                if trip_count == 1:
                    self.num_removed += 1
                    return self.rewrite_body(substitute_body(body, {variable: index(0)}))
                self._ranges[variable] = Range(0, int(trip_count) - 1)
            case If(condition=Constant(value=value), then=then, otherwise=otherwise):
                self.num_removed += 1
                return self.rewrite_body(then if value else otherwise)
            case Let(name=name, value=value) if value.dtype is INDEX:
                self._ranges[name] = range_of(value, self._ranges)
        return self.rewrite_bodies(statement)

    def rewrite_expression(self, expression: Expr) -> Expr:
        return _simplify_expression(super().rewrite_expression(expression), self._ranges)


def _simplify_expression(expression: Expr, ranges: Mapping[str, Range]) -> Expr:
    """Return an expression with simplified operands, simplified itself."""
    if not isinstance(expression, Apply):
        return expression
    if expression.dtype is INDEX:
        return _index(expression, ranges)
    if expression.primitive in _SURE and expression.operands[0].dtype is INDEX:
        return _comparison(expression, ranges)
    match expression:
        case Apply(primitive="bit_and", operands=(Constant(value=True), x)) if x.dtype.is_bool:
            return x
        case Apply(primitive="bit_and", operands=(x, Constant(value=True))) if x.dtype.is_bool:
            return x
        case Apply(primitive="where", operands=(Constant(value=value), x, y)):
            return x if value else y
    return expression


_SURE = ("less", "less_equal", "greater", "greater_equal")


def _comparison(expression: Apply, ranges: Mapping[str, Range]) -> Expr:
    """Simplify a comparison of indices; return its value if that is constant."""
    x, y = (range_of(operand, ranges) for operand in expression.operands)
    if expression.primitive in ("greater", "greater_equal"):
        x, y = y, x
    strict = expression.primitive in ("less", "greater")
    if (x.high < y.low) if strict else (x.high <= y.low):
        return Constant(expression.dtype, True)
    if (x.low >= y.high) if strict else (x.low > y.high):
        return Constant(expression.dtype, False)
    return expression


def _index(expression: Apply, ranges: Mapping[str, Range]) -> Expr:
    match expression:
        case Apply(primitive="clamp", operands=(x, Constant(value=low), Constant(value=high))):
            return x if Range(int(low), int(high)).contains(range_of(x, ranges)) else expression
        case Apply(
            primitive="floor_div" | "floor_mod" as primitive, operands=(x, Constant(value=divisor))
        ) if divisor > 0:
            return _simplify_division(primitive, x, int(divisor), ranges) or expression
        case Apply(primitive="add" | "sub", operands=(x, y)) if _is_zero(y):
            return x
        case Apply(primitive="add", operands=(x, y)) if _is_zero(x):
            return y
        case Apply(primitive="mul", operands=(x, y)) if _is_zero(x) or _is_zero(y):
            return index(0)
    if all(isinstance(operand, Constant) for operand in expression.operands):
        limits = range_of(expression, {})
        return index(limits.low) if limits.low == limits.high else expression
    return expression


def _is_zero(x: Expr) -> bool:
    return isinstance(x, Constant) and x.value == 0


def _simplify_division(
    primitive: str, x: Expr, divisor: int, ranges: Mapping[str, Range]
) -> Expr | None:
    """Divide a sum whose terms, other than multiples of the divisor, stay below the divisor."""
    terms = affine(x)
    if terms is None:
        if not Range(0, divisor - 1).contains(range_of(x, ranges)):
            return None
        return x if primitive == "floor_mod" else index(0)
    multiples = {name: factor // divisor for name, factor in terms.items() if factor % divisor == 0}
    remaining = {name: factor for name, factor in terms.items() if factor % divisor}
    remainder = _sum(remaining)
    if not Range(0, divisor - 1).contains(range_of(remainder, ranges)):
        return None
    return remainder if primitive == "floor_mod" else _sum(multiples)


def _sum(terms: Mapping[str, int]) -> Expr:
    total: Expr = index(0)
    for name, factor in terms.items():
        term = times(Variable(INDEX, name), factor) if name else index(factor)
        total = plus(total, term)
    return total
