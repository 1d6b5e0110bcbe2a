"""Matrix products: BLAS calls, or calls with weights packed at compile time.

Integer products, which BLAS does not have, are loops that add rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft_compiler.blas import MISSING, addresses
from weft_compiler.ir.expressions import Expr, apply, index, number, where
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, Statement
from weft_compiler.layouts import pair_panels
from weft_compiler.lower.precision import NARROW, widen
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import (
    Reduction,
    StatementDefinition,
    Value,
    broadcast,
    compute_value,
)
from weft_compiler.lower.weight_packing import align_array, pack_columns
from weft_compiler.routines.bfloat16 import MatmulPairs, PackPairs, pack_pairs
from weft_compiler.routines.gemm import MatmulPacked, Product
from weft_compiler.routines.selection import (
    ProductShape,
    pairs_reason,
    select_product,
    small_reason,
)
from weft_graph.ir.node import Node
from weft_tensor import dtypes
from weft_tensor.shape import is_fully_defined


def kernel_reason(node: Node) -> str:
    """Return why the kernel is preferred for a product, or ""."""
    return MISSING if node.outputs[0].dtype.is_floating and not addresses() else ""


def _is_worth_compiling(node: Node) -> bool:
    """Return True if compiling a single product pays off.

    It pays off for bfloat16, for many small products, and for integers, which BLAS does not
    support.
    """
    (a, _), (c,), attrs = node.inputs, node.outputs, node.attrs
    if c.dtype is dtypes.bfloat16 or c.dtype.is_integer:
        return True
    if c.dtype not in (dtypes.float32, dtypes.float64) or node.type == "MatMul":
        return False
    sizes = [size for size in a.dims or () if size is not None]
    shape = [size for size in c.dims or () if size is not None]
    if not (is_fully_defined(a.dims) and is_fully_defined(c.dims)):
        return False
    transpose_a, transpose_b = bool(attrs["adj_x"]), bool(attrs["adj_y"])
    return not small_reason(
        ProductShape(
            num_products=math.prod(shape[:-2]),
            m=shape[-2],
            n=shape[-1],
            k=sizes[-2 if transpose_a else -1],
            dtype=c.dtype,
            transpose_a=transpose_a,
            transpose_b=transpose_b,
            has_weights=False,
        )
    )


@lowers("MatMul", by_kernel=kernel_reason, compiles_alone=_is_worth_compiling)
def _matmul(op: Operation) -> Value:
    return _product(op, bool(op.attr("transpose_a")), bool(op.attr("transpose_b")))


@lowers("BatchMatMul", "BatchMatMulV2", by_kernel=kernel_reason, compiles_alone=_is_worth_compiling)
def _batch_matmul(op: Operation) -> Value:
    return _product(op, bool(op.attr("adj_x")), bool(op.attr("adj_y")))


def _product(op: Operation, transpose_a: bool, transpose_b: bool) -> Value:
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
    """Return the product of matrices, batched over leading axes.

    Args:
      a, b: the operands; floats narrower than float32 are computed in float32.
      shape: shape of the result.
    """
    if a.dtype in NARROW:
        total = product_sums(f"{name}_wide", a, b, shape, transpose_a, transpose_b)
        return compute_value(name, a.dtype, shape, total.at)
    if not a.dtype.is_floating:
        return _multiply_integers(name, a, b, shape, transpose_a, transpose_b)
    routine = select_product(_shape_of(a, b, shape, transpose_a, transpose_b))
    if issubclass(routine, MatmulPacked):
        return _multiply_packed(name, a, b.constant.T if transpose_b else b.constant, b, shape)
    (m, n), k = shape[-2:], a.shape[-2 if transpose_a else -1]

    def write(unique: Unique, c: Buffer, *operands: Buffer) -> Sequence[Statement]:
        if not math.prod(shape):
            return ()
        if not k:
            return fill(unique, c, number(0, c.dtype))
        # NumPy computes products of a column and a row without BLAS, element by element.
        assert issubclass(routine, Product)
        matrices = list(zip((*operands, c), (a.shape, b.shape, shape), strict=True))

        def product(*indices: Expr) -> Body:
            views = [
                load(buffer, matrice, [*broadcast(matrice[:-2], indices), index(0), index(0)])
                for buffer, matrice in matrices
            ]
            call = routine(
                *views,
                m=m,
                n=n,
                k=k,
                a_row=1 if transpose_a else k,
                a_column=m if transpose_a else 1,
                b_row=1 if transpose_b else n,
                b_column=k if transpose_b else 1,
                c_row=n,
            )
            return (call,)

        return nest(unique, shape[:-2], product)

    return Value(name, a.dtype, tuple(shape), StatementDefinition((a, b), write))


def product_sums(
    name: str,
    a: Value,
    b: Value,
    shape: Sequence[int],
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Value:
    """Return the product like `product_of`, except that 16-bit floats return their float32 sums."""
    if not pairs_reason(_shape_of(a, b, shape, transpose_a, transpose_b)):
        return _multiply_pairs(name, a, b, shape, transpose_a, transpose_b)
    if a.dtype in NARROW or b.dtype in NARROW:
        a, b = widen(name, a), widen(name, b)
    return product_of(name, a, b, shape, transpose_a, transpose_b)


def _shape_of(
    a: Value, b: Value, shape: Sequence[int], transpose_a: bool, transpose_b: bool
) -> ProductShape:
    """Return the properties of a product that determine its routine."""
    return ProductShape(
        num_products=math.prod(shape[:-2]),
        m=shape[-2],
        n=shape[-1],
        k=a.shape[-2 if transpose_a else -1],
        dtype=a.dtype if a.dtype is b.dtype else dtypes.float32,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        has_weights=b.constant is not None and b.rank == 2 and b.size > 0,
    )


def _multiply_pairs(
    name: str, a: Value, b: Value, shape: Sequence[int], transpose_a: bool, transpose_b: bool
) -> Value:
    """Return the product of bfloat16 matrices in float32."""
    (m, n), k = shape[-2:], a.shape[-2 if transpose_a else -1]
    if not math.prod(shape) or not k:
        return compute_value(name, dtypes.float32, shape, lambda *_: number(0, dtypes.float32))
    panels = _pack_panels(b, transpose_b)
    is_single = not transpose_a and math.prod(b.shape[:-2]) == 1
    rows = math.prod(shape[:-1]) if is_single else m
    a_row, a_column = (1, m) if transpose_a else (k, 1)

    def write(unique: Unique, c: Buffer, *operands: Buffer) -> Sequence[Statement]:
        sources = list(zip(operands, (a, panels), (2, 4), strict=True))

        def product(*indices: Expr) -> Body:
            indices = indices or (index(0),) * (len(shape) - 2)
            views = []
            for buffer, value, end in sources:
                lead = broadcast(value.shape[:-end], indices)
                views.append(load(buffer, value.shape, [*lead, *[index(0)] * end]))
            views.append(load(c, shape, [*indices, index(0), index(0)]))
            call = MatmulPairs(*views, m=rows, n=n, k=k, a_row=a_row, a_column=a_column, c_row=n)
            return (call,)

        return product() if is_single else nest(unique, shape[:-2], product)

    return Value(name, dtypes.float32, tuple(shape), StatementDefinition((a, panels), write))


def _pack_panels(b: Value, transposed: bool) -> Value:
    """Pack bfloat16 matrices as panels of pairs: (..., panels, pairs, columns, 2)."""
    lead, (k, n) = b.shape[:-2], b.shape[:-3:-1] if transposed else b.shape[-2:]
    shape = (*lead, *pair_panels(n, k))
    if b.constant is not None:
        matrices = b.constant.swapaxes(-1, -2) if transposed else b.constant
        result = align_array(shape, matrices.dtype)
        parts = result.reshape(-1, *shape[-4:])
        for matrix_index, matrix in enumerate(matrices.reshape(-1, k, n)):
            parts[matrix_index] = pack_pairs(matrix)
        return Value(f"{b.name}_pairs", b.dtype, shape, constant=result)
    b_row, b_column = (1, k) if transposed else (n, 1)

    def write(unique: Unique, panels: Buffer, source: Buffer) -> Sequence[Statement]:
        def call(*indices: Expr) -> Body:
            views = (
                load(source, b.shape, [*indices, index(0), index(0)]),
                load(panels, shape, [*indices, *[index(0)] * 4]),
            )
            return (PackPairs(*views, n=n, k=k, b_row=b_row, b_column=b_column),)

        return nest(unique, lead, call)

    return Value(f"{b.name}_pairs", b.dtype, shape, StatementDefinition((b,), write))


def _multiply_integers(
    name: str, a: Value, b: Value, shape: Sequence[int], transpose_a: bool, transpose_b: bool
) -> Value:
    """Return an integer product; sums wrap around.

    A transposed second matrix is read one column at a time.
    """
    batch, (m, n), k = shape[:-2], shape[-2:], a.shape[-2 if transpose_a else -1]
    first = len(batch)

    def term(*index: Expr) -> Expr:
        lead, i = index[:first], index[first]
        j, inner = index[first + 1 :] if transpose_b else reversed(index[first + 1 :])
        a_indices = (inner, i) if transpose_a else (i, inner)
        right = (j, inner) if transpose_b else (inner, j)
        return apply(
            "mul",
            a.at(*broadcast(a.shape[:-2], lead), *a_indices),
            b.at(*broadcast(b.shape[:-2], lead), *right),
        )

    space = (*batch, m, *((n, k) if transpose_b else (k, n)))
    reduced = frozenset([first + 2 if transpose_b else first + 1])
    total = Reduction(space, reduced, "add", number(0, a.dtype), term)
    return Value(name, a.dtype, tuple(shape), total)


def _multiply_packed(name: str, a: Value, matrix: Any, b: Value, shape: Sequence[int]) -> Value:
    """Multiply by a constant matrix, which is packed at compile time.

    Args:
      matrix: the value of the constant `b`.
    """
    panels = pack_columns(f"{b.name}_packed", b, matrix)
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
        return (MatmulPacked(*views, m=m, n=n, k=k, a_row=k, c_row=n),)

    return Value(name, a.dtype, tuple(shape), StatementDefinition((a, panels), write))


@lowers("Cross")
def _cross(op: Operation) -> Value:
    a, b = op.inputs
    require(
        a.shape == b.shape and a.shape[-1:] == (3,),
        "the shapes differ, or the last axis does not have size 3",
    )

    def element(*indices: Expr) -> Expr:
        def part(axis: int) -> Expr:
            first, second = (axis + 1) % 3, (axis + 2) % 3
            products = [
                apply("mul", a.at(*indices[:-1], i), b.at(*indices[:-1], j))
                for i, j in ((first, second), (second, first))
            ]
            return apply("sub", *products)

        result = part(2)
        for axis in (1, 0):
            result = where(apply("equal", indices[-1], index(axis)), part(axis), result)
        return result

    return compute_value(op.name, op.dtype(), op.shape(), element)
