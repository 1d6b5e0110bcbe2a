"""CPU kernels of changes of element type and of the parts of complex numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import (
    LARGE,
    broadcast_shape,
    new_array,
    static_bytes,
    unary,
)
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import dtypes, errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("Cast", alias=True)
def _cast(node: Node, device: Device) -> KernelFunction:
    source, target = node.attrs["SrcT"], node.attrs["DstT"]
    if source is target:
        return lambda x: x
    dtype = target.numpy
    if source.is_complex and target.is_bool:
        return lambda x: x != 0
    drop_imaginary = source.is_complex and not target.is_complex
    if drop_imaginary and target is dtypes.bfloat16:
        return lambda x: x.real.astype(np.float32).astype(dtype)
    size = static_bytes(node.outputs[0])
    if size is not None and size <= LARGE and not drop_imaginary:
        return lambda x: x.astype(dtype)

    def run(x: Any) -> Any:
        if drop_imaginary:
            x = x.real
        if x.size * dtype.itemsize <= LARGE:
            return x.astype(dtype)
        result = device.empty(x.shape, dtype)
        np.copyto(result, x, casting="unsafe")
        return result

    return run


@kernel("Bitcast", alias=True)
def _bitcast(node: Node, device: Device) -> KernelFunction:
    source, target = node.inputs[0].dtype.base_dtype, node.attrs["type"]
    dtype = target.numpy

    def run(x: Any) -> Any:
        array = np.ascontiguousarray(x).reshape(x.shape)
        if source.size == target.size:
            return array.view(dtype)
        if source.size > target.size:
            ratio = source.size // target.size
            return array.reshape(-1).view(dtype).reshape(*array.shape, ratio)
        ratio = target.size // source.size
        if array.ndim == 0 or array.shape[-1] != ratio:
            raise errors.InvalidArgumentError(
                f"a bitcast from {source.name} to {target.name} requires a last axis of size "
                f"{ratio}, got shape {list(array.shape)}"
            )
        return array.reshape(-1).view(dtype).reshape(array.shape[:-1])

    return run


@kernel("Complex")
def _complex(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(real: Any, imag: Any) -> Any:
        result = new_array(device, broadcast_shape(real, imag), dtype)
        result.real = real
        result.imag = imag
        return result

    return run


kernel("Real", device=ARRAY_DEVICE, alias=True)(lambda node, device: lambda x: x.real)
kernel("Imag", device=ARRAY_DEVICE, alias=True)(lambda node, device: lambda x: x.imag)
kernel("Angle")(lambda node, device: np.angle)
kernel("Conj")(unary(np.conjugate))
kernel("ComplexAbs")(unary(np.absolute))
