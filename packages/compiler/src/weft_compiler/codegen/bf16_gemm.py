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
from weft_compiler.codegen.vnni_gemm import Driver, GroupGather, function, own_bytes
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


def _turned_bytes(s: PairShape) -> int:
    """Return the size of packed rows plus that of transposed rows before conversion, in bytes."""
    narrow = 0 if s.copied == "i16" else (s.most_rows * s.depth + s.lanes) * s.dtype.size
    return _packed_bytes(s) + -(-narrow // LINE) * LINE


def conv_workspace(target: Target) -> int:
    """Return the workspace of `conv_pairs`, in bytes."""
    return own_bytes(pair_shape(target))


def matmul_workspace(target: Target) -> int:
    """Return the workspace of `matmul_pairs`, in bytes."""
    return conv_workspace(target) + _turned_bytes(pair_shape(target))


def filter_workspace(target: Target, of: Windows) -> int:
    """Return the workspace of `conv_filter_pairs`, in bytes."""
    s = pair_shape(target)
    columns = min(s.columns, -(-of.window_size // PANEL) * PANEL)
    gathered = _depth(s) * (2 * columns + _PAD) * dtypes.bfloat16.size
    return matmul_workspace(target) + gathered


def module_text(dtype: DType, target: Target) -> str:
    """Return the LLVM module that defines the bfloat16 routines."""
    s = pair_shape(target)
    turn = transpose.text(dtypes.float32, s.lanes)
    gathers = [_Pairs(s).text(), *([] if s.copied == "i16" else [_Plain(s).text()])]
    packing = [_Panel().text(), _Pack().text()]
    routines = [_Matmul(s).text(), _Conv(s).text(), _ByFilter(s).text()]
    return module(target, *texts(s), turn, *gathers, *packing, *routines)


class _Pairs(GroupGather):
    """Writer of `gather` that converts bfloat16 to the format of the kernels."""

    def __init__(self, s: PairShape) -> None:
        super().__init__(s, "i16", s.lanes * PAIR if s.copied == "i16" else s.lanes)
        self.s = s

    @property
    def outside(self) -> str:
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
    def outside(self) -> str:
        return "0"


class _Driver(Driver):
    """Base of the routines' writers."""

    def __init__(self, s: PairShape) -> None:
        super().__init__(s)
        self.pairs = s
        self.turning = self.w.put(f"getelementptr i8, ptr %workspace, i64 {own_bytes(s)}")

    def routine(self, name: str) -> str:
        """Return the LLVM function of a routine."""
        return self.function(name, self.s.dtype, _VIEWS[name], _PARAMETERS[name])

    def turn_rows(self, start: str, apart: str, of: str, rows: str, depth: str) -> None:
        """Copy rows with element stride `of`: pack them as columns, then transpose."""
        w, s = self.w, self.pairs
        _pack(w, start, of, apart, rows, depth, self.turning)
        groups = self.groups(depth)
        if s.copied == "i16":
            transpose.call(
                w, self.turning, "%workspace", groups, rows, str(PANEL), str(s.row // PAIR)
            )
        else:
            size = _packed_bytes(s)
            narrow = w.at(self.turning, "i8", str(size))
            transpose.call(w, self.turning, narrow, groups, rows, str(PANEL), str(s.depth // PAIR))
            self._widen(narrow, rows, w.put(f"shl i64 {groups}, 1"))
        self.end_rows(rows, depth)

    def _widen(self, narrow: str, rows: str, depth: str) -> None:
        w, s = self.w, self.pairs
        with w.each(rows) as i:
            source = w.at(narrow, "i16", w.put(f"mul nsw i64 {i}, {s.depth}"))
            place = w.at("%workspace", "float", w.put(f"mul nsw i64 {i}, {s.row}"))
            with w.each(depth, s.lanes, note=", !llvm.loop !0") as p:
                x = w.put(f"load <{s.lanes} x i16>, ptr {w.at(source, 'i16', p)}, align 2")
                x = s.as_copied(w, x, s.lanes)
                w.do(f"store <{s.lanes} x float> {x}, ptr {w.at(place, 'float', p)}, align 4")


class _Matmul(_Driver):
    def text(self) -> str:
        self.multiply(("%m", "%n", "%k"), ("%b", "%c"), "%c_row", self._copy)
        return self.routine("matmul_pairs")

    def _copy(self, i: str, rows: str, pc: str, depth: str) -> None:
        w = self.w
        first, column = w.put(f"mul nsw i64 {i}, %a_row"), w.put(f"mul nsw i64 {pc}, %a_column")
        start = w.at("%a", "i16", first, column)
        dense, turned, done = w.label(), w.label(), w.label()
        w.branch(w.put("icmp eq i64 %a_column, 1"), dense, turned)
        w.begin(dense)
        self.copy_rows(start, "%a_row", rows, depth)
        w.go(done)
        w.begin(turned)
        self.turn_rows(start, "%a_row", "%a_column", rows, depth)
        w.go(done)
        w.begin(done)


class _Conv(_Driver):
    def text(self) -> str:
        windows, places = self.counts()
        self.multiply((windows, "%depth", places), ("%w", "%y"), "%depth", self.copy_windows)
        return self.routine("conv_pairs")


class _ByFilter(_Driver):
    def text(self) -> str:
        w, s = self.w, self.pairs
        windows, places = self.counts()
        given = w.put("icmp ne i64 %accumulate, 0")
        there = w.put("sub i64 %until, %from")
        most = w.least(there, str(s.columns))
        apart = w.put(f"add nsw i64 {most}, {_PAD}")
        gathered = w.at(self.turning, "i8", str(_turned_bytes(s)))
        panels = w.at(gathered, "i16", w.put(f"mul nsw i64 {apart}, {_depth(s)}"))
        with w.each("%until", s.columns, low="%from") as jc:
            columns = w.least(w.put(f"sub i64 %until, {jc}"), str(s.columns))
            with w.each(windows, _depth(s)) as pc:
                depth = w.least(w.put(f"sub i64 {windows}, {pc}"), str(_depth(s)))
                add = w.put(f"or i1 {given}, {w.put(f'icmp sgt i64 {pc}, 0')}")
                of = {name: f"%{name}" for name in WINDOWS}
                of |= dict(zip(GATHERED, (pc, depth, jc, columns, apart, "0"), strict=True))
                self.gather("%x", of, "", gathered, plain=s.copied != "i16")
                groups = self.groups(depth)
                with w.each(columns, PANEL) as j:
                    size = w.put(f"mul nsw i64 {j}, {PANEL_BYTES // PANEL}")
                    place = w.at(panels, "i8", w.put(f"mul nsw i64 {size}, {groups}"))
                    here = w.least(w.put(f"sub i64 {columns}, {j}"), str(PANEL))
                    _pack(w, w.at(gathered, "i16", j), apart, "1", here, depth, place)
                with self.rows("%depth") as (i, rows, wanted):
                    start = w.at("%g", "i16", w.put(f"mul nsw i64 {pc}, %depth"), i)
                    self.turn_rows(start, "1", "%depth", rows, depth)
                    place = w.at("%y", "float", w.put(f"mul nsw i64 {i}, {places}"), jc)
                    left = (wanted, w.put(f"sub i64 %depth, {i}"))
                    block = ("0", columns, panels, groups)
                    self.columns(left, block, columns, depth, (place, places, add))
        return self.routine("conv_filter_pairs")


# ---------------------------------------------------------------------------- packing


def _pack(w: Loops, b: str, row: str, column: str, columns: str, k: str, panel: str) -> None:
    """Emit a call of `panel`."""
    numbers = ", ".join(f"i64 {each}" for each in (row, column, columns, k))
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
        with w.when(w.put(f"icmp slt i64 %columns, {PANEL}")):
            size = w.put(f"mul nsw i64 {groups}, {PANEL_BYTES}")
            w.do(f"call void @llvm.memset.p0.i64(ptr %panel, i8 0, i64 {size}, i1 false)")
        # Pairs are transposed as 32-bit words, which must be aligned.
        place = w.put(f"or i64 {w.put('ptrtoint ptr %b to i64')}, {w.put('shl i64 %column, 1')}")
        words = w.put(f"icmp eq i64 {w.put(f'and i64 {place}, 3')}, 0")
        turns = w.put(f"and i1 {words}, {w.put('icmp eq i64 %row, 1')}")
        dense, other, turned, apart, done = (w.label() for _ in range(5))
        w.branch(w.put("icmp eq i64 %column, 1"), dense, other)
        w.begin(dense)
        self._dense()
        w.go(done)
        w.begin(other)
        w.branch(turns, turned, apart)
        w.begin(turned)
        whole = w.put("lshr i64 %k, 1")
        words = w.put("lshr i64 %column, 1")
        transpose.call(w, "%b", "%panel", "%columns", whole, words, str(PANEL))
        self._each(w.put("and i64 %k, -2"))
        w.go(done)
        w.begin(apart)
        self._each("0")
        w.go(done)
        w.begin(done)
        w.do("ret void")
        lines = "\n".join(w.lines)
        numbers = ", ".join(f"i64 %{name}" for name in ("row", "column", "columns", "k"))
        head = f"define internal void @weft.panel(ptr noalias %b, {numbers}, ptr noalias %panel)"
        return f"{head} noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _dense(self) -> None:
        """Pack two contiguous rows: all 32 columns together, or four."""
        w = self.w
        even = w.put("and i64 %k, -2")
        for low, high, count in (("0", even, PAIR), (even, "%k", 1)):
            with w.each(high, PAIR, low=low, note=", !llvm.loop !0") as p:
                start = w.at("%b", "i16", w.put(f"mul nsw i64 {p}, %row"))
                rows = [start, w.at(start, "i16", "%row")][:count]
                place = w.at("%panel", "i16", w.put(f"mul nsw i64 {p}, {PANEL}"))
                whole, parts, done = w.label(), w.label(), w.label()
                w.branch(w.put(f"icmp eq i64 %columns, {PANEL}"), whole, parts)
                w.begin(whole)
                self._side_by_side(rows, place, PANEL)
                w.go(done)
                w.begin(parts)
                fours = w.put("and i64 %columns, -4")
                for lanes, first, last in ((4, "0", fours), (1, fours, "%columns")):
                    with w.each(last, lanes, low=first, note=", !llvm.loop !0") as j:
                        here = [w.at(row, "i16", j) for row in rows]
                        there = w.at(place, "i16", w.put(f"shl i64 {j}, 1"))
                        self._side_by_side(here, there, lanes)
                w.go(done)
                w.begin(done)

    def _side_by_side(self, rows: list[str], place: str, lanes: int) -> None:
        """Interleave the elements of one or two rows; a missing second row is zero."""
        w, kind = self.w, f"<{lanes} x i16>"
        found = [w.put(f"load {kind}, ptr {row}, align 2") for row in rows]
        both = (*found, "zeroinitializer")[:2]
        order = ", ".join(f"i32 {lane + half * lanes}" for lane in range(lanes) for half in (0, 1))
        x = w.put(
            f"shufflevector {kind} {both[0]}, {kind} {both[1]}, <{2 * lanes} x i32> <{order}>"
        )
        w.do(f"store <{2 * lanes} x i16> {x}, ptr {place}, align 2")

    def _each(self, first: str) -> None:
        """Emit element-by-element packing, starting at a row."""
        w = self.w
        with (
            w.when(w.put(f"icmp slt i64 {first}, %k")),
            w.when(w.put("icmp ne i64 " + w.put("and i64 %k, 1") + ", 0")),
        ):
            last = w.put(f"mul nsw i64 {w.put('sub nsw i64 %k, 1')}, {PANEL}")
            zeros = f"<{PAIR * PANEL} x i16> zeroinitializer"
            w.do(f"store {zeros}, ptr {w.at('%panel', 'i16', last)}, align 2")
        with w.each("%k", low=first, note=", !llvm.loop !0") as p:
            pair = w.put(f"mul nsw i64 {w.put(f'lshr i64 {p}, 1')}, {PAIR * PANEL}")
            odd = w.put(f"and i64 {p}, 1")
            with w.each("%columns", note=", !llvm.loop !0") as j:
                at = w.put(f"mul nsw i64 {p}, %row")
                source = w.at("%b", "i16", at, w.put(f"mul nsw i64 {j}, %column"))
                x = w.put(f"load i16, ptr {source}, align 2")
                place = w.at("%panel", "i16", pair, w.put(f"shl i64 {j}, 1"), odd)
                w.do(f"store i16 {x}, ptr {place}, align 2")


class _Pack:
    """Writer of `pack_pairs`, which packs one panel after another."""

    def text(self) -> str:
        w = Loops()
        groups = w.put(f"lshr i64 {w.put('add nsw i64 %k, 1')}, 1")
        # Several contiguous rows at a time, so that cache lines are read in sequence.
        dense = w.put("icmp eq i64 %b_column, 1")
        several = w.select(dense, "i64", str(_ROWS), "%k")
        with w.each("%k", several) as p, w.each("%n", PANEL) as j:
            size = w.put(f"mul nsw i64 {j}, {PANEL_BYTES // PANEL}")
            size = w.put(f"mul nsw i64 {size}, {groups}")
            done = w.put(f"mul nsw i64 {p}, {PANEL_BYTES // PAIR}")
            place = w.at("%panels", "i8", size, done)
            row, column = w.put(f"mul nsw i64 {p}, %b_row"), w.put(f"mul nsw i64 {j}, %b_column")
            start = w.at("%b", "i16", row, column)
            here = w.least(w.put(f"sub i64 %n, {j}"), str(PANEL))
            depth = w.least(w.put(f"sub i64 %k, {p}"), several)
            _pack(w, start, "%b_row", "%b_column", here, depth, place)
        views, numbers = _VIEWS["pack_pairs"], _PARAMETERS["pack_pairs"]
        return function("pack_pairs", dtypes.bfloat16, w, views, numbers)
