"""Kernels of sparse tensors."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.array import filled, sizes_of
from weft_exec.kernels.common import as_exact, widened
from weft_exec.kernels.gather import columns_of
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.scatter import combining
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("SparseToDense")
def _sparse_to_dense(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    validate: bool = node.attrs["validate_indices"]

    def run(indices: Any, shape: Any, values: Any, default: Any) -> Any:
        sizes = sizes_of(np.asarray(shape).reshape(-1))
        table = np.asarray(indices)
        table = table.reshape(-1, 1) if table.ndim < 2 else table
        if table.shape[1] != len(sizes) or values.shape not in ((), (len(table),)):
            raise errors.InvalidArgumentError(
                f"sparse_indices must be [n,{len(sizes)}] and sparse_values [n] or [], got shapes "
                f"{format_dims(indices.shape)} and {format_dims(values.shape)}"
            )
        if not sizes and len(table) > 1:
            raise errors.InvalidArgumentError(
                f"a result of rank 0 takes one value, got {len(table)} sparse_indices"
            )
        columns = columns_of(table, sizes)
        if validate:
            _check_order(table)
        result = np.asarray(filled(device, sizes, default, dtype))
        result[columns] = values[()] if values.ndim == 0 else values
        return result

    return run


def _check_order(table: Any) -> None:
    """Raise InvalidArgumentError unless the rows ascend and are distinct."""
    rows = [tuple(row) for row in table.tolist()]
    for i, (before, after) in enumerate(pairwise(rows)):
        if before >= after:
            what = "repeated" if before == after else "out of order"
            raise errors.InvalidArgumentError(f"sparse_indices[{i + 1}] = {list(after)} is {what}")


@kernel("SparseReorder")
def _sparse_reorder(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any) -> Any:
        if values.ndim != 1 or indices.shape != (len(values), len(shape)):
            raise errors.InvalidArgumentError(
                f"input_indices must be [{len(values)},{len(shape)}], as there are so many values "
                f"and axes, got shape {format_dims(indices.shape)}"
            )
        columns_of(indices, sizes_of(shape))
        order = np.lexsort(indices.T[::-1]) if indices.shape[1] else np.arange(len(values))
        return indices[order], values[order]

    return run


@kernel("SparseTensorDenseMatMul", heavy=True)
def _sparse_dense_matmul(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    adjoint_a: bool = node.attrs["adjoint_a"]
    adjoint_b: bool = node.attrs["adjoint_b"]

    def run(indices: Any, values: Any, shape: Any, b: Any) -> Any:
        rows, columns = columns_of(indices, sizes_of(shape))
        m, k = sizes_of(shape)
        if adjoint_a:
            rows, columns, m, k, values = columns, rows, k, m, np.conj(values)
        dense = np.conj(b).T if adjoint_b else b
        if dense.shape[0] != k:
            raise errors.InvalidArgumentError(
                f"a matrix product requires equal inner sizes, got {k} and {dense.shape[0]}"
            )
        result = np.zeros((m, dense.shape[1]), widened(dense[:0]).dtype)
        products = widened(values)[:, None] * widened(dense[columns])
        combining(np.add)(result, rows, products)
        return as_exact(result, dtype, device)

    return run
