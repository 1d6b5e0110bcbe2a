"""Code sinking: large temporaries are computed late, as their memory is held from there on.

Values are written in an order in which each comes after what it needs, so what needs inputs alone,
as the values at points of filters do that the gradient of a convolution takes, comes long before
it is used. Loops that fill so much memory move behind the routines that are called meanwhile, which
leave nothing in caches that such a loop would find there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from weft_compiler.ir.mutator import with_body
from weft_compiler.ir.program import Allocate, Call, For, Program, Statement, walk
from weft_compiler.passes.effects import Effects, effects_of, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context

LARGE_BYTES: Final = 1 << 20
"""Bytes that a loop fills from which on it is moved."""


def sink_temporaries(program: Program, context: Context) -> Program:
    """Return the program with loops that fill large temporaries before their first use."""
    buffers = with_allocations(interface_buffers(program), program.body)
    allocated = [each.buffer for each in program.body if isinstance(each, Allocate)]
    sizes = {buffer.name: buffer.bytes for buffer in allocated}
    later: list[tuple[Statement, Effects]] = []  # the last statement first
    for statement in reversed(program.body):
        effects = effects_of((statement,), buffers)
        temporary = not effects.ends and sizes.keys() >= effects.writes.keys()
        large = temporary and sum([sizes[buffer] for buffer in effects.writes]) >= LARGE_BYTES
        position = (
            _sunk_position(effects, later) if large and isinstance(statement, For) else len(later)
        )
        if position < len(later):
            moved = len(later) - position
            context.applied(", ".join(effects.writes), "moved later by %d statements", moved)
        later.insert(position, (statement, effects))
    return with_body(program, tuple([statement for statement, _ in reversed(later)]))


def _sunk_position(loop_effects: Effects, later: Sequence[tuple[Statement, Effects]]) -> int:
    """The place of a loop among the statements behind it, of which the last is the first.

    Where one of these ends the program nobody reads what the loop fills.
    """
    called = False
    for position in range(len(later), 0, -1):
        statement, effects = later[position - 1]
        if loop_effects.conflicts(replace(effects, ends=False)):
            return position if called else len(later)
        called |= any(isinstance(each, Call) for each in walk((statement,)))
    return len(later)
