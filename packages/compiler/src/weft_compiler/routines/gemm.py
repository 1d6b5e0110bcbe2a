"""Matrix products in float32 and float64: by BLAS, by generated code, of packed or small ones.

All store the product of the matrices a, m×k, and b, k×n, in c, m×n, or add the product to c.
Strides are in elements, and the rows of c are contiguous. `weft_compiler.routines.selection`
chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final

from weft_compiler.codegen import blas, matmul, small_gemm
from weft_compiler.codegen.parallel_split import split_product
from weft_compiler.codegen.routine import (
    FLOATS,
    CallWriter,
    Library,
    Operands,
    ParallelSplit,
    Routine,
)
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import Loops
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.layouts import PANEL_BYTES
from weft_compiler.routines.operands import matrix, matrix_span, span_error, type_error
from weft_tensor.dtypes import DType

MATMUL_LIBRARY: Final = Library("matmul", matmul.module_text, FLOATS)

ALL_SIZES: Final = frozenset({"m", "n", "k", "a_row", "a_column", "b_row", "b_column", "c_row"})
"""The sizes and strides of a product."""
_UNPACKED: Final = 1 << 23
"""Maximal number of multiplications for which BLAS is called for small parts. Beyond 10^6, OpenBLAS
packs operands into buffers that threads reuse alternately, which moves cache lines between cores:
with two threads, 32×512×512 takes 140 µs, and 97 µs in small parts.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Product(Routine):
    """A product of matrices with any strides."""

    a: Input
    b: Input
    c: Output
    _: KW_ONLY
    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    b_row: int
    b_column: int
    c_row: int
    accumulate: int = 0

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    def convert(self, routine: type[Product]) -> Product:
        """Return the same product by another routine."""
        return routine.bind(self.views, self.parameters, sizes=self.sizes)

    @property
    def work(self) -> int:
        return self.m * self.n * self.k

    def spans(self, size: int) -> Mapping[str, int]:
        return {
            "a": matrix_span(self.m, self.k, self.a_row, self.a_column),
            "b": matrix_span(self.k, self.n, self.b_row, self.b_column),
            "c": matrix_span(self.m, self.n, self.c_row, 1),
        }

    def error(self, views: Views) -> str:
        return product_error(self, views, self.c_row)

    def reference(self, a: Any, b: Any, c: Any) -> None:
        left_matrix = matrix(a, self.m, self.k, self.a_row, self.a_column)
        right = matrix(b, self.k, self.n, self.b_row, self.b_column)
        result = matrix(c, self.m, self.n, self.c_row, 1)
        result[...] = left_matrix @ right + (result if self.accumulate else 0)


def product_error(call: Product | MatmulPacked, views: Views, c_row: int) -> str:
    """Return an error message for invalid types, sizes or memory of a product, or ""."""
    if min(value for _, value in call.parameters) < 0:
        return type_error(views) or "sizes and strides of at least 0 were required"
    wrong = type_error(views) or span_error(views, call.spans(next(iter(views.values()))[0].size))
    return wrong or ("" if c_row >= call.n or call.m <= 1 else "rows of c overlap")


class Gemm(Product):
    """A product by NumPy's BLAS, bitwise equal to `np.matmul`."""

    routine: ClassVar[str] = "gemm"
    uses_blas: ClassVar[bool] = True

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        # The BLAS function, and the strides that it reads, depend on which sizes are 1.
        return frozenset({"m", "n"}) if 1 in (self.m, self.n) else ALL_SIZES

    def error(self, views: Views) -> str:
        if not {dtype for dtype, _ in views.values()} <= set(self.dtypes):
            return "element type float32 or float64 was required"
        if min(self.m, self.n, self.k) < 1:
            return "sizes of at least 1 were required"
        strides = {
            "a": (self.a_row, self.a_column, self.m, self.k),
            "b": (self.b_row, self.b_column, self.k, self.n),
        }
        for name, (row, column, rows, columns) in strides.items():
            if not ((column == 1 and row >= columns) or (row == 1 and column >= rows)):
                dense = f"rows or columns of {name} were required to be dense"
                return f"{dense}, and apart from each other"
        return Product.error(self, views)

    def split(self) -> ParallelSplit:
        chunks = 0 if self.work <= _UNPACKED else 1
        return split_product(self.m, self.n, self.a_row, self.c_row, self.b_column, chunks=chunks)

    def emit(self, writer: CallWriter, operands: Operands) -> None:
        a, b, c = operands.views
        parameters = dict(self.parameters)
        sizes = parameters | dict(operands.sizes)
        writer.require_blas(blas.call(writer.w, operands.dtype, a, b, c, parameters, sizes))

    def has_table(self, dtype: DType) -> bool:
        return self.m > 1 and self.n > 1  # otherwise BLAS uses other functions

    def table(self) -> Mapping[str, int]:
        return dict(zip(blas.STORED, blas.blas_arguments(dict(self.parameters)), strict=True))

    @classmethod
    def table_names(cls) -> tuple[str, ...]:
        return blas.STORED

    @classmethod
    def emit_from_table(
        cls,
        w: Loops,
        dtype: DType,
        views: Sequence[str],
        arguments: Sequence[str],
        indices: tuple[str, str],
        workspace: Callable[[], str],
    ) -> None:
        a, b, c = views
        blas.call_stored(w, dtype, a, b, c, arguments)

    @classmethod
    def functions(cls, dtype: DType) -> tuple[str, ...]:
        return blas.product(dtype), blas.THREADS


class Matmul(Product):
    """A product by generated code, which packs b if that pays off."""

    routine: ClassVar[str] = "matmul"
    library: ClassVar[Library | None] = MATMUL_LIBRARY

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        return frozenset({"m", "n"}) if 1 in (self.m, self.n) else ALL_SIZES

    def split(self) -> ParallelSplit:
        return split_product(self.m, self.n, self.a_row, self.c_row, self.b_column)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return matmul.workspace(dtype, target, self.m, self.n, self.k)


class SmallMatmul(Product):
    """A product of a small constant size, with the result in registers.

    Each size has its own function.
    """

    routine: ClassVar[str] = "small_matmul"

    def error(self, views: Views) -> str:
        if min(self.m, self.n, self.k) < 1 or self.accumulate:
            return "sizes of at least 1 and accumulate=0 were required"
        return Product.error(self, views)

    def emit(self, writer: CallWriter, operands: Operands) -> None:
        parameters = dict(self.parameters)
        name = small_gemm.symbol(operands.dtype, parameters)
        writer.define(name, lambda: small_gemm.text(operands.dtype, parameters, writer.target))
        writer.w.do(f"call void @{name}({', '.join(f'ptr {view}' for view in operands.views)})")


@dataclass(frozen=True, slots=True, eq=False)
class MatmulPacked(Routine):
    """A product by generated code of a dense a and a b packed as panels, (panels, k, columns)."""

    a: Input
    b: Input
    c: Output
    _: KW_ONLY
    m: int
    n: int
    k: int
    a_row: int
    c_row: int
    accumulate: int = 0

    routine: ClassVar[str] = "matmul_packed"
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    library: ClassVar[Library | None] = MATMUL_LIBRARY

    @property
    def work(self) -> int:
        return self.m * self.n * self.k

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        return frozenset({"m"})

    def spans(self, size: int) -> Mapping[str, int]:
        columns = PANEL_BYTES // size
        return {
            "a": matrix_span(self.m, self.k, self.a_row, 1),
            "b": -(-self.n // columns) * self.k * columns,
            "c": matrix_span(self.m, self.n, self.c_row, 1),
        }

    def error(self, views: Views) -> str:
        return product_error(self, views, self.c_row)

    def reference(self, a: Any, b: Any, c: Any) -> None:
        columns = PANEL_BYTES // b.itemsize
        panels = -(-self.n // columns)
        right = b[: panels * self.k * columns].reshape(panels, self.k, columns).swapaxes(0, 1)
        left_matrix = matrix(a, self.m, self.k, self.a_row, 1)
        result = matrix(c, self.m, self.n, self.c_row, 1)
        product = left_matrix @ right.reshape(self.k, panels * columns)[:, : self.n]
        result[...] = product + (result if self.accumulate else 0)

    def split(self) -> ParallelSplit:
        return split_product(self.m, self.n, self.a_row, self.c_row, self.k)

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        return matmul.packed_workspace(dtype, target)
