"""Products and convolutions of bfloat16 with float32 sums, and the packing of operands in pairs.

The instructions (AMX, AVX512_BF16, dot products of AArch64, float32 in registers) are chosen by
`weft_compiler.codegen.bf16_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final

import numpy as np

from weft_compiler.codegen import bf16_gemm
from weft_compiler.codegen.parallel_split import LINES, split_product, split_windows
from weft_compiler.codegen.routine import Library, ParallelSplit, Routine
from weft_compiler.codegen.targets import Target
from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.layouts import PAIR, PANEL, pair_panels
from weft_compiler.routines.conv2d import (
    WindowRoutine,
    convolve_by_filter,
    filter_spans,
    im2col,
    windows_error,
)
from weft_compiler.routines.operands import matrix, matrix_span, span_error
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

BF16_LIBRARY: Final = Library("matmul_pairs", bf16_gemm.module_text, (dtypes.bfloat16,))

_SPEED: Final = 4
"""Number of bfloat16 multiplications in the time of one float32 multiplication, by instruction."""


def pack_pairs(values: Any) -> Any:
    """Pack a bfloat16 matrix, (k, n), as panels."""
    k, n = values.shape
    padded = np.zeros((k + k % PAIR, n + -n % PANEL), values.dtype)
    padded[:k, :n] = values
    shape = pair_panels(n, k)
    panels = padded.reshape(shape[1], PAIR, shape[0], PANEL).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(panels)


def _unpack_pairs(panels: Any, n: int, k: int) -> Any:
    """Unpack panels to a float32 matrix, (k, n)."""
    shape = pair_panels(n, k)
    unpacked = panels[: math.prod(shape)].reshape(shape).transpose(1, 3, 0, 2)
    return unpacked.reshape(shape[1] * PAIR, -1)[:k, :n].astype(np.float32)


def _type_error(views: Views) -> str:
    """Return an error message if views are not bfloat16 (and the last of three float32), or ""."""
    *operands, last = [dtype for dtype, _ in views.values()]
    required = dtypes.bfloat16 if len(views) == 2 else dtypes.float32
    if {*operands} == {dtypes.bfloat16} and last is required:
        return ""
    return f"operands of bfloat16 and a result of {required.name} were required"


@dataclass(frozen=True, slots=True, eq=False)
class MatmulPairs(Routine):
    """Stores the product of bfloat16 a, m×k, and panels of pairs, k×n, in float32 c, m×n.

    Strides of a are in elements.
    """

    a: Input
    b: Input
    c: Output
    _: KW_ONLY
    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    c_row: int

    routine: ClassVar[str] = "matmul_pairs"
    dtypes: ClassVar[tuple[DType, ...]] = (dtypes.bfloat16,)
    library: ClassVar[Library | None] = BF16_LIBRARY
    speed: ClassVar[int] = _SPEED

    @property
    def work(self) -> int:
        return self.m * self.n * self.k

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        return frozenset({"m"})

    def spans(self, size: int) -> Mapping[str, int]:
        return {
            "a": matrix_span(self.m, self.k, self.a_row, self.a_column),
            "b": math.prod(pair_panels(self.n, self.k)),
            "c": matrix_span(self.m, self.n, self.c_row, 1),
        }

    def error(self, views: Views) -> str:
        if min(value for _, value in self.parameters) < 0 or self.k < 1:
            return "sizes and strides of at least 0, and a depth of at least 1, were required"
        if self.m > 1 and self.c_row < self.n:
            return "rows overlap"
        return _type_error(views) or span_error(views, self.spans(2))

    def reference(self, a: Any, b: Any, c: Any) -> None:
        left_matrix = matrix(a, self.m, self.k, self.a_row, self.a_column).astype(np.float32)
        right = _unpack_pairs(b, self.n, self.k)
        matrix(c, self.m, self.n, self.c_row, 1)[...] = left_matrix @ right

    def split(self) -> ParallelSplit:
        return split_product(self.m, self.n, self.a_row, self.c_row, -(-self.k // PAIR) * PAIR)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return bf16_gemm.matmul_workspace(target)


@dataclass(frozen=True, slots=True, eq=False)
class ConvPairs(WindowRoutine):
    """Stores the products of the windows of x and filters packed in pairs; y is as for `conv`."""

    x: Input
    w: Input
    y: Output
    _: KW_ONLY
    row: Expr

    routine: ClassVar[str] = "conv_pairs"
    dtypes: ClassVar[tuple[DType, ...]] = (dtypes.bfloat16,)
    library: ClassVar[Library | None] = BF16_LIBRARY
    speed: ClassVar[int] = _SPEED

    def spans(self, size: int) -> Mapping[str, int]:
        return {
            "x": self.num_elements,
            "w": math.prod(pair_panels(self.depth, self.window_size)),
            "y": self.num_results,
        }

    def error(self, views: Views) -> str:
        wrong = windows_error(self) or _type_error(views)
        return wrong or span_error(views, self.spans(2))

    def reference(self, x: Any, w: Any, y: Any, row: int) -> None:
        filters = _unpack_pairs(w, self.depth, self.window_size)
        windows = im2col(x.astype(np.float32), self, row)
        y[: self.num_results].reshape(-1, self.depth)[...] = windows @ filters

    def split(self) -> ParallelSplit:
        return split_windows(self, result=2)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return bf16_gemm.conv_workspace(target)


@dataclass(frozen=True, slots=True, eq=False)
class ConvFilterPairs(WindowRoutine):
    """Computes the same as `conv_filter` with bfloat16 x and g and float32 y."""

    x: Input
    g: Input
    y: Output
    _: KW_ONLY
    accumulate: int

    routine: ClassVar[str] = "conv_filter_pairs"
    dtypes: ClassVar[tuple[DType, ...]] = (dtypes.bfloat16,)
    library: ClassVar[Library | None] = BF16_LIBRARY
    is_split_by_places: ClassVar[bool] = True
    speed: ClassVar[int] = _SPEED

    @property
    def num_places(self) -> int:
        return self.window_size

    def spans(self, size: int) -> Mapping[str, int]:
        return filter_spans(self)

    def error(self, views: Views) -> str:
        wrong = windows_error(self) or _type_error(views)
        return wrong or span_error(views, filter_spans(self))

    def reference(self, x: Any, g: Any, y: Any) -> None:
        convolve_by_filter(self, x.astype(np.float32), g.astype(np.float32), y, self.accumulate)

    def split(self) -> ParallelSplit:
        return ParallelSplit("", self.num_places, LINES * 2, {})

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return bf16_gemm.filter_workspace(target, self)


@dataclass(frozen=True, slots=True, eq=False)
class PackPairs(Routine):
    """Packs a matrix b, k×n, as panels of pairs."""

    b: Input
    panels: Output
    _: KW_ONLY
    n: int
    k: int
    b_row: int
    b_column: int

    routine: ClassVar[str] = "pack_pairs"
    dtypes: ClassVar[tuple[DType, ...]] = (dtypes.bfloat16,)
    library: ClassVar[Library | None] = BF16_LIBRARY

    @property
    def work(self) -> int:
        return self.n * self.k

    def spans(self, size: int) -> Mapping[str, int]:
        return {
            "b": matrix_span(self.k, self.n, self.b_row, self.b_column),
            "panels": math.prod(pair_panels(self.n, self.k)),
        }

    def error(self, views: Views) -> str:
        if min(value for _, value in self.parameters) < 0:
            return "sizes and strides of at least 0 were required"
        return _type_error(views) or span_error(views, self.spans(2))

    def reference(self, b: Any, panels: Any) -> None:
        packed = pack_pairs(matrix(b, self.k, self.n, self.b_row, self.b_column))
        panels[: packed.size] = packed.reshape(-1)
