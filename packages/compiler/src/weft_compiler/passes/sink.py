"""Code sinking: large temporaries are computed as late as possible, to shorten their live ranges.

Lowering emits values in dependency order. A value that depends only on inputs, such as the
transformed filters of a convolution's gradient, can be computed long before its use. Loops that
fill large temporaries move behind the routines that are called in between. Nothing is lost, because
these routines evict the temporary from the caches anyway.
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
"""Minimum number of bytes that a loop fills in order to be moved."""


def sink_temporaries(program: Program, context: Context) -> Program:
    """Move loops that fill large temporaries to their first use."""
    buffers = with_allocations(interface_buffers(program), program.body)
    allocated = [item.buffer for item in program.body if isinstance(item, Allocate)]
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
            context.record_applied(", ".join(effects.writes), "moved later by %d statements", moved)
        later.insert(position, (statement, effects))
    return with_body(program, tuple([statement for statement, _ in reversed(later)]))


def _sunk_position(loop_effects: Effects, later: Sequence[tuple[Statement, Effects]]) -> int:
    """Return the new position of a loop among later statements, given in reverse order.

    If a later statement ends the program, the buffers that the loop fills are not read.
    """
    called = False
    for position in range(len(later), 0, -1):
        statement, effects = later[position - 1]
        if loop_effects.conflicts(replace(effects, ends=False)):
            return position if called else len(later)
        called |= any(isinstance(item, Call) for item in walk((statement,)))
    return len(later)
