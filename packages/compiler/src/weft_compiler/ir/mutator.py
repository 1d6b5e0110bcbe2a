"""Rewriting of programs: the base class `Mutator`, which all rewrites derive from."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from weft_compiler.ir.expressions import Apply, Expr, Load, Variable, substitute
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
    operand_names,
)

S = TypeVar("S", bound=Statement)


class Mutator:
    """Rebuilds a body from its leaves; unchanged parts remain the same objects.

    A subclass overrides the methods of the nodes that it changes, and calls the base methods for
    the parts of a node. `rewrite_statement` may return a body that replaces the statement.
    """

    def rewrite_body(self, body: Body) -> Body:
        """Return the statements that replace a body."""
        new: list[Statement] = []
        for statement in body:
            result = self.rewrite_statement(statement)
            if isinstance(result, tuple):
                new += result
            else:
                new.append(result)
        return keep_if_unchanged(body, new)

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        """Return a statement whose expressions and bodies are rewritten."""
        return self.rewrite_bodies(map_expressions(statement, self.rewrite_expression))

    def rewrite_bodies(self, statement: S) -> S:
        """Return a statement with rewritten bodies and unchanged expressions."""
        return map_bodies(statement, self.rewrite_body)

    def rewrite_expression(self, expression: Expr) -> Expr:
        """Return an expression whose operands and indices are rewritten."""
        if isinstance(expression, Apply):
            operands = tuple([self.rewrite_expression(operand) for operand in expression.operands])
            if all(map(operator.is_, expression.operands, operands)):
                return expression
            return Apply(expression.dtype, expression.primitive, operands)
        if isinstance(expression, Load):
            indices = tuple([self.rewrite_expression(index) for index in expression.indices])
            if all(map(operator.is_, expression.indices, indices)):
                return expression
            return Load(expression.dtype, expression.buffer, indices)
        return expression


class StatementMutator(Mutator):
    """A mutator that keeps all expressions and does not visit them."""

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        """Return a statement whose bodies are rewritten."""
        return self.rewrite_bodies(statement)


class Substitution(Mutator):
    """Replaces variables by expressions.

    Args:
      values: the expressions, by the names of the variables.
    """

    def __init__(self, values: Mapping[str, Expr]) -> None:
        self._values = values

    def rewrite_expression(self, expression: Expr) -> Expr:
        """Return an expression with the variables replaced."""
        return substitute(expression, self._values)


class Renaming(Mutator):
    """Renames buffers and names, where they are declared and where they are used.

    Args:
      names: the new names, by the old ones; others stay.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def rewrite_expression(self, expression: Expr) -> Expr:
        """Return an expression that uses the new names."""
        if isinstance(expression, Variable):
            name = self._names.get(expression.name)
            return expression if name is None else Variable(expression.dtype, name)
        renamed = super().rewrite_expression(expression)
        if isinstance(renamed, Load) and renamed.buffer in self._names:
            return Load(renamed.dtype, self._names[renamed.buffer], renamed.indices)
        return renamed

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        """Return a statement that declares and stores to the new names."""
        renamed = super().rewrite_statement(statement)
        names = self._names
        match renamed:
            case For(variable=name) if name in names:
                return replace(renamed, variable=names[name])
            case Let(name=name) | Var(name=name) | Assign(name=name) if name in names:
                return replace(renamed, name=names[name])
            case Store(buffer=name) if name in names:
                return replace(renamed, buffer=names[name])
        return renamed


def substitute_body(body: Body, values: Mapping[str, Expr]) -> Body:
    """Return a body with variables replaced by expressions."""
    return Substitution(values).rewrite_body(body)


def map_expressions(statement: S, change: Callable[[Expr], Expr]) -> S:
    """Return a statement with each of its expressions changed, except those of its bodies."""
    match statement:
        case For(extent=extent, start=start):
            first = None if start is None else change(start)
            return _with_fields(statement, start=first, extent=change(extent))
        case While(condition=value) | If(condition=value) | Check(condition=value):
            return _with_fields(statement, condition=change(value))
        case Let(value=value) | Var(value=value) | Assign(value=value):
            return _with_fields(statement, value=change(value))
        case Store(indices=indices, value=value):
            new = tuple([change(index) for index in indices])
            return _with_fields(statement, indices=new, value=change(value))
        case Call(sizes=sizes):
            names = operand_names(type(statement))
            views = dict(zip(names.views, map(change, statement.views), strict=True))
            assert all(isinstance(view, Load) for view in views.values()), "a view stays a view"
            numbers = dict(zip(names.numbers, map(change, statement.numbers), strict=True))
            new_sizes = tuple([(name, change(size)) for name, size in sizes])
            unchanged = all(old[1] is new[1] for old, new in zip(sizes, new_sizes, strict=True))
            return _with_fields(
                statement, **views, **numbers, sizes=sizes if unchanged else new_sizes
            )
    assert isinstance(statement, Allocate)
    return statement


def map_bodies(statement: S, change: Callable[[Body], Body]) -> S:
    """Return a statement with each of its bodies changed."""
    if isinstance(statement, For | While):
        return _with_fields(statement, body=change(statement.body))
    if isinstance(statement, If):
        return _with_fields(
            statement, then=change(statement.then), otherwise=change(statement.otherwise)
        )
    return statement


def keep_if_unchanged(old: Body, new: list[Statement]) -> Body:
    """Return the new statements as a body, or the old body if they are equal."""
    return old if len(old) == len(new) and all(map(operator.is_, old, new)) else tuple(new)


def with_body(program: Program, body: Body) -> Program:
    """Return a program with another body; the program itself if the statements are the same."""
    unchanged = _is_same(program.body, body)
    return program if unchanged else replace(program, body=body)


def _with_fields(statement: S, **new: object) -> S:
    """Return a statement with other fields.

    If all fields are the same, return the statement itself.
    """
    if all(_is_same(getattr(statement, name), value) for name, value in new.items()):
        return statement
    return replace(statement, **new)


def _is_same(old: object, new: object) -> bool:
    """Return True if two fields are one object, or tuples of the same objects."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(operator.is_, old, new))
    return old is new
