"""Kernels of tridiagonal matrices, for all matrices of a batch and right-hand sides together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import Array, as_exact
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_DENSE = 48
"""Maximum size for which LAPACK on the dense matrix is faster than row-by-row elimination."""


def _singular_error() -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError("a matrix is singular: it is not invertible")


@kernel("TridiagonalSolve", heavy=True)
def _solve(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    pivoting, perturb = node.attrs["partial_pivoting"], node.attrs["perturb_singular"]

    def run(diagonals: Any, rhs: Any) -> Any:
        if (
            diagonals.ndim < 2
            or diagonals.ndim != rhs.ndim
            or diagonals.shape[-2] != 3
            or (*diagonals.shape[:-2], diagonals.shape[-1]) != rhs.shape[:-1]
        ):
            raise errors.InvalidArgumentError(
                "requires diagonals of shape (..., 3, M) and rhs of shape (..., M, K), got "
                f"{list(diagonals.shape)} and {list(rhs.shape)}"
            )
        if not rhs.size:
            return np.zeros(rhs.shape, dtype)
        if rhs.shape[-2] <= _DENSE and pivoting and not perturb:
            return as_exact(_dense(diagonals, rhs), dtype, device)
        tiny = np.finfo(dtype).eps * np.abs(diagonals).max() if perturb else 0.0
        result = _eliminated(diagonals, rhs, pivoting, dtype.type(tiny))
        return as_exact(result, dtype, device)

    return run


def _dense(diagonals: Array, rhs: Array) -> Any:
    n = rhs.shape[-2]
    matrix = np.zeros((*rhs.shape[:-2], n, n), diagonals.dtype)
    index = np.arange(n)
    matrix[..., index[:-1], index[1:]] = diagonals[..., 0, :-1]
    matrix[..., index, index] = diagonals[..., 1, :]
    matrix[..., index[1:], index[:-1]] = diagonals[..., 2, 1:]
    try:
        return np.linalg.solve(matrix, rhs)
    except np.linalg.LinAlgError as cause:
        raise _singular_error() from cause


def _eliminated(diagonals: Array, rhs: Array, pivoting: bool, tiny: Any) -> Array:
    """Solve by Gaussian elimination; pivoting fills a second diagonal above the main one.

    Args:
      tiny: the replacement for a pivot of 0; 0 to raise an error instead.
    """
    n = rhs.shape[-2]
    above, main, below = (np.moveaxis(diagonals[..., i, :], -1, 0).copy() for i in range(3))
    second = np.zeros_like(above)
    x = np.moveaxis(rhs, -2, 0).copy()
    above[-1] = 0
    for i in range(n):
        if i + 1 < n:
            _exchange(above, main, below, second, x, i, pivoting)
        zero = main[i] == 0
        if zero.any():
            if not tiny:
                raise _singular_error()
            main[i] = np.where(zero, tiny, main[i])
        if i + 1 < n:
            factor = below[i + 1] / main[i]
            main[i + 1] -= factor * above[i]
            above[i + 1] -= factor * second[i]
            x[i + 1] -= factor[..., None] * x[i]
    x[-1] /= main[-1][..., None]
    for i in range(n - 2, -1, -1):
        x[i] -= above[i][..., None] * x[i + 1]
        if i + 2 < n:
            x[i] -= second[i][..., None] * x[i + 2]
        x[i] /= main[i][..., None]
    return np.moveaxis(x, 0, -2)


def _exchange(
    above: Array, main: Array, below: Array, second: Array, x: Array, i: int, pivoting: bool
) -> None:
    """Exchange row i with the next row in the matrices where the next row has the larger pivot."""
    swap = np.abs(below[i + 1]) > np.abs(main[i])
    if not pivoting or not swap.any():
        return
    main[i], below[i + 1] = (
        np.where(swap, below[i + 1], main[i]),
        np.where(swap, main[i], below[i + 1]),
    )
    above[i], main[i + 1] = (
        np.where(swap, main[i + 1], above[i]),
        np.where(swap, above[i], main[i + 1]),
    )
    second[i] = np.where(swap, above[i + 1], 0)
    above[i + 1] = np.where(swap, 0, above[i + 1])
    swapped = swap[..., None]
    x[i], x[i + 1] = np.where(swapped, x[i + 1], x[i]), np.where(swapped, x[i], x[i + 1])


@kernel("TridiagonalMatMul", device=ARRAY_DEVICE)
def _matmul(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(above: Any, main: Any, below: Any, rhs: Any) -> Any:
        expected = (*rhs.shape[:-2], 1, rhs.shape[-2]) if rhs.ndim > 1 else None
        if not above.shape == main.shape == below.shape == expected:
            raise errors.InvalidArgumentError(
                "requires diagonals of shape (..., 1, M) and rhs of shape (..., M, K), got "
                f"{list(above.shape)}, {list(main.shape)}, {list(below.shape)} and "
                f"{list(rhs.shape)}"
            )
        up, middle, down = (x.swapaxes(-1, -2) for x in (above, main, below))
        result = middle * rhs
        result[..., :-1, :] += up[..., :-1, :] * rhs[..., 1:, :]
        result[..., 1:, :] += down[..., 1:, :] * rhs[..., :-1, :]
        return as_exact(result, dtype, device)

    return run
