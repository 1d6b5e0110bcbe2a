"""The kernel of LU factorization with partial pivoting, for all matrices of a batch together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import Array, as_exact
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_BLOCK = 32
"""Number of columns that are eliminated one by one; the rest of the work is matrix products."""


@kernel("Lu", heavy=True)
def _lu(node: Node, device: Device) -> KernelFunction:
    dtype, index = node.outputs[0].dtype.numpy, node.outputs[1].dtype.numpy

    def run(x: Any) -> Any:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise errors.InvalidArgumentError(
                f"requires square matrices, got shape {list(x.shape)}"
            )
        n = x.shape[-1]
        wide = np.result_type(dtype, np.float32)
        matrices = np.array(x.reshape(-1, n, n) if x.size else np.zeros((0, n, n)), wide)
        rows = np.broadcast_to(np.arange(n), matrices.shape[:2]).copy()
        _factorise(matrices, rows)
        factors = as_exact(matrices.reshape(x.shape), dtype, device)
        return factors, as_exact(rows.reshape(x.shape[:-1]), index, device)

    return run


def _factorise(a: Array, rows: Array) -> None:
    """Factorize matrices (B, n, n) in place, and permute `rows` (B, n) like their rows.

    Raises: InvalidArgumentError: a matrix is not invertible.
    """
    n = a.shape[-1]
    # Right-looking blocked elimination, as in LAPACK's getrf.
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        for column in range(first, last):
            _eliminate(a, rows, column, last)
        if last < n:
            lower = np.tril(a[:, first:last, first:last], -1) + np.eye(last - first, dtype=a.dtype)
            a[:, first:last, last:] = np.linalg.solve(lower, a[:, first:last, last:])
            a[:, last:, last:] -= a[:, last:, first:last] @ a[:, first:last, last:]


def _eliminate(a: Array, rows: Array, column: int, last: int) -> None:
    """Eliminate a column, up to the last one of its block."""
    batch = np.arange(len(a))
    pivot = column + np.abs(a[:, column:, column]).argmax(1)
    # Whole rows are exchanged, including the factors in the columns to the left.
    for table in (a, rows):
        table[batch, pivot], table[:, column] = table[:, column].copy(), table[batch, pivot]
    diagonal = a[:, column, column]
    if not diagonal.all():
        raise errors.InvalidArgumentError("a matrix is singular: it is not invertible")
    factors = a[:, column + 1 :, column]
    factors /= diagonal[:, None]
    right = slice(column + 1, last)
    a[:, column + 1 :, right] -= factors[:, :, None] * a[:, column, None, right]
