"""The routine `gemm`: the BLAS calls that `np.matmul` makes for the same operands.

They must be the same calls, because the last bits of a product depend on the function, the operand
order and the strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_compiler.codegen.writer import Writer, literal
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_PREFIX: Final = {dtypes.float32: "s", dtypes.float64: "d"}
_KIND: Final = {"s": "float", "d": "double"}
_ROW_MAJOR, _COLUMN_MAJOR = 101, 102
_PLAIN, _TRANSPOSED = 111, 112


def symbol(function: str) -> str:
    """Return the symbol of a BLAS function in machine code."""
    return f"weft.blas.{function}"


THREADS: Final = "threads"
"""Name of the function that returns the number of threads that BLAS may use."""


def uses_many_threads(w: Writer, called: set[str]) -> str:
    """Emit a test of whether BLAS uses several threads.

    Args:
      called: the BLAS functions that a program calls; the one used here is added.
    """
    called.add(THREADS)
    return w.put(f"icmp sgt i32 {w.put(f'call i32 @{symbol(THREADS)}()')}, 1")


def declaration(function: str) -> str:
    """Return the LLVM declaration of a BLAS function."""
    if function == THREADS:
        return f"declare i32 @{symbol(THREADS)}() nounwind"
    kind = _KIND[function[0]]
    takes = {
        "gemm": f"i32, i32, i32, i64, i64, i64, {kind}, ptr, i64, ptr, i64, {kind}, ptr, i64",
        "gemv": f"i32, i32, i64, i64, {kind}, ptr, i64, ptr, i64, {kind}, ptr, i64",
        "dot": "i64, ptr, i64, ptr, i64",
    }[function[1:]]
    result = kind if function[1:] == "dot" else "void"
    return f"declare {result} @{symbol(function)}({takes}) nounwind"


def call(
    w: Writer,
    dtype: DType,
    a: str,
    b: str,
    c: str,
    params: Mapping[str, int],
    sizes: Mapping[str, int | str],
) -> str:
    """Emit the call.

    Args:
      a, b, c: pointers to the first elements.
      params: the parameters of `gemm`, or their maxima if they are known only at run time.
      sizes: the parameters as LLVM operands.
    Returns: the BLAS function.
    """
    prefix = _PREFIX[dtype]
    kind = _KIND[prefix]
    alpha, beta = literal(1.0, dtype), literal(float(params["accumulate"]), dtype)
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    if m == n == 1 and not params["accumulate"]:
        strides = f"i64 {params['a_column']}, ptr {b}, i64 {params['b_row']}"
        result = w.put(f"call {kind} @{symbol(prefix + 'dot')}(i64 {k}, ptr {a}, {strides})")
        w.do(f"store {kind} {result}, ptr {c}, align {dtype.size}")
        return prefix + "dot"
    if m == 1 or n == 1:
        # A row times a matrix is the transposed matrix times a column.
        matrix, vector, rows = (b, a, n) if m == 1 else (a, b, m)
        unit_stride, row_stride = ("b_row", "b_column") if m == 1 else ("a_column", "a_row")
        step = params["a_column" if m == 1 else "b_row"]
        order, stride = _COLUMN_MAJOR, params[row_stride]
        if params[unit_stride] != 1 or stride < params["k"]:
            order, stride = _ROW_MAJOR, params[unit_stride]
        w.do(
            f"call void @{symbol(prefix + 'gemv')}(i32 {order}, i32 {_TRANSPOSED}, i64 {k}, "
            f"i64 {rows}, {kind} {alpha}, ptr {matrix}, i64 {stride}, ptr {vector}, i64 {step}, "
            f"{kind} {beta}, ptr {c}, i64 {1 if m == 1 else params['c_row']})"
        )
        return prefix + "gemv"
    turned_a, _ = _storage_order(params["a_row"], params["a_column"], params["k"])
    turned_b, _ = _storage_order(params["b_row"], params["b_column"], params["n"])
    apart_a = sizes["a_row" if turned_a == _PLAIN else "a_column"]
    apart_b = sizes["b_row" if turned_b == _PLAIN else "b_column"]
    w.do(
        f"call void @{symbol(prefix + 'gemm')}(i32 {_ROW_MAJOR}, i32 {turned_a}, i32 {turned_b}, "
        f"i64 {m}, i64 {n}, i64 {k}, {kind} {alpha}, ptr {a}, i64 {apart_a}, ptr {b}, "
        f"i64 {apart_b}, {kind} {beta}, ptr {c}, i64 {sizes['c_row']})"
    )
    return prefix + "gemm"


STORED: Final = ("turned_a", "turned_b", "m", "n", "k", "apart_a", "apart_b", "c_row", "accumulate")
"""Names of the results of `blas_arguments`: the arguments of a BLAS matrix product."""


def blas_arguments(params: Mapping[str, int]) -> list[int]:
    """Convert the parameters of `gemm` to arguments of a BLAS matrix product."""
    turned_a, apart_a = _storage_order(params["a_row"], params["a_column"], params["k"])
    turned_b, apart_b = _storage_order(params["b_row"], params["b_column"], params["n"])
    sizes = [params["m"], params["n"], params["k"]]
    return [turned_a, turned_b, *sizes, apart_a, apart_b, params["c_row"], params["accumulate"]]


def product(dtype: DType) -> str:
    """Return the name of the BLAS function for matrix products."""
    return f"{_PREFIX[dtype]}gemm"


def call_stored(w: Writer, dtype: DType, a: str, b: str, c: str, arguments: Sequence[str]) -> None:
    """Emit a call of `product` with `blas_arguments` that are known only at run time."""
    kind, alpha = _KIND[_PREFIX[dtype]], literal(1.0, dtype)
    turned_a, turned_b, m, n, k, apart_a, apart_b, c_row, accumulate = arguments
    transposed = [w.put(f"trunc i64 {flag} to i32") for flag in (turned_a, turned_b)]
    beta = w.put(f"sitofp i64 {accumulate} to {kind}")
    w.do(
        f"call void @{symbol(product(dtype))}(i32 {_ROW_MAJOR}, i32 {transposed[0]}, i32 "
        f"{transposed[1]}, "
        f"i64 {m}, i64 {n}, i64 {k}, {kind} {alpha}, ptr {a}, i64 {apart_a}, ptr {b}, "
        f"i64 {apart_b}, {kind} {beta}, ptr {c}, i64 {c_row})"
    )


def _storage_order(row: int, column: int, columns: int) -> tuple[int, int]:
    """Return the storage order of a matrix and its leading dimension."""
    return (_PLAIN, row) if column == 1 and row >= columns else (_TRANSPOSED, column)
