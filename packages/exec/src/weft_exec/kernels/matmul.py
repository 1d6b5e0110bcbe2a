"""Kernels of matrix products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import (
    LARGE,
    NARROW,
    adjoint,
    as_exact,
    new_array,
    static_bytes,
)
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("MatMul", device=ARRAY_DEVICE, heavy=True)
def _matmul(node: Node, device: Device) -> KernelFunction:
    ta, tb = node.attrs["transpose_a"], node.attrs["transpose_b"]
    dtype = node.outputs[0].dtype
    if dtype in NARROW:
        return _narrow_matmul(node, device)
    size = static_bytes(node.outputs[0])
    small = size is not None and size <= LARGE
    empty, element = device.empty, dtype.numpy
    limit = LARGE // element.itemsize
    matmul = device.matmul

    def run(a: Any, b: Any) -> Any:
        if ta:
            a = a.T
        if tb:
            b = b.T
        if small:
            return matmul(a, b)
        if a.ndim != 2 or b.ndim != 2:
            raise _shape_error(a, b)
        shape = (a.shape[0], b.shape[1])
        if shape[0] * shape[1] <= limit:
            return matmul(a, b)
        return matmul(a, b, out=empty(shape, element))

    return run


def _shape_error(a: Any, b: Any) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"MatMul requires two matrices with equal inner sizes, got shapes {list(a.shape)} and "
        f"{list(b.shape)}"
    )


def _narrow_matmul(node: Node, device: Device) -> KernelFunction:
    ta, tb = node.attrs["transpose_a"], node.attrs["transpose_b"]
    dtype = node.outputs[0].dtype.numpy

    def run(a: Any, b: Any) -> Any:
        if a.ndim != 2 or b.ndim != 2:
            raise _shape_error(a, b)
        x, y = a.astype(np.float32), b.astype(np.float32)
        return as_exact(device.matmul(x.T if ta else x, y.T if tb else y), dtype, device)

    return run


@kernel("BatchMatMul", "BatchMatMulV2", device=ARRAY_DEVICE, heavy=True)
def _batch_matmul(node: Node, device: Device) -> KernelFunction:
    adj_x, adj_y = node.attrs["adj_x"], node.attrs["adj_y"]
    dtype = node.outputs[0].dtype
    xp, narrow = device.xp, dtype in NARROW
    element, matmul = dtype.numpy, device.matmul

    def run(x: Any, y: Any) -> Any:
        if narrow:
            x, y = x.astype(np.float32), y.astype(np.float32)
        if adj_x:
            x = adjoint(xp, x)
        if adj_y:
            y = adjoint(xp, y)
        if narrow:
            return as_exact(matmul(x, y), element, device)
        lead = x.shape[:-2]
        if y.ndim == 2 and x.ndim > 2 and x.flags.c_contiguous:  # one product, not one each
            rows = math.prod(x.shape[:-1])
            array = new_array(device, (rows, y.shape[-1]), element)
            matmul(x.reshape(rows, x.shape[-1]), y, out=array)
            return array.reshape(*x.shape[:-1], y.shape[-1])
        if lead != y.shape[:-2]:
            lead = np.broadcast_shapes(lead, y.shape[:-2])
        result = new_array(device, (*lead, x.shape[-2], y.shape[-1]), element)
        return matmul(x, y, out=result)

    return run


@kernel("Cross", device=ARRAY_DEVICE)
def _cross(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(a: Any, b: Any) -> Any:
        x, y, z = (a[..., i] for i in range(3))
        u, v, w = (b[..., i] for i in range(3))
        product = xp.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=-1)
        return as_exact(product, dtype, device)

    return run
