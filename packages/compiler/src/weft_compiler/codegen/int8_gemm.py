"""The routines `matmul_bytes`, `conv_bytes` and `pack_bytes`: int8 products, exact in int32.

Loops are in `weft_compiler.codegen.vnni_gemm`, kernels in `weft_compiler.codegen.int8_kernels`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft_compiler.codegen.gather import GATHERED
from weft_compiler.codegen.int8_kernels import ByteShape, byte_shape, dot_of_rows, texts
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tile_kernels import FEW
from weft_compiler.codegen.tiles import module
from weft_compiler.codegen.vnni_gemm import Driver, GroupGather, function, workspace_bytes
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import FOUR, PANEL, PANEL_BYTES, WINDOWS
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_PARAMETERS: Final = {
    "matmul_bytes": ("m", "n", "k", "a_row", "c_row"),
    "conv_bytes": (*WINDOWS, "outside", "row"),
    "pack_bytes": ("n", "k", "b_row", "b_column"),
}
_VIEWS: Final = {
    "matmul_bytes": ("a", "b", "sums", "c"),
    "conv_bytes": ("x", "w", "sums", "y"),
    "pack_bytes": ("b", "panels", "sums"),
}


def workspace(dtype: DType, target: Target) -> int:
    """Return the workspace of a product, in bytes."""
    return workspace_bytes(byte_shape(dtype, target))


def module_text(dtype: DType, target: Target) -> str:
    """Return the LLVM module that defines the int8 routines."""
    s = byte_shape(dtype, target)
    routines = [_Conv(s).text(), _Pack(s.dtype).text()]
    if not s.in_tiles:
        return module(target, *texts(s), _Bytes(s).text(), _Matmul(s).text(), *routines)
    few_rows_shape = replace(s, dot=dot_of_rows(target))
    gathers = [_Bytes(s).text(), _Bytes(few_rows_shape, _FewRows.gathering).text()]
    products = [_Matmul(s).text(_MANY), _FewRows(few_rows_shape).text(_FEW), _selector(s.dtype)]
    return module(target, *texts(s), *texts(few_rows_shape), *gathers, *products, *routines)


_FEW, _MANY = "weft.few.rows", "weft.many.rows"


def _selector(dtype: DType) -> str:
    """Return the function that selects a variant of `matmul_bytes`: AMX except for few rows."""
    w, (views, numbers) = Loops(), _given("matmul_bytes")
    arguments = [f"ptr %{name}" for name in views] + [f"i64 %{name}" for name in numbers]
    has_few_rows = w.put(f"icmp sle i64 %m, {FEW}")
    name = w.select(has_few_rows, "ptr", f"@{_FEW}", f"@{_MANY}")
    w.do(f"call void {name}({', '.join(arguments)}, ptr %workspace)")
    return function("matmul_bytes", dtype, w, views, numbers)


class _Bytes(GroupGather):
    """Writer of `gather` that converts bytes to the format of the kernels."""

    numbers = (*WINDOWS, *GATHERED, "outside")

    def __init__(self, s: ByteShape, name: str = GroupGather.name) -> None:
        super().__init__(s, "i8", s.lanes * 4)
        self.s, self.name = s, name
        self._padding_value = s.as_copied(self.w, self.w.put("trunc i64 %outside to i8"))

    @property
    def padding_value(self) -> str:
        return self._padding_value

    def stored(self, x: str, lanes: int) -> str:
        return self.s.as_copied(self.w, x, lanes)


class _Matmul(Driver):
    extra, sums = "0", True

    def text(self, internal_name: str = "") -> str:
        """Return the LLVM function of the routine, or of one of its variants."""
        self.multiply(("%m", "%n", "%k"), ("%b", "%c"), "%c_row", self._copy)
        return self.function("matmul_bytes", self.s.dtype, *_given("matmul_bytes"), internal_name)

    def _copy(self, i: str, rows: str, pc: str, depth: str) -> None:
        start = self.w.offset_address("%a", "i8", self.w.put(f"mul nsw i64 {i}, %a_row"), pc)
        self.copy_rows(start, "%a_row", rows, depth)


class _FewRows(_Matmul):
    gathering = "weft.gather.few"


class _Conv(Driver):
    extra, sums = "%outside", True

    def text(self) -> str:
        windows, window_size = self.counts()
        self.multiply((windows, "%depth", window_size), ("%w", "%y"), "%depth", self.copy_windows)
        return self.function("conv_bytes", self.s.dtype, *_given("conv_bytes"))


def _given(routine: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return _VIEWS[routine], _PARAMETERS[routine]


class _Pack:
    """Writer of `pack_bytes`: packs four rows of 32 columns together and the rest one by one."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.w = Loops()

    def text(self) -> str:
        w = self.w
        fours = w.put("lshr i64 " + w.put(f"add nsw i64 %k, {FOUR - 1}") + ", 2")
        dense = w.put("icmp eq i64 %b_column, 1")
        with w.iterate("%n", PANEL) as j:
            columns = w.put(f"mul nsw i64 {j}, {FOUR}")
            panel = w.offset_address("%panels", "i8", w.put(f"mul nsw i64 {columns}, {fours}"))
            is_full = w.put(f"icmp sle i64 {w.put(f'add nsw i64 {j}, {PANEL}')}, %n")
            with w.iterate(str(PANEL)) as column:
                position = w.put(f"add nsw i64 {j}, {column}")
                w.do(f"store i32 0, ptr {w.offset_address('%sums', 'i32', position)}, align 4")
            with w.iterate(fours) as p:
                first = w.put(f"mul nsw i64 {p}, {FOUR}")
                fits = w.put(f"icmp sle i64 {w.put(f'add nsw i64 {first}, {FOUR}')}, %k")
                fits = w.put(f"and i1 {fits}, {w.put(f'and i1 {is_full}, {dense}')}")
                address = w.offset_address(panel, "i8", w.put(f"mul nsw i64 {p}, {PANEL_BYTES}"))
                fast, slow, end = w.label(), w.label(), w.label()
                w.branch(fits, fast, slow)
                w.begin(fast)
                self._pack_full_rows(first, j, address)
                w.go(end)
                w.begin(slow)
                self._pack_partial_rows(first, j, address)
                w.go(end)
                w.begin(end)
        return function("pack_bytes", self.dtype, w, *_given("pack_bytes"))

    def _to_signed(self, x: str, lanes: int = 0) -> str:
        """Convert bytes to signed ones; 128 is subtracted from unsigned bytes."""
        if self.dtype is dtypes.int8:
            return x
        kind = f"<{lanes} x i8>" if lanes else "i8"
        flip = f"<{', '.join(['i8 -128'] * lanes)}>" if lanes else "-128"
        return self.w.put(f"xor {kind} {x}, {flip}")

    def _pack_full_rows(self, first: str, j: str, address: str) -> None:
        """Pack four full rows of a panel."""
        w, kind, sums = self.w, f"<{PANEL} x i8>", f"<{PANEL} x i32>"
        start = w.offset_address("%b", "i8", w.put(f"mul nsw i64 {first}, %b_row"), j)
        rows = []
        total_at = w.offset_address("%sums", "i32", j)
        total = w.put(f"load {sums}, ptr {total_at}, align 4")
        for index in range(FOUR):
            source = w.offset_address(start, "i8", w.put(f"mul nsw i64 %b_row, {index}"))
            rows.append(self._to_signed(w.put(f"load {kind}, ptr {source}, align 1"), PANEL))
            total = w.put(f"add {sums} {total}, {w.put(f'sext {kind} {rows[-1]} to {sums}')}")
        w.do(f"store {sums} {total}, ptr {total_at}, align 4")
        pair, full_count = f"<{2 * PANEL} x i8>", f"<{FOUR * PANEL} x i8>"
        side = ", ".join(f"i32 {i}" for i in range(2 * PANEL))
        halves = [
            w.put(f"shufflevector {kind} {x}, {kind} {y}, <{2 * PANEL} x i32> <{side}>")
            for x, y in (rows[:2], rows[2:])
        ]
        lanes = ", ".join(f"i32 {row * PANEL + c}" for c in range(PANEL) for row in range(FOUR))
        result = w.put(
            f"shufflevector {pair} {halves[0]}, {pair} {halves[1]}, "
            f"<{FOUR * PANEL} x i32> <{lanes}>"
        )
        w.do(f"store {full_count} {result}, ptr {address}, align 1")

    def _pack_partial_rows(self, first: str, j: str, address: str) -> None:
        """Pack a group of up to four rows; those become zeros."""
        w = self.w
        remaining_rows = w.emit_min(w.put(f"sub i64 %k, {first}"), str(FOUR))
        columns = w.emit_min(w.put(f"sub i64 %n, {j}"), str(PANEL))
        w.do(f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {PANEL_BYTES}, i1 false)")
        with w.iterate(columns) as c:
            column = w.put(f"add nsw i64 {j}, {c}")
            source = w.offset_address("%b", "i8", w.put(f"mul nsw i64 {column}, %b_column"))
            target = w.offset_address(address, "i8", w.put(f"mul nsw i64 {c}, {FOUR}"))
            sum_at = w.offset_address("%sums", "i32", column)
            with w.iterate(remaining_rows) as r:
                row = w.put(f"add nsw i64 {first}, {r}")
                row_address = w.offset_address(source, "i8", w.put(f"mul nsw i64 {row}, %b_row"))
                x = self._to_signed(w.put(f"load i8, ptr {row_address}, align 1"))
                w.do(f"store i8 {x}, ptr {w.offset_address(target, 'i8', r)}, align 1")
                total = w.put(f"load i32, ptr {sum_at}, align 4")
                total = w.put(f"add i32 {total}, {w.put(f'sext i8 {x} to i32')}")
                w.do(f"store i32 {total}, ptr {sum_at}, align 4")
