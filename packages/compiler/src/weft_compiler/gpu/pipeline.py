"""The passes of programs for GPUs; whose turns threads take is seen when kernels are made."""

from __future__ import annotations

from typing import Final

from weft_compiler.gpu.apart import in_memory, rows_apart
from weft_compiler.gpu.sums import sum_columns, sum_long_rows
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.contract import contract
from weft_compiler.passes.merge import merge_loops
from weft_compiler.passes.pipeline import Pass
from weft_compiler.passes.simplify import simplify

PASSES: Final[tuple[Pass, ...]] = (
    simplify,
    merge_loops,
    contract,
    sum_columns,
    merge_loops,  # as one kernel may then make the parts of several sums
    contract,
    rows_apart,
    sum_long_rows,
    in_memory,
)


def optimise_for_gpu(program: Program) -> Program:
    """The program after the passes that GPUs need, verified."""
    for each in PASSES:
        program = each(program)
    verify(program)
    return program
