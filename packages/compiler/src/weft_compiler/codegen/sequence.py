"""The function of a program whose pieces are compiled each by itself: it calls them in order.

A piece is entered as any program is, with a table of where its buffers are. What it has to itself
lies at the end of what threads share, over what no other piece needs at the time, as the parts of
threads come behind it; how many these are a call says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from weft_compiler.codegen.memory import plan_shared
from weft_compiler.codegen.module import ENTRY, Module, attributes
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import target_of
from weft_compiler.codegen.writer import Writer
from weft_compiler.ir.pieces import Piece
from weft_compiler.ir.program import Allocate, Buffer, Program

_REST: Final = "ptr %interrupt, ptr %times, i64 %threads"


def symbol(at: int) -> str:
    """What a program calls the function of a nest."""
    return f"weft.nest{at}"


def sequence_of(
    program: Program, called: Sequence[tuple[Piece, int]], nests: Sequence[Module], options: Options
) -> Module:
    """The module of a program, which declares the functions of its nests.

    Args:
      called: its pieces, each with the number of its nest.
      nests: their modules.
    """
    target = target_of(options)
    lives = _lives(program, [piece for piece, _ in called])
    places, size = plan_shared(lives, [nests[nest].shared for _, nest in called])
    slots = max(len(piece.buffers) + len(piece.numbers) for piece, _ in called)
    function = _Sequence(program, places)
    for piece, nest in called:
        function.call(piece, symbol(nest), size - nests[nest].shared)
    texts = [
        f'target triple = "{target.triple}"\n; {program.name}',
        f"define i32 @{ENTRY}(ptr %buffers, ptr %arena, ptr %interrupt, ptr %times, "
        f"i64 %threads) #0 {{\nentry:\n  %table = alloca [{slots} x ptr]",
        *function.w.lines,
        "  ret i32 0\n}",
        *function.constants,
        *[f"declare i32 @{symbol(at)}(ptr, ptr, ptr, ptr, i64)\n" for at in range(len(nests))],
        attributes(target),
    ]
    return Module(
        "\n".join(texts),
        size,
        max(nest.thread for nest in nests),
        max(nest.times for nest in nests),
        any(nest.shares for nest in nests),
        (),
        (),
    )


def _lives(program: Program, pieces: Sequence[Piece]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last piece that touches each buffer which several do."""
    allocated = {
        each.buffer.name: each.buffer for each in program.body if isinstance(each, Allocate)
    }
    found: dict[Buffer, tuple[int, int]] = {}
    for at, piece in enumerate(pieces):
        for name in piece.buffers:
            if name in allocated:
                first, _ = found.get(allocated[name], (at, at))
                found[allocated[name]] = first, at
    return found


class _Sequence:
    """Writes calls of pieces.

    Attributes:
      constants: the numbers that these are given.
    """

    def __init__(self, program: Program, places: Mapping[str, int]) -> None:
        self.w = Writer()
        self.constants: list[str] = []
        self._pointers = {
            name: self.w.put(f"getelementptr i8, ptr %arena, i64 {offset}")
            for name, offset in places.items()
        }
        for at, buffer in enumerate((*program.inputs, *program.outputs)):
            place = self.w.put(f"getelementptr ptr, ptr %buffers, i64 {at}")
            self._pointers[buffer.name] = self.w.put(f"load ptr, ptr {place}")

    def call(self, piece: Piece, function: str, own: int) -> None:
        """A call of a piece; where it fails, so does the program.

        Args:
          own: where its own part of the arena begins.
        """
        w = self.w
        given = [self._pointers[name] for name in piece.buffers]
        first = len(piece.program.inputs) - len(piece.numbers)
        given[first:first] = map(self._constant, piece.numbers)
        for at, pointer in enumerate(given):
            slot = w.put(f"getelementptr ptr, ptr %table, i64 {at}")
            w.do(f"store ptr {pointer}, ptr {slot}")
        rest = w.put(f"getelementptr i8, ptr %arena, i64 {own}")
        result = w.put(f"call i32 @{function}(ptr %table, ptr {rest}, {_REST})")
        leaving, going_on = w.label(), w.label()
        w.branch(w.put(f"icmp eq i32 {result}, 0"), going_on, leaving)
        w.begin(leaving)
        if piece.checks:
            of_all = w.put(f"add i32 {result}, {piece.checks}")
            is_check = w.put(f"icmp sgt i32 {result}, 0")
            result = w.put(f"select i1 {is_check}, i32 {of_all}, i32 {result}")
        w.do(f"ret i32 {result}")
        w.begin(going_on)

    def _constant(self, numbers: np.ndarray) -> str:
        """Where an array is."""
        name, bits = f"@numbers{len(self.constants)}", 8 * numbers.itemsize
        listed = ", ".join([f"i{bits} {word}" for word in numbers.view(f"u{numbers.itemsize}")])
        kind = f"[{len(numbers)} x i{bits}] [{listed}]"
        self.constants.append(f"{name} = internal constant {kind}, align {bits // 8}")
        return name
