"""Estimates of the number of operations of statements."""

from __future__ import annotations

from math import ceil
from typing import Final

from weft_compiler.ir.expressions import Apply, Load, walk as parts
from weft_compiler.ir.loops import num_iterations
from weft_compiler.ir.program import Call, For, If, Statement, bodies, expressions

_UNKNOWN_TRIP_COUNT: Final = 16
_PRODUCTS_PER_OPERATION: Final = 8
"""Multiplications that a routine computes in the time of one operation, at least."""


def estimate_work(statement: Statement) -> int:
    """Estimate the number of operations of a statement."""
    if isinstance(statement, Call):
        return 1 + statement.work // _PRODUCTS_PER_OPERATION
    operations = sum(
        isinstance(part, Apply | Load)
        for expression in expressions(statement)
        for part in parts(expression)
    )
    inner = sum(
        estimate_work(inner_statement) for body in bodies(statement) for inner_statement in body
    )
    if isinstance(statement, For):
        count = num_iterations(statement)
        return (_UNKNOWN_TRIP_COUNT if count is None else ceil(count)) * (inner + 1)
    return operations + inner * (1 if isinstance(statement, If) else _UNKNOWN_TRIP_COUNT)
