"""Memory layouts of the routines' operands: panels, windows, and the geometry of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from weft_tensor.dtypes import DType

LINE: Final = 64
"""Size of a cache line in bytes; also the width of the widest registers."""
PANEL_BYTES: Final = 128
"""Bytes of a row of a panel. Filters are packed as panels (panels, taps_y, taps_x, channels,
columns) and matrices as (panels, rows, columns), padded with zeros.
"""
PANEL: Final = PANEL_BYTES // 4
"""Columns of a panel of int8 or bfloat16. Each 32-bit word of such a panel holds adjacent rows of
one column. Column sums of int8 are separate: (panels, columns).
"""
FOUR: Final = 4
"""Rows of a column that a 32-bit word of an int8 panel holds: (panels, fours, columns, 4), padded
with zeros.
"""
PAIR: Final = 2
"""Rows of a column that a 32-bit word of a bfloat16 panel holds: (panels, pairs, columns, 2),
padded with zeros.
"""

POINTS: Final = 6
"""Points of Winograd's convolution along an axis: 0, 1, -1, 1/2, -2 and infinity."""
TAPS: Final = (3, 5)
"""Filter sizes along an axis that Winograd's convolution supports."""

STATE: Final = 6
"""Words of the state of a random stream: four for the counter and two for the key."""

WINDOWS: Final = (
    *("images", "rows", "width", "depth", "channels", "height", "breadth"),
    *("taps_y", "taps_x", "stride_y", "stride_x", "dilation_y", "dilation_x"),
    *("before_y", "before_x"),
)
"""The names of the parameters of `Windows`, in order."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """Windows of images; `depth` numbers are computed from each.

    There are `images` images of `height` × `breadth` × `channels`. Each has `rows` × `width`
    windows of `taps_y` × `taps_x`. A window begins at its row and column times the stride, minus
    the padding before the image.
    """

    images: int
    rows: int
    width: int
    depth: int
    channels: int
    height: int
    breadth: int
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    before_y: int
    before_x: int

    @property
    def geometry(self) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in WINDOWS}

    @property
    def window_size(self) -> int:
        """The number of elements of a window."""
        return self.taps_y * self.taps_x * self.channels

    @property
    def num_windows(self) -> int:
        """The number of windows of all images."""
        return self.images * self.rows * self.width

    @property
    def num_elements(self) -> int:
        """The number of elements of all images."""
        return self.images * self.height * self.breadth * self.channels

    @property
    def num_results(self) -> int:
        """The number of results of all windows."""
        return self.num_windows * self.depth


def tile_size(taps: int) -> int:
    """Return the number of results of a Winograd tile along an axis."""
    return POINTS + 1 - taps


def panel_columns(dtype: DType) -> int:
    """Return the number of columns of a panel."""
    return PANEL_BYTES // dtype.size


def pair_panels(n: int, k: int) -> tuple[int, ...]:
    """Return the shape of the bfloat16 panels of a matrix, k×n."""
    return -(-n // PANEL), -(-k // PAIR), PANEL, PAIR


def byte_panels(n: int, k: int) -> tuple[int, ...]:
    """Return the shape of the int8 panels of a matrix, k×n."""
    return -(-n // PANEL), -(-k // FOUR), PANEL, FOUR
