"""Numbers of unmasked columns; see `sparse_attention.rewrite`."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Expr,
    Load,
    Variable,
    apply,
    children,
    index,
    number,
    substitute,
    walk as parts,
    where,
)
from weft_compiler.ir.indices import over, plus, times
from weft_compiler.ir.mutator import Mutator
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import Assign, Body, Buffer, For, Store, Var
from weft_compiler.passes.sparse_attention.zero_columns import COLUMN
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

MAX_SCORE: Final = 4096.0
"""Assumed bound of the product of a query and a key.

Masks of -10,000 are more than twice as large.
"""
MAX_SQUARED_NORM: Final = 1e18
"""Largest squared norm for which sums of many products are finite, also in float32."""
ROUNDING: Final = 2.0**-16
"""Bound of the relative error of a norm, a sum or a score; see `MAX_DEPTH`."""
MAX_DEPTH: Final = 1 << 10
"""Largest vector size for which `ROUNDING` holds."""
EXP_UNDERFLOW: Final = {dtypes.float32: 110.0, dtypes.float64: 750.0}
"""Minimum size of negative arguments for which exp is exactly 0, with a margin."""
_COLUMNS_PER_COUNT: Final = 64
"""Granularity of the number of columns."""


class CountEmitter:
    """Emits loops that count columns."""

    def __init__(self, names: Names, dtype: DType, columns: int, factors: Sequence[Load]) -> None:
        self._names, self._dtype, self._columns = names, dtype, columns
        self._factors = factors

    def emit(
        self, counts: Buffer, axes: Sequence[For], row: For | None, low: Expr, high: Expr
    ) -> Body:
        """Emit the number of columns of a block of rows, beyond which all probabilities are zero.

        Args:
          low, high: the scores at the bounds of the product.
        """
        variables = {
            loop.variable: Variable(INDEX, self._names.new(loop.variable)) for loop in axes
        }
        if row is not None:
            variables[row.variable] = Variable(INDEX, self._names.new(row.variable))
        last = Variable(INDEX, self._names.new("last"))
        ends = substitute(low, variables), substitute(high, variables)
        body = self._emit_row(
            ends, [apply("abs", substitute(factor, variables)) for factor in self._factors], last
        )
        if row is not None:
            body = (For(variables[row.variable].name, row.extent, body),)
        rounded_up = times(
            over(plus(last, _COLUMNS_PER_COUNT - 1), _COLUMNS_PER_COUNT), _COLUMNS_PER_COUNT
        )
        block_index = tuple([variables[loop.variable] for loop in axes]) or (index(0),)
        statements: Body = (
            Var(last.name, index(0)),
            *body,
            Store(counts.name, block_index, rounded_up),
        )
        for loop in reversed(axes):
            statements = (For(variables[loop.variable].name, loop.extent, statements),)
        return statements

    def _emit_row(self, bounds: tuple[Expr, Expr], factors: Sequence[Expr], last: Variable) -> Body:
        """Emit the count of a row: the last column whose score may be close to the maximum."""
        limit, worst = [Variable(self._dtype, self._names.new(name)) for name in ("most", "worst")]
        first, second = [Variable(INDEX, self._names.new("j")) for _ in range(2)]

        def ends(j: Variable) -> tuple[Expr, Expr]:
            x, y = [substitute(bound, {COLUMN.name: j}) for bound in bounds]
            return apply("minimum", x, y), apply("maximum", x, y)

        minimum, largest = ends(first)
        first_column = {COLUMN.name: first}
        large = [largest, *[substitute(factor, first_column) for factor in factors]]
        looked = (
            Assign(limit.name, minimum, "maximum"),
            *[Assign(worst.name, item, "maximum") for item in large],
        )
        _, largest = ends(second)
        wide = functools.partial(number, dtype=self._dtype)
        size = apply("minimum", apply("abs", largest), wide(MAX_SQUARED_NORM**1.5))  # also for -inf
        slack = apply("mul", apply("add", size, apply("abs", limit)), wide(ROUNDING))
        threshold = apply("sub", limit, apply("add", slack, wide(EXP_UNDERFLOW[self._dtype])))
        vanishes = apply("less", largest, threshold)
        for item in (
            apply("less", worst, wide(MAX_SQUARED_NORM)),
            apply("less", wide(-MAX_SQUARED_NORM), limit),
        ):
            vanishes = apply("bit_and", vanishes, item)
        counted = where(vanishes, index(0), plus(second, 1))
        lowest = number(-math.inf, self._dtype)
        return (
            Var(limit.name, lowest),
            Var(worst.name, lowest),
            For(first.name, index(self._columns), looked),
            For(second.name, index(self._columns), (Assign(last.name, counted, "maximum"),)),
        )


def is_monotone(value: Expr, scores: str) -> bool:
    """Return True if a value is monotone in the product that it depends on."""
    depends = [
        any(isinstance(x, Load) and x.buffer == scores for x in parts(child))
        for child in children(value)
    ]
    if isinstance(value, Load):
        return value.buffer == scores or not any(depends)
    if not any(depends):
        return True
    if not isinstance(value, Apply) or sum(depends) != 1:
        return False
    position = depends.index(True)
    ways: Mapping[str, tuple[int, ...]] = {
        "add": (0, 1),
        "sub": (0, 1),
        "mul": (0, 1),
        "div": (0,),
        "neg": (0,),
        "where": (1, 2),
    }
    return position in ways.get(value.primitive, ()) and is_monotone(
        value.operands[position], scores
    )


def scale_factors(value: Expr, scores: str) -> list[Load]:
    """Return the factors and divisors of the product, and of values that depend on it."""
    if not isinstance(value, Apply):
        return []
    factors: list[Load] = []
    for position, operand in enumerate(value.operands):
        if any(isinstance(x, Load) and x.buffer == scores for x in parts(operand)):
            other_operands = (*value.operands[:position], *value.operands[position + 1 :])
            if value.primitive in ("mul", "div"):
                factors += [
                    x
                    for operand_of_product in other_operands
                    for x in parts(operand_of_product)
                    if isinstance(x, Load)
                ]
            factors += scale_factors(operand, scores)
    return factors


def substitute_scores(value: Expr, scores: str, bound: float) -> Expr:
    """Return an expression with loads of the scores replaced by a bound."""
    return _ScoreReplacement(scores, bound).rewrite_expression(value)


class _ScoreReplacement(Mutator):
    """Mutator that replaces loads of scores by a number."""

    def __init__(self, scores: str, bound: float) -> None:
        self._scores, self._bound = scores, bound

    def rewrite_expression(self, expression: Expr) -> Expr:
        if isinstance(expression, Load) and expression.buffer == self._scores:
            return number(self._bound, expression.dtype)
        return super().rewrite_expression(expression)
