"""Hoisting of checks above statements that they do not depend on.

Requirements on inputs, such as index bounds, are checked where the inputs are first used, between
loops over the same range. After hoisting, those loops can be fused. Then a matrix such as the
softmax before a cross-entropy loss shrinks to one row.
"""

from __future__ import annotations

from weft_compiler.ir.mutator import with_body
from weft_compiler.ir.program import Check, Program, Statement, While, walk
from weft_compiler.passes.effects import Effects, effects_of, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context


def hoist_checks(program: Program, context: Context) -> Program:
    """Move each check, and loops of checks, as early as possible.

    Checks keep their order, so the first one that fails is the same. They stay after statements
    that may run forever.
    """
    buffers = with_allocations(interface_buffers(program), program.body)
    hoisted: list[tuple[Statement, Effects]] = []
    for statement in program.body:
        effects = effects_of((statement,), buffers)
        position = end = len(hoisted)
        if effects.ends and not effects.writes and _is_check(statement):
            while position and not _depends_on(effects, hoisted[position - 1][1]):
                position -= 1
            if position < end:
                context.record_applied(
                    _message(statement), "moved earlier by %d statements", end - position
                )
        hoisted.insert(position, (statement, effects))
    return with_body(program, tuple([statement for statement, _ in hoisted]))


def _message(statement: Statement) -> str:
    """Return the message of the first check of a statement."""
    return next(item.message for item in walk((statement,)) if isinstance(item, Check))


def _is_check(statement: Statement) -> bool:
    """Return True if a statement terminates, with the only effect that it may end the program."""
    interval = list(walk((statement,)))
    return any(isinstance(item, Check) for item in interval) and not any(
        isinstance(item, While) for item in interval
    )


def _depends_on(check: Effects, earlier: Effects) -> bool:
    """Return True if a check must stay after a statement.

    Stores to unrelated memory do not matter.
    """
    return bool(
        earlier.ends
        or check.uses & earlier.defines
        or check.reads.keys() & earlier.writes.keys()
        or check.defines & (earlier.uses | earlier.defines)
    )
