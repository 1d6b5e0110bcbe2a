"""The pass pipeline for GPUs, before iterations are assigned to threads."""

from __future__ import annotations

from typing import Final

from weft_compiler.gpu.fission import fission_rows, materialize_names
from weft_compiler.gpu.split_reductions import split_column_sums, split_row_sums
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.framework import Pass, PassResult, Pipeline
from weft_compiler.passes.pipeline import CONTRACT, FUSE, SIMPLIFY

PIPELINE: Final = Pipeline(
    SIMPLIFY,
    FUSE,
    CONTRACT,
    Pass(
        "split_column_sums",
        "Split sums into elements of buffers, such as column sums, into parts for more blocks.",
        split_column_sums,
    ),
    FUSE,  # one kernel can then compute the partial results of several sums
    CONTRACT,
    Pass(
        "fission_rows",
        "Split nests over few long rows into a kernel for each step.",
        fission_rows,
    ),
    Pass(
        "split_row_sums",
        "Split sums into variables, of everything or of few long rows, into parts.",
        split_row_sums,
    ),
    Pass(
        "materialize_names",
        "Store values that several nests use, so that each nest is a kernel.",
        materialize_names,
    ),
)


def optimize_for_gpu(program: Program) -> PassResult:
    """Run the passes for GPUs, and verify the program."""
    result = PIPELINE.run(program)
    verify(result.program)
    return result
