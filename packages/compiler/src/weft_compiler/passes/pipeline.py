"""The pass pipeline for CPUs."""

from __future__ import annotations

from functools import partial
from typing import Final

from weft_compiler.ir.program import Program
from weft_compiler.passes.accumulate import accumulate_in_place
from weft_compiler.passes.compensate_sums import compensate_sums
from weft_compiler.passes.contract_buffers import contract_buffers
from weft_compiler.passes.framework import Pass, PassResult, Pipeline
from weft_compiler.passes.fuse import fuse_loops
from weft_compiler.passes.hoist_checks import hoist_checks
from weft_compiler.passes.hoist_transposes import hoist_transposes
from weft_compiler.passes.parallelize import parallelize_loops
from weft_compiler.passes.partition_loops import partition_loops
from weft_compiler.passes.rematerialize import rematerialize
from weft_compiler.passes.select_routines import select_routines
from weft_compiler.passes.simplify import simplify
from weft_compiler.passes.sink import sink_temporaries
from weft_compiler.passes.sparse_attention.rewrite import skip_masked_columns
from weft_compiler.passes.split_reductions import split_reductions
from weft_compiler.passes.stage_transposed import stage_transposed
from weft_compiler.passes.tile import tile_rows

SIMPLIFY: Final = Pass(
    "simplify",
    "Remove loops of one iteration, known branches and redundant index arithmetic.",
    simplify,
)
HOIST_CHECKS: Final = Pass(
    "hoist_checks",
    "Move checks before statements that they do not need, so that loops around them can fuse.",
    hoist_checks,
)
ACCUMULATE: Final = Pass(
    "accumulate_in_place",
    "Let a matrix product add to its destination instead of adding a temporary afterwards.",
    accumulate_in_place,
)
SINK: Final = Pass(
    "sink_temporaries",
    "Move loops that fill large temporaries behind the routines before their first use.",
    sink_temporaries,
)
FUSE: Final = Pass(
    "fuse",
    "Merge loops over one range, so that values pass through registers or caches.",
    fuse_loops,
)
CONTRACT: Final = Pass(
    "contract_buffers",
    "Shrink temporaries to the iteration that uses them, at best to a scalar.",
    contract_buffers,
    requires=("fuse",),
)
TILE: Final = Pass(
    "tile",
    "Run matrix products and loops in tiles of rows, so that large temporaries stay in caches.",
    tile_rows,
    requires=("contract_buffers",),
)


def _shrink(program: Program) -> Program:
    """Run the passes that make buffers smaller as a trial; their remarks are dropped."""
    for item in (SINK, FUSE, CONTRACT, TILE):
        program = item(program).program
    return program


PIPELINE: Final = Pipeline(
    SIMPLIFY,
    HOIST_CHECKS,
    ACCUMULATE,
    Pass(
        "rematerialize",
        "Compute large temporaries again before late uses, where that keeps them out of memory.",
        partial(rematerialize, shrink=_shrink),
    ),
    SINK,
    FUSE,
    CONTRACT,
    TILE,
    Pass(
        "skip_masked_columns",
        "Skip attention columns whose probability is exactly zero, such as those of a causal mask.",
        skip_masked_columns,
        requires=("tile",),
    ),
    Pass(
        "hoist_transposes",
        "Transpose matrices before the loops that use them transposed.",
        hoist_transposes,
        requires=("tile",),
    ),
    Pass(
        "select_routines",
        "Choose generated code or BLAS for each matrix product, for the processor.",
        select_routines,
        requires=("hoist_transposes",),
    ),
    Pass(
        "split_reductions",
        "Split long reductions into blocks with partial results that threads compute.",
        split_reductions,
    ),
    Pass(
        "partition_loops",
        "Split innermost loops where a condition on their variable changes.",
        partition_loops,
    ),
    Pass(
        "stage_transposed",
        "Copy blocks of large operands that inner loops read across their rows.",
        stage_transposed,
        requires=("partition_loops",),
    ),
    Pass(
        "parallelize",
        "Mark the outermost independent loops for threads and the innermost ones for lanes.",
        parallelize_loops,
        requires=("split_reductions", "stage_transposed"),
    ),
    Pass(
        "compensate_sums",
        "Sum long series in blocks, whose totals are added with compensation.",
        compensate_sums,
        requires=("parallelize",),
    ),
)


def optimize(program: Program, check: bool = True, vector_bytes: int = 0) -> PassResult:
    """Run all passes for CPUs.

    Args:
      check: verify the program after each pass.
      vector_bytes: size of a vector register of the processor, which determines the choice of
        product routines and the number of lanes of sums.
    """
    return PIPELINE.run(program, vector_bytes, check)
