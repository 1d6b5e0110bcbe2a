"""Tracking of row values that are zero in skipped columns; see `sparse_attention.rewrite`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Load,
    Variable,
    number,
    substitute,
)
from weft_compiler.ir.mutator import Mutator
from weft_compiler.ir.names import Names, variable_names
from weft_compiler.ir.program import Assign, Body, For, Let, Statement, Store, loads

NOT_BY_COLUMN: Final = "a row is not accessed column by column"

COLUMN: Final = Variable(INDEX, "*column")
"""The variable that represents the column in any loop over columns."""


class MatchFailure(Exception):  # noqa: N818 - it is not an error of a program
    """Signal that a requirement of a rewrite is not met, with the reason."""


def require(condition: object, reason: str) -> None:
    """Check a requirement of a rewrite.

    Args:
      reason: a clause that says why the rewrite does not apply if the condition is false.
    Raises: MatchFailure: the condition is false.
    """
    if not condition:
        raise MatchFailure(reason)


@dataclass
class Softmax:
    """The softmax over the rows of a loop.

    Attributes:
      scores: the buffer of the product.
      value: the argument of the softmax, in terms of COLUMN.
      max_name: the name of the maximum of a row.
    """

    scores: str
    value: Expr
    row: For
    max_name: str


@dataclass
class LoopFacts:
    """Facts about a block of rows.

    Attributes:
      names: creates fresh names.
      local: buffers of the block.
      columns: the number of columns to compute.
      num_columns: the number of all columns.
      zero: buffers that are zero in skipped columns.
      partial: buffers that are undefined in skipped columns.
      factors: factors of scores that are proven to be finite.
    """

    names: Names
    local: set[str]
    columns: Variable
    num_columns: int = 0
    softmax: Softmax | None = None
    zero: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    factors: list[Load] = field(default_factory=list)

    @property
    def sparse(self) -> set[str]:
        """Buffers with skipped columns."""
        return self.zero | self.partial


class RowDefinitions:
    """The definitions in a loop over rows that are made by its loops over columns.

    Attributes:
      maxima: loops and the maxima that they compute.
    """

    def __init__(self, loop: For) -> None:
        self._lets: dict[str, Expr] = {}
        self._stored: dict[str, Expr] = {}
        self._row_values: dict[str, Expr] = {}
        self.maxima: list[tuple[For, Assign]] = []
        for item in loop.body:
            if isinstance(item, Let):
                self._lets[item.name] = item.value
            if (
                isinstance(item, Store) and item.combine is None
            ):  # a value of the whole row, such as its maximum
                position = Load(item.value.dtype, item.buffer, item.indices)
                self._row_values[str(position)] = item.value
            if not isinstance(item, For):
                continue
            renamed_column = {item.variable: COLUMN}
            for inner in item.body:
                if isinstance(inner, Let):
                    self._lets[inner.name] = substitute(inner.value, renamed_column)
                elif isinstance(inner, Store):
                    self._stored[inner.buffer] = substitute(inner.value, renamed_column)
                elif isinstance(inner, Assign) and inner.combine == "maximum":
                    self.maxima.append((item, inner))

    def expand(self, value: Expr, loop: For) -> Expr:
        """Return an expression over loads from outside the rows, with COLUMN as loop variable."""
        return _Expansion(self, loop.variable).rewrite_expression(value)

    def definition(self, value: Expr) -> Expr | None:
        """Return the definition of a name, or the value stored at an element.

        None if it is unknown.
        """
        if isinstance(value, Variable):
            return self._lets.get(value.name)
        if isinstance(value, Load):
            return self._row_values.get(str(value)) or self._stored.get(value.buffer)
        return None


class _Expansion(Mutator):
    """Mutator that replaces names and loads by their definitions in a loop over rows."""

    def __init__(self, rows: RowDefinitions, column: str) -> None:
        self._rows, self._column = rows, column

    def rewrite_expression(self, expression: Expr) -> Expr:
        if isinstance(expression, Variable) and expression.name == self._column:
            return COLUMN
        definition = self._rows.definition(expression)
        if definition is not None:
            return self.rewrite_expression(definition)
        return super().rewrite_expression(expression)


@dataclass
class ColumnLoops:
    """Loops over the columns of a row.

    Attributes:
      row_buffers: buffers of the row.
      zero, partial: names and buffers that are zero, or not computed, in skipped columns.
      sums: names of sums of exponentials, which are at least 1.
    """

    facts: LoopFacts
    rows: RowDefinitions
    row_buffers: set[str]
    zero: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    sums: set[str] = field(default_factory=set)
    bounded: set[str] = field(default_factory=set)
    lets: dict[str, Expr] = field(default_factory=dict)

    def rewrite(self, loop: For) -> Body:
        """Limit a loop to the counted columns; first fill buffers that others read with zeros."""
        zeroing: list[Statement] = []
        for item in loop.body:
            match item:
                case Let(name=name, value=value):
                    self.lets[name] = value
                case Store(buffer=name, indices=indices, value=value, combine=None):
                    is_new = name not in self._sparse_buffers
                    require(is_column(indices, loop.variable) and is_new, NOT_BY_COLUMN)
                    if self._is_zero(value, loop):
                        self.zero.add(name)
                    else:
                        is_local = name in self.row_buffers | self.facts.local
                        require(is_local, f"{name} has nonzero values in masked columns")
                    if name in self.row_buffers | self.facts.local:
                        self.partial.add(name)
                    else:
                        zeroing += self._zeros(item, loop)
                case Assign(name=name, value=value, combine="maximum"):
                    softmax = self.facts.softmax
                    is_softmax = softmax is not None and name == softmax.max_name
                    require(is_softmax, "a maximum does not belong to the softmax")
                case Assign(name=name, value=value, combine="add"):
                    is_zero = self._is_zero(value, loop)
                    require(is_zero, "a sum over a row has nonzero terms in masked columns")
                    (self.sums if self._is_probability(value, loop) else self.bounded).add(name)
                case _:
                    raise MatchFailure("a row has statements other than sums, maxima and stores")
            for load in loads((item,)):
                if load.buffer in self._sparse_buffers:
                    require(is_column(load.indices, loop.variable), NOT_BY_COLUMN)
        return (*zeroing, replace(loop, extent=self.facts.columns))

    @property
    def _sparse_buffers(self) -> set[str]:
        return self.partial | self.zero | self.facts.sparse

    def _zeros(self, store: Store, loop: For) -> Body:
        j = Variable(INDEX, self.facts.names.new(loop.variable))
        zero = number(0, store.value.dtype)
        return (For(j.name, loop.extent, (Store(store.buffer, (*store.indices[:-1], j), zero),)),)

    def _is_probability(self, value: Expr, loop: For) -> bool:
        """Return True if a value is a probability, exp(x - m), of the softmax."""
        softmax = self.facts.softmax
        if softmax is None:
            return False
        match self.rows.expand(value, loop):
            case Apply(
                primitive="exp",
                operands=(Apply(primitive="sub", operands=(x, Variable(name=limit))),),
            ):
                return limit == softmax.max_name and str(x) == str(softmax.value)
        return False

    def _is_zero(self, value: Expr, loop: For) -> bool:
        """Return True if a value is zero in masked columns."""
        match value:
            case Constant(value=number):
                return number == 0
            case Variable(name=name):
                return name in self.lets and self._is_zero(self.lets[name], loop)
            case Load(buffer=name):
                return name in self.zero | self.facts.zero
            case Apply(primitive="mul", operands=(x, y)):
                return (self._is_zero(x, loop) and self._is_bounded(y, loop)) or (
                    self._is_zero(y, loop) and self._is_bounded(x, loop)
                )
            case Apply(primitive="div", operands=(x, y)):
                return self._is_zero(x, loop) and self._divides(self.rows.expand(y, loop))
            case Apply(primitive="neg" | "cast", operands=(x,)):
                return self._is_zero(x, loop)
            case Apply(primitive="add" | "sub", operands=(x, y)):
                return self._is_zero(x, loop) and self._is_zero(y, loop)
            case Apply(primitive="where", operands=(_, x, y)):
                return self._is_zero(x, loop) and self._is_zero(y, loop)
        return self._is_probability(value, loop)

    def _divides(self, value: Expr) -> bool:
        """Return True if zero divided by a value is zero."""
        if isinstance(value, Constant):
            return value.value != 0
        if isinstance(value, Variable):
            known_value = self.lets.get(value.name)
            return value.name in self.sums or (
                known_value is not None and self._divides(known_value)
            )
        return False

    def _is_bounded(self, value: Expr, loop: For) -> bool:
        """Return True if a value is finite provided that all operands of products are."""
        match value:
            case Constant(value=number):
                return math.isfinite(number)
            case Variable(name=name):
                known_value = self.lets.get(name)
                return name in self.bounded or (
                    known_value is not None and self._is_bounded(known_value, loop)
                )
            case Load(buffer=name):
                factors = [str(factor) for factor in self.facts.factors]
                return name in self.zero | self.facts.zero | self.facts.partial or (
                    str(self.rows.expand(value, loop)) in factors
                )
            case Apply(primitive="where", operands=(_, x, y)):
                return self._is_bounded(x, loop) and self._is_bounded(y, loop)
            case Apply(primitive="add" | "sub", operands=(x, y)):
                return self._is_bounded(x, loop) and self._is_bounded(y, loop)
            case Apply(primitive="neg" | "floor", operands=(x,)):
                return self._is_bounded(x, loop)
            case Apply(primitive="mul", operands=(x, y)):
                has_constant = isinstance(x, Constant) or isinstance(y, Constant)
                return has_constant and self._is_bounded(x, loop) and self._is_bounded(y, loop)
            case Apply(primitive="cast", operands=(x,)):
                return x.dtype.is_integer or x.dtype.is_bool or self._is_bounded(x, loop)
        return False


def is_column(indices: Sequence[Expr], variable: str) -> bool:
    """Return True if the last index is a variable and no other index uses it."""
    last = indices[-1]
    is_last = isinstance(last, Variable) and last.name == variable
    return is_last and not uses_variable(indices[:-1], variable)


def uses_variable(expressions: Sequence[Expr], variable: str) -> bool:
    """Return True if expressions use a variable."""
    return variable in variable_names(expressions)


def static_extent(loop: For) -> int:
    """Return the trip count of a loop; 0 if it is unknown."""
    return int(loop.extent.value) if isinstance(loop.extent, Constant) else 0
