"""The routines `matmul_pairs`, `conv_pairs`, `conv_filter_pairs` and `pack_pairs`, of bfloat16.

Sums are float32.  The loops of the first two are in `weft_compiler.codegen.vnni_gemm`.

    conv_filter_pairs: y, depth × places = the transpose of g, windows × depth, times windows of x

    for blocks of NC elements of a window, in [`from`, `until`):
      for windows in blocks of KC:
        gather that part of these windows, and pack it
        for rows of y in tiles:
          copy their columns of g
          for columns in tiles:
            kernel: y tile = or += columns of g times panel
"""

from __future__ import annotations

from typing import Final

from weft_compiler.codegen import transpose
from weft_compiler.codegen.bf16_kernels import PairShape, pair_shape, texts
from weft_compiler.codegen.gather import GATHERED
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tiles import module
from weft_compiler.codegen.vnni_gemm import Driver, GroupGather, function, workspace_bytes
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import LINE, PAIR, PANEL, PANEL_BYTES, WINDOWS, Windows
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_PARAMETERS: Final = {
    "matmul_pairs": ("m", "n", "k", "a_row", "a_column", "c_row"),
    "conv_pairs": (*WINDOWS, "row"),
    "conv_filter_pairs": (*WINDOWS, "accumulate", "from", "until"),
    "pack_pairs": ("n", "k", "b_row", "b_column"),
}
_VIEWS: Final = {
    "matmul_pairs": ("a", "b", "c"),
    "conv_pairs": ("x", "w", "y"),
    "conv_filter_pairs": ("x", "g", "y"),
    "pack_pairs": ("b", "panels"),
}
_ROWS: Final = 16
"""Rows of a matrix that are packed together."""
_PAD: Final = 32
"""Padding between gathered windows, in elements; spreads a column over all cache sets."""


def _depth(s: PairShape) -> int:
    """Return the number of windows that the filter gradient gathers together."""
    return min(s.depth, 256)


def _packed_bytes(s: PairShape) -> int:
    """Return the size of a panel of packed rows before transposition, in bytes."""
    return s.depth // PAIR * PANEL_BYTES


def _transposed_bytes(s: PairShape) -> int:
    """Return the total size of packed rows and of transposed rows before conversion, in bytes."""
    narrow = 0 if s.copied == "i16" else (s.most_rows * s.depth + s.lanes) * s.dtype.size
    return _packed_bytes(s) + -(-narrow // LINE) * LINE


def conv_workspace(target: Target) -> int:
    """Return the workspace of `conv_pairs`, in bytes."""
    return workspace_bytes(pair_shape(target))


def matmul_workspace(target: Target) -> int:
    """Return the workspace of `matmul_pairs`, in bytes."""
    return conv_workspace(target) + _transposed_bytes(pair_shape(target))


def filter_workspace(target: Target, windows: Windows) -> int:
    """Return the workspace of `conv_filter_pairs`, in bytes."""
    s = pair_shape(target)
    columns = min(s.columns, -(-windows.window_size // PANEL) * PANEL)
    gathered = _depth(s) * (2 * columns + _PAD) * dtypes.bfloat16.size
    return matmul_workspace(target) + gathered


def module_text(dtype: DType, target: Target) -> str:
    """Return the LLVM module that defines the bfloat16 routines."""
    s = pair_shape(target)
    transpose_text = transpose.text(dtypes.float32, s.lanes)
    gathers = [_Pairs(s).text(), *([] if s.copied == "i16" else [_Plain(s).text()])]
    packing = [_Panel().text(), _Pack().text()]
    routines = [_Matmul(s).text(), _Conv(s).text(), _ByFilter(s).text()]
    return module(target, *texts(s), transpose_text, *gathers, *packing, *routines)


class _Pairs(GroupGather):
    """Writer of `gather` that converts bfloat16 to the format of the kernels."""

    def __init__(self, s: PairShape) -> None:
        super().__init__(s, "i16", s.lanes * PAIR if s.copied == "i16" else s.lanes)
        self.s = s

    @property
    def padding_value(self) -> str:
        return "0" if self.s.copied == "i16" else "0.0"

    def stored(self, x: str, lanes: int) -> str:
        return self.s.as_copied(self.w, x, lanes)


class _Plain(GroupGather):
    """Writer of `gather` that copies bfloat16 unchanged."""

    name = "weft.gather.plain"

    def __init__(self, s: PairShape) -> None:
        super().__init__(s, "i16", s.lanes)
        self.scalar = "i16"

    @property
    def padding_value(self) -> str:
        return "0"


class _Driver(Driver):
    """Base of the routines' writers."""

    def __init__(self, s: PairShape) -> None:
        super().__init__(s)
        self.pairs = s
        self.turning = self.w.put(f"getelementptr i8, ptr %workspace, i64 {workspace_bytes(s)}")

    def routine(self, name: str) -> str:
        """Return the LLVM function of a routine."""
        return self.function(name, self.s.dtype, _VIEWS[name], _PARAMETERS[name])

    def turn_rows(
        self, start: str, stride: str, element_stride: str, rows: str, depth: str
    ) -> None:
        """Copy rows with element stride `element_stride`: pack them as columns, then transpose."""
        w, s = self.w, self.pairs
        _pack(w, start, element_stride, stride, rows, depth, self.turning)
        groups = self.groups(depth)
        if s.copied == "i16":
            transpose.call(
                w, self.turning, "%workspace", groups, rows, str(PANEL), str(s.row // PAIR)
            )
        else:
            size = _packed_bytes(s)
            narrow = w.offset_address(self.turning, "i8", str(size))
            transpose.call(w, self.turning, narrow, groups, rows, str(PANEL), str(s.depth // PAIR))
            self._widen(narrow, rows, w.put(f"shl i64 {groups}, 1"))
        self.end_rows(rows, depth)

    def _widen(self, narrow: str, rows: str, depth: str) -> None:
        w, s = self.w, self.pairs
        with w.iterate(rows) as i:
            source = w.offset_address(narrow, "i16", w.put(f"mul nsw i64 {i}, {s.depth}"))
            address = w.offset_address("%workspace", "float", w.put(f"mul nsw i64 {i}, {s.row}"))
            with w.iterate(depth, s.lanes, note=", !llvm.loop !0") as p:
                x = w.put(
                    f"load <{s.lanes} x i16>, ptr {w.offset_address(source, 'i16', p)}, align 2"
                )
                x = s.as_copied(w, x, s.lanes)
                w.do(
                    f"store <{s.lanes} x float> {x}, ptr "
                    f"{w.offset_address(address, 'float', p)}, align 4"
                )


class _Matmul(_Driver):
    def text(self) -> str:
        self.multiply(("%m", "%n", "%k"), ("%b", "%c"), "%c_row", self._copy)
        return self.routine("matmul_pairs")

    def _copy(self, i: str, rows: str, pc: str, depth: str) -> None:
        w = self.w
        first, column = w.put(f"mul nsw i64 {i}, %a_row"), w.put(f"mul nsw i64 {pc}, %a_column")
        start = w.offset_address("%a", "i16", first, column)
        dense, transposed, end = w.label(), w.label(), w.label()
        w.branch(w.put("icmp eq i64 %a_column, 1"), dense, transposed)
        w.begin(dense)
        self.copy_rows(start, "%a_row", rows, depth)
        w.go(end)
        w.begin(transposed)
        self.turn_rows(start, "%a_row", "%a_column", rows, depth)
        w.go(end)
        w.begin(end)


class _Conv(_Driver):
    def text(self) -> str:
        windows, window_size = self.counts()
        self.multiply((windows, "%depth", window_size), ("%w", "%y"), "%depth", self.copy_windows)
        return self.routine("conv_pairs")


class _ByFilter(_Driver):
    def text(self) -> str:
        w, s = self.w, self.pairs
        windows, window_size = self.counts()
        accumulates = w.put("icmp ne i64 %accumulate, 0")
        extent = w.put("sub i64 %until, %from")
        maximum = w.emit_min(extent, str(s.columns))
        stride = w.put(f"add nsw i64 {maximum}, {_PAD}")
        gathered = w.offset_address(self.turning, "i8", str(_transposed_bytes(s)))
        panels = w.offset_address(gathered, "i16", w.put(f"mul nsw i64 {stride}, {_depth(s)}"))
        with w.iterate("%until", s.columns, low="%from") as jc:
            columns = w.emit_min(w.put(f"sub i64 %until, {jc}"), str(s.columns))
            with w.iterate(windows, _depth(s)) as pc:
                depth = w.emit_min(w.put(f"sub i64 {windows}, {pc}"), str(_depth(s)))
                add = w.put(f"or i1 {accumulates}, {w.put(f'icmp sgt i64 {pc}, 0')}")
                params = {name: f"%{name}" for name in WINDOWS}
                params |= dict(zip(GATHERED, (pc, depth, jc, columns, stride, "0"), strict=True))
                self.gather("%x", params, "", gathered, plain=s.copied != "i16")
                groups = self.groups(depth)
                with w.iterate(columns, PANEL) as j:
                    size = w.put(f"mul nsw i64 {j}, {PANEL_BYTES // PANEL}")
                    address = w.offset_address(panels, "i8", w.put(f"mul nsw i64 {size}, {groups}"))
                    num_columns = w.emit_min(w.put(f"sub i64 {columns}, {j}"), str(PANEL))
                    _pack(
                        w,
                        w.offset_address(gathered, "i16", j),
                        stride,
                        "1",
                        num_columns,
                        depth,
                        address,
                    )
                with self.rows("%depth") as (i, rows, kernel_rows):
                    start = w.offset_address("%g", "i16", w.put(f"mul nsw i64 {pc}, %depth"), i)
                    self.turn_rows(start, "1", "%depth", rows, depth)
                    address = w.offset_address(
                        "%y", "float", w.put(f"mul nsw i64 {i}, {window_size}"), jc
                    )
                    remaining_rows = (kernel_rows, w.put(f"sub i64 %depth, {i}"))
                    block = ("0", columns, panels, groups)
                    self.columns(remaining_rows, block, columns, depth, (address, window_size, add))
        return self.routine("conv_filter_pairs")


# ---------------------------------------------------------------------------- packing


def _pack(w: Loops, b: str, row: str, column: str, columns: str, k: str, panel: str) -> None:
    """Emit a call of `panel`."""
    numbers = ", ".join(f"i64 {number}" for number in (row, column, columns, k))
    w.do(f"call void @weft.panel(ptr {b}, {numbers}, ptr {panel})")


class _Panel:
    """`panel(b, row, column, columns, k, panel)`: packs up to 32 columns of k elements.

    Args of the function:
      row, column: strides between elements of a column, and of a row.
    """

    def __init__(self) -> None:
        self.w = Loops()

    def text(self) -> str:
        w = self.w
        groups = w.put(f"lshr i64 {w.put('add nsw i64 %k, 1')}, 1")
        with w.emit_if(w.put(f"icmp slt i64 %columns, {PANEL}")):
            size = w.put(f"mul nsw i64 {groups}, {PANEL_BYTES}")
            w.do(f"call void @llvm.memset.p0.i64(ptr %panel, i8 0, i64 {size}, i1 false)")
        # Pairs are transposed as 32-bit words, which must be aligned.
        address = w.put(f"or i64 {w.put('ptrtoint ptr %b to i64')}, {w.put('shl i64 %column, 1')}")
        words = w.put(f"icmp eq i64 {w.put(f'and i64 {address}, 3')}, 0")
        iterations = w.put(f"and i1 {words}, {w.put('icmp eq i64 %row, 1')}")
        dense, not_dense, transposed, strided, end = (w.label() for _ in range(5))
        w.branch(w.put("icmp eq i64 %column, 1"), dense, not_dense)
        w.begin(dense)
        self._pack_dense()
        w.go(end)
        w.begin(not_dense)
        w.branch(iterations, transposed, strided)
        w.begin(transposed)
        full_count = w.put("lshr i64 %k, 1")
        words = w.put("lshr i64 %column, 1")
        transpose.call(w, "%b", "%panel", "%columns", full_count, words, str(PANEL))
        self._pack_elements(w.put("and i64 %k, -2"))
        w.go(end)
        w.begin(strided)
        self._pack_elements("0")
        w.go(end)
        w.begin(end)
        w.do("ret void")
        lines = "\n".join(w.lines)
        numbers = ", ".join(f"i64 %{name}" for name in ("row", "column", "columns", "k"))
        head = f"define internal void @weft.panel(ptr noalias %b, {numbers}, ptr noalias %panel)"
        return f"{head} noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _pack_dense(self) -> None:
        """Pack two contiguous rows: all 32 columns together, or four."""
        w = self.w
        even = w.put("and i64 %k, -2")
        for low, high, count in (("0", even, PAIR), (even, "%k", 1)):
            with w.iterate(high, PAIR, low=low, note=", !llvm.loop !0") as p:
                start = w.offset_address("%b", "i16", w.put(f"mul nsw i64 {p}, %row"))
                rows = [start, w.offset_address(start, "i16", "%row")][:count]
                address = w.offset_address("%panel", "i16", w.put(f"mul nsw i64 {p}, {PANEL}"))
                full_panel, parts, end = w.label(), w.label(), w.label()
                w.branch(w.put(f"icmp eq i64 %columns, {PANEL}"), full_panel, parts)
                w.begin(full_panel)
                self._interleave(rows, address, PANEL)
                w.go(end)
                w.begin(parts)
                fours = w.put("and i64 %columns, -4")
                for lanes, first, last in ((4, "0", fours), (1, fours, "%columns")):
                    with w.iterate(last, lanes, low=first, note=", !llvm.loop !0") as j:
                        source_addresses = [w.offset_address(row, "i16", j) for row in rows]
                        target_address = w.offset_address(address, "i16", w.put(f"shl i64 {j}, 1"))
                        self._interleave(source_addresses, target_address, lanes)
                w.go(end)
                w.begin(end)

    def _interleave(self, rows: list[str], address: str, lanes: int) -> None:
        """Interleave the elements of one or two rows; a missing second row is zero."""
        w, kind = self.w, f"<{lanes} x i16>"
        result = [w.put(f"load {kind}, ptr {row}, align 2") for row in rows]
        halves = (*result, "zeroinitializer")[:2]
        order = ", ".join(f"i32 {lane + half * lanes}" for lane in range(lanes) for half in (0, 1))
        x = w.put(
            f"shufflevector {kind} {halves[0]}, {kind} {halves[1]}, <{2 * lanes} x i32> <{order}>"
        )
        w.do(f"store <{2 * lanes} x i16> {x}, ptr {address}, align 2")

    def _pack_elements(self, first: str) -> None:
        """Emit element-by-element packing, starting at a row."""
        w = self.w
        with (
            w.emit_if(w.put(f"icmp slt i64 {first}, %k")),
            w.emit_if(w.put("icmp ne i64 " + w.put("and i64 %k, 1") + ", 0")),
        ):
            last = w.put(f"mul nsw i64 {w.put('sub nsw i64 %k, 1')}, {PANEL}")
            zeros = f"<{PAIR * PANEL} x i16> zeroinitializer"
            w.do(f"store {zeros}, ptr {w.offset_address('%panel', 'i16', last)}, align 2")
        with w.iterate("%k", low=first, note=", !llvm.loop !0") as p:
            pair = w.put(f"mul nsw i64 {w.put(f'lshr i64 {p}, 1')}, {PAIR * PANEL}")
            odd = w.put(f"and i64 {p}, 1")
            with w.iterate("%columns", note=", !llvm.loop !0") as j:
                position = w.put(f"mul nsw i64 {p}, %row")
                source = w.offset_address("%b", "i16", position, w.put(f"mul nsw i64 {j}, %column"))
                x = w.put(f"load i16, ptr {source}, align 2")
                address = w.offset_address("%panel", "i16", pair, w.put(f"shl i64 {j}, 1"), odd)
                w.do(f"store i16 {x}, ptr {address}, align 2")


class _Pack:
    """Writer of `pack_pairs`, which packs one panel after another."""

    def text(self) -> str:
        w = Loops()
        groups = w.put(f"lshr i64 {w.put('add nsw i64 %k, 1')}, 1")
        # Several contiguous rows at a time, so that cache lines are read in sequence.
        dense = w.put("icmp eq i64 %b_column, 1")
        block_depth = w.select(dense, "i64", str(_ROWS), "%k")
        with w.iterate("%k", block_depth) as p, w.iterate("%n", PANEL) as j:
            size = w.put(f"mul nsw i64 {j}, {PANEL_BYTES // PANEL}")
            size = w.put(f"mul nsw i64 {size}, {groups}")
            offset = w.put(f"mul nsw i64 {p}, {PANEL_BYTES // PAIR}")
            address = w.offset_address("%panels", "i8", size, offset)
            row, column = w.put(f"mul nsw i64 {p}, %b_row"), w.put(f"mul nsw i64 {j}, %b_column")
            start = w.offset_address("%b", "i16", row, column)
            num_columns = w.emit_min(w.put(f"sub i64 %n, {j}"), str(PANEL))
            depth = w.emit_min(w.put(f"sub i64 %k, {p}"), block_depth)
            _pack(w, start, "%b_row", "%b_column", num_columns, depth, address)
        views, numbers = _VIEWS["pack_pairs"], _PARAMETERS["pack_pairs"]
        return function("pack_pairs", dtypes.bfloat16, w, views, numbers)
