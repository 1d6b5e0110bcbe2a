"""Programs as text, which `weft_compiler.ir.parser` parses.

Numbers have a type suffix, `3:int32`, unless they are int64 (`3`), float32 (`3.0`) or bool
(`true`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft_compiler.ir.expressions import Expr, expression_text
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    For,
    If,
    Let,
    Program,
    Statement,
    Store,
    Var,
    While,
)


def program_text(program: Program) -> str:
    """Return the text of a program."""
    inputs = ", ".join(map(_declaration, program.inputs))
    outputs = ", ".join(
        f"{'update ' if output.name in program.updated else ''}{_declaration(output)}"
        for output in program.outputs
    )
    head = f"program {program.name}({inputs}) -> ({outputs}):"
    return "\n".join([head, *_lines(program.body, "  "), ""])


def statement_text(statement: Statement) -> str:
    """Return the text of a statement with its bodies."""
    return "\n".join(_lines((statement,), ""))


def _listed(expressions: Iterable[Expr]) -> str:
    return ", ".join(map(expression_text, expressions))


def _declaration(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.dtype.name}[{', '.join(map(str, buffer.shape))}]"


def _lines(body: Body, indent: str) -> Iterator[str]:
    for statement in body:
        match statement:
            case For(variable=variable, extent=extent, body=inner, order=order, start=start):
                span = f"in {extent}" if start is None else f"from {start} to {extent}"
                yield f"{indent}{order.value} {variable} {span}:"
                yield from _lines(inner, indent + "  ")
            case While(condition=condition, body=inner):
                yield f"{indent}while {condition}:"
                yield from _lines(inner, indent + "  ")
            case If(condition=condition, then=then, otherwise=otherwise):
                yield f"{indent}if {condition}:"
                yield from _lines(then, indent + "  ")
                if otherwise:
                    yield f"{indent}else:"
                    yield from _lines(otherwise, indent + "  ")
            case _:
                yield indent + _simple(statement)


def _simple(statement: Statement) -> str:
    match statement:
        case Let(name=name, value=value):
            return f"let {name} = {value}"
        case Var(name=name, value=value):
            return f"var {name} = {value}"
        case Assign(name=name, value=value, combine=combine):
            return f"{name} {combine or ''}= {value}"
        case Store(buffer=buffer, indices=indices, value=value, combine=combine):
            return f"{buffer}[{_listed(indices)}] {combine or ''}= {value}"
        case Allocate(buffer=allocated):
            return f"alloc {_declaration(allocated)}"
        case Check(condition=condition, message=message):
            return f"check {condition}, {_quoted(message)}"
        case Call(routine=routine, views=views, parameters=parameters, numbers=numbers):
            limit = {name: f": {expression_text(size)}" for name, size in statement.sizes}
            settings = [f"{name}={value}{limit.get(name, '')}" for name, value in parameters]
            arguments = [*map(expression_text, views), *settings]
            arguments += [f"at {expression_text(number)}" for number in numbers]
            return f"call {routine}({', '.join(arguments)})"
    raise AssertionError(type(statement))


def _quoted(message: str) -> str:
    return '"' + message.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
