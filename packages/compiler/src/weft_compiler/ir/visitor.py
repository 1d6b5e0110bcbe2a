"""Traversal of programs: the base class `Visitor`, which all analyses derive from."""

from __future__ import annotations

from weft_compiler.ir.expressions import Apply, Expr, Load
from weft_compiler.ir.program import Body, Statement, bodies, expressions


class Visitor:
    """Visits statements in order, and the expressions of a statement before its bodies.

    A subclass overrides the methods of the nodes that it examines, and calls the base methods to
    visit the parts of a node. To find all nodes of a kind without their context, `program.walk`
    and `expressions.walk` are shorter.
    """

    def visit_body(self, body: Body) -> None:
        """Visit the statements of a body."""
        for statement in body:
            self.visit_statement(statement)

    def visit_statement(self, statement: Statement) -> None:
        """Visit the expressions and the bodies of a statement."""
        for expression in expressions(statement):
            self.visit_expression(expression)
        for body in bodies(statement):
            self.visit_body(body)

    def visit_expression(self, expression: Expr) -> None:
        """Visit the operands or indices of an expression."""
        if isinstance(expression, Apply):
            for operand in expression.operands:
                self.visit_expression(operand)
        elif isinstance(expression, Load):
            for index in expression.indices:
                self.visit_expression(index)
