"""Products and convolutions of 8-bit integers, exact in int32, and the packing of operands.

The instructions (AMX, VNNI, dot products of AArch64, pairs of 16 bits) are chosen by
`weft_compiler.codegen.int8_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final

import numpy as np

from weft_compiler.codegen import int8_gemm
from weft_compiler.codegen.parallel_split import split_product, split_windows
from weft_compiler.codegen.routine import Library, ParallelSplit, Routine
from weft_compiler.codegen.targets import Target
from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.layouts import FOUR, PANEL, byte_panels
from weft_compiler.routines.conv2d import WindowRoutine, im2col, windows_error
from weft_compiler.routines.operands import matrix, matrix_span, span_error
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

BYTES: Final = (dtypes.int8, dtypes.uint8)
INT8_LIBRARY: Final = Library("matmul_bytes", int8_gemm.module_text, BYTES)


def pack_bytes(values: Any) -> tuple[Any, Any]:
    """Pack an int8 matrix, (k, n), as panels of bytes with column sums."""
    k, n = values.shape
    padded = np.pad(values, [(0, -k % FOUR), (0, -n % PANEL)])
    panels = padded.reshape(-1, FOUR, padded.shape[1] // PANEL, PANEL).transpose(2, 0, 3, 1)
    sums = padded.sum(0, dtype=np.int32).reshape(-1, PANEL)
    return np.ascontiguousarray(panels), sums


def _unpack_bytes(panels: Any, sums: Any, n: int, k: int) -> Any:
    """Unpack panels of bytes to an int32 matrix, (k, n)."""
    shape = byte_panels(n, k)
    unpacked = panels[: math.prod(shape)].reshape(shape).transpose(1, 3, 0, 2)
    values = unpacked.reshape(shape[1] * FOUR, -1)[:k, :n].astype(np.int32)
    assert (sums[:n] == values.sum(0)).all()
    return values


def _panel_spans(names: tuple[str, str], n: int, k: int) -> Mapping[str, int]:
    """Return the number of elements of panels and of their column sums."""
    return dict(zip(names, (math.prod(byte_panels(n, k)), -(-n // PANEL) * PANEL), strict=True))


def _type_error(views: Views, num_int32: int) -> str:
    """Return an error message for bytes, panels or sums of the wrong type, or ""."""
    first, *other_types = [dtype for dtype, _ in views.values()]
    if first in BYTES and other_types == [dtypes.int8, *[dtypes.int32] * num_int32]:
        return ""
    names = list(views)
    sums = f"{' and '.join(names[2:])} of int32"
    return f"{names[0]} of int8 or uint8, {names[1]} of int8 and {sums} were required"


@dataclass(frozen=True, slots=True, eq=False)
class MatmulBytes(Routine):
    """Stores the product of int8 or uint8 a, m×k, and int8 panels, k×n, in int32 c, m×n.

    The column sums of the panels are a separate argument.
    """

    a: Input
    b: Input
    sums: Input
    c: Output
    _: KW_ONLY
    m: int
    n: int
    k: int
    a_row: int
    c_row: int

    routine: ClassVar[str] = "matmul_bytes"
    dtypes: ClassVar[tuple[DType, ...]] = BYTES
    library: ClassVar[Library | None] = INT8_LIBRARY

    @property
    def work(self) -> int:
        return self.m * self.n * self.k // FOUR

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        return frozenset({"m"})

    def spans(self, size: int) -> Mapping[str, int]:
        return {
            "a": (self.m - 1) * self.a_row + self.k if self.m else 0,
            **_panel_spans(("b", "sums"), self.n, self.k),
            "c": matrix_span(self.m, self.n, self.c_row, 1),
        }

    def error(self, views: Views) -> str:
        if min(value for _, value in self.parameters) < 0 or self.k < 1:
            return "sizes and strides of at least 0, and a depth of at least 1, were required"
        if self.m > 1 and (self.a_row < self.k or self.c_row < self.n):
            return "rows overlap"
        return _type_error(views, 2) or span_error(views, self.spans(1))

    def reference(self, a: Any, b: Any, sums: Any, c: Any) -> None:
        left_matrix = matrix(a, self.m, self.k, self.a_row, 1).astype(np.int32)
        right = _unpack_bytes(b, sums, self.n, self.k)
        matrix(c, self.m, self.n, self.c_row, 1)[...] = left_matrix @ right

    def split(self) -> ParallelSplit:
        column = -(-self.k // FOUR) * FOUR
        return split_product(self.m, self.n, self.a_row, self.c_row, column, result=3)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return int8_gemm.workspace(dtype, target)


@dataclass(frozen=True, slots=True, eq=False)
class ConvBytes(WindowRoutine):
    """Convolves x, padded with `outside`, with filters, and stores the result in y.

    Filters and sums are as for `matmul_bytes`, and y is as for `conv`.
    """

    x: Input
    w: Input
    sums: Input
    y: Output
    _: KW_ONLY
    outside: int
    row: Expr

    routine: ClassVar[str] = "conv_bytes"
    dtypes: ClassVar[tuple[DType, ...]] = BYTES
    library: ClassVar[Library | None] = INT8_LIBRARY

    @property
    def work(self) -> int:
        return self.num_results * self.window_size // FOUR

    def spans(self, size: int) -> Mapping[str, int]:
        return {
            "x": self.num_elements,
            **_panel_spans(("w", "sums"), self.depth, self.window_size),
            "y": self.num_results,
        }

    def error(self, views: Views) -> str:
        dtype = views["x"][0]
        wrong = windows_error(self) or _type_error(views, 2)
        if not wrong and not dtype.min <= self.outside <= dtype.max:
            wrong = f"what is outside was required to be of {dtype.name}, got {self.outside}"
        return wrong or span_error(views, self.spans(1))

    def reference(self, x: Any, w: Any, sums: Any, y: Any, row: int) -> None:
        filters = _unpack_bytes(w, sums, self.depth, self.window_size)
        windows = im2col(x, self, row, self.outside).astype(np.int32)
        y[: self.num_results].reshape(-1, self.depth)[...] = windows @ filters

    def split(self) -> ParallelSplit:
        return split_windows(self, result=3)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return int8_gemm.workspace(dtype, target)


@dataclass(frozen=True, slots=True, eq=False)
class PackBytes(Routine):
    """Packs a matrix b, k×n, as panels with column sums; 128 is subtracted from uint8."""

    b: Input
    panels: Output
    sums: Output
    _: KW_ONLY
    n: int
    k: int
    b_row: int
    b_column: int

    routine: ClassVar[str] = "pack_bytes"
    dtypes: ClassVar[tuple[DType, ...]] = BYTES
    library: ClassVar[Library | None] = INT8_LIBRARY

    @property
    def work(self) -> int:
        return self.n * self.k

    def spans(self, size: int) -> Mapping[str, int]:
        return {
            "b": matrix_span(self.k, self.n, self.b_row, self.b_column),
            **_panel_spans(("panels", "sums"), self.n, self.k),
        }

    def error(self, views: Views) -> str:
        if min(value for _, value in self.parameters) < 0:
            return "sizes and strides of at least 0 were required"
        return _type_error(views, 1) or span_error(views, self.spans(1))

    def reference(self, b: Any, panels: Any, sums: Any) -> None:
        values = matrix(b, self.k, self.n, self.b_row, self.b_column)
        signed = values if b.dtype == np.int8 else (values ^ np.uint8(128)).view(np.int8)
        packed, totals = pack_bytes(signed)
        panels[: packed.size] = packed.reshape(-1)
        sums[: totals.size] = totals.reshape(-1)
