"""Products of matrices, by the BLAS that kernels call, or with weights that are packed already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from weft_compiler.blas import MISSING, addresses
from weft_compiler.ir.expressions import Expr, Load, index, number
from weft_compiler.ir.program import Body, Buffer, Call, Statement
from weft_compiler.lower.loops import Unique, filled, load, nest
from weft_compiler.lower.panels import packed
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Value, Written, broadcast
from weft_graph.ir.node import Node
from weft_tensor import dtypes

_TYPES: Final = (dtypes.float32, dtypes.float64)


def _by_kernel(node: Node) -> str:
    """Why a product had better run by its kernel, or ""."""
    if not addresses():
        return MISSING
    dtype = node.outputs[0].dtype
    return "" if dtype in _TYPES else f"no rule says how a product of {dtype.name} is computed"


@lowers("MatMul", by_kernel=_by_kernel)
def _matmul(op: Operation) -> Value:
    return _product(op, bool(op.attr("transpose_a")), bool(op.attr("transpose_b")))


@lowers("BatchMatMul", "BatchMatMulV2", by_kernel=_by_kernel)
def _batch_matmul(op: Operation) -> Value:
    return _product(op, bool(op.attr("adj_x")), bool(op.attr("adj_y")))


def _product(op: Operation, transpose_a: bool, transpose_b: bool) -> Value:
    require(op.dtype() in _TYPES, f"a product of {op.dtype().name}")
    a, b = op.inputs
    return product_of(op.name, a, b, op.shape(), transpose_a, transpose_b)


def product_of(
    name: str,
    a: Value,
    b: Value,
    shape: Sequence[int],
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Value:
    """The product of matrices, or of those of each batch.

    Args:
      a, b: float32 or float64.
      shape: of the result.
    """
    if b.constant is not None and b.rank == 2 and not transpose_a and b.size:
        return _by_weights(name, a, b.constant.T if transpose_b else b.constant, b, shape)
    (m, n), k = shape[-2:], a.shape[-2 if transpose_a else -1]
    sizes = {
        "m": m,
        "n": n,
        "k": k,
        "a_row": 1 if transpose_a else k,
        "a_column": m if transpose_a else 1,
        "b_row": 1 if transpose_b else n,
        "b_column": k if transpose_b else 1,
        "c_row": n,
        "accumulate": 0,
    }

    def write(unique: Unique, c: Buffer, *operands: Buffer) -> Sequence[Statement]:
        if not math.prod(shape):
            return ()
        if not k:
            return filled(unique, c, number(0, c.dtype))
        # NumPy computes products of a column and a row without BLAS, each element by itself.
        routine = "gemm" if k > 1 and addresses() else "matmul"
        matrices = list(zip((*operands, c), (a.shape, b.shape, shape), strict=True))

        def product(*at: Expr) -> Body:
            views = [
                load(buffer, each, [*broadcast(each[:-2], at), index(0), index(0)])
                for buffer, each in matrices
            ]
            return (Call(routine, tuple(views), tuple(sizes.items())),)

        return nest(unique, shape[:-2], product)

    return Value(name, a.dtype, tuple(shape), Written((a, b), write))


def _by_weights(name: str, a: Value, matrix: Any, b: Value, shape: Sequence[int]) -> Value:
    """The product of matrices with one that is known, which is packed here.

    Args:
      matrix: what `b`, a constant, stands for.
    """
    panels = packed(f"{b.name}_packed", b, matrix)
    k, n = matrix.shape
    m = math.prod(shape[:-1])

    def write(unique: Unique, c: Buffer, rows: Buffer, weights: Buffer) -> Sequence[Statement]:
        if not math.prod(shape):
            return ()
        views = (
            load(rows, a.shape, [index(0)] * a.rank),
            load(weights, panels.shape, [index(0)] * 3),
            load(c, shape, [index(0)] * len(shape)),
        )
        return (by_panels(views, m, n, k, a_row=k),)

    return Value(name, a.dtype, tuple(shape), Written((a, panels), write))


def by_panels(views: tuple[Load, Load, Load], m: int, n: int, k: int, a_row: int) -> Call:
    """The call that multiplies with packed weights; rows of the result are dense."""
    of = {"m": m, "n": n, "k": k, "a_row": a_row, "c_row": n, "accumulate": 0}
    return Call("matmul_packed", views, tuple(of.items()))
