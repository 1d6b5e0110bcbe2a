"""Matrix products."""

from __future__ import annotations

from typing import Final

from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role
from weft_graph.ops.array import ones
from weft_graph.ops.comparison import equal
from weft_graph.ops.contraction import einsum
from weft_graph.ops.join import concat
from weft_graph.ops.linalg import matrix_determinant
from weft_graph.ops.matmul import matmul
from weft_graph.ops.permutation import transpose
from weft_graph.ops.shapes import expand_dims, reshape, shape, squeeze
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like, rank_of
from weft_io.onnx.registry import exporter, importer
from weft_tensor import dtypes

_FOLDED: Final = 10 << 20
"""Largest size in bytes of a constant that is transposed at construction."""


def product(x: Output, y: Output) -> Output:
    """Multiply like NumPy's matmul, where vectors are rows or columns that the result lacks.

    Integer types without a kernel are computed in a wider type.
    """
    dtype = x.dtype.base_dtype
    if dtype in (
        dtypes.uint32,
        dtypes.uint64,
        dtypes.int8,
        dtypes.uint8,
        dtypes.int16,
        dtypes.uint16,
    ):
        return cast(product(cast(x, dtypes.int64), cast(y, dtypes.int64)), dtype)
    if x.dims is None or y.dims is None:
        return _apply_any_rank(x, y)
    row, column = len(x.dims) == 1, len(y.dims) == 1
    result = matmul(expand_dims(x, 0) if row else x, expand_dims(y, 1) if column else y)
    added_axes = [axis for axis, is_vector in ((-2, row), (-1, column)) if is_vector]
    return squeeze(result, added_axes) if added_axes else result


def _apply_any_rank(x: Output, y: Output) -> Output:
    """Return the product when it is unknown statically which operand is a vector."""
    (row, x_sizes), (column, y_sizes) = ((_is_vector(item), shape(item)) for item in (x, y))
    result = matmul(
        reshape(x, concat([ones(row, dtypes.int32), x_sizes], 0)),
        reshape(y, concat([y_sizes, ones(column, dtypes.int32)], 0)),
    )
    sizes = shape(result)
    rows, columns = sizes[-2:-1], sizes[-1:]
    return reshape(result, concat([sizes[:-2], rows[row[0] :], columns[column[0] :]], 0))


def _is_vector(x: Output) -> Output:
    """Return 1 for a vector, otherwise 0: int32, shape (1,)."""
    return cast(equal(reshape(rank_of(x), [1]), [1]), dtypes.int32)


@importer("MatMul")
def _matmul(operation: Operation) -> Output:
    return product(operation[0], operation[1])


@importer("Gemm")
def _gemm(operation: Operation) -> Output:
    a, b, c = operation[0], operation[1], operation.get(2)
    turn_a, turn_b = (bool(operation.attribute(name, 0)) for name in ("transA", "transB"))
    if turn_b and b.node.role is Role.CONSTANT and b.node.attrs["value"].nbytes <= _FOLDED:
        # Folded once: a few rows times a matrix take half as long in this order.
        b, turn_b = transpose(b, operation.shared((1, 0))), False
    result = matmul(a, b, turn_a, turn_b)
    alpha, beta = operation.attribute("alpha", 1.0), operation.attribute("beta", 1.0)
    if alpha != 1.0:
        result = result * like(alpha, result)
    if c is not None:
        result = result + (c if beta == 1.0 else c * like(beta, c))
    return result


@importer("Einsum")
def _einsum(operation: Operation) -> Output:
    values = [operation[index] for index in range(len(operation.inputs))]
    equation = operation.required("equation").replace(" ", "")
    if "..." in equation:
        for index in range(len(values)):
            operation.rank(index)
    return einsum(equation, *values)


@importer("Det")
def _det(operation: Operation) -> Output:
    return matrix_determinant(operation[0])


# -------------------------------------------------------------------------------- export


@exporter("MatMul", "BatchMatMul", "BatchMatMulV2")
def _write_matmul(export: NodeExport) -> Value:
    plain = export.node.type == "MatMul"
    names = ("transpose_a", "transpose_b") if plain else ("adj_x", "adj_y")
    operands = [
        _reverse(export, index) if export.attribute(name) else export[index]
        for index, name in enumerate(names)
    ]
    return export.add("MatMul", *operands)


def _reverse(export: NodeExport, index: int) -> Value:
    """Transpose the last two axes of an input."""
    rank = export.rank(index)
    return export.transposed(export[index], [*range(rank - 2), rank - 1, rank - 2])
