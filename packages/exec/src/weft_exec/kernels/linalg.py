"""Kernels of linear algebra: by LAPACK through NumPy, or by cuSOLVER and cuBLAS through CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import Array, Function, adjoint, as_exact, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_BLOCK = 48
"""Number of rows that substitution processes together; the rest of the work is matrix products."""


def _square(x: Any) -> None:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise errors.InvalidArgumentError(f"requires square matrices, got shape {list(x.shape)}")


def _singular_error() -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError("a matrix is singular: it has no inverse")


def _require_finite(xp: Any, result: Any, error: Callable[[], errors.OpError]) -> Any:
    """Raise `error()` if a result is not finite: CuPy does not report singular matrices."""
    if xp is not np and not bool(xp.all(xp.isfinite(result))):
        raise error()
    return result


@kernel("MatrixInverse", device=ARRAY_DEVICE, heavy=True)
def _inverse(node: Node, device: Device) -> KernelFunction:
    transposed, dtype = node.attrs["adjoint"], node.outputs[0].dtype.numpy
    xp = device.xp

    def run(x: Any) -> Any:
        _square(x)
        try:
            result = xp.linalg.inv(adjoint(xp, x) if transposed else x)
        except np.linalg.LinAlgError as cause:
            raise _singular_error() from cause
        return as_exact(_require_finite(xp, result, _singular_error), dtype, device)

    return run


@kernel("MatrixDeterminant", device=ARRAY_DEVICE, heavy=True)
def _determinant(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any) -> Any:
        _square(x)
        return as_exact(device.xp.linalg.det(x), dtype, device)

    return run


@kernel("LogMatrixDeterminant", device=ARRAY_DEVICE, heavy=True)
def _log_determinant(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any) -> Any:
        _square(x)
        sign, log_abs = device.xp.linalg.slogdet(x)
        return as_exact(sign, dtype, device), as_exact(log_abs, dtype, device)

    return run


def _indefinite_error() -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        "the Cholesky decomposition was not successful: a matrix is not self-adjoint positive "
        "definite"
    )


@kernel("Cholesky", device=ARRAY_DEVICE, heavy=True)
def _cholesky(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(x: Any) -> Any:
        _square(x)
        try:
            result = xp.linalg.cholesky(x)
        except np.linalg.LinAlgError as cause:
            raise _indefinite_error() from cause
        return as_exact(_require_finite(xp, result, _indefinite_error), dtype, device)

    return run


def _check_system(matrix: Any, rhs: Any) -> None:
    _square(matrix)
    if matrix.shape[:-2] != rhs.shape[:-2] or matrix.shape[-1] != rhs.shape[-2]:
        raise errors.InvalidArgumentError(
            "matrix and rhs must have the same leading axes and number of rows, got shapes "
            f"{list(matrix.shape)} and {list(rhs.shape)}"
        )


@kernel("MatrixSolve", device=ARRAY_DEVICE, heavy=True)
def _solve(node: Node, device: Device) -> KernelFunction:
    transposed, dtype = node.attrs["adjoint"], node.outputs[0].dtype.numpy
    xp = device.xp

    def run(matrix: Any, rhs: Any) -> Any:
        _check_system(matrix, rhs)
        result = _solve_systems(xp, adjoint(xp, matrix) if transposed else matrix, rhs)
        return as_exact(result, dtype, device)

    return run


def _solve_systems(xp: Any, matrix: Any, rhs: Any) -> Any:
    try:
        result = xp.linalg.solve(matrix, rhs)
    except np.linalg.LinAlgError as cause:
        raise _singular_error() from cause
    return _require_finite(xp, result, _singular_error)


@kernel("MatrixTriangularSolve", device=ARRAY_DEVICE, heavy=True)
def _triangular_solve(node: Node, device: Device) -> KernelFunction:
    transposed, lower = node.attrs["adjoint"], node.attrs["lower"]
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(matrix: Any, rhs: Any) -> Any:
        _check_system(matrix, rhs)
        if xp is not np:
            matrix = xp.tril(matrix) if lower else xp.triu(matrix)
            return _solve_systems(xp, adjoint(xp, matrix) if transposed else matrix, rhs)
        if not np.diagonal(matrix, axis1=-2, axis2=-1).all():
            raise _singular_error()
        result = new_array(device, rhs.shape, dtype)
        _substitute(adjoint(xp, matrix) if transposed else matrix, rhs, lower != transposed, result)
        return result

    return run


def _substitute(a: Array, b: Array, lower: bool, x: Array) -> None:
    """Solve a triangular system by substitution, one block of rows at a time, into `x`."""
    n = a.shape[-1]
    triangle: Function = np.tril if lower else np.triu
    starts = range(0, n, _BLOCK)
    for index in starts if lower else reversed(starts):
        rows = slice(index, min(index + _BLOCK, n))
        solved = slice(0, index) if lower else slice(rows.stop, n)
        remaining = b[..., rows, :] - a[..., rows, solved] @ x[..., solved, :]
        # NumPy has no triangular solver. The general one is only used for the diagonal blocks, a
        # small part of the work.
        x[..., rows, :] = np.linalg.solve(triangle(a[..., rows, rows]), remaining)


@kernel("MatrixSolveLs", heavy=True)
def _solve_ls(node: Node, device: Device) -> KernelFunction:
    fast, dtype = node.attrs["fast"], node.outputs[0].dtype.numpy

    def run(matrix: Any, rhs: Any, regularizer: Any) -> Any:
        if matrix.ndim < 2 or matrix.shape[:-1] != rhs.shape[:-1]:
            raise errors.InvalidArgumentError(
                "matrix and rhs must have the same leading axes and number of rows, got shapes "
                f"{list(matrix.shape)} and {list(rhs.shape)}"
            )
        if regularizer < 0:
            raise errors.InvalidArgumentError(
                f"l2_regularizer must be at least 0, got {regularizer}"
            )
        if not fast:
            return as_exact(np.linalg.pinv(matrix) @ rhs, dtype, device)
        try:
            return as_exact(_normal_equations(matrix, rhs, float(regularizer)), dtype, device)
        except np.linalg.LinAlgError as cause:
            raise _singular_error() from cause

    return run


def _normal_equations(a: Array, b: Array, regularizer: float) -> Any:
    m, n = a.shape[-2:]
    unit = np.eye(min(m, n), dtype=a.dtype) * np.asarray(regularizer, a.dtype)
    # Both forms have the same result (push-through identity); the smaller system is solved.
    if m >= n:
        return np.linalg.solve(adjoint(np, a) @ a + unit, adjoint(np, a) @ b)
    return adjoint(np, a) @ np.linalg.solve(a @ adjoint(np, a) + unit, b)


@kernel("MatrixExponential", heavy=True)
def _exponential(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any) -> Any:
        _square(x)
        result = new_array(device, x.shape, dtype)
        n = x.shape[-1]
        if result.size:
            for matrix, out in zip(x.reshape(-1, n, n), result.reshape(-1, n, n), strict=True):
                out[...] = _expm(matrix)
        return result

    return run


def _expm(a: Array) -> Any:
    """Compute the matrix exponential by scaling, a Padé approximant and squaring (Higham, 2005)."""
    size = float(np.abs(a).sum(0).max())
    if not np.isfinite(size):
        return np.full_like(a, np.nan)
    # 5.37 is the largest norm for which the [13/13] approximant has the precision of float64 (θ₁₃
    # in Higham, 2005).
    squarings = max(0, int(np.ceil(np.log2(size / 5.37)))) if size else 0
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    scaled = a.astype(wide) / 2.0**squarings
    # The numerator's coefficients: (26 - k)! / (k! (13 - k)!), up to a factor.
    b = [1.0]
    for k in range(1, 14):
        b.append(b[-1] * (14 - k) / (k * (27 - k)))
    power = np.eye(len(a), dtype=wide)
    square = scaled @ scaled
    even, odd = b[0] * power, b[1] * power
    for k in range(1, 7):
        power = power @ square
        even = even + b[2 * k] * power
        odd = odd + b[2 * k + 1] * power
    odd = scaled @ odd
    # The denominator is the numerator of -A, in which the odd terms change their sign.
    result = np.linalg.solve(even - odd, even + odd)
    for _ in range(squarings):
        result = result @ result
    return result


# --------------------------------------------------------------------------- factorisations


@kernel("SelfAdjointEigV2", device=ARRAY_DEVICE, heavy=True)
def _eigh(node: Node, device: Device) -> KernelFunction:
    dtype, vectors = node.outputs[0].dtype.numpy, node.attrs["compute_v"]
    xp = device.xp

    def run(x: Any) -> Any:
        _square(x)
        if not vectors:
            return as_exact(xp.linalg.eigvalsh(x), dtype, device), xp.empty(0, dtype)
        e, v = xp.linalg.eigh(x)
        return as_exact(e, dtype, device), as_exact(v, dtype, device)

    return run


@kernel("Svd", device=ARRAY_DEVICE, heavy=True)
def _svd(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy
    vectors, full = node.attrs["compute_uv"], node.attrs["full_matrices"]

    def run(x: Any) -> Any:
        if not vectors:
            s = xp.linalg.svd(x, compute_uv=False)
            return as_exact(s, dtype, device), xp.empty(0, dtype), xp.empty(0, dtype)
        u, s, vh = xp.linalg.svd(x, full_matrices=full)
        return tuple(as_exact(part, dtype, device) for part in (s, u, adjoint(xp, vh)))

    return run


@kernel("Qr", device=ARRAY_DEVICE, heavy=True)
def _qr(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy
    mode: Any = "complete" if node.attrs["full_matrices"] else "reduced"

    def run(x: Any) -> Any:
        q, r = xp.linalg.qr(x, mode=mode)
        return as_exact(q, dtype, device), as_exact(r, dtype, device)

    return run
