"""Splitting of routine calls among threads: building blocks of `Routine.split`, and its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft_compiler.codegen.routine import ParallelSplit, Routine
from weft_compiler.codegen.tile_kernels import FEW
from weft_compiler.layouts import PANEL, Windows

_ENOUGH: Final = 1 << 19
"""Multiplications that a thread should compute for each chunk: some microseconds."""
LINES: Final = 16
"""Granularity of the parts of a product: a number of rows, or of panels of columns."""


def cut_of(call: Routine) -> ParallelSplit | None:
    """Return the split of a call among threads; None if splitting does not pay off."""
    work = call.work // call.speed
    if work < 2 * _ENOUGH:
        return None
    cut = call.split()
    if cut is None:
        return None
    work_per_item = max(1, work // max(1, cut.count))
    unit = -(-_ENOUGH // work_per_item)
    unit = -(-unit // cut.unit) * cut.unit
    return None if cut.count < 2 * unit else replace(cut, unit=unit)


def split_product(
    m: int, n: int, a_row: int, c_row: int, b_column: int, result: int = 2, chunks: int = 1
) -> ParallelSplit:
    """Split rows of a and c, or columns of b and c.

    Args:
      b_column: elements of b per column; for panels, per column of a panel.
      result: the position of view c; views between b and c have one element per column.
      chunks: as in `Cut`; 0 for one per row or column.
    """
    if m >= n:
        steps = {0: a_row, result: c_row}
        return ParallelSplit("m", m, LINES, steps, chunks=chunks or m, least=FEW + 1)
    steps = {1: b_column} | dict.fromkeys(range(2, result + 1), 1)
    return ParallelSplit("n", n, PANEL, steps, chunks=chunks or n)


def split_windows(windows: Windows, result: int, unit: int = 1) -> ParallelSplit:
    """Split images, or the rows of one.

    Args:
      result: the position of view y.
      unit: parts have a multiple of this many rows.
    """
    line = windows.width * windows.depth
    if windows.images > 1:
        image = windows.height * windows.breadth * windows.channels
        min_rows = _rows_for_full_kernel(windows.rows * windows.width)
        steps = {0: image, result: windows.rows * line}
        return ParallelSplit("images", windows.images, min_rows, steps, least=min_rows)
    min_rows = _rows_for_full_kernel(windows.width)
    return ParallelSplit(
        "rows", windows.rows, max(unit, min_rows), {result: line}, rows=True, least=min_rows
    )


def _rows_for_full_kernel(rows: int) -> int:
    """Return the number of items whose total rows exceed the limit of the few-rows kernels."""
    return -(-(FEW + 1) // max(1, rows))
