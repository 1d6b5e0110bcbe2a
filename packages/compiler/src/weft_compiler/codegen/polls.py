"""How much a program computes, and how often its loops look at the flag that interrupts it."""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from weft_compiler.codegen.mathematics.library import ITERATED
from weft_compiler.ir.expressions import Apply, walk as parts
from weft_compiler.ir.loops import num_iterations
from weft_compiler.ir.program import Body, Call, For, If, While, expressions, walk
from weft_compiler.routines import routine

LONG: Final = 1 << 16
"""Statements between two looks at that flag, of a loop whose turns have fewer."""
_OF_STATEMENT: Final = 8
"""Applied functions that a statement has; one of more counts as several."""
_ENDLESS: Final = 1 << 20
"""Statements that a program with a loop of unknown length may run, which others wait for."""
_MANY: Final = 500
"""Statements of a turn from which on a loop looks at it in each."""
_AT_ONCE: Final = 16
"""Products of numbers that a routine computes in the time of a statement, at least."""
_OF_SMALL: Final = 3
"""The same of products of small matrices, each of which is read once."""


def turns(body: Body) -> int:
    """About how many statements run in a body; a loop of unknown length counts as 100 turns."""
    count = 0
    for each in body:
        match each:
            case For():
                times = num_iterations(each)
                count += (100 if times is None else ceil(times)) * turns(each.body)
            case While():
                count += 100 * turns(each.body)
            case If():
                count += turns(each.then) + turns(each.otherwise)
            case Call(routine=name, parameters=parameters):
                at_once = _OF_SMALL if name == "small_matmul" else _AT_ONCE
                count += 1 + routine(name).work(dict(parameters)) // at_once
            case _:
                count += 1
    return count


class Work(NamedTuple):
    """How much a program computes.

    Attributes:
      statements: about how many run in a call.
      bounded: whether how long that takes follows from shapes: there are no branches, no loops of
        unknown length, and no functions that are found by iteration.
    """

    statements: int
    bounded: bool


def work_of(body: Body) -> Work:
    """How much a program of a body computes."""
    inside = list(walk(body))
    if any(isinstance(each, While) for each in inside):
        return Work(_ENDLESS, False)
    iterates = any(
        isinstance(part, Apply) and part.primitive in ITERATED
        for statement in inside
        for expression in expressions(statement)
        for part in parts(expression)
    )
    return Work(turns(body), not iterates and not any(isinstance(each, If) for each in inside))


def statements(body: Body) -> int:
    """As `turns`, but of loops that note their own turns."""
    return 1 + turns(tuple([each for each in body if not isinstance(each, While)]))


def is_innermost(loop: For) -> bool:
    """Whether there are no loops or calls in it."""
    return not any(isinstance(each, For | While | Call) for each in walk(loop.body))


def polls(loop: For) -> bool:
    """Whether each turn looks at the flag."""
    return not is_innermost(loop) and turns(loop.body) >= _MANY


def between_polls(loop: For) -> int:
    """How many turns of a loop run between two looks at the flag, some milliseconds at most."""
    inner = list(walk(loop.body))
    applied = sum(
        isinstance(part, Apply)
        for statement in inner
        for expression in expressions(statement)
        for part in parts(expression)
    )
    each = 1 + applied // (_OF_STATEMENT * max(1, len(inner)))
    return max(1, LONG // max(1, each * turns(loop.body)))
