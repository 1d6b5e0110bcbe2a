"""The loop nests that a program runs in sequence, with their results, flops and memory traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from weft_compiler.ir.expressions import Apply, Expr, Load, walk as parts
from weft_compiler.ir.loops import num_iterations
from weft_compiler.ir.names import variable_names
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
    bodies,
    expressions,
    operand_names,
    walk,
)
from weft_compiler.ir.visitor import Visitor

_MOVES: Final = frozenset(("cast", "bitcast"))
"""Primitives that do not count as operations, because they only move values."""


def nests_of(program: Program) -> list[Body]:
    """Split the statements of a program into parts with one loop nest or call each.

    A part begins with the variables that its loop reduces into, and ends with statements that use
    them.  Other statements outside loops are separate parts.
    """
    nests: list[list[Statement]] = []
    for statement in program.body:
        if not isinstance(statement, Allocate):
            if not nests or not _is_same_part(statement, nests[-1]):
                nests.append([])
            nests[-1].append(statement)
    return [tuple(nest) for nest in nests]


def _is_same_part(statement: Statement, nest: Sequence[Statement]) -> bool:
    """Return True if a statement belongs to the same part as the previous ones."""
    has_loop = any(isinstance(inner, For | While | If | Call) for inner in nest)
    has_variable = any(isinstance(inner, Var) for inner in nest)
    only_begun = all(isinstance(inner, Let | Var) for inner in nest)
    if isinstance(statement, Var | For | While | If | Call):
        return only_begun
    return has_variable or not has_loop


def defined_names(nest: Body) -> set[str]:
    """Return the buffers that a nest stores to, the names that it defines, and its checks."""
    names = {statement.buffer for statement in walk(nest) if isinstance(statement, Store)}
    names |= {statement.name for statement in walk(nest) if isinstance(statement, Let | Var)}
    names |= {statement.message for statement in walk(nest) if isinstance(statement, Check)}
    for statement in walk(nest):
        if isinstance(statement, Call):
            names |= {view.buffer for view in statement.outputs}
    return names


def flops(nest: Body) -> int | None:
    """Count the floating-point operations of a nest; None if a trip count is unknown.

    A function such as exp, or a combiner, counts as one operation. Both branches of an `If`
    count.
    """
    count = _flops(nest)
    return None if count is None else round(count)


def _flops(nest: Body) -> Fraction | None:
    count = Fraction(0)
    for statement in nest:
        if isinstance(statement, While):
            return None
        inner = [_flops(body) for body in bodies(statement)]
        known_values = [number for number in inner if number is not None]
        if len(known_values) < len(inner):
            return None
        trip_count = num_iterations(statement) if isinstance(statement, For) else 1
        if trip_count is None:
            return None
        count += trip_count * sum(known_values) + _own_flops(statement)
    return count


def _own_flops(statement: Statement) -> int:
    if isinstance(statement, Call):
        if not statement.views[-1].dtype.is_floating:
            return 0
        return 2 * statement.work
    count = sum(
        part.primitive not in _MOVES
        and any(operand.dtype.is_floating for operand in (part, *part.operands))
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Apply)
    )
    if isinstance(statement, Assign | Store) and statement.combine is not None:
        count += statement.value.dtype.is_floating
    return count


def bytes_moved(nest: Body, program: Program) -> int:
    """Count the bytes that a nest reads and writes; each element counts once per direction.

    Local buffers and single constants are not counted.
    """
    own_buffers = {
        statement.buffer.name for statement in walk(nest) if isinstance(statement, Allocate)
    }
    own_buffers |= {name for name, value in program.constants.items() if value.size == 1}
    accesses = _Accesses()
    accesses.visit_body(nest)
    buffers = program.buffers
    return sum(
        buffers[name].dtype.size * min(buffers[name].size, sum(elements.values()))
        for (name, _), elements in accesses.elements.items()
        if name not in own_buffers
    )


class _Accesses(Visitor):
    """Visitor that counts the elements of buffers that statements access, as an upper bound.

    Attributes:
      elements: by buffer and direction, the counts keyed by the text of the access.
    """

    def __init__(self) -> None:
        self.elements: dict[tuple[str, bool], dict[str, int]] = {}
        self._loops: dict[str, int] = {}

    def _add(self, buffer: str, is_written: bool, position: str, count: int) -> None:
        indices = self.elements.setdefault((buffer, is_written), {})
        indices[position] = max(count, indices.get(position, 0))

    def visit_statement(self, statement: Statement) -> None:
        if isinstance(statement, Call):
            self._visit_call(statement)
            return
        if isinstance(statement, For):
            self._visit_loop(statement)
            return
        if isinstance(statement, Store):
            position = str([str(index) for index in statement.indices])
            count = _elements(statement.indices, self._loops)
            self._add(statement.buffer, True, position, count)
            if statement.combine is not None:
                self._add(statement.buffer, False, position, count)
        super().visit_statement(statement)

    def visit_expression(self, expression: Expr) -> None:
        if isinstance(expression, Load):
            count = _elements(expression.indices, self._loops)
            self._add(expression.buffer, False, str(expression), count)
        super().visit_expression(expression)

    def _visit_loop(self, loop: For) -> None:
        for expression in expressions(loop):
            self.visit_expression(expression)
        start = () if loop.start is None else (loop.start,)
        iterations = (num_iterations(loop) or 1) * _elements(start, self._loops)
        self._loops[loop.variable] = math.ceil(iterations)
        self.visit_body(loop.body)
        del self._loops[loop.variable]

    def _visit_call(self, call: Call) -> None:
        """Count, for each view, the rest of its buffer from the first element onwards."""
        names, times = operand_names(type(call)), math.prod(self._loops.values())
        for name, view in zip(names.views, call.views, strict=True):
            span = call.spans(view.dtype.size)[name]
            self._add(view.buffer, name in names.outputs, str(view), times * span)


def _elements(indices: tuple[Expr, ...], loops: Mapping[str, int]) -> int:
    """Return the number of elements of an access, from the loops that its indices use."""
    used = variable_names(indices)
    if used - loops.keys():  # its operands are not examined
        return math.prod(loops.values())
    return math.prod(loops[name] for name in used)
