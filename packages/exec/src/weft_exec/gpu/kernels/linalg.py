"""GPU kernels of linear algebra: cuSOLVER and cuBLAS through CuPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.gpu.element_types import COMPLEX
from weft_exec.kernels.linalg import _check_system, _not_invertible, _square
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_TYPES = {"T": ("float32", "float64", *COMPLEX)}


def _adjoint(xp: Any, x: Any) -> Any:
    swapped = x.swapaxes(-1, -2)
    return xp.conjugate(swapped) if x.dtype.kind == "c" else swapped


def _require_finite(xp: Any, found: Any, wrong: errors.InvalidArgumentError) -> Any:
    """CuPy's solvers do not say that a matrix is singular, but give what is not finite."""
    if not bool(xp.all(xp.isfinite(found))):
        raise wrong
    return found


@kernel("MatrixInverse", device="GPU", dtypes=_TYPES)
def _inverse(node: Node, device: Device) -> KernelFunction:
    transposed, xp = node.attrs["adjoint"], device.xp

    def run(x: Any) -> Any:
        _square(x)
        try:
            found = xp.linalg.inv(_adjoint(xp, x) if transposed else x)
        except xp.linalg.LinAlgError as cause:
            raise _not_invertible() from cause
        return _require_finite(xp, found, _not_invertible())

    return run


@kernel("MatrixDeterminant", device="GPU", dtypes=_TYPES)
def _determinant(node: Node, device: Device) -> KernelFunction:
    def run(x: Any) -> Any:
        _square(x)
        return device.xp.linalg.det(x)

    return run


@kernel("LogMatrixDeterminant", device="GPU", dtypes=_TYPES)
def _log_determinant(node: Node, device: Device) -> KernelFunction:
    def run(x: Any) -> Any:
        _square(x)
        sign, log_abs = device.xp.linalg.slogdet(x)
        return sign, log_abs

    return run


@kernel("Cholesky", device="GPU", dtypes=_TYPES)
def _cholesky(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any) -> Any:
        _square(x)
        wrong = errors.InvalidArgumentError(
            "the Cholesky decomposition was not successful: a matrix is not self-adjoint "
            "positive definite"
        )
        try:
            return _require_finite(xp, xp.linalg.cholesky(x), wrong)
        except xp.linalg.LinAlgError as cause:
            raise wrong from cause

    return run


@kernel("MatrixSolve", "MatrixTriangularSolve", device="GPU", dtypes=_TYPES)
def _solve(node: Node, device: Device) -> KernelFunction:
    transposed, xp = node.attrs["adjoint"], device.xp
    cut: Any = None
    if node.type == "MatrixTriangularSolve":
        cut = xp.tril if node.attrs["lower"] else xp.triu

    def run(matrix: Any, rhs: Any) -> Any:
        _check_system(matrix, rhs)
        matrix = matrix if cut is None else cut(matrix)
        try:
            found = xp.linalg.solve(_adjoint(xp, matrix) if transposed else matrix, rhs)
        except xp.linalg.LinAlgError as cause:
            raise _not_invertible() from cause
        return _require_finite(xp, found, _not_invertible())

    return run


@kernel("SelfAdjointEigV2", device="GPU", dtypes=_TYPES)
def _eigh(node: Node, device: Device) -> KernelFunction:
    xp, vectors = device.xp, node.attrs["compute_v"]

    def run(x: Any) -> Any:
        _square(x)
        if not vectors:
            return xp.linalg.eigvalsh(x), xp.empty(0, x.dtype)
        values, found = xp.linalg.eigh(x)
        return values, found

    return run


@kernel("Svd", device="GPU", dtypes=_TYPES)
def _svd(node: Node, device: Device) -> KernelFunction:
    xp, vectors, full = device.xp, node.attrs["compute_uv"], node.attrs["full_matrices"]

    def run(x: Any) -> Any:
        if not vectors:
            s = xp.linalg.svd(x, compute_uv=False)
            return s, xp.empty(0, x.dtype), xp.empty(0, x.dtype)
        u, s, vh = xp.linalg.svd(x, full_matrices=full)
        return s, u, _adjoint(xp, vh)

    return run


@kernel("Qr", device="GPU", dtypes=_TYPES)
def _qr(node: Node, device: Device) -> KernelFunction:
    xp, mode = device.xp, "complete" if node.attrs["full_matrices"] else "reduced"

    def run(x: Any) -> Any:
        q, r = xp.linalg.qr(x, mode=mode)
        return q, r

    return run
