"""The function of a program whose pieces are compiled separately: it calls them in order.

The runtime walks a table of the calls (`weft_compiler/runtime/sequence.c`); emitting them as
instructions took a tenth of the compile time. A piece is entered like any program, with a table of
buffer addresses. Its own memory is at the end of the shared part of the arena, next to the parts of
the threads, and overlaps no live buffer. The number of threads is an argument of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from weft_compiler.codegen.memory import plan_shared
from weft_compiler.codegen.module import ENTRY, Module, attributes
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.runtime import RUN_SEQUENCE, RUN_SEQUENCE_DECLARATION
from weft_compiler.codegen.targets import target_of
from weft_compiler.ir.program import Buffer, Program
from weft_compiler.ir.program_splitting import Piece

_REST: Final = "ptr %interrupt, ptr %times, i64 %threads"


def symbol(index: int) -> str:
    """Return the symbol of a nest's function."""
    return f"weft.nest{index}"


def sequence_of(
    program: Program, called: Sequence[tuple[Piece, int]], nests: Sequence[Module], options: Options
) -> Module:
    """Return the LLVM module of a program; it declares the functions of its nests.

    Args:
      called: its pieces, each with the number of its nest.
      nests: their modules.
    """
    target = target_of(options)
    lives = _buffer_lifetimes(program, [piece for piece, _ in called])
    indices, size = plan_shared(lives, [nests[nest].shared for _, nest in called])
    table = _Table(program, indices)
    for piece, nest in called:
        table.add(piece, nest, size - nests[nest].shared)
    symbols = [symbol(index) for index in range(len(nests))]
    texts = [
        f'target triple = "{target.triple}"\n; {program.name}',
        *table.constants,
        _array("@calls", "i64", [str(word) for word in table.words]),
        _array("@nests", "ptr", [f"@{symbol}" for symbol in symbols]),
        _array("@constants", "ptr", [f"@numbers{index}" for index in range(len(table.constants))]),
        *[f"declare i32 @{symbol}(ptr, ptr, ptr, ptr, i64)" for symbol in symbols],
        RUN_SEQUENCE_DECLARATION,
        _run(table),
        attributes(target),
    ]
    return Module(
        "\n".join(texts),
        size,
        max(*[nest.thread for nest in nests], *[piece.thread for piece, _ in called]),
        max(nest.times for nest in nests),
        any(nest.shares for nest in nests),
        (),
        (),
    )


def _buffer_lifetimes(program: Program, pieces: Sequence[Piece]) -> dict[Buffer, tuple[int, int]]:
    """Return the first and the last piece that uses each buffer shared by several pieces."""
    input_names = {
        buffer_of_program.name for buffer_of_program in (*program.inputs, *program.outputs)
    }
    lives: dict[Buffer, tuple[int, int]] = {}
    for index, piece in enumerate(pieces):
        inputs = piece.program.inputs[: len(piece.program.inputs) - len(piece.numbers)]
        for name, piece_buffer in zip(
            piece.buffers, (*inputs, *piece.program.outputs), strict=True
        ):
            if name not in input_names:
                buffer = replace(piece_buffer, name=name)
                first, _ = lives.get(buffer, (index, index))
                lives[buffer] = first, index
    return lives


class _Table:
    """The table of calls of pieces.

    A call is a `weft_call`: the number of its nest, the number of checks before it, the offset of
    its own part of the arena, the number of pointers, and a word for each pointer: an offset in the
    arena, or -1 - i for the i-th buffer of the program; constants follow the buffers.

    Attributes:
      words: the table.
      buffers: the number of buffers of the program.
      slots: the maximal number of pointers of a call.
      constants: the LLVM definitions of numbers that pieces receive.
    """

    def __init__(self, program: Program, indices: Mapping[str, int]) -> None:
        buffers = (*program.inputs, *program.outputs)
        self.words: list[int] = []
        self.buffers = len(buffers)
        self.slots = 1
        self.constants: list[str] = []
        self._slot = dict(indices) | {
            buffer.name: -1 - index for index, buffer in enumerate(buffers)
        }

    def add(self, piece: Piece, nest: int, private_bytes: int) -> None:
        """Add a call of a piece.

        Args:
          private_bytes: the offset of its own part of the arena.
        """
        slots = [self._slot[name] for name in piece.buffers]
        first = len(piece.program.inputs) - len(piece.numbers)
        slots[first:first] = map(self._constant, piece.numbers)
        self.words += [nest, piece.checks, private_bytes, len(slots), *slots]
        self.slots = max(self.slots, len(slots))

    def _constant(self, numbers: np.ndarray) -> int:
        position, bits = len(self.constants), 8 * numbers.itemsize
        words = map(str, numbers.view(f"u{numbers.itemsize}"))
        align = f", align {numbers.itemsize}"
        self.constants.append(_array(f"@numbers{position}", f"i{bits}", list(words)) + align)
        return -1 - self.buffers - position


def _array(name: str, kind: str, values: Sequence[str]) -> str:
    """Return the definition of a constant array."""
    listed = ", ".join([f"{kind} {value}" for value in values])
    return f"{name} = internal constant [{len(values)} x {kind}] [{listed}]"


def _run(table: _Table) -> str:
    """Return the function that passes the table to the runtime."""
    fields = f"ptr @calls, i64 {len(table.words)}, ptr @nests, ptr @constants"
    fields += f", i64 {table.buffers}, i64 {table.slots}"
    return f"""
@sequence = internal constant {{ ptr, i64, ptr, ptr, i64, i64 }} {{ {fields} }}

define i32 @{ENTRY}(ptr %buffers, ptr %arena, {_REST}) #0 {{
  %result = tail call i32 @{RUN_SEQUENCE}(ptr @sequence, ptr %buffers, ptr %arena, {_REST})
  ret i32 %result
}}
"""
