"""Names that programs declare and use, and creation of fresh names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from weft_compiler.ir.expressions import Expr, Variable, walk as parts
from weft_compiler.ir.program import (
    Allocate,
    Body,
    For,
    Let,
    Program,
    Var,
    expressions,
    walk,
)


def declared_names(body: Body) -> set[str]:
    """Return the names that a body declares: of loops, values, variables and buffers."""
    names: set[str] = set()
    for statement in walk(body):
        if isinstance(statement, For):
            names.add(statement.variable)
        elif isinstance(statement, Let | Var):
            names.add(statement.name)
        elif isinstance(statement, Allocate):
            names.add(statement.buffer.name)
    return names


def used_names(body: Body) -> set[str]:
    """Return the names of the variables that a body uses in expressions."""
    return {
        part.name
        for statement in walk(body)
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Variable)
    }


def variable_names(values: Iterable[Expr]) -> set[str]:
    """Return the names of the variables in some expressions."""
    return {part.name for value in values for part in parts(value) if isinstance(part, Variable)}


class Names:
    """Creates fresh names for additions to a program."""

    def __init__(self, program: Program) -> None:
        self._used = {buffer.name for buffer in (*program.inputs, *program.outputs)}
        self._used |= declared_names(program.body)

    def new(self, prefix: str) -> str:
        """Return an unused name that begins with `prefix`, such as `given_2`."""
        candidates = (f"{prefix}_{number}" for number in itertools.count(2))
        name = next(candidate for candidate in candidates if candidate not in self._used)
        self._used.add(name)
        return name
