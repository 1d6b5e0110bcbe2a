"""The routine `winograd_gradient`: gradients of 3×3 and 5×5 filters by Winograd's algorithm.

It is the transpose of `weft_compiler.codegen.winograd`:

    for tiles in blocks:
      for each tile: transform 6×6 elements of x, and its gradients of g
      for each of 36 points: sums += channels × tiles times tiles × depth
    transform 6×6 sums to results

If a result is not finite, its group of channels is computed by `conv_filter`. Each thread processes
several groups, and the groups do not depend on the number of threads.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from weft_compiler.codegen.tiles import Shape, TransposedKernel, symbol
from weft_compiler.codegen.winograd import APART, ROWS, SQUARE, TiledRoutine, dispatch_by_taps
from weft_compiler.layouts import LINE, PANEL_BYTES, POINTS, TAPS, WINDOWS, Windows, tile_size

_TILES: Final = 64
"""Maximal number of tiles of a block. Larger blocks read and write the sums less often, but a block
should stay in the caches.
"""


def workspace(s: Shape, windows: Windows) -> int:
    """Return the size of a call's workspace in bytes: zeros, and a transformed block."""
    tile = tile_size(windows.taps_y)
    tall, wide = -(-windows.rows // tile), -(-windows.width // tile)
    count = min(_TILES, windows.images * tall * wide + ROWS)
    panel = PANEL_BYTES // s.dtype.size
    depth = -(-windows.depth // panel) * panel
    zeros, points = max(windows.channels, depth), count * (windows.channels + depth)
    return zeros * s.dtype.size + SQUARE * (points * s.dtype.size + 2 * APART)


def texts(s: Shape) -> list[str]:
    """Return the LLVM functions; they call `conv_filter` and `transpose` of the same module."""
    return [TransposedKernel(s).text(), *dispatch_by_taps(s, [_Gradient(s, taps) for taps in TAPS])]


CHANNELS: Final = 16
"""Channels of a group; each thread's part is a multiple of it."""


class _Gradient(TiledRoutine):
    """Writer of `winograd_gradient(x, g, m, y, numbers of WINDOWS, from, until)`."""

    name = "winograd_gradient"
    views = ("x", "g", "m", "y")
    numbers = (*WINDOWS, "from", "until")

    def __init__(self, s: Shape, taps: int) -> None:
        super().__init__(s, taps)
        self.line = LINE // s.dtype.size

    def write(self) -> None:
        w = self.w
        count = self.begin(_TILES)
        self._split_workspace()
        with w.iterate(count, self.max_tiles) as first:
            num_columns = w.emit_min(w.put(f"sub i64 {count}, {first}"), self.max_tiles)
            self._transform_inputs(first, num_columns)
            self._transform_gradients(first, num_columns)
            self._multiply_points(num_columns, w.put(f"icmp sgt i64 {first}, 0"))
        with w.iterate("%until", CHANNELS, low="%from") as first:
            last = w.emit_min(w.put(f"add nsw i64 {first}, {CHANNELS}"), "%until")
            self.note("zeroinitializer")
            self._interpolate_results(first, last)
            with w.emit_if(self.is_bad()):
                self._compute_directly(first, last)

    def _split_workspace(self) -> None:
        """Return the parts of the workspace: zeros, x in panels of a cache line, and g in panels.

        Rows of panels are tiles: (points, panels, tiles, columns).
        """
        w, s = self.w, self.s
        panels = w.put(f"udiv i64 {w.put(f'add i64 %depth, {self.panel - 1}')}, {self.panel}")
        self.columns = w.put(f"mul nsw i64 {panels}, {self.panel}")
        larger = w.put(f"call i64 @llvm.smax.i64(i64 %channels, i64 {self.columns})")
        self.zeros(larger)
        self.transformed_x = w.offset_address("%workspace", s.scalar, larger)
        channels = w.put("sub i64 %until, %from")
        self.point = self.point_stride(w.put(f"mul nsw i64 {self.max_tiles}, {channels}"))
        block = w.put(f"mul nsw i64 {self.point}, {SQUARE}")
        self.transformed_gradient = w.offset_address(self.transformed_x, s.scalar, block)
        self.turned_point = self.point_stride(
            w.put(f"mul nsw i64 {self.max_tiles}, {self.columns}")
        )
        self.sums_point = w.put(f"mul nsw i64 %channels, {self.columns}")

    def _transform_inputs(self, first: str, num_columns: str) -> None:
        """Transform the elements of tiles, for the requested channels."""
        w, s, v = self.w, self.s, self.v
        with w.iterate(num_columns) as t:
            patch = self.patch(w.put(f"add nsw i64 {first}, {t}"), POINTS, "%x")
            with w.iterate("%until", s.lanes, low="%from") as c:
                square = v.square(self.load_channels(patch, c), v.inputs)
                own_base = w.put(f"sub i64 {c}, %from")
                position = self._panel_address(self.transformed_x, own_base, t, self.line)
                self.store(square, position, self.point)

    def _transform_gradients(self, first: str, num_columns: str) -> None:
        """Transform the gradients of tiles."""
        w, s, v = self.w, self.s, self.v
        with w.iterate(num_columns) as t:
            patch = self.patch(w.put(f"add nsw i64 {first}, {t}"), self.tile, "%g")
            with w.iterate("%depth", s.lanes) as c:
                square = v.square(self.load_channels(patch, c), v.gradients)
                position = self._panel_address(self.transformed_gradient, c, t, self.panel)
                self.store(square, position, self.turned_point)

    def _panel_address(self, start: str, column: str, tile: str, columns: int) -> str:
        """Return the address of a column of a tile, in panels of `columns`."""
        w = self.w
        panel = w.put(f"mul nsw i64 {w.put(f'and i64 {column}, {-columns}')}, {self.max_tiles}")
        row = w.put(f"mul nsw i64 {tile}, {columns}")
        return w.offset_address(
            start, self.s.scalar, panel, row, w.put(f"and i64 {column}, {columns - 1}")
        )

    def _multiply_points(self, num_columns: str, add: str) -> None:
        """Compute the sums of all points; columns beyond the last are not used."""
        w, s = self.w, self.s
        kernel = TransposedKernel(s)
        with w.iterate(str(SQUARE)) as point:
            address = w.offset_address(
                self.transformed_x, s.scalar, w.put(f"mul nsw i64 {point}, {self.point}")
            )
            transposed = w.offset_address(
                self.transformed_gradient,
                s.scalar,
                w.put(f"mul nsw i64 {point}, {self.turned_point}"),
            )
            sums = w.offset_address(
                "%m", s.scalar, w.put(f"mul nsw i64 {point}, {self.sums_point}")
            )
            with (
                w.iterate(self.columns, s.width) as j,
                w.iterate("%until", kernel.rows, low="%from") as c,
            ):
                a = self._panel_address(address, w.put(f"sub i64 {c}, %from"), "0", self.line)
                b = self._panel_address(transposed, j, "0", self.panel)
                row = w.put(f"mul nsw i64 {c}, {self.columns}")
                w.do(
                    f"call void @{kernel.name}(ptr {a}, ptr {b}, i64 {self.panel}, i64 "
                    f"{num_columns}, "
                    f"ptr {w.offset_address(sums, s.scalar, row, j)}, i64 {self.columns}, i64 "
                    f"{s.width}, "
                    f"i1 {add}, ptr {b}, i64 0)"
                )

    def _interpolate_results(self, first: str, last: str) -> None:
        """Transform sums of channels to gradients of filters, (taps, taps, channels, depth)."""
        w, s, v = self.w, self.s, self.v
        tap = w.put("mul nsw i64 %channels, %depth")
        with w.iterate(last, low=first) as c, w.iterate("%depth", s.lanes) as o:
            address = w.offset_address("%m", s.scalar, w.put(f"mul nsw i64 {c}, {self.columns}"), o)
            points = [
                v.load(address, w.put(f"mul nsw i64 {self.sums_point}, {point}"))
                for point in range(SQUARE)
            ]
            square = [points[i : i + POINTS] for i in range(0, SQUARE, POINTS)]
            start, bad = w.put(f"mul nsw i64 {c}, %depth"), self.load_stored()
            taps = partial(v.taps, count=self.taps)
            result = [value for row in v.square(square, taps) for value in row]
            for k, value in enumerate(result):
                v.store(value, "%y", w.put(f"mul nsw i64 {tap}, {k}"), start, o)
                bad = v.plus(bad, value, 0.0)
            self.note(bad)

    def _compute_directly(self, channel: str, end: str) -> None:
        """Compute channels by `conv_filter`; its result (depth, places) is after the sums."""
        w, s = self.w, self.s
        scratch = w.offset_address(
            "%m", s.scalar, w.put(f"mul nsw i64 {self.sums_point}, {SQUARE}")
        )
        indices = w.put(f"mul nsw i64 %channels, {self.taps**2}")
        count = w.put(f"sub i64 {end}, {channel}")
        arguments = ", ".join(f"i64 %{name}" for name in WINDOWS)
        with w.iterate(str(self.taps**2)) as tap:
            first = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {tap}, %channels')}, {channel}")
            last = w.put(f"add nsw i64 {first}, {count}")
            w.do(
                f"call void @{symbol('conv_filter', s.dtype)}(ptr %x, ptr %g, ptr {scratch}, "
                f"{arguments}, i64 0, i64 {first}, i64 {last}, ptr %workspace)"
            )
            target = w.offset_address("%y", s.scalar, w.put(f"mul nsw i64 {first}, %depth"))
            w.do(
                f"call void @{symbol('transpose', s.dtype)}(ptr "
                f"{w.offset_address(scratch, s.scalar, first)}, "
                f"ptr {target}, i64 %depth, i64 {count}, i64 {indices}, i64 %depth, ptr null)"
            )
