"""The passes in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.blocks import block_rows
from weft_compiler.passes.contract import contract
from weft_compiler.passes.merge import merge_loops
from weft_compiler.passes.order import order_loops
from weft_compiler.passes.simplify import simplify
from weft_compiler.passes.sums import cut_sums

Pass = Callable[[Program], Program]

PASSES: Final[tuple[Pass, ...]] = (
    simplify,
    merge_loops,
    contract,
    block_rows,
    cut_sums,
    order_loops,
)


def optimise(program: Program, check: bool = True) -> Program:
    """The program after all passes.

    Args:
      check: verify it after each.
    """
    for each in PASSES:
        program = each(program)
        if check:
            verify(program)
    return program
