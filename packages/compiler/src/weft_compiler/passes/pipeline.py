"""The passes in their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.compensate_sums import compensate_sums
from weft_compiler.passes.contract_buffers import contract_buffers
from weft_compiler.passes.fuse import fuse_loops
from weft_compiler.passes.hoist_checks import hoist_checks
from weft_compiler.passes.parallelize import parallelize_loops
from weft_compiler.passes.partition_loops import partition_loops
from weft_compiler.passes.products import accumulate_in_place, select_products
from weft_compiler.passes.rematerialize import rematerialize
from weft_compiler.passes.simplify import simplify
from weft_compiler.passes.sink import sink_temporaries
from weft_compiler.passes.sparse_attention.rewrite import skip_masked_columns
from weft_compiler.passes.split_reductions import split_reductions
from weft_compiler.passes.tile import tile_rows

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


_SMALLER: Final[tuple[Pass, ...]] = (sink_temporaries, fuse_loops, contract_buffers, tile_rows)
"""Those that make buffers smaller."""


def _smaller(program: Program) -> Program:
    for each in _SMALLER:
        program = each(program)
    return program


def passes_for(vector_bytes: int = 0) -> tuple[Pass, ...]:
    """The passes in their order; see `optimise`."""
    return (
        simplify,
        hoist_checks,
        accumulate_in_place,
        partial(rematerialize, later=_smaller),
        *_SMALLER,
        skip_masked_columns,
        partial(select_products, vector_bytes=vector_bytes),
        split_reductions,
        partition_loops,
        parallelize_loops,
        partial(compensate_sums, vector_bytes=vector_bytes),
    )
