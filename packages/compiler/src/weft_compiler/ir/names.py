"""The names that a program declares and uses, and new ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from weft_compiler.ir.expressions import Expr, Variable, walk as parts
from weft_compiler.ir.program import Allocate, Body, For, Let, Program, Statement, Var
from weft_compiler.ir.visitor import Visitor


class _Declarations(Visitor):
    """Collects the names that statements declare: of loops, values, variables and buffers."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_statement(self, statement: Statement) -> None:
        if isinstance(statement, For):
            self.names.add(statement.variable)
        elif isinstance(statement, Let | Var):
            self.names.add(statement.name)
        elif isinstance(statement, Allocate):
            self.names.add(statement.buffer.name)
        super().visit_statement(statement)

    def visit_expression(self, expression: Expr) -> None:
        """Expressions declare nothing."""


class _Uses(Visitor):
    """Collects the variables that expressions use."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_expression(self, expression: Expr) -> None:
        if isinstance(expression, Variable):
            self.names.add(expression.name)
        else:
            super().visit_expression(expression)


def declared_names(body: Body) -> set[str]:
    """Return the names that a body declares: of loops, values, variables and buffers."""
    visitor = _Declarations()
    visitor.visit_body(body)
    return visitor.names


def used_names(body: Body) -> set[str]:
    """Return the names of the variables that a body uses in expressions."""
    visitor = _Uses()
    visitor.visit_body(body)
    return visitor.names


def variable_names(expressions: Iterable[Expr]) -> set[str]:
    """Return the names of the variables in some expressions."""
    return {part.name for each in expressions for part in parts(each) if isinstance(part, Variable)}


class Names:
    """Finds names for what a pass adds to a program."""

    def __init__(self, program: Program) -> None:
        self._used = {buffer.name for buffer in (*program.inputs, *program.outputs)}
        self._used |= declared_names(program.body)

    def new(self, given: str) -> str:
        """Return a name that nothing has, such as `given_2`."""
        candidates = (f"{given}_{number}" for number in itertools.count(2))
        name = next(each for each in candidates if each not in self._used)
        self._used.add(name)
        return name
