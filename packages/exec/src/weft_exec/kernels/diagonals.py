"""Kernels of diagonals and bands of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.kernels.common import Function, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFactory, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _filled(function: Function) -> KernelFactory:
    """A factory for `function(device, *inputs)`."""

    def make(node: Node, device: Device) -> KernelFunction:
        return lambda *inputs: function(device, *inputs)

    return make


def _diag(device: Device, diagonal: Any) -> Any:
    result = new_array(device, diagonal.shape * 2, diagonal.dtype)
    result[...] = 0
    result.reshape(-1)[:: diagonal.size + 1] = diagonal.reshape(-1)
    return result


def _diag_part(device: Device, x: Any) -> Any:
    half = x.shape[: x.ndim // 2]
    if half * 2 != x.shape:
        raise errors.InvalidArgumentError(
            f"diag_part requires a shape whose halves are equal, got {list(x.shape)}"
        )
    size = 1
    for n in half:
        size *= n
    return x.reshape(-1)[:: size + 1].reshape(half).copy()


def _matrix_diag(device: Device, diagonal: Any) -> Any:
    size = diagonal.shape[-1]
    result = new_array(device, (*diagonal.shape, size), diagonal.dtype)
    result[...] = 0
    at = device.xp.arange(size)
    result[..., at, at] = diagonal
    return result


def _matrix_diag_part(device: Device, x: Any) -> Any:
    return device.xp.diagonal(x, axis1=-2, axis2=-1).copy()


def _matrix_set_diag(device: Device, x: Any, diagonal: Any) -> Any:
    size = min(x.shape[-2:])
    if diagonal.shape != (*x.shape[:-2], size):
        raise errors.InvalidArgumentError(
            f"the diagonal must have shape {[*x.shape[:-2], size]}, got {list(diagonal.shape)}"
        )
    result = new_array(device, x.shape, x.dtype)
    result[...] = x
    at = device.xp.arange(size)
    result[..., at, at] = diagonal
    return result


def _band_part(device: Device, x: Any, num_lower: Any, num_upper: Any) -> Any:
    rows, columns = x.shape[-2:]
    if num_lower > rows or num_upper > columns:
        raise errors.InvalidArgumentError(
            f"the numbers of diagonals must be at most {rows} and {columns}, got {num_lower} and "
            f"{num_upper}"
        )
    xp = device.xp
    offset = xp.arange(columns) - xp.arange(rows)[:, None]
    outside = xp.zeros((rows, columns), bool)
    if num_lower >= 0:
        outside |= -offset > int(num_lower)
    if num_upper >= 0:
        outside |= offset > int(num_upper)
    result = new_array(device, x.shape, x.dtype)
    result[...] = x
    xp.copyto(result, xp.zeros((), x.dtype), where=outside)
    return result


for _op, _function in (
    ("Diag", _diag),
    ("DiagPart", _diag_part),
    ("MatrixDiag", _matrix_diag),
    ("MatrixDiagPart", _matrix_diag_part),
    ("MatrixSetDiag", _matrix_set_diag),
):
    kernel(_op, device=ARRAY_DEVICE)(_filled(_function))
kernel("MatrixBandPart", device=ARRAY_DEVICE, host=("num_lower", "num_upper"))(_filled(_band_part))
