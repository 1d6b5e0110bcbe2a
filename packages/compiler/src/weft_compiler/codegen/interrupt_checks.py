"""Work estimates of programs, and how often loops poll the interrupt flag."""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from weft_compiler.codegen.mathematics.library import ITERATED
from weft_compiler.ir.expressions import Apply, walk as parts
from weft_compiler.ir.loops import num_iterations
from weft_compiler.ir.program import Body, Call, For, If, While, expressions, walk

LONG: Final = 1 << 16
"""Number of statements between two polls."""
_OF_STATEMENT: Final = 8
"""Operations that count as one statement; longer statements count as several."""
_ENDLESS: Final = 1 << 20
"""Statements assumed for a program with a loop of unknown trip count."""
_MANY: Final = 500
"""Minimum number of statements per iteration for which a loop polls in every iteration."""
_AT_ONCE: Final = 16
"""Multiplications that a routine computes in the time of one statement, at least."""
_OF_SMALL: Final = 3
"""The same for products of small matrices, whose elements are used only once."""


def estimate_statements(body: Body) -> int:
    """Estimate the number of statements that a body runs; unknown trip counts are taken as 100."""
    count = 0
    for statement in body:
        match statement:
            case For():
                times = num_iterations(statement)
                count += (100 if times is None else ceil(times)) * estimate_statements(
                    statement.body
                )
            case While():
                count += 100 * estimate_statements(statement.body)
            case If():
                count += estimate_statements(statement.then) + estimate_statements(
                    statement.otherwise
                )
            case Call(routine=name):
                at_once = _OF_SMALL if name == "small_matmul" else _AT_ONCE
                count += 1 + statement.work // at_once
            case _:
                count += 1
    return count


class WorkEstimate(NamedTuple):
    """The estimated work of a program.

    Attributes:
      statements: the approximate number of statements run by a call.
      is_bounded: True if the time follows from shapes: without branches, loops of unknown trip
        count and functions computed by iteration.
    """

    statements: int
    is_bounded: bool


def work_of(body: Body) -> WorkEstimate:
    """Return the estimated work of a program's body."""
    statements = list(walk(body))
    if any(isinstance(statement, While) for statement in statements):
        return WorkEstimate(_ENDLESS, False)
    iterates = any(
        isinstance(part, Apply) and part.primitive in ITERATED
        for statement in statements
        for expression in expressions(statement)
        for part in parts(expression)
    )
    return WorkEstimate(
        estimate_statements(body),
        not iterates and not any(isinstance(statement, If) for statement in statements),
    )


def statements(body: Body) -> int:
    """Estimate the number of statements that a body runs, without `while` loops."""
    return 1 + estimate_statements(
        tuple([statement for statement in body if not isinstance(statement, While)])
    )


def is_innermost(loop: For) -> bool:
    """Return True if the loop contains no loops or calls."""
    return not any(isinstance(statement, For | While | Call) for statement in walk(loop.body))


def has_poll(loop: For) -> bool:
    """Return True if the loop polls the flag in every iteration."""
    return not is_innermost(loop) and estimate_statements(loop.body) >= _MANY


def iterations_between_polls(loop: For) -> int:
    """Return the number of iterations between two polls, which take a few milliseconds at most."""
    inner = list(walk(loop.body))
    applied = sum(
        isinstance(part, Apply)
        for statement in inner
        for expression in expressions(statement)
        for part in parts(expression)
    )
    cost = 1 + applied // (_OF_STATEMENT * max(1, len(inner)))
    return max(1, LONG // max(1, cost * estimate_statements(loop.body)))
