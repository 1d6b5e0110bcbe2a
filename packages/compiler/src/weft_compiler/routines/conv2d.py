"""Convolutions of channels-last images, and their filter gradients.

They are products of windows (im2col) and filters; see `weft_compiler.codegen.conv`.
`weft_compiler.routines.selection` chooses between them and Winograd's algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final

import numpy as np

from weft_compiler.codegen import conv
from weft_compiler.codegen.parallel_split import LINES, split_windows
from weft_compiler.codegen.routine import FLOATS, Library, ParallelSplit, Routine
from weft_compiler.codegen.targets import Target
from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.layouts import PANEL_BYTES, WINDOWS, Windows
from weft_compiler.routines.operands import span_error, type_error
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

CONV_LIBRARY: Final = Library("conv", conv.module_text, (dtypes.float32,))


@dataclass(frozen=True, slots=True, eq=False)
class WindowRoutine(Windows, Routine):
    """A routine over the windows of images."""

    @property
    def work(self) -> int:
        return self.num_results * self.window_size


def windows_error(windows: Windows) -> str:
    """Return an error message for invalid window parameters, or ""."""
    sizes = windows.geometry
    if min(size for name, size in sizes.items() if not name.startswith("before")) < 0:
        return "sizes of at least 0 were required"
    if min(sizes[name] for name in WINDOWS[:-2] if name != "images") < 1:
        return "sizes of at least 1 were required"
    return ""


def im2col(x: Any, windows: Windows, row: int, outside: int = 0) -> Any:
    """Return all windows as rows of a matrix, from the rows of windows at `row` onwards."""
    shape = (windows.images, windows.height, windows.breadth, windows.channels)
    images = x[: windows.num_elements].reshape(shape)
    taps_y = np.arange(windows.taps_y) * windows.dilation_y - windows.before_y
    taps_x = np.arange(windows.taps_x) * windows.dilation_x - windows.before_x
    y = (row + np.arange(windows.rows))[:, None] * windows.stride_y + taps_y
    x_ = np.arange(windows.width)[:, None] * windows.stride_x + taps_x
    y, x_ = y[:, None, :, None], x_[None, :, None, :]
    is_inside = (y >= 0) & (y < windows.height) & (x_ >= 0) & (x_ < windows.breadth)
    clipped = images[:, np.clip(y, 0, windows.height - 1), np.clip(x_, 0, windows.breadth - 1)]
    values = np.where(is_inside[..., None], clipped, outside)
    return values.reshape(windows.num_windows, windows.window_size).astype(x.dtype)


def convolve(windows: Windows, x: Any, w: Any, y: Any, row: int, is_packed: bool) -> None:
    """Store the products of windows and filters."""
    size = windows.window_size
    columns = PANEL_BYTES // x.itemsize if is_packed else windows.depth
    panels = -(-windows.depth // columns)
    filters = w[: panels * size * columns].reshape(panels, size, columns).swapaxes(0, 1)
    filters = filters.reshape(size, -1)[:, : windows.depth]
    y[: windows.num_results].reshape(-1, windows.depth)[...] = im2col(x, windows, row) @ filters


def convolve_by_filter(windows: Windows, x: Any, g: Any, y: Any, accumulate: int = 0) -> None:
    """Store the product of the transpose of g and windows, or add it to y."""
    gradient = g[: windows.num_results].reshape(-1, windows.depth)
    result = y[: windows.depth * windows.window_size].reshape(windows.depth, -1)
    result[...] = gradient.T @ im2col(x, windows, 0) + (result if accumulate else 0)


def filter_spans(windows: Windows) -> Mapping[str, int]:
    """Return the number of elements that a filter gradient may access in each view."""
    filters = windows.depth * windows.window_size
    return {"x": windows.num_elements, "g": windows.num_results, "y": filters}


@dataclass(frozen=True, slots=True, eq=False)
class Conv(WindowRoutine):
    """Convolves the windows of x, in rows from `row` onwards, with the filters w, to y.

    y is (images, rows, width, depth). Filters are (taps_y, taps_x, channels, depth), or if `packed`
    panels, (panels, taps_y, taps_x, channels, columns).
    """

    x: Input
    w: Input
    y: Output
    _: KW_ONLY
    packed: int
    row: Expr

    routine: ClassVar[str] = "conv"
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    library: ClassVar[Library | None] = CONV_LIBRARY

    def spans(self, size: int) -> Mapping[str, int]:
        columns = PANEL_BYTES // size
        depth = -(-self.depth // columns) * columns if self.packed else self.depth
        return {"x": self.num_elements, "w": depth * self.window_size, "y": self.num_results}

    def error(self, views: Views) -> str:
        wrong = type_error(views) or windows_error(self)
        return wrong or span_error(views, self.spans(views["x"][0].size))

    def reference(self, x: Any, w: Any, y: Any, row: int) -> None:
        convolve(self, x, w, y, row, bool(self.packed))

    def split(self) -> ParallelSplit:
        return split_windows(self, result=2)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return conv.conv_workspace(dtype, target, self)


@dataclass(frozen=True, slots=True, eq=False)
class ConvFilter(WindowRoutine):
    """Stores the product of the transpose of g and the windows of x in y, or adds it to y.

    g is (images, rows, width, depth), and y is (depth, taps_y, taps_x, channels).
    """

    x: Input
    g: Input
    y: Output
    _: KW_ONLY
    accumulate: int

    routine: ClassVar[str] = "conv_filter"
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    library: ClassVar[Library | None] = CONV_LIBRARY
    is_split_by_places: ClassVar[bool] = True

    @property
    def num_places(self) -> int:
        return self.window_size

    def spans(self, size: int) -> Mapping[str, int]:
        return filter_spans(self)

    def error(self, views: Views) -> str:
        wrong = type_error(views) or windows_error(self)
        return wrong or span_error(views, filter_spans(self))

    def reference(self, x: Any, g: Any, y: Any) -> None:
        convolve_by_filter(self, x, g, y, self.accumulate)

    def split(self) -> ParallelSplit:
        return ParallelSplit("", self.num_places, LINES * 2, {})

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return conv.filter_workspace(dtype, target, self)
