"""Kernels of diagonals and of bands of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import Function, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFactory, KernelFunction, kernel
from weft_graph.ops.diagonals import sizes_for
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _kernel_factory(function: Function) -> KernelFactory:
    """Return a kernel factory for `function(device, *inputs)`."""

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
            "diag_part requires a shape with two equal halves, such as [2,3,2,3]; got "
            f"{list(x.shape)}"
        )
    size = 1
    for n in half:
        size *= n
    return x.reshape(-1)[:: size + 1].reshape(half).copy()


def _matrix_diag(device: Device, diagonal: Any) -> Any:
    size = diagonal.shape[-1]
    result = new_array(device, (*diagonal.shape, size), diagonal.dtype)
    result[...] = 0
    index = device.xp.arange(size)
    result[..., index, index] = diagonal
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
    index = device.xp.arange(size)
    result[..., index, index] = diagonal
    return result


def _bounds(k: Any) -> tuple[int, int]:
    """Return the numbers of the lowest and the highest diagonal.

    Raises: InvalidArgumentError: `k` has another shape than [], [1] or [2].
    """
    if k.ndim > 1 or k.size not in (1, 2):
        raise errors.InvalidArgumentError(
            f"k must be one integer or two, got the shape {list(k.shape)}"
        )
    return int(k.reshape(-1)[0]), int(k.reshape(-1)[-1])


def _check_rank(value: Any, minimum: int, name: str, limit: int | None = None) -> None:
    if value.ndim < minimum or (limit is not None and value.ndim > limit):
        expected = f"rank {minimum}" if limit == minimum else f"rank {minimum} or more"
        raise errors.InvalidArgumentError(f"{name} must have {expected}, got {list(value.shape)}")


def _diagonal_indices(
    rows: int, columns: int, k: Any, align: str
) -> tuple[tuple[Any, Any], tuple[Any, Any], tuple[int, ...]]:
    """Return indices of diagonals in matrices and in their stored form, and its shape."""
    lower, upper = _bounds(k)
    if not (lower == upper == 0 or -rows < lower <= upper < columns):
        raise errors.InvalidArgumentError(
            f"k must be a diagonal of matrices of shape {[rows, columns]}, or the "
            "lowest and the "
            f"highest of several, got {k.tolist()}"
        )
    longest = min(rows + min(upper, 0), columns - max(lower, 0))
    above, _, below = align.partition("_")
    offset = np.arange(upper, lower - 1, -1)[:, None]
    length = np.minimum(rows + np.minimum(offset, 0), columns - np.maximum(offset, 0))
    right = np.where(offset >= 0, above == "RIGHT", below == "RIGHT")
    index = np.arange(longest) - np.where(right, longest - length, 0)
    diagonal, position = np.nonzero((index >= 0) & (index < length))
    index = index[diagonal, position]
    offset = offset[diagonal, 0]
    shape = (longest,) if lower == upper else (upper - lower + 1, longest)
    return (
        (index + np.maximum(-offset, 0), index + np.maximum(offset, 0)),
        (diagonal, position),
        shape,
    )


def _filled_array(device: Device, shape: tuple[int, ...], value: Any) -> Any:
    result = new_array(device, shape, value.dtype)
    result[...] = value
    return result


def _add_row_axis(diagonal: Any, shape: tuple[int, ...]) -> Any:
    """Return diagonals with an axis for their number, also if there is only one."""
    return diagonal[..., None, :] if len(shape) == 1 else diagonal


def _matrix_diag_v3(node: Node, device: Device) -> KernelFunction:
    align = node.attrs.get("align", "LEFT_LEFT")

    def run(diagonal: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any) -> Any:
        lower, upper = _bounds(k)
        _check_rank(diagonal, 1 + (upper > lower), "diagonal")
        for name, value in (("num_rows", num_rows), ("num_cols", num_cols)):
            _check_rank(value, 0, name, 0)
        _check_rank(padding, 0, "padding_value", 0)
        sizes = sizes_for(diagonal.shape[-1], lower, upper, int(num_rows), int(num_cols))
        rows, columns = sizes
        is_inside, stored_index, shape = _diagonal_indices(rows, columns, k, align)
        if diagonal.shape[-len(shape) :] != shape:
            raise errors.InvalidArgumentError(
                f"diagonal must end in the shape {list(shape)} for k = {k.tolist()}, got "
                f"{list(diagonal.shape)}"
            )
        result = _filled_array(device, (*diagonal.shape[: -len(shape)], *sizes), padding)
        result[(..., *map(device.xp.asarray, is_inside))] = _add_row_axis(diagonal, shape)[
            (..., *map(device.xp.asarray, stored_index))
        ]
        return result

    return run


def _matrix_diag_part_v3(node: Node, device: Device) -> KernelFunction:
    align = node.attrs.get("align", "LEFT_LEFT")

    def run(x: Any, k: Any, padding: Any) -> Any:
        _check_rank(x, 2, "input")
        _check_rank(padding, 0, "padding_value", 0)
        rows, columns = x.shape[-2:]
        is_inside, stored_index, shape = _diagonal_indices(rows, columns, k, align)
        result = _filled_array(device, (*x.shape[:-2], *shape), padding)
        _add_row_axis(result, shape)[(..., *map(device.xp.asarray, stored_index))] = x[
            (..., *map(device.xp.asarray, is_inside))
        ]
        return result

    return run


def _matrix_set_diag_v3(node: Node, device: Device) -> KernelFunction:
    align = node.attrs.get("align", "LEFT_LEFT")

    def run(x: Any, diagonal: Any, k: Any) -> Any:
        _check_rank(x, 2, "input")
        rows, columns = x.shape[-2:]
        is_inside, stored_index, shape = _diagonal_indices(rows, columns, k, align)
        if diagonal.shape != (*x.shape[:-2], *shape):
            raise errors.InvalidArgumentError(
                f"the diagonal must have shape {[*x.shape[:-2], *shape]}, got "
                f"{list(diagonal.shape)}"
            )
        result = _filled_array(device, x.shape, x)
        result[(..., *map(device.xp.asarray, is_inside))] = _add_row_axis(diagonal, shape)[
            (..., *map(device.xp.asarray, stored_index))
        ]
        return result

    return run


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
    kernel(_op, device=ARRAY_DEVICE)(_kernel_factory(_function))
for _version in ("V2", "V3"):
    kernel("MatrixDiag" + _version, device=ARRAY_DEVICE, host=("k", "num_rows", "num_cols"))(
        _matrix_diag_v3
    )
    kernel("MatrixDiagPart" + _version, device=ARRAY_DEVICE, host=("k",))(_matrix_diag_part_v3)
    kernel("MatrixSetDiag" + _version, device=ARRAY_DEVICE, host=("k",))(_matrix_set_diag_v3)
kernel("MatrixBandPart", device=ARRAY_DEVICE, host=("num_lower", "num_upper"))(
    _kernel_factory(_band_part)
)
