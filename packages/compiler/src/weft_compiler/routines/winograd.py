"""Convolutions of 3×3 and 5×5 by Winograd's algorithm, Lavin & Gray 2015, and filter gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from weft_compiler.codegen import conv
from weft_compiler.codegen.parallel_split import split_windows
from weft_compiler.codegen.routine import FLOATS, Library, ParallelSplit, Routine
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.winograd_gradient import CHANNELS
from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.layouts import LINE, PANEL_BYTES, POINTS, TAPS, Windows, tile_size
from weft_compiler.routines.conv2d import (
    CONV_LIBRARY,
    WindowRoutine,
    convolve,
    convolve_by_filter,
    filter_spans,
    windows_error,
)
from weft_compiler.routines.operands import span_error, type_error
from weft_tensor.dtypes import DType


def geometry_error(windows: Windows, size: int) -> str:
    """Return why Winograd's algorithm cannot compute a convolution, or "".

    Args:
      size: bytes of an element.
    """
    taps = windows.taps_x
    strides = (windows.stride_y, windows.stride_x, windows.dilation_y, windows.dilation_x)
    if taps not in TAPS or windows.taps_y != taps or strides != (1, 1, 1, 1):
        return "taps of 3 or 5, and strides and dilations of 1, were required"
    if windows.channels % (LINE // size) or windows.depth % (LINE // size):
        return f"channels and depth of whole {LINE} bytes were required"
    return ""


def gradient_memory(windows: Windows, size: int) -> int:
    """Return the number of elements of the workspace of `winograd_gradient`."""
    columns = PANEL_BYTES // size
    depth = -(-windows.depth // columns) * columns
    return (POINTS**2 * depth + windows.taps_y * windows.taps_x * windows.depth) * windows.channels


def _point_matrix(taps: int) -> Any:
    """Return the matrix that transforms a filter to the points, divided by their differences."""
    powers = np.arange(taps)
    rows = [
        [1, *[0] * (taps - 1)],
        1.0**powers / 3,
        -((-1.0) ** powers) / 3,
        -16 / 15 * 0.5**powers,
        (-2.0) ** powers / 15,
        [*[0] * (taps - 1), 1],
    ]
    return np.array(rows)


def filter_points(w: Any) -> Any:
    """Transform packed filters, (panels, taps, taps, channels, columns), to the points.

    Returns: (panels, 6, 6, channels, columns), of the same type.
    """
    matrix = _point_matrix(w.shape[1])
    return np.einsum("yi,xj,pijco->pyxco", matrix, matrix, w, optimize=True).astype(w.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Winograd(WindowRoutine):
    """Convolves like `conv` with packed filters, by tiles of 4×4 (3×3) or 2×2 (5×5) results.

    It reads the filters w and also u, the transformed filters. The row is a multiple of the tile
    size.
    """

    x: Input
    w: Input
    u: Input
    y: Output
    _: KW_ONLY
    row: Expr

    routine: ClassVar[str] = "winograd"
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    library: ClassVar[Library | None] = CONV_LIBRARY

    def spans(self, size: int) -> Mapping[str, int]:
        columns = PANEL_BYTES // size
        depth = -(-self.depth // columns) * columns
        return {
            "x": self.num_elements,
            "w": depth * self.window_size,
            "y": self.num_results,
            "u": depth * POINTS**2 * self.channels,
        }

    def error(self, views: Views) -> str:
        size = views["x"][0].size
        wrong = geometry_error(self, size) or type_error(views) or windows_error(self)
        return wrong or span_error(views, self.spans(size))

    def reference(self, x: Any, w: Any, u: Any, y: Any, row: int) -> None:
        """Compute the convolution directly; `u` is not used, because it is `filter_points` of w."""
        convolve(self, x, w, y, row, is_packed=True)

    def split(self) -> ParallelSplit:
        return split_windows(self, result=3, unit=tile_size(self.taps_y))

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return conv.winograd_workspace(dtype, target, self)


@dataclass(frozen=True, slots=True, eq=False)
class WinogradGradient(WindowRoutine):
    """Computes the gradient like `conv_filter`, except that y is (taps, taps, channels, depth).

    Its workspace m has `gradient_memory` elements.
    """

    x: Input
    g: Input
    m: Output
    y: Output

    routine: ClassVar[str] = "winograd_gradient"
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    library: ClassVar[Library | None] = CONV_LIBRARY
    is_split_by_places: ClassVar[bool] = True

    @property
    def num_places(self) -> int:
        return self.channels

    def spans(self, size: int) -> Mapping[str, int]:
        return {**filter_spans(self), "m": gradient_memory(self, size)}

    def error(self, views: Views) -> str:
        size = views["x"][0].size
        wrong = geometry_error(self, size) or type_error(views) or windows_error(self)
        return wrong or span_error(views, self.spans(size))

    def reference(self, x: Any, g: Any, m: Any, y: Any) -> None:
        """Compute the gradient directly, and fill m with zeros."""
        transposed = np.empty(self.depth * self.window_size, y.dtype)
        convolve_by_filter(self, x, g, transposed)
        y[: transposed.size] = transposed.reshape(self.depth, -1).T.reshape(-1)
        m[: gradient_memory(self, m.itemsize)] = 0

    def split(self) -> ParallelSplit:
        return ParallelSplit("", self.num_places, CHANNELS, {}, chunks=1)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return conv.gradient_workspace(dtype, target, self)


@dataclass(frozen=True, slots=True, eq=False)
class WinogradFilters(Routine):
    """Transforms packed filters, (panels, taps, taps, channels, columns), to the points."""

    w: Input
    u: Output
    _: KW_ONLY
    panels: int
    channels: int
    taps: int

    routine: ClassVar[str] = "winograd_filters"
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    library: ClassVar[Library | None] = CONV_LIBRARY

    @property
    def work(self) -> int:
        return self.panels * self.channels * POINTS**2

    def spans(self, size: int) -> Mapping[str, int]:
        count = self.panels * self.channels * PANEL_BYTES // size
        return {"w": self.taps**2 * count, "u": POINTS**2 * count}

    def error(self, views: Views) -> str:
        if min(value for _, value in self.parameters) < 0:
            return type_error(views) or "sizes of at least 0 were required"
        if self.taps not in TAPS:
            return type_error(views) or "taps of 3 or 5 were required"
        return type_error(views) or span_error(views, self.spans(views["w"][0].size))

    def reference(self, w: Any, u: Any) -> None:
        shape = (self.panels, self.taps, self.taps, self.channels, PANEL_BYTES // w.itemsize)
        points = filter_points(w[: math.prod(shape)].reshape(shape)).reshape(-1)
        u[: points.size] = points
