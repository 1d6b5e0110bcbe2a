"""Splitting of flat loops over several axes into one loop per axis, if a size varies.

Divisors of indices that are constants are simplified away or cost little. Divisors that are known
only at run time are expensive, and prevent the proof of index bounds:

    for i in size * 16:                        for i_1 in 16:
      y[i // size, i % size] = x[i]              for i_2 in size:
                                                   y[i_1, i_2] = x[i_1 * size + i_2]

Quotients of flat indices of such loops are simplified: (i_1 * size + i_2) // size is i_1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft_compiler.ir.expressions import INDEX, Apply, Constant, Expr, Variable, apply, index, walk
from weft_compiler.ir.indices import modulo, over, plus, times
from weft_compiler.ir.mutator import Mutator, with_body
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import (
    Body,
    For,
    Let,
    Order,
    Program,
    Statement,
    expressions,
    walk as walk_statements,
)
from weft_compiler.ir.ranges import affine


class _Linear(NamedTuple):
    """A linear function of the size: slope·size + offset."""

    slope: int
    offset: int

    def multiple_of(self, other: _Linear) -> int:
        """Return the integer factor between this function and another function.

        0 if it is not a multiple.
        """
        factor = self.slope // other.slope if other.slope else 0
        return factor if other.times(factor) == self else 0

    def times(self, factor: int) -> _Linear:
        """Return a multiple."""
        return _Linear(self.slope * factor, self.offset * factor)


class _Flat(NamedTuple):
    """A flat index, split into a row and a column within rows of a length."""

    row: Expr
    column: Expr
    columns: _Linear


def split_flat_loops(program: Program, size: str) -> Program:
    """Return the program with separate loops for the axes of flat ones.

    Args:
      size: the name of the size that varies.
    """
    splitting = _Splitting(Names(program), size)
    return with_body(program, splitting.rewrite_body(program.body))


class _Splitting(Mutator):
    """Mutator that splits loops whose variable is divided by a number that depends on the size."""

    def __init__(self, names: Names, size: str) -> None:
        self._names = names
        self._size = size
        self._extents: dict[str, _Linear] = {}
        self._flat: dict[str, _Flat] = {}

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Let) and (flat := self._flat_index(statement.value)) is not None:
            self._flat[statement.name] = flat
        if not isinstance(statement, For):
            return super().rewrite_statement(statement)
        if statement.start is None and (extent := self._linear(statement.extent)) is not None:
            self._extents[statement.variable] = extent
        loop = self.rewrite_bodies(statement)
        inner = self._inner_extent(loop)
        extent = self._linear(loop.extent)
        if inner is None or extent is None or not (count := extent.multiple_of(inner)):
            return loop
        outer_name, inner_name = self._names.new(loop.variable), self._names.new(loop.variable)
        flat = _Flat(Variable(INDEX, outer_name), Variable(INDEX, inner_name), inner)
        body = _Quotients(self, loop.variable, flat).rewrite_body(loop.body)
        inner_loop = For(inner_name, self.expression(inner), body)
        return For(outer_name, index(count), (inner_loop,))

    def rewrite_expression(self, expression: Expr) -> Expr:
        new = super().rewrite_expression(expression)
        match new:
            case Apply(primitive="floor_div" | "floor_mod" as primitive, operands=(x, divisor)):
                flat = self._flat_index(x)
                if flat is not None and (factor := self.factor(divisor, flat.columns)):
                    return self.divide_flat(primitive, flat, factor)
        return new

    def _flat_index(self, expression: Expr) -> _Flat | None:
        """Return an index as a row and a column within rows whose length varies."""
        match expression:
            case Variable(name=name):
                return self._flat.get(name)
            case Apply(
                primitive="add",
                operands=(Apply(primitive="mul", operands=(row, length)), Variable() as column),
            ):
                columns = self._linear(length)
                if columns is not None and self._extents.get(column.name) == columns:
                    return _Flat(row, column, columns)
        return None

    def divide_flat(self, primitive: str, flat: _Flat, factor: int) -> Expr:
        """Return the quotient or the remainder of a flat index by a number of rows."""
        if primitive == "floor_div":
            return over(flat.row, factor)
        if factor == 1:
            return flat.column
        rows = modulo(flat.row, factor)
        return plus(apply("mul", rows, self.expression(flat.columns)), flat.column)

    def _inner_extent(self, loop: For) -> _Linear | None:
        """Return the smallest divisor of a loop's variable, if all others are multiples of it."""
        if loop.start is not None or loop.order is not Order.SERIAL:
            return None
        divisors = [self._linear(division.operands[1]) for division in _divisions(loop)]
        known_values = [division for division in divisors if division is not None]
        smallest = min(known_values, default=None)
        if smallest is None or len(known_values) < len(divisors):
            return None
        return (
            smallest if all(division.multiple_of(smallest) for division in known_values) else None
        )

    def _linear(self, expression: Expr) -> _Linear | None:
        """Return an expression as a linear function of the size.

        None if it is constant or not linear.
        """
        terms = affine(expression)
        if terms is None or not terms.keys() <= {"", self._size} or not terms.get(self._size):
            return None
        return _Linear(terms[self._size], terms.get("", 0))

    def expression(self, function: _Linear) -> Expr:
        """Return a linear function of the size as an expression."""
        return plus(times(Variable(INDEX, self._size), function.slope), function.offset)

    def factor(self, divisor: Expr, inner: _Linear) -> int:
        """Return the ratio of a divisor to an extent."""
        linear = self._linear(divisor)
        return 0 if linear is None else linear.multiple_of(inner)


def _divisions(loop: For) -> Iterator[Apply]:
    """Yield the quotients and remainders of a loop's variable by divisors that vary."""
    for statement in walk_statements(loop.body):
        for expression in expressions(statement):
            for part in walk(expression):
                if _is_division(part, loop.variable):
                    assert isinstance(part, Apply)
                    yield part


def _is_division(part: Expr, variable: str) -> bool:
    match part:
        case Apply(primitive="floor_div" | "floor_mod", operands=(Variable(name=name), divisor)):
            return name == variable and not isinstance(divisor, Constant)
    return False


class _Quotients(Mutator):
    """Mutator that replaces quotients and remainders of a variable by two loop variables."""

    def __init__(self, splitting: _Splitting, variable: str, flat: _Flat) -> None:
        self._splitting = splitting
        self._variable = variable
        self._flat = flat
        row = apply("mul", flat.row, splitting.expression(flat.columns))
        self._sum = plus(row, flat.column)

    def rewrite_expression(self, expression: Expr) -> Expr:
        if isinstance(expression, Apply) and _is_division(expression, self._variable):
            factor = self._splitting.factor(expression.operands[1], self._flat.columns)
            return self._splitting.divide_flat(expression.primitive, self._flat, factor)
        if isinstance(expression, Variable) and expression.name == self._variable:
            return self._sum
        return super().rewrite_expression(expression)
