"""The routines `conv`, `conv_filter` and `transpose`: implicit-GEMM convolution.

    conv: y, windows × depth = windows of x × w

    for windows, several tiles at a time:
      for blocks of KC elements of a window:
        gather that part of these windows     # stays in the L2 cache
        for columns in tiles:
          copy that panel of w, unless it is packed, so that it stays in the L1 cache
          for windows in tiles:
            kernel: y tile = or += windows times panel of w

    conv_filter: y, depth × places = the transpose of g, windows × depth, times windows of x

    for blocks of NC elements of a window, in [`from`, `until`):
      for windows in blocks of KC:
        gather that part of these windows     # unless they are pixels
        for rows of y in tiles:
          copy their columns of g
          for columns in tiles:
            kernel: y tile = or += columns of g times columns of windows

    transpose: y = the transpose of x

Windows are gathered by `weft_compiler.codegen.gather`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from weft_compiler.codegen import transpose, winograd, winograd_gradient
from weft_compiler.codegen.gather import Gather, emit_pixel_test, lanes_of
from weft_compiler.codegen.skinny_gemm import (
    LARGE,
    MANY,
    Panel,
    emit_large_test,
    emit_panel_address,
    emit_panel_tiles,
    memory,
)
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tile_kernels import select_kernel
from weft_compiler.codegen.tiles import (
    Shape,
    iterate_tiles,
    module,
    shape_of,
    symbol,
    texts,
)
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import PANEL_BYTES, WINDOWS, Windows
from weft_tensor.dtypes import DType

_PARAMETERS: Final = {
    "conv": (*WINDOWS, "packed", "row"),
    "conv_filter": (*WINDOWS, "accumulate", "from", "until"),
    "transpose": ("rows", "columns", "x_row", "y_row"),
}
_NARROW: Final = 256
"""Maximum number of bytes of a window for which several tiles are gathered per call."""
_AT_ONCE: Final = 8
_PAD: Final = 16
"""Padding between gathered windows, in elements; spreads a column over all cache sets."""


def conv_workspace(dtype: DType, target: Target, windows: Windows) -> int:
    """Return the workspace of `conv`, in bytes."""
    s, window_size = shape_of(dtype, target), windows.window_size
    at_once = min(_tiles_per_gather(windows, dtype.size), -(-windows.num_windows // s.rows[0]))
    return memory(s, at_once * s.rows[0], window_size)


def filter_workspace(dtype: DType, target: Target, windows: Windows) -> int:
    """Return the workspace of `conv_filter`, in bytes."""
    s = shape_of(dtype, target)
    return s.panel_bytes + s.depth * (min(s.columns, windows.window_size) + _PAD) * dtype.size


def winograd_workspace(dtype: DType, target: Target, windows: Windows) -> int:
    """Return the workspace of `winograd`, in bytes; it calls `conv` if a result is not finite."""
    own_bytes = winograd.workspace(shape_of(dtype, target), windows)
    return max(conv_workspace(dtype, target, windows), own_bytes)


def gradient_workspace(dtype: DType, target: Target, windows: Windows) -> int:
    """Return the workspace of `winograd_gradient`, in bytes; it may call `conv_filter`."""
    own_bytes = winograd_gradient.workspace(shape_of(dtype, target), windows)
    return max(own_bytes, filter_workspace(dtype, target, windows))


def _tiles_per_gather(windows: Windows, size: int) -> int:
    """Return the number of tiles whose windows `conv` gathers together."""
    window_size = windows.window_size
    if window_size * windows.depth * size > LARGE:
        return MANY
    return _AT_ONCE if window_size * size <= _NARROW else 1


def module_text(dtype: DType, target: Target) -> str:
    """Return the LLVM module that defines the convolution routines."""
    s = shape_of(dtype, target)
    gather = Gather(s.scalar, lanes_of(s.lanes), may_overrun=s.lanes <= _PAD)
    transpose_text = [transpose.text(dtype, s.lanes), _Transpose(s).text()]
    routines = [_Forward(s).text(), _ByFilter(s).text(), *transpose_text]
    fewer = [*winograd.texts(s), *winograd_gradient.texts(s)]
    return module(target, *texts(s), gather.text(), *routines, *fewer)


class _Driver(ABC):
    """Base of the writers of `conv` and `conv_filter`: loops over blocks, and the calls inside."""

    routine = ""
    views = ""

    def __init__(self, s: Shape) -> None:
        self.s = s
        self.w = Loops()

    def text(self) -> str:
        """Return the LLVM function of the routine."""
        w = self.w
        windows = w.put("mul nsw i64 %rows, %width")
        self.windows = w.put(f"mul nsw i64 %images, {windows}")
        taps = w.put("mul nsw i64 %taps_y, %taps_x")
        self.places = w.put(f"mul nsw i64 {taps}, %channels")
        self.write()
        w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in _PARAMETERS[self.routine])
        head = f"define void @{symbol(self.routine, self.s.dtype)}({self.views}, {numbers}"
        lines = "\n".join(w.lines)
        return f"{head}, ptr noalias %workspace) #0 {{\nentry:\n{lines}\n}}\n"

    @abstractmethod
    def write(self) -> None:
        """Emit the body."""

    def gather(self, y: str, *numbers: str) -> None:
        """Emit a call of `gather`, with the numbers of GATHERED as operands."""
        arguments = ", ".join(f"i64 {x}" for x in (*(f"%{name}" for name in WINDOWS), *numbers))
        self.w.do(f"call void @weft.gather(ptr %x, ptr {y}, {arguments})")

    def kernel(
        self,
        a: str,
        kernel_rows: str,
        num_columns: str,
        panel: tuple[str, str],
        depth: str,
        c: tuple[str, str, str],
    ) -> None:
        """Emit a call of the kernel for a tile.

        Args:
          a: the rows of the tile.
          panel: the panel and its row stride.
          c: the result, its row stride, and the condition to accumulate.
        """
        result = select_kernel(self.w, self.s, kernel_rows, num_columns)
        (b, b_row), (address, c_row, add) = panel, c
        self.w.do(
            f"call void {result}(ptr {a}, ptr {b}, i64 {b_row}, i64 {depth}, "
            f"ptr {address}, i64 {c_row}, i64 {num_columns}, i1 {add}, ptr {b}, i64 0)"
        )


class _Forward(_Driver):
    routine = "conv"
    views = "ptr noalias %x, ptr noalias %w, ptr noalias %y"

    def write(self) -> None:
        w, s = self.w, self.s
        packed = w.put("icmp ne i64 %packed, 0")
        stride = w.select(packed, "i64", str(PANEL_BYTES // s.dtype.size), "%depth")
        large, maximum = self._select_gather_size()
        with w.iterate(self.windows, maximum) as first:
            count = w.emit_min(w.put(f"sub i64 {self.windows}, {first}"), maximum)
            panel_copy, copies = emit_panel_address(w, s, count)
            copies = w.put(f"and i1 {copies}, {w.put(f'xor i1 {packed}, true')}")
            asks = w.put(f"or i1 {large}, {w.put(f'icmp eq i64 {first}, 0')}")
            requested = w.select(asks, "i64", stride, "0")
            with w.iterate(self.places, s.depth) as pc:
                depth = w.emit_min(w.put(f"sub i64 {self.places}, {pc}"), str(s.depth))
                self.gather("%workspace", first, count, pc, depth, str(s.row), "%row")
                # The first block of a window stores its results, so y need not be zeroed.
                add = w.put(f"icmp sgt i64 {pc}, 0")
                with w.iterate("%depth", s.width) as j:
                    b, num_columns = (
                        self._panel_address(packed, stride, pc, j),
                        w.put(f"sub i64 %depth, {j}"),
                    )
                    following = self._next_panel(packed, stride, pc, depth, j)
                    panel = Panel(b, stride, depth, num_columns, following, requested)
                    row = w.put(f"mul nsw i64 {first}, %depth")
                    c = (w.offset_address("%y", s.scalar, row, j), "%depth", add)
                    emit_panel_tiles(w, s, panel, panel_copy, copies, count, self.windows, c)

    def _select_gather_size(self) -> tuple[str, str]:
        """Emit a test for large filters, and the number of windows to gather together."""
        w, s, size = self.w, self.s, self.s.dtype.size
        narrow = w.put(f"icmp sle i64 {self.places}, {_NARROW // size}")
        gather_size = w.select(narrow, "i64", str(_AT_ONCE * s.rows[0]), str(s.rows[0]))
        large = emit_large_test(w, s, self.places, "%depth")
        return large, w.select(large, "i64", str(MANY * s.rows[0]), gather_size)

    def _panel_address(self, packed: str, stride: str, pc: str, j: str) -> str:
        """Return the address of the filters from an element of the windows and a column onwards."""
        w, s = self.w, self.s
        # Panels are one or two tiles wide: as wide as the widest registers.
        offset = w.put(f"and i64 {j}, {-(PANEL_BYTES // s.dtype.size)}")
        offset = w.select(packed, "i64", offset, "0")
        start = w.put(f"mul nsw i64 {offset}, {self.places}")
        remainder = w.put(f"mul nsw i64 {pc}, {stride}")
        return w.offset_address("%w", s.scalar, start, remainder, w.put(f"sub i64 {j}, {offset}"))

    def _next_panel(self, packed: str, stride: str, pc: str, depth: str, j: str) -> str:
        """Return the address of the next panel, for prefetching."""
        w = self.w
        column = w.put(f"add nsw i64 {j}, {self.s.width}")
        last = w.put(f"icmp sge i64 {column}, %depth")
        address = w.select(last, "i64", w.put(f"add nsw i64 {pc}, {depth}"), pc)
        return self._panel_address(packed, stride, address, w.select(last, "i64", "0", column))


class _ByFilter(_Driver):
    routine = "conv_filter"
    views = "ptr noalias %x, ptr noalias %g, ptr noalias %y"

    def write(self) -> None:
        w, s = self.w, self.s
        w.do(f"%gathered = getelementptr i8, ptr %workspace, i64 {s.panel_bytes}")
        # Blocks are about equal in size: copying g does not pay for a narrow one.
        extent = w.put("sub i64 %until, %from")
        blocks = w.put(f"add nsw i64 {extent}, {s.columns - 1}")
        blocks = w.put(f"udiv i64 {blocks}, {s.columns}")
        maximum = w.put(f"sub i64 {w.put(f'add nsw i64 {extent}, {blocks}')}, 1")
        maximum = w.put(f"add i64 {w.put(f'udiv i64 {maximum}, {blocks}')}, {s.width - 1}")
        maximum = w.emit_min(w.put(f"and i64 {maximum}, {-s.width}"), extent)
        stride = w.put(f"add nsw i64 {maximum}, {_PAD}")
        accumulates = w.put("icmp ne i64 %accumulate, 0")
        pixels = emit_pixel_test(w, "0")  # these are read in place
        gathered = w.put(f"xor i1 {pixels}, true")
        b_row = w.select(pixels, "i64", "%channels", stride)
        with w.iterate("%until", maximum, low="%from") as jc:
            columns = w.emit_min(w.put(f"sub i64 %until, {jc}"), maximum)
            with w.iterate(self.windows, s.depth) as pc:
                depth = w.emit_min(w.put(f"sub i64 {self.windows}, {pc}"), str(s.depth))
                add = w.put(f"or i1 {accumulates}, {w.put(f'icmp sgt i64 {pc}, 0')}")
                with w.emit_if(gathered):
                    self.gather("%gathered", pc, depth, jc, columns, stride, "0")
                extent = w.offset_address("%x", s.scalar, w.put(f"mul nsw i64 {pc}, %channels"), jc)
                b = w.select(pixels, "ptr", extent, "%gathered")
                with iterate_tiles(w, s, "%depth") as (i, rows, kernel_rows):
                    start = w.offset_address("%g", s.scalar, w.put(f"mul nsw i64 {pc}, %depth"), i)
                    # Columns of g become contiguous rows, which the product kernels require.
                    transpose.call(w, start, "%workspace", depth, rows, "%depth", str(s.row))
                    row = w.offset_address(
                        "%y", s.scalar, w.put(f"mul nsw i64 {i}, {self.places}"), jc
                    )
                    with w.iterate(columns, s.width) as j:
                        num_columns = w.put(f"sub i64 {columns}, {j}")
                        c = (w.offset_address(row, s.scalar, j), self.places, add)
                        panel = (w.offset_address(b, s.scalar, j), b_row)
                        self.kernel("%workspace", kernel_rows, num_columns, panel, depth, c)


class _Transpose:
    """Writer of `transpose(x, y, rows, columns, x_row, y_row)`; it does not use its workspace."""

    def __init__(self, s: Shape) -> None:
        self.s = s
        self.w = Loops()

    def text(self) -> str:
        w = self.w
        transpose.call(w, "%x", "%y", *[f"%{name}" for name in _PARAMETERS["transpose"]])
        w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in _PARAMETERS["transpose"])
        head = f"define void @{symbol('transpose', self.s.dtype)}(ptr noalias %x, ptr noalias %y"
        lines = "\n".join(w.lines)
        return f"{head}, {numbers}, ptr %workspace) #0 {{\nentry:\n{lines}\n}}\n"
