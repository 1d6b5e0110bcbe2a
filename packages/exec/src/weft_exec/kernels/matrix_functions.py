"""Kernels of square roots and logarithms of matrix batches, in double precision.

For self-adjoint matrices the function is applied to the eigenvalues. Other matrices use the
Denman-Beavers iteration in product form, which repeated eigenvalues do not disturb (N. Higham,
Functions of Matrices, 2008, section 6.3). The logarithm is that of a root close to the identity, by
Gauss-Legendre quadrature (ibid., section 11.4). Matrices with eigenvalues on the negative axis use
their eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import Array, adjoint, as_exact
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_STEPS = 60
_NEAR = 0.25
"""Maximum distance of a matrix from the identity, in norm, for computing its logarithm by
quadrature.
"""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


def _matrix_function(
    op: str, general: Callable[[Array], Array], scalar: Callable[[Any], Any]
) -> None:
    @kernel(op, heavy=True)
    def make(node: Node, device: Device) -> KernelFunction:
        dtype = node.outputs[0].dtype.numpy

        def run(x: Any) -> Any:
            if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
                raise errors.InvalidArgumentError(
                    f"requires square matrices, got shape {list(x.shape)}"
                )
            if not x.size:
                return np.zeros(x.shape, dtype)
            wide = x.astype(np.complex128 if dtype.kind == "c" else np.float64)
            result = _evaluate(wide.reshape(-1, *x.shape[-2:]), general, scalar)
            return as_exact(result.reshape(x.shape), dtype, device)

        return run


def _evaluate(a: Array, general: Callable[[Array], Array], scalar: Callable[[Any], Any]) -> Array:
    result = np.full_like(a, np.nan)
    finite = np.isfinite(a).all((-1, -2))
    selfadjoint = finite & (a == adjoint(np, a)).all((-1, -2))
    if selfadjoint.any():
        values, vectors = np.linalg.eigh(a[selfadjoint])
        tiny = np.abs(values) <= 1e-15 * np.abs(values).max(-1, keepdims=True)
        values = np.where(tiny & (values < 0), 0, values)  # rounding errors of 0
        values = values.astype(a.dtype)
        result[selfadjoint] = (vectors * scalar(values)[..., None, :]) @ adjoint(np, vectors)
    remaining = finite & ~selfadjoint
    if remaining.any():
        result[remaining] = general(a[remaining])
    return result


def _apply_to_eigenvalues(
    a: Array, scalar: Callable[[Any], Any], undo: Callable[[Array], Array]
) -> Array:
    """Compute a function by `np.linalg.eig`.

    NaN if the inverse function does not restore the matrix, or the result is not real.
    """
    values, vectors = np.linalg.eig(a)
    vectors = vectors.astype(np.complex128)
    real = vectors * scalar(values.astype(np.complex128))[..., None, :]
    usable = np.linalg.cond(vectors) < 1e13
    real[~usable] = np.nan
    vectors[~usable] = np.eye(a.shape[-1])
    real = real @ np.linalg.inv(vectors)
    size = np.abs(a).max((-1, -2), keepdims=True)
    is_inaccurate = np.abs(undo(real) - a) > 1e-6 * size
    if a.dtype.kind != "c":
        is_inaccurate |= np.abs(real.imag) > 1e-8 * np.abs(real).max((-1, -2), keepdims=True)
        real = real.real
    return np.where(is_inaccurate.any((-1, -2), keepdims=True), np.nan, real)


# ------------------------------------------------------------------------- square roots


def _iterate(a: Array) -> tuple[Array, Array]:
    """Return square roots, and a mask of the converged ones."""
    unit = np.eye(a.shape[-1], dtype=a.dtype)
    product, root = a.copy(), a.copy()
    converged = np.zeros(len(a), bool)
    for _ in range(_STEPS):
        working = ~converged & np.isfinite(product).all((-1, -2))
        if not working.any():
            break
        m = product[working]
        try:
            inverse = np.linalg.inv(m)
        except np.linalg.LinAlgError:
            break
        # Scaled by the determinant, the iteration needs few steps also far from 1.
        log = np.linalg.slogdet(m)[1] / (-2 * a.shape[-1])
        is_near_unit = np.abs(m - unit).max((-1, -2)) < 1e-2
        scale = np.where(is_near_unit, 1.0, np.exp(log))[:, None, None]
        step = (unit + inverse / scale**2) / 2
        root[working] = scale * (root[working] @ step)
        product[working] = (unit + (scale**2 * m + inverse / scale**2) / 2) / 2
        converged[working] = np.abs(product[working] - unit).max((-1, -2)) < 1e-15 * a.shape[-1]
        is_converged = np.abs(product - unit).max((-1, -2)) < 1e-10
        converged |= is_converged & ~working
    is_finite = np.isfinite(root).all((-1, -2))
    size = np.abs(a).max((-1, -2))
    with np.errstate(all="ignore"):
        is_finite &= np.abs(root @ root - a).max((-1, -2)) <= 1e-9 * np.maximum(size, 1e-300)
    return root, is_finite


def _root(a: Array) -> Array:
    with np.errstate(all="ignore"):
        root, is_finite = _iterate(a)
        if not is_finite.all():
            root[~is_finite] = _apply_to_eigenvalues(a[~is_finite], np.sqrt, lambda x: x @ x)
    return root


# --------------------------------------------------------------------------- logarithms


def _log(a: Array) -> Array:
    with np.errstate(all="ignore"):
        result, good = _log_by_roots(a)
        if not good.all():
            result[~good] = _apply_to_eigenvalues(a[~good], np.log, _exponential)
    return result


def _log_by_roots(a: Array) -> tuple[Array, Array]:
    unit = np.eye(a.shape[-1], dtype=a.dtype)
    current, times = a.copy(), np.ones(len(a))
    good = np.ones(len(a), bool)
    for _ in range(_STEPS):
        is_far = good & (np.abs(current - unit).sum(-1).max(-1) > _NEAR)
        if not is_far.any():
            break
        current[is_far], good[is_far] = _iterate(current[is_far])
        times[is_far] *= 2
    x = np.where(good[:, None, None], current - unit, 0)
    total = np.zeros_like(x)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight / 2 * np.linalg.solve(unit + (1 + node) / 2 * x, x)
    return total * times[:, None, None], good


def _exponential(x: Array) -> Array:
    """Compute the exponential by scaling, a power series and squaring.

    Only used to check a logarithm.
    """
    size = np.abs(np.where(np.isfinite(x), x, 0)).sum(-1).max()
    squarings = max(0, int(np.ceil(np.log2(max(size, 1e-300)))) + 4)
    term = total = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    for k in range(1, 16):
        term = term @ (x / 2.0**squarings) / k
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


_matrix_function("MatrixSquareRoot", _root, np.sqrt)
_matrix_function("MatrixLogarithm", _log, np.log)
