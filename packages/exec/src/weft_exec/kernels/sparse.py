"""Kernels of sparse tensors."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.array import fill_tensor, to_sizes
from weft_exec.kernels.common import as_exact, widen_value
from weft_exec.kernels.gather import columns_of
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.scatter import make_scatter, stable_order
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


Array = np.ndarray[Any, Any]


@kernel("SparseToDense")
def _sparse_to_dense(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    validate: bool = node.attrs["validate_indices"]

    def run(indices: Any, shape: Any, values: Any, default: Any) -> Any:
        sizes = to_sizes(np.asarray(shape).reshape(-1))
        table = np.asarray(indices)
        table = table.reshape(-1, 1) if table.ndim < 2 else table
        if table.shape[1] != len(sizes) or values.shape not in ((), (len(table),)):
            raise errors.InvalidArgumentError(
                f"sparse_indices must be [n,{len(sizes)}] and sparse_values [n] or [], got shapes "
                f"{format_dims(indices.shape)} and {format_dims(values.shape)}"
            )
        if not sizes and len(table) > 1:
            raise errors.InvalidArgumentError(
                f"a result of rank 0 requires one value, got {len(table)} sparse_indices"
            )
        columns = columns_of(table, sizes)
        if validate:
            _check_order(table)
        result = np.asarray(fill_tensor(device, sizes, default, dtype))
        result[columns] = values[()] if values.ndim == 0 else values
        return result

    return run


def _check_order(table: Any) -> None:
    """Raise InvalidArgumentError unless the rows of a table are distinct and in ascending order."""
    rows = [tuple(row) for row in table.tolist()]
    for i, (first_row, second_row) in enumerate(pairwise(rows)):
        if first_row >= second_row:
            label = "repeated" if first_row == second_row else "out of order"
            raise errors.InvalidArgumentError(
                f"sparse_indices[{i + 1}] = {list(second_row)} is {label}"
            )


@kernel("SparseReorder")
def _sparse_reorder(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any) -> Any:
        if values.ndim != 1 or indices.shape != (len(values), len(shape)):
            raise errors.InvalidArgumentError(
                f"input_indices must be [{len(values)},{len(shape)}], for that many values and "
                f"axes, got shape {format_dims(indices.shape)}"
            )
        columns_of(indices, to_sizes(shape))
        order = np.lexsort(indices.T[::-1]) if indices.shape[1] else np.arange(len(values))
        return indices[order], values[order]

    return run


@kernel("SparseTensorDenseMatMul", heavy=True)
def _sparse_dense_matmul(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    adjoint_a: bool = node.attrs["adjoint_a"]
    adjoint_b: bool = node.attrs["adjoint_b"]

    def run(indices: Any, values: Any, shape: Any, b: Any) -> Any:
        rows, columns = columns_of(indices, to_sizes(shape))
        m, k = to_sizes(shape)
        if adjoint_a:
            rows, columns, m, k, values = columns, rows, k, m, np.conj(values)
        dense = np.conj(b).T if adjoint_b else b
        if dense.shape[0] != k:
            raise errors.InvalidArgumentError(
                f"a matrix product requires equal inner sizes, got {k} and {dense.shape[0]}"
            )
        result = np.zeros((m, dense.shape[1]), widen_value(dense[:0]).dtype)
        _add_products(result, rows, columns, widen_value(values), widen_value(dense))
        return as_exact(result, dtype, device)

    return run


_NARROW: Final = 8
"""Maximum number of columns for which it is faster to process them one by one."""
_REPAID: Final = 4096
"""Minimum number of elements of a diagonal for which adding it at once pays off."""


def _add_products(result: Array, rows: Array, columns: Array, values: Array, dense: Array) -> None:
    """Add values times rows of the dense matrix to the rows of the result, in order.

    Jagged diagonals (Saad 1989): rows are sorted by their number of values. The first values of all
    rows are added together, then the second values, and so on, as long as these diagonals are long.
    """
    width = result.shape[1]
    if width > _NARROW:
        remaining = _add_diagonals(result, rows, columns, values, dense)
        rows, columns, values = rows[remaining], columns[remaining], values[remaining]
        make_scatter(np.add)(result, rows, values[:, None] * dense[columns])
        return
    sums = np.zeros(result.shape[::-1], result.dtype)
    for column in range(width):
        np.add.at(sums[column], rows, dense[:, column].take(columns) * values)
    result += sums.T


def _add_diagonals(
    result: Array, rows: Array, columns: Array, values: Array, dense: Array
) -> Array:
    """Add long jagged diagonals; return the positions of the remaining values."""
    counts = np.bincount(rows, minlength=len(result))
    by_count = np.argsort(-counts, kind="stable")
    fewest = _REPAID // result.shape[1] + 1  # rows of a diagonal
    length = int(counts[by_count[fewest - 1]]) if fewest <= len(counts) else 0
    if not length:
        return np.arange(len(rows))
    order = stable_order(rows, len(result))
    starts = np.cumsum(counts) - counts
    num_rows = len(counts) - np.searchsorted(np.sort(counts), np.arange(length), "right")
    sums = np.zeros_like(result)
    for number, count in enumerate(num_rows.tolist()):
        positions = order[starts[by_count[:count]] + number]
        terms = dense.take(columns[positions], 0)
        terms *= values[positions, None]
        sums[:count] += terms
    result[by_count] += sums
    return order[np.arange(len(rows)) - starts[rows[order]] >= length]
