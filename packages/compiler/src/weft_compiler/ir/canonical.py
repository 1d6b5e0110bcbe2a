"""Programs without the names of their graphs: those that compute the same are written the same."""

from __future__ import annotations

from dataclasses import replace

from weft_compiler.ir.expressions import Expr, Load, Variable, children, replace_children
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Check,
    For,
    Let,
    Program,
    Statement,
    Store,
    Var,
)
from weft_compiler.ir.rewrite import map_bodies, map_expressions


def canonical(program: Program) -> Program:
    """The program with names that are numbers, in the order of their declarations.

    Messages of checks, which no machine code has in it, are left out.
    """
    names: dict[str, str] = {}

    def buffer(of: Buffer) -> Buffer:
        return replace(of, name=names.setdefault(of.name, f"b{len(names)}"))

    def expression(of: Expr) -> Expr:
        if isinstance(of, Variable):
            return Variable(of.dtype, names[of.name])
        found = replace_children(of, tuple(map(expression, children(of))))
        return replace(found, buffer=names[found.buffer]) if isinstance(found, Load) else found

    def statement(of: Statement) -> Statement:
        found = map_expressions(of, expression)  # what a statement declares it does not use itself
        match found:
            case For(variable=name):
                found = replace(found, variable=names.setdefault(name, f"v{len(names)}"))
            case Let(name=name) | Var(name=name):
                found = replace(found, name=names.setdefault(name, f"v{len(names)}"))
            case Assign(name=name):
                found = replace(found, name=names[name])
            case Store(buffer=name):
                found = replace(found, buffer=names[name])
            case Allocate(buffer=allocated):
                found = replace(found, buffer=buffer(allocated))
            case Check():
                found = replace(found, message="")
        return map_bodies(found, body)

    def body(of: Body) -> Body:
        return tuple(map(statement, of))

    inputs, outputs = tuple(map(buffer, program.inputs)), tuple(map(buffer, program.outputs))
    return Program(
        "program",
        inputs,
        outputs,
        body(program.body),
        {names[name]: value for name, value in program.constants.items()},
        frozenset(names[name] for name in program.updated),
    )
