"""Rewriting programs: new statements of old ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from weft_compiler.ir.expressions import Expr, Load
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
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

S = TypeVar("S", bound=Statement)
OfExpression = Callable[[Expr], Expr]


def map_expressions(statement: Statement, change: OfExpression) -> Statement:
    """The statement with each of its own expressions changed; its bodies stay."""
    match statement:
        case For(extent=extent, start=start):
            first = None if start is None else change(start)
            return _changed(statement, start=first, extent=change(extent))
        case While(condition=value) | If(condition=value) | Check(condition=value):
            return _changed(statement, condition=change(value))
        case Let(value=value) | Var(value=value) | Assign(value=value):
            return _changed(statement, value=change(value))
        case Store(indices=indices, value=value):
            new = tuple([change(i) for i in indices])
            return _changed(statement, indices=new, value=change(value))
        case Call(views=views, numbers=numbers, sizes=sizes):
            changed = tuple([view for view in map(change, views) if isinstance(view, Load)])
            assert len(changed) == len(views), "a view stays a view"
            new_sizes = tuple([(name, change(size)) for name, size in sizes])
            new_numbers = tuple(map(change, numbers))
            return replace(statement, views=changed, numbers=new_numbers, sizes=new_sizes)
    assert isinstance(statement, Allocate)
    return statement


def map_bodies(statement: Statement, change: Callable[[Body], Body]) -> Statement:
    """The statement with each of its bodies changed."""
    if isinstance(statement, For | While):
        return _changed(statement, body=change(statement.body))
    if isinstance(statement, If):
        return _changed(
            statement, then=change(statement.then), otherwise=change(statement.otherwise)
        )
    return statement


def map_deep(body: Iterable[Statement], change: OfExpression) -> Body:
    """The body with each expression in it changed, however deep."""

    def inner(body: Body) -> Body:
        return map_deep(body, change)

    return tuple([map_bodies(map_expressions(each, change), inner) for each in body])


def _changed(statement: S, **new: object) -> S:
    """Return the statement with other fields; the statement itself if none of them is another."""
    if all(_is_same(getattr(statement, name), value) for name, value in new.items()):
        return statement
    return replace(statement, **new)


def _is_same(old: object, new: object) -> bool:
    """Return True if two fields are one object, or bodies of the same statements."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(operator.is_, old, new))
    return old is new


def with_body(program: Program, body: Body) -> Program:
    """The program with another body."""
    return program if body is program.body else replace(program, body=body)
