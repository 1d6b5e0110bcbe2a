"""Splitting of routine calls among threads: the size to split, and the unit of a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from weft_compiler.bf16_layout import PAIR
from weft_compiler.codegen.generated import parts
from weft_compiler.codegen.tile_kernels import FEW
from weft_compiler.codegen.winograd_gradient import CHANNELS
from weft_compiler.routines import FOUR, PANEL
from weft_compiler.windows import tile_of

_ENOUGH: Final = 1 << 19
"""Multiplications that a thread should compute at a time: some microseconds."""
_UNPACKED: Final = 1 << 23
"""Multiplications up to which BLAS is called for parts of `_ENOUGH`. Beyond 10^6 OpenBLAS packs
operands into buffers that threads reuse alternately, which moves cache lines between cores:
32×512×512 takes two threads 140 µs, and 97 µs in such parts."""
_FASTER: Final = 4
"""The number of bfloat16 multiplications in the time of one float32 multiplication."""
_LINES: Final = 16
"""Parts have a multiple of this many rows of a product, or whole panels of columns."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The split of a call into parts.

    Attributes:
      size: the parameter that is smaller for a part; "" for the elements, or channels, of a filter
        gradient.
      count: its value for the whole call.
      unit: parts have a multiple of this many.
      steps: for views by position, the elements to advance for each unit of `size`.
      rows: True if the call's number, the first row, advances too.
      chunks: the maximal number of chunks of each thread's part.
      least: a remainder of at least this size is a part; a smaller one belongs to the last part.
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
        """The maximal number of parts."""
        whole, left = divmod(self.count, self.unit)
        return whole + (left >= self.least)


def cut_of(routine: str, of: Mapping[str, int], work: int) -> Cut | None:
    """Return the split of a call; None if splitting does not pay.

    Args:
      of: its parameters.
      work: its number of multiplications.
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
    """Split rows of a and c, or columns of b and c.

    Args:
      column: elements of b per column; for panels, per column of a panel.
      result: the position of view c; views between b and c have one element per column.
    """
    if of["m"] >= of["n"]:
        steps = {0: of["a_row"], result: of["c_row"]}
        return Cut("m", of["m"], _LINES, steps, chunks=1, least=FEW + 1)
    return Cut("n", of["n"], PANEL, {1: column} | dict.fromkeys(range(2, result + 1), 1), chunks=1)


def _of_windows(of: Mapping[str, int], result: int, unit: int = 1) -> Cut:
    """Split images, or the rows of one.

    Args:
      result: the position of view y.
      unit: parts have a multiple of this many rows.
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
    """Return the number of items, of `each` rows, that exceed the rows of the few-rows kernels."""
    return -(-(FEW + 1) // max(1, each))
