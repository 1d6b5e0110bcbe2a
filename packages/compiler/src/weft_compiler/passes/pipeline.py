"""The passes in their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.again import compute_again
from weft_compiler.passes.blocks import block_rows
from weft_compiler.passes.compensate import compensate_sums
from weft_compiler.passes.contract import contract
from weft_compiler.passes.early import move_checks
from weft_compiler.passes.late import move_late
from weft_compiler.passes.masked import skip_masked
from weft_compiler.passes.merge import merge_loops
from weft_compiler.passes.order import order_loops
from weft_compiler.passes.products import add_in_place, choose
from weft_compiler.passes.simplify import simplify
from weft_compiler.passes.split import split_loops
from weft_compiler.passes.sums import cut_sums

Pass = Callable[[Program], Program]


def optimise(program: Program, check: bool = True, vector_bytes: int = 0) -> Program:
    """The program after all passes.

    Args:
      check: verify it after each.
      vector_bytes: of a register of the processor: its products are chosen, and its lanes add.
    """
    for each in passes_for(vector_bytes):
        program = each(program)
        if check:
            verify(program)
    return program


_SMALLER: Final[tuple[Pass, ...]] = (move_late, merge_loops, contract, block_rows)
"""Those that make buffers smaller."""


def _smaller(program: Program) -> Program:
    for each in _SMALLER:
        program = each(program)
    return program


def passes_for(vector_bytes: int = 0) -> tuple[Pass, ...]:
    """The passes in their order; see `optimise`."""
    return (
        simplify,
        move_checks,
        add_in_place,
        partial(compute_again, later=_smaller),
        *_SMALLER,
        skip_masked,
        partial(choose, vector_bytes=vector_bytes),
        cut_sums,
        split_loops,
        order_loops,
        partial(compensate_sums, vector_bytes=vector_bytes),
    )
