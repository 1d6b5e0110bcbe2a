"""Calls of routines that threads share: which of their sizes is cut, and what a part of it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from weft_compiler.codegen.generated import parts
from weft_compiler.codegen.tile_kernels import FEW
from weft_compiler.codegen.winograd_gradient import CHANNELS
from weft_compiler.pairs import PAIR
from weft_compiler.routines import FOUR, PANEL
from weft_compiler.windows import tile_of

_ENOUGH: Final = 1 << 19
"""Products of numbers that a thread should compute at a time: some microseconds."""
_UNPACKED: Final = 1 << 23
"""Products of numbers up to which BLAS gets a part of `_ENOUGH` after the other. OpenBLAS packs
what is more than 10^6 into memory that threads share in turns, so one finds there what another
wrote: 32×512×512 by two threads takes 140 µs so, and 97 in such parts."""
_FASTER: Final = 4
"""Of how many products of bfloat16 a processor computes as many as of one of float32."""
_LINES: Final = 16
"""Rows of a product that a part has a multiple of; of columns it has whole panels."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a call is cut.

    Attributes:
      size: the parameter that is smaller for a part; "" for the places, or
        channels, of a filter's gradient.
      count: what it is for the whole.
      unit: parts have a multiple of so many.
      steps: how many elements a view moves on for each.
      rows: whether the call's number, the first row, moves on too.
      chunks: into how many chunks each part is cut, at most.
      least: what is left at the end is a part where it is so many; else it belongs to the last one.
    """

    size: str
    count: int
    unit: int
    steps: Mapping[int, int]
    rows: bool = False
    chunks: int = 2
    least: int = 1

    @property
    def units(self) -> int:
        """How many parts there may be."""
        whole, left = divmod(self.count, self.unit)
        return whole + (left >= self.least)


def cut_of(routine: str, of: Mapping[str, int], work: int) -> Cut | None:
    """How a call is cut; None where it is not worth it.

    Args:
      of: its parameters.
      work: products of numbers that it takes.
    """
    if routine.endswith("_pairs"):
        work //= _FASTER
    if work < 2 * _ENOUGH:
        return None
    if routine in ("gemm", "matmul"):
        found = _of_product(of, of["b_column"])
    elif routine == "matmul_packed":
        found = _of_product(of, of["k"])
    elif routine == "matmul_bytes":
        found = _of_product(of, -(-of["k"] // FOUR) * FOUR, result=3)
    elif routine == "matmul_pairs":
        found = _of_product(of, -(-of["k"] // PAIR) * PAIR)
    elif routine in ("conv", "conv_pairs"):
        found = _of_windows(of, result=2)
    elif routine == "conv_bytes":
        found = _of_windows(of, result=3)
    elif routine == "winograd":
        found = _of_windows(of, result=3, unit=tile_of(of["taps_y"]))
    elif routine in ("conv_filter", "conv_filter_pairs"):
        found = Cut("", parts(routine, of), _LINES * 2, {})
    elif routine == "winograd_gradient":
        found = Cut("", parts(routine, of), CHANNELS, {}, chunks=1)
    else:
        return None
    each = max(1, work // max(1, found.count))
    unit = -(-_ENOUGH // each)
    unit = -(-unit // found.unit) * found.unit
    if found.count < 2 * unit:
        return None
    chunks = found.count if routine == "gemm" and work <= _UNPACKED else found.chunks
    return replace(found, unit=unit, chunks=chunks)


def _of_product(of: Mapping[str, int], column: int, result: int = 2) -> Cut:
    """Rows of a and c, or columns of b and c.

    Args:
      column: elements of b for a column; in panels for each of a panel's.
      result: which view c is; those between b and c have an element for each column.
    """
    if of["m"] >= of["n"]:
        steps = {0: of["a_row"], result: of["c_row"]}
        return Cut("m", of["m"], _LINES, steps, chunks=1, least=FEW + 1)
    return Cut("n", of["n"], PANEL, {1: column} | dict.fromkeys(range(2, result + 1), 1), chunks=1)


def _of_windows(of: Mapping[str, int], result: int, unit: int = 1) -> Cut:
    """Images, or rows of one.

    Args:
      result: which view y is.
      unit: rows that a part has a multiple of.
    """
    line = of["width"] * of["depth"]
    if of["images"] > 1:
        image = of["height"] * of["breadth"] * of["channels"]
        least = _enough_rows(of["rows"] * of["width"])
        steps = {0: image, result: of["rows"] * line}
        return Cut("images", of["images"], least, steps, least=least)
    least = _enough_rows(of["width"])
    return Cut("rows", of["rows"], max(unit, least), {result: line}, rows=True, least=least)


def _enough_rows(each: int) -> int:
    """How many have more rows than kernels of few rows have, where each has some."""
    return -(-(FEW + 1) // max(1, each))
