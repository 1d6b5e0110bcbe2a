"""Canonical programs: equal computations have equal text, because names are numbered."""

from __future__ import annotations

from dataclasses import replace

from weft_compiler.ir.expressions import Expr, Load, Variable
from weft_compiler.ir.mutator import Mutator, map_expressions
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Buffer,
    Check,
    For,
    Let,
    Program,
    Statement,
    Store,
    Var,
)


def canonical(program: Program) -> Program:
    """Return the program with its names replaced by numbers, in the order of declaration.

    Messages of checks are omitted, because machine code does not contain them.
    """
    numbering = _Numbering()
    inputs = tuple(map(numbering.declare_buffer, program.inputs))
    outputs = tuple(map(numbering.declare_buffer, program.outputs))
    names = numbering.names
    return Program(
        "program",
        inputs,
        outputs,
        numbering.rewrite_body(program.body),
        {names[name]: value for name, value in program.constants.items()},
        frozenset(names[name] for name in program.updated),
    )


class _Numbering(Mutator):
    """Mutator that numbers names in the order of their declarations.

    Attributes:
      names: the new names, by the old ones.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def declare_buffer(self, buffer: Buffer) -> Buffer:
        """Return a buffer with a new name."""
        return replace(buffer, name=self._declare(buffer.name, "b"))

    def _declare(self, name: str, letter: str) -> str:
        return self.names.setdefault(name, f"{letter}{len(self.names)}")

    def rewrite_expression(self, expression: Expr) -> Expr:
        if isinstance(expression, Variable):
            return Variable(expression.dtype, self.names[expression.name])
        renamed = super().rewrite_expression(expression)
        if isinstance(renamed, Load):
            return Load(renamed.dtype, self.names[renamed.buffer], renamed.indices)
        return renamed

    def rewrite_statement(self, statement: Statement) -> Statement:
        # A statement does not use what it declares itself.
        renamed = map_expressions(statement, self.rewrite_expression)
        match renamed:
            case For(variable=name):
                renamed = replace(renamed, variable=self._declare(name, "v"))
            case Let(name=name) | Var(name=name):
                renamed = replace(renamed, name=self._declare(name, "v"))
            case Assign(name=name):
                renamed = replace(renamed, name=self.names[name])
            case Store(buffer=name):
                renamed = replace(renamed, buffer=self.names[name])
            case Allocate(buffer=allocated):
                renamed = replace(renamed, buffer=self.declare_buffer(allocated))
            case Check():
                renamed = replace(renamed, message="")
        return self.rewrite_bodies(renamed)
