"""The passes of programs for GPUs; whose turns threads take is seen when kernels are made."""

from __future__ import annotations

from typing import Final

from weft_compiler.gpu.fission import fission_rows, materialize_names
from weft_compiler.gpu.split_reductions import split_column_sums, split_row_sums
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.contract_buffers import contract_buffers
from weft_compiler.passes.fuse import fuse_loops
from weft_compiler.passes.pipeline import Pass
from weft_compiler.passes.simplify import simplify

PASSES: Final[tuple[Pass, ...]] = (
    simplify,
    fuse_loops,
    contract_buffers,
    split_column_sums,
    fuse_loops,  # as one kernel may then make the parts of several sums
    contract_buffers,
    fission_rows,
    split_row_sums,
    materialize_names,
)


def optimise_for_gpu(program: Program) -> Program:
    """The program after the passes that GPUs need, verified."""
    for each in PASSES:
        program = each(program)
    verify(program)
    return program
